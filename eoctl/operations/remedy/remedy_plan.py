"""An operator's request for a transaction, and the plan that every remedy becomes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose.ids import judge_ids
from eoctl.operations.diagnose.live import Held, Live
from eoctl.render.ends import if_known_words
from eoctl.render.verdicts.evidence_words import evidence_words
from eoctl.render.verdicts.remedy_words import remedy_words
from recovery.change.plan import Plan
from recovery.diagnose.diagnosis import Judged
from recovery.diagnose.diagnosis_rows import Action
from recovery.diagnose.id_verdicts import IdVerdict
from recovery.diagnose.verdicts import Verdict
from recovery.diagnose.waiting_records import Waiting
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnverifiedError
from recovery.facts import PartitionFacts, TransactionFacts
from recovery.inspect.observation import Settings
from recovery.plurals import counted
from recovery.remedy.ends import ends_of, way_out
from recovery.remedy.life import looks, unseen_looks
from recovery.values import Reason, Value

NOT_JUDGED = "id-not-described"
"""The rule of an `unknown` id whose coordinator did not say enough of it."""


class RemedyRequest(Value):
    """The operator's request. outcome, and the two acceptances: for resolve and fence.

    source: the context of the cluster whose decision a resolve copies; None = this cluster's own.
    source_topic: there; None = it has the same name.
    """

    action: Action
    partition: str | None = None  # orders:3
    producer_id: int | None = None
    start_offset: int | None = None
    transactional_id: str | None = None
    producer_epoch: int | None = None
    outcome: str | None = None
    owner_is_gone: bool = False
    is_stopped: bool = False  # its group has no members: a fence may come within the limits
    without_proof: bool = False
    source: str | None = None
    source_topic: str | None = None


class Planned(Value):
    """A plan, or why there is nothing to do: `done` says how the transaction ended."""

    plan: Plan | None
    done: str | None = None


def is_for(plan: Plan, request: RemedyRequest) -> bool:
    """Return True if a plan does what is requested now, for the same transaction."""
    step = plan.steps[-1]  # the marker, or the only step of a fence
    p = step.parameters
    if request.action == "fence":
        return step.target == request.transactional_id and (
            (request.producer_id in (None, p["producer_id"]))
            and request.producer_epoch in (None, p["producer_epoch"])
            and request.owner_is_gone == p.get("owner_is_gone", False)
            and request.is_stopped == p.get("is_stopped", False)
        )
    return (
        p["producer_id"],
        p["start_offset"],
        p["outcome"],
        p.get("owner_is_gone", False),
    ) == (
        request.producer_id,
        request.start_offset,
        request.outcome or "abort",
        request.owner_is_gone,
    )


def judged_with(
    settings: Settings, pause: float, left_out: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return a remedy's details: the limits that it was judged with, to be used again before it.

    left_out: what was checked and has no step, with its reason.
    """
    return {
        "left_out": list(left_out),
        "sample_interval_ms": round(pause * 1000),
        "long_after_ms": settings.long_after,
        "stuck_after_ms": settings.stuck_after,
        "clock_skew_ms": settings.clock_skew,
    }


def refusal(
    judged: Judged, why: Reason, transaction_version: int, where: str | None = None
) -> EoctlError:
    """Return the error for a remedy that its verdict forbids. why: what `remedy_allowed` says.

    transaction_version: the cluster's. where: what the remedy is for, if that is not the partition
    that the sentence names. The error names what is accepted from whoever knows more.

    IncompleteError for `unknown`: it says what could not be judged, and what would settle it.
    """
    verdict, sentence = judged.verdict, remedy_words(why)
    kind = "mixed" if verdict.mixed else verdict.name
    way = way_out(kind, ends_of(judged, transaction_version))
    remedy = None if way is None else if_known_words(way)
    if verdict.name != "unknown":
        return RefusedError(sentence, where=where, remedy=remedy)
    reasons = [evidence_words(e) for e in verdict.evidence if e.code == verdict.rule]
    sentence += f" ({reasons[0]})" if reasons else ""
    return IncompleteError(sentence, where=where, remedy=remedy)


def ensure_held_first(ensure_held: Callable[[], None], where: str) -> None:
    """Check the lock before the first request. Raises RefusedError: nothing was sent."""
    try:
        ensure_held()
    except UnverifiedError as error:
        raise RefusedError(
            f"{error.what}; nothing was sent", where=where, remedy="look again, then run it again"
        ) from None


class Counts:
    """What waits on the partitions of one plan, each partition read once for all its producers."""

    MOST_BYTES = 4 << 20
    """Of a partition whose batches are kept."""

    def __init__(self, cluster: Cluster) -> None:
        self._live = Live(cluster)
        self._read: dict[tuple[object, ...], asyncio.Task[Held | None]] = {}

    async def waiting(self, p: PartitionFacts, producer_id: int | None) -> Waiting | None:
        """Count what waits on a partition; None if that could not be read."""
        key = (p.topic, p.partition, p.last_stable_offset, p.high_watermark)
        task = self._read.get(key)
        if task is None:
            task = self._read[key] = asyncio.create_task(self._live.held(p))
        held = await task
        if held is not None and sum(map(len, held.buffers)) > self.MOST_BYTES:
            self._read.pop(key, None)
        return None if held is None else held.waiting(producer_id)


