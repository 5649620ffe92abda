"""Judge each transaction that a Flink checkpoint promises: committed, open, lost or unknown.

A committable is (transactional id, producer id, producer epoch). Flink's sink calls
initTransactions for each transaction, so producer id and epoch identify a single one. Two sources
are compared and must not contradict each other: the records of `__transaction_state`, and the
markers after the transaction's records in the logs.

How a record of `__transaction_state` shows the end of epoch E of a producer id (docs/verdicts.md):
EndTxn of clients with transactions v1 leaves the epoch as it is, so the end carries E; v2 clients,
fences and timeouts raise it, so their end carries E + 1 and version 2. A record of E with
version 2 is the end of the transaction before. An abort at E + 1 without version 2 may belong to
a later transaction: only the logs can decide.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from recovery.facts import TopicPartition, TransactionFacts
from recovery.formats.flink_checkpoint import Committable, FlinkCheckpoint
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateRecord
from recovery.times import span
from recovery.values import Value

Fate = Literal["committed", "open", "lost", "unknown"]

_ENDS = {
    TransactionState.PREPARE_COMMIT: "commit",
    TransactionState.COMPLETE_COMMIT: "commit",
    TransactionState.PREPARE_ABORT: "abort",
    TransactionState.COMPLETE_ABORT: "abort",
}
UNFINISHED = ("Ongoing", "PrepareCommit", "PrepareAbort")
_COMMITS = ("PrepareCommit", "CompleteCommit")
_ID = re.compile(r"(.+)-(\d+)-(\d+)", re.DOTALL)


class Recorded(Value):
    """The records of `__transaction_state` about one transaction.

    outcome: `commit`, `abort`, or None = no record of its end. at: when that was recorded (ms, by
    the broker's clock). by_timeout: the abort carries a raised epoch, so a timeout or a fence
    decided it and not its producer's EndTxn. partitions: all that any of its records names.
    """

    outcome: str | None = None
    at: int | None = None
    by_timeout: bool = False
    partitions: tuple[TopicPartition, ...] = ()


def recorded(records: Iterable[StateRecord], one: Committable) -> Recorded:
    """Return what the records of its id say about a committable. records: in the order written."""
    outcome, at, raised = None, None, False
    partitions: dict[TopicPartition, None] = {}
    for record in records:
        v = record.value
        if record.transactional_id != one.transactional_id or not isinstance(v, TransactionValue):
            continue
        if v.producer_id != one.producer_id:
            continue
        above = v.producer_epoch - one.producer_epoch
        v2 = v.client_transaction_version >= 2
        ends = v.state in _ENDS
        if above == (int(v2) if ends else 0):  # else of the transaction before or after
            partitions |= dict.fromkeys(v.partitions)
        if ends and above == int(v2):
            outcome, at, raised = _ENDS[v.state], at or record.timestamp, v2
    return Recorded(outcome, at, raised and outcome == "abort", tuple(partitions))


class Judgement(Value):
    """fate: the result; rule: the rule that gave it (a stable code); detail: one sentence."""

    fate: Fate
    rule: str
    detail: str


def judge(
    one: Committable,
    now: TransactionFacts | None,
    past: Recorded,
    markers: Collection[str | None],
    *,
    history_read: bool,
    logs_read: bool,
) -> Judgement:
    """Judge one committable.

    now: its id as the coordinator describes it; None = unknown there. markers: the outcome after
    its records, for each partition that has any (None = no marker yet). history_read, logs_read:
    all of `__transaction_state`, and all partitions that it may have written to, were read.
    """
    if (
        now is not None
        and (now.producer_id, now.producer_epoch) == (one.producer_id, one.producer_epoch)
        and now.state == "Ongoing"
    ):
        return Judgement("open", "ongoing", "prepared, and neither committed nor aborted")
    outcomes = {*markers, past.outcome} - {None}
    if len(outcomes) > 1:
        return Judgement(
            "unknown",
            "witnesses-differ",
            "its coordinator and the markers in the logs show different outcomes: see `eoctl why`",
        )
    if "commit" in outcomes:
        source = "its coordinator recorded it" if past.outcome else "its markers are in the logs"
        return Judgement("committed", "decided" if past.outcome else "markers", source)
    if "abort" in outcomes:
        if past.by_timeout:
            return Judgement("lost", "past-timeout", "aborted by its timeout or by a fence")
        return Judgement("lost", "aborted", "aborted")
    if not history_read or not logs_read:
        return Judgement(
            "unknown",
            "not-seen",
            "its coordinator's records or the logs could not be read: see the errors",
        )
    if now is None:
        return Judgement(
            "unknown",
            "id-expired",
            "no coordinator knows its id any more, and no record of it was found: check that "
            "this is the cluster of the checkpoint, and name the sink's topics with --topic",
        )
    return Judgement(
        "unknown",
        "no-record",
        f"its id is {now.state} with producer id {now.producer_id} epoch {now.producer_epoch}, and "
        "no record of this transaction was found: name the sink's topics with --topic, so that "
        "its markers are looked for there",
    )


def prefixes(content: FlinkCheckpoint) -> tuple[str, ...]:
    """Return the sinks' prefixes, from their writers' states, else from the committables' ids."""
    named = {m[1] for c in content.committables if (m := _ID.fullmatch(c.transactional_id))}
    return content.prefixes or tuple(sorted(named))


def family(rows: Sequence[TransactionFacts], content: FlinkCheckpoint) -> list[TransactionFacts]:
    """Return the ids named like those of the checkpoint's sinks: PREFIX-subtask-number.

    A name proves nothing: another application may use the same form.
    """
    known = set(prefixes(content))
    return [t for t in rows if (m := _ID.fullmatch(t.transactional_id)) and m[1] in known]


def rest(rows: Sequence[TransactionFacts], content: FlinkCheckpoint) -> list[TransactionFacts]:
    """Return the sinks' ids with an unfinished transaction that is not in the checkpoint.

    rows: described, with their epochs.
    """
    listed = {c[:3] for c in content.committables}
    return [
        t
        for t in family(rows, content)
        if t.state in UNFINISHED
        and (t.transactional_id, t.producer_id, t.producer_epoch) not in listed
    ]


def later_commits(rows: Sequence[TransactionFacts], content: FlinkCheckpoint) -> tuple[int, ...]:
    """Return the numbers of later checkpoints that Kafka proves, since their ids were committed.

    Only sinks that number their ids by checkpoint (INCREMENTING) count: POOLING shows no numbers.
    """
    naming: Mapping[str, str] = {w.prefix: w.naming for w in content.writers}
    found = set()
    for t in rows:
        match = _ID.fullmatch(t.transactional_id)
        if match is None or t.state not in _COMMITS:
            continue
        if naming.get(match[1]) == "INCREMENTING" and int(match[3]) > content.checkpoint_id:
            found.add(int(match[3]))
    return tuple(sorted(found))


class Claims(Value):
    """What the operator asserts and Kafka does not know. is_newest: no later checkpoint was
    completed; job_is_dead: no process of the job runs."""

    is_newest: bool = False
    job_is_dead: bool = False


class Quiet(Value):
    """How long no transaction of the sinks has begun, and the interval between starts before (ms).

    rhythm: None = unknown: none began after the checkpoint, or a coordinator's clock is unknown.
    """

    quiet: int
    rhythm: int | None


def quiet_for(
    promised: Sequence[TransactionFacts],
    others: Sequence[TransactionFacts],
    now: int,
    ahead: Mapping[int, int],
) -> Quiet:
    """Return how long the sinks have been quiet, by their coordinators' clocks.

    A sink begins a transaction after each checkpoint, so those of this checkpoint began one
    interval before the others. now: our clock; ahead: how far each coordinator is ahead, ms.
    """
    starts = [t.start_timestamp for t in promised if t.start_timestamp is not None]
    later = [t.start_timestamp for t in others if t.start_timestamp is not None]
    rows = [*promised, *others]
    clock = now + min((ahead.get(t.coordinator, 0) for t in rows), default=0)
    last = max([*starts, *later], default=clock)
    known = starts and later and all(t.coordinator in ahead for t in rows)
    rhythm = max(later) - min(starts) if known else None
    return Quiet(clock - last, rhythm)


def refused(
    content: FlinkCheckpoint,
    *,
    is_savepoint: bool,
    newer_in_folder: Sequence[int],
    newer_in_kafka: Sequence[int],
    quiet: Quiet,
    claims: Claims,
) -> tuple[str, str] | None:
    """Say why the transactions of a checkpoint may not be committed from here, and what to do."""
    if newer_in_folder:
        return (
            f"checkpoint {newer_in_folder[-1]} lies beside it, and Flink restores from the newest",
            "name that one",
        )
    if newer_in_kafka:
        return (
            (
                f"transactions of checkpoint {newer_in_kafka[-1]} are committed: a later one was "
                "completed"
            ),
            "name that one",
        )
    if not claims.is_newest:
        named = {w.prefix for w in content.writers}
        if is_savepoint:
            return "it is a savepoint: Kafka cannot tell whether it is the newest", _NEWEST
        if not named or any(w.naming != "INCREMENTING" for w in content.writers):
            return (
                (
                    "its ids carry no number of a checkpoint (POOLING): Kafka cannot tell if a "
                    "later one was completed"
                ),
                _NEWEST,
            )
    if not claims.job_is_dead:
        if quiet.rhythm is None:
            return (
                "nothing began after it, or a coordinator's clock is unknown: the job may live",
                "if no process of it runs: --job-is-dead",
            )
        if quiet.quiet < 2 * quiet.rhythm:
            return (
                (
                    f"its sinks began a transaction {span(quiet.quiet)} ago, and one every "
                    f"{span(quiet.rhythm)} before: the job may live"
                ),
                (
                    f"wait until {span(2 * quiet.rhythm)} have passed; if no process of it "
                    "runs: --job-is-dead"
                ),
            )
    return None


_NEWEST = "if it is, and the job will be restored from it or never: --is-newest"
