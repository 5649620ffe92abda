"""The timeline of a report: what happened, what was checked and changed, and what will come."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from eoctl.render.columns.change import own_words
from recovery.change.journal_rows import JournalEventRow
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.diagnose.why_rows import WhyRow
from recovery.values import Value

Kind = Literal["log", "look", "change", "ahead"]
"""log: as the cluster recorded it. ahead: after what was seen last."""

MOST = 200
_EVENTS = {
    "begun": "begins",
    "step-done": "done",
    "step-refused": "refused",
    "verified": "has ended",
}


class Moment(Value):
    """One thing on the timeline. at: epoch ms; clock: the machine whose clock gave it."""

    at: int
    kind: Kind
    text: str
    clock: str


def moments(
    rows: Sequence[WhyRow],
    looks: Iterable[tuple[int, str]],
    events: Iterable[JournalEventRow],
) -> list[Moment]:
    """Return the events that have a time, oldest first.

    looks: the snapshots' times by our clock, each with a sentence.
    """
    found = [Moment(at, "look", said, "our clock") for at, said in looks]
    for row in rows:
        found += _of_row(row)
    for e in events:
        if e.event != "step-started":
            found.append(Moment(e.at or 0, "change", _event(e), "the acting host's clock"))
    return sorted(dict.fromkeys(found), key=lambda m: m.at)


def _event(e: JournalEventRow) -> str:
    """Return an event in words."""
    word = _EVENTS.get(e.event, e.event)
    head = f"{e.id} {word}" if e.step is None else f"{e.id}: {e.target}, step {e.step}, {word}"
    said = own_words(e)
    return f"{head}: {said}" if said else head


def _of_row(row: WhyRow) -> Iterator[Moment]:
    for h in (row.held_by, *row.others):
        if h is not None:
            yield from _of_transaction(h)
    for record in row.history:
        if record.timestamp is not None:
            state = "forgotten" if record.tombstone else record.state or "not understood"
            epoch = "" if record.producer_epoch is None else f", epoch {record.producer_epoch}"
            said = f"{record.transactional_id}: {state}{epoch}"
            yield Moment(record.timestamp, "log", said, "its coordinator's clock")
    wait = row.if_you_wait
    if wait is not None and wait.deleted_at is not None:
        said = f"{row.where}: retention would delete the first record that waits"
        yield Moment(wait.deleted_at, "ahead", said, "the records' times")


def _of_transaction(h: TxnHangingRow) -> Iterator[Moment]:
    name = h.transactional_id or f"pid {h.producer_id}"
    if h.start_timestamp is not None:
        yield Moment(
            h.start_timestamp, "log", f"{name}: its transaction began", "its coordinator's clock"
        )
    if h.last_timestamp is not None:
        said = f"{h.where}: last record of pid {h.producer_id}"
        yield Moment(h.last_timestamp, "log", said, "the producer's clock")
    if h.ends_at is not None:
        yield Moment(
            h.ends_at, "ahead", f"{name}: its coordinator would abort it", "its coordinator's clock"
        )