async def step_evidence(
    cluster: Cluster, judged: Judged, outcome: str, counts: Counts | None = None
) -> dict[str, Any]:
    """Return a step's evidence for plan and journal. outcome: the end that the step gives it.

    counts: for a plan of many; None = this partition is read for this step alone.

    records, dropped, freed: data records of the transaction on this partition, and how many of them
    and of those waiting after them are dropped or freed; None if not counted. bytes: of the
    transaction's batches in the log. counted_whole: false = at least this many. start_offset: of
    its first record on this partition. looks: its producer's positions in two checks, None = there
    was one; groups_held: those whose offsets it holds.
    """
    verdict, about = judged.verdict, judged.about
    reading = Counts(cluster) if counts is None else counts
    counted = await reading.waiting(judged.partition, about.producer_id)
    dropped = freed = None
    if counted is not None:
        abort = outcome == "abort"
        dropped = counted.mine if abort else 0
        freed = counted.freed if abort else counted.mine + counted.freed
    return {
        "transactional_id": verdict.owner.transactional_id if verdict.owner else judged.only_id,
        "partition": about.name,
        "producer_id": about.producer_id,
        "start_offset": about.start_offset,
        "verdict": verdict.name,
        "rule": verdict.rule,
        "evidence": _evidence(verdict),
        "records": None if counted is None else counted.mine,
        "dropped": dropped,
        "freed": freed,
        "bytes": None if counted is None else counted.mine_bytes,
        "counted_whole": counted is not None and counted.complete,
        "looks": _looks(judged),
        "groups_held": sorted(judged.start.groups) if judged.start else [],
    }


def _looks(judged: Judged) -> dict[str, Any] | None:
    if judged.second is None or judged.about.producer_id is None:
        return None
    pid, first, second = judged.about.producer_id, judged.first, judged.second
    if first.producers is None or second.producers is None:
        return unseen_looks()
    apart_ms = max(0, second.collected_at - first.collected_at)
    return looks(first.producer(pid), second.producer(pid), apart_ms)


def exact(value: Any) -> Any:
    """Return the value as a plan can hold it: numbers that are not whole as text."""
    if isinstance(value, Mapping):
        return {str(key): exact(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [exact(part) for part in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() else str(value)
    return value


async def told_of_id(
    cluster: Cluster, row: TransactionFacts, settings: Settings, interval: float
) -> list[dict[str, Any]]:
    """Return the evidence of a step on an id that holds no partition, for plan and journal.

    If it could not be judged, the verdict is `unknown`, and the missing facts are its evidence.
    """
    name = row.transactional_id
    judged_ids = await judge_ids(cluster, (), settings, pause=interval, only=name)
    verdicts = [(j.verdict.name, j.verdict.rule, _evidence(j.verdict)) for j in judged_ids.ids]
    if not verdicts:
        reasons = [m.detail for m in judged_ids.missing]
        rule, text = NOT_JUDGED, "; ".join(reasons) or "its coordinator no longer lists it as open"
        verdicts = [("unknown", rule, [{"code": rule, "text": text, "data": {}}])]
    return [told_without_partition(row, *verdict) for verdict in verdicts]


def told_without_partition(
    row: TransactionFacts, verdict: str, rule: str, evidence: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return a step's evidence for an id with no record held, dropped or freed."""
    return {
        "transactional_id": row.transactional_id,
        "partition": None,
        "producer_id": row.producer_id,
        "verdict": verdict,
        "rule": rule,
        "evidence": evidence,
        "dropped": 0,
        "freed": 0,
        "counted_whole": True,
    }


def _evidence(verdict: Verdict | IdVerdict) -> list[dict[str, Any]]:
    return [
        {"code": e.code, "text": evidence_words(e), "data": exact(e.data)} for e in verdict.evidence
    ]


def amounts(about: Mapping[str, Any]) -> str:
    """Return `3 records dropped, 4 freed`, `2 records delivered`, or what is known of that."""
    if about["dropped"] is None:
        return "records not counted"
    least = "" if about["counted_whole"] else "at least "
    if (mine := about.get("records")) and not about["dropped"]:
        others = about["freed"] - mine
        freed = f", {counted(others, 'other')} freed" if others else ""
        return f"{least}{counted(mine, 'record')} delivered{freed}"
    dropped = (
        f"{counted(about['dropped'], 'record')} dropped" if about["dropped"] else "none dropped"
    )
    return f"{least}{dropped}, {least}{about['freed']} freed"
