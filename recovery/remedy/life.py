"""What a plan knows of the owners whose transactions it ends: do they write, who are they.

A plan's rows (`about` of a step) hold it under `looks` and `members`. Plans of earlier versions
have neither.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from recovery.change.plan import Plan, Step
from recovery.facts import ProducerFacts
from recovery.formats.batches import MAX_SEQUENCE
from recovery.plurals import counted
from recovery.times import format_duration

WRITES = "which-writes"
"""Ends the typed word of a plan whose owner writes."""


def looks(
    first: ProducerFacts | None, second: ProducerFacts | None, apart_ms: int
) -> dict[str, Any]:
    """Return what a producer did on a partition between two looks, for a plan's row.

    wrote: it wrote, or began or ended a transaction. records: how many; None = not counted, since
    its sequences began again. apart_ms: between the looks.
    """
    states = [
        p and (p.producer_epoch, p.last_sequence, p.current_txn_start_offset, p.last_timestamp)
        for p in (first, second)
    ]
    records: int | None = None
    if states[0] == states[1]:
        records = 0
    elif first is not None and second is not None:
        before, after = first.last_sequence, second.last_sequence
        if first.producer_epoch == second.producer_epoch and None not in (before, after):
            assert before is not None
            assert after is not None
            records = (after - before) & MAX_SEQUENCE
    return {"apart_ms": apart_ms, "wrote": states[0] != states[1], "records": records}


def unseen_looks() -> dict[str, Any]:
    """Return the same of a partition that did not answer twice."""
    return {"apart_ms": None, "wrote": None, "records": None}


def writing(plan: Plan) -> list[Step]:
    """Return the steps whose owners wrote between two looks, or could not be looked at twice."""
    return [step for step in plan.steps if any(row["wrote"] is not False for row in _looks(step))]


def _looks(step: Step) -> list[Mapping[str, Any]]:
    return [row["looks"] for row in step.about if row.get("looks") is not None]


def warning(step: Step) -> str:
    """Return the sentence that comes before everything else of a step whose owner writes."""
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
    return f"IT WROTE {least}{what}BETWEEN TWO LOOKS, {apart} apart: the owner of {name} lives."


def looks_words(row: Mapping[str, Any]) -> str:
    """Say of one row whether its producer wrote between the looks."""
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
    """Say which members the groups of an owner have, or that these could not be seen."""
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
