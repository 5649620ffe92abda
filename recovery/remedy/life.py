"""Note in a plan what is known about the owners whose transactions it ends: writes, members.

A plan's rows (`about` of a step) hold this in `looks` and `members`. Plans of earlier versions
have neither.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from recovery.change.plan import Plan, Step
from recovery.facts import ProducerFacts, TransactionFacts
from recovery.formats.batches import MAX_SEQUENCE
from recovery.plurals import counted
from recovery.times import format_duration

WRITES = "which-writes"
"""The end of the typed word of a plan whose owner writes."""


def looks(
    first: ProducerFacts | None, second: ProducerFacts | None, apart_ms: int
) -> dict[str, Any]:
    """Return what a producer did on a partition between two samples, for a plan's row.

    wrote: it wrote, or began or ended a transaction. records: how many; None = not counted, since
    its sequences began again. apart_ms: between the samples. last: its position in the second one.
    """
    states = [position(p) for p in (first, second)]
    records: int | None = None
    if states[0] == states[1]:
        records = 0
    elif first is not None and second is not None:
        before, after = first.last_sequence, second.last_sequence
        if first.producer_epoch == second.producer_epoch and None not in (before, after):
            assert before is not None
            assert after is not None
            records = (after - before) & MAX_SEQUENCE
    wrote = states[0] != states[1]
    return {"apart_ms": apart_ms, "wrote": wrote, "records": records, "last": states[1]}


def looks_at_id(
    first: TransactionFacts | None, second: TransactionFacts | None, apart_ms: int
) -> dict[str, Any]:
    """Return what an id that holds no partition did between two samples, for a plan's row.

    Its records are not counted. first, second: None = the coordinator did not describe the id.
    """
    if first is None or second is None:
        return unseen_looks()
    states = [id_position(t) for t in (first, second)]
    wrote = states[0] != states[1]
    records = None if wrote else 0
    return {"apart_ms": apart_ms, "wrote": wrote, "records": records, "last": states[1]}


def position(p: ProducerFacts | None) -> list[int | None] | None:
    """Return a producer's progress on a partition, for a plan; None = unknown to the leader."""
    if p is None:
        return None
    return [p.producer_epoch, p.last_sequence, p.current_txn_start_offset, p.last_timestamp]


def id_position(t: TransactionFacts) -> list[int | str | None]:
    """Return an id's progress, for a plan: each transaction changes it."""
    return [t.state, t.producer_id, t.producer_epoch, t.start_timestamp]


def unseen_looks() -> dict[str, Any]:
    """Return the row for a partition or an id that did not answer twice."""
    return {"apart_ms": None, "wrote": None, "records": None}


def writing(plan: Plan) -> list[Step]:
    """Return the steps whose owners wrote between two samples, or could not be sampled twice."""
    return [step for step in plan.steps if writes(step)]


def writes(step: Step) -> bool:
    """Return True if the step's owner wrote between two samples or could not be sampled twice."""
    return any(row["wrote"] is not False for row in _looks(step))


def _looks(step: Step) -> list[Mapping[str, Any]]:
    return [row["looks"] for row in _looked_at(step)]


def _looked_at(step: Step) -> list[Mapping[str, Any]]:
    return [row for row in step.about if row.get("looks") is not None]


def warning(step: Step) -> str:
    """Return the sentence that precedes everything else about a step whose owner writes."""
    rows = _looks(step)
    wrote = [row for row in rows if row["wrote"]]
    name = next((r["transactional_id"] for r in step.about if r["transactional_id"]), step.target)
    if not wrote:
        return f"Whether the owner of {name} writes could not be seen: its partition answered once."
    apart = format_duration(max(row["apart_ms"] for row in wrote) / 1000)
    counts = [row["records"] for row in wrote]
    total = sum(count or 0 for count in counts)
    what = f"{total:,} {'RECORD' if total == 1 else 'RECORDS'} " if total else ""
    least = "AT LEAST " if what and None in counts else ""
    on_partitions = any(r["partition"] is not None for r in _looked_at(step) if r["looks"]["wrote"])
    did = "WROTE" if on_partitions else "WENT ON"
    return f"IT {did} {least}{what}BETWEEN TWO LOOKS, {apart} apart: the owner of {name} lives."


def looks_words(row: Mapping[str, Any]) -> str:
    """Say for one row whether its producer wrote between the samples."""
    found = row["looks"]
    if found["wrote"] is None:
        return "could not be taken: the partition answered once"
    apart = format_duration(found["apart_ms"] / 1000)
    if not found["wrote"]:
        return f"nothing was written between two, {apart} apart"
    if found["records"] is None:
        return f"it went on between two, {apart} apart: records not counted"
    return f"{counted(found['records'], 'record')} written between two, {apart} apart"


def members_words(rows: Iterable[Mapping[str, Any]]) -> str:
    """Say which members the owner's groups have, or that they could not be seen."""
    here = list(rows)
    names = list(
        dict.fromkeys(
            f"{m['client']} at {m['host']} ({m['group']})" for row in here for m in row["members"]
        )
    )
    more = sum(row["members_more"] for row in here)
    unseen = next((row["members_unseen"] for row in here if row["members_unseen"]), None)
    if names:
        text = ", ".join(names) + (f" and {more} more" if more else "")
    else:
        text = "its groups have none" if unseen is None else "unknown"
    return text if unseen is None else f"{text}; not seen: {unseen}"
