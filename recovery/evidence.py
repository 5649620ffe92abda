"""The reasons for a verdict as plain sentences with their numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recovery.case import Case
from recovery.facts import TransactionFacts


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reason: a stable code for scripts, a sentence for people, its numbers."""

    code: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


def seconds(ms: int) -> str:
    """Milliseconds as seconds, without needless digits."""
    return f"{ms / 1000:g} s"


def about_batch(c: Case) -> list[Evidence]:
    """Whose batch holds the partition."""
    if c.start is None or c.about.producer_id is None:
        return []
    b, at = c.start, c.about
    held = f"; it holds offsets of the groups {', '.join(b.groups)}" if b.groups else ""
    return [
        Evidence(
            "start-batch",
            f"the batch at offset {at.start_offset} of {at.name} is producer id {b.producer_id}, "
            f"epoch {b.producer_epoch}{held}",
            {"producer_id": b.producer_id, "producer_epoch": b.producer_epoch, "groups": b.groups},
        )
    ]


def about_row(c: Case, row: TransactionFacts) -> Evidence:
    """What a coordinator says of an id."""
    names = "names" if c.about.topic_partition in (row.partitions or ()) else "does not name"
    return Evidence(
        "coordinator",
        f"transactional id {row.transactional_id} (coordinator on broker {row.coordinator}) is "
        f"{row.state} with producer id {row.producer_id}, epoch {row.producer_epoch}, and {names} "
        f"{c.about.name}",
        {
            "transactional_id": row.transactional_id,
            "state": row.state,
            "producer_epoch": row.producer_epoch,
            "coordinator": row.coordinator,
        },
    )


def no_owner(c: Case) -> Evidence:
    """How completely the owner was looked for."""
    coordinators = c.newest.transactions.coordinators
    seen = min(sum(x.seen for x in s.transactions.coordinators) for s in c.samples)
    apart = c.newest.collected_at - c.first.collected_at
    twice = f", twice, {seconds(apart)} apart" if c.twice else ", once"
    return Evidence(
        "no-owner",
        f"no coordinator lists producer id {c.about.producer_id} as open on {c.about.name}; "
        f"{seen} of {len(coordinators)} coordinator partitions answered{twice}",
        {"seen": seen, "partitions": len(coordinators), "samples": len(c.samples)},
    )


def about_decisions(c: Case) -> list[Evidence]:
    """The Prepare* records that prove an outcome whose marker is missing."""
    return [
        Evidence(
            "decision",
            f"__transaction_state-{d.state_partition} offset {d.offset}: {d.transactional_id} "
            f"decided {d.outcome} with producer id {d.producer_id}, epoch {d.producer_epoch}, and "
            f"names {c.about.name}; no such marker follows offset {c.about.start_offset}",
            {
                "outcome": d.outcome,
                "producer_epoch": d.producer_epoch,
                "client_version": d.client_version,
                "offset": d.offset,
                "timestamp": d.timestamp,
            },
        )
        for d in c.lost or ()
    ]


def rows_here(c: Case) -> list[Evidence]:
    return [about_row(c, row) for row in c.naming(c.newest)]


def rows_elsewhere(c: Case) -> list[Evidence]:
    return [about_row(c, row) for row in c.elsewhere]


def nobody(c: Case) -> list[Evidence]:
    since = c.history.window if c.history else None
    text = "__transaction_state is whole since before that batch and holds no decision on it"
    return [no_owner(c), *rows_elsewhere(c), Evidence("no-decision", text, {"from_offset": since})]


def running_time(c: Case) -> list[Evidence]:
    row = c.ongoing
    age, clock = c.age
    if row is None or age is None:
        return rows_here(c)
    whose = "its coordinator's clock" if c.newest.over_timeout is not None else "our clock"
    limits = f"its timeout is {seconds(row.timeout_ms or 0)}, long means past " + seconds(
        c.settings.long_after
    )
    text = f"it runs for about {age:g} s ({limits}; compared by {whose})"
    data = {"age_seconds": age, "age_clock": clock, "timeout_ms": row.timeout_ms}
    running = [*rows_here(c), Evidence("running", text, data)]
    if c.nothing_decided_below:
        return running
    why = c.history.reason if c.history else "history-not-read"
    text = "whether an older, decided transaction of the id lies under it is not known: no fence"
    return [*running, Evidence("earlier-unclear", text, {"reason": why or "order-unclear"})]


def markers_due(c: Case) -> list[Evidence]:
    record = c.prepared
    if record is None:
        return [*rows_here(c), Evidence("decided-when", "since when it is decided is not known")]
    age = c.newest.collected_at - record.timestamp
    text = f"decided about {seconds(age)} ago; partitions without a leader that answers: "
    text += ", ".join(c.leaderless) or "none"
    return [*rows_here(c), Evidence("decided-when", text, {"leaderless": c.leaderless})]


def lost(c: Case) -> list[Evidence]:
    return [*about_decisions(c), *rows_here(c), *rows_elsewhere(c)]
