"""Words about what is diagnosed: contested transactional ids, and what waiting leads to."""

from collections.abc import Sequence

from eoctl.render.words import age, spoken_age
from recovery.answers import Answer
from recovery.diagnose.contest import WINDOW_MS, Contests
from recovery.diagnose.diagnosis_rows import ContestRow
from recovery.diagnose.prospect import Prospect
from recovery.plurals import counted
from recovery.quoting import some

_CAUSES = {
    "two-owners": "two owners that fence each other",
    "restarts": "one owner that restarts again and again",
    "raises-its-own-epoch": "a client that raises its own epoch (KIP-360)",
}


MOST_NOTED = 5  # contests, each in a sentence of its own


def contests_of(answer: Answer | None) -> list[ContestRow]:
    """Return the contested ids, as far as they were looked for."""
    return [] if answer is None else answer.extra.get("contests") or []


def contest_notes(rows: Sequence[ContestRow], now: int) -> list[str]:
    """Return a sentence per contested id, and one that names those beyond MOST_NOTED."""
    notes = [
        f"{row.transactional_id} is contested: {contest_words(row, now)}"
        for row in rows[:MOST_NOTED]
    ]
    if others := [row.transactional_id for row in rows[MOST_NOTED:]]:
        ids = counted(len(others), "other id is contested", "other ids are contested")
        notes.append(f"{ids}: {some(others)}")
    return notes


def reading_notes(found: Contests, now: int) -> list[str]:
    """Say what the bounds of a look for contests left out; nothing if they were not reached."""
    ago = None if found.read_from is None else now - found.read_from
    # partitions that were not read to the end are missing, which the answer names itself
    return bound_notes("contested ids", "__transaction_state", ago, 0, window_ms=WINDOW_MS)


def bound_notes(
    subject: str, topic: str, ago: int | None, unfinished: int, *, window_ms: int
) -> list[str]:
    """Say what the bounds of a reading of a topic's newest part left out, if they were reached.

    ago: ms, how far back all partitions were read; None = as far as window_ms. unfinished:
    partitions not read to their end.
    """
    notes = []
    if ago is not None:
        notes.append(
            f"{subject}: only the last {spoken_age(max(0, ago) / 1000)} were read, since "
            f"{topic} has more records of the last {spoken_age(window_ms / 1000)} than are read in "
            "one look"
        )
    if unfinished:
        notes.append(
            f"{subject}: {counted(unfinished, 'partition')} of {topic} not "
            "read to the end within the bytes and the time of one look"
        )
    return notes


def contest_words(row: ContestRow, now: int) -> str:
    """Return what happened, as one sentence. now: epoch ms by our clock."""
    ago = "" if row.until is None else f", last {spoken_age(max(0, now - row.until) / 1000)} ago"
    interval = row.interval_seconds
    often = "more than once a second" if interval < 1 else f"about every {spoken_age(interval)}"
    clients = f"; clients of its group: {some(row.clients)}" if row.clients else ""
    return (
        f"initialised {row.initialisations} times, {often}{ago}, which ended "
        f"{counted(row.aborted, 'open transaction')}: {cause_words(row)}{clients}"
    )


def fence_harm(row: ContestRow, now: int) -> str:
    """Return what a fence does to a contested id. now: epoch ms by our clock."""
    return (
        f"{row.transactional_id} is contested: {contest_words(row, now)}. A fence ends no contest: "
        "its owners go on, and the right one's transaction is aborted too"
    )


def cause_words(row: ContestRow) -> str:
    """Return the causes that the records leave open."""
    causes = [_CAUSES.get(c, c) for c in row.causes]
    if len(causes) == 1:
        seconds = " and ".join(f"{ms / 1000:g} s" for ms in dict.fromkeys(row.timeouts_ms))
        return (
            f"{causes[0]}, with timeouts of {seconds} by turns (one process that is deployed with "
            "them by turns looks the same)"
        )
    return "either " + ", or ".join(causes)


def who_runs(row: ContestRow) -> str:
    """Return the question that tells the causes apart."""
    return (
        f"which processes run with transactional.id {row.transactional_id}? Two: give each an id "
        "of its own. One: its log says why it starts again. A fence ends neither"
    )


def stuck_words(verdict: str) -> str:
    """Return the headline of what a transaction of this verdict does to its partition's readers."""
    return f"{'HELD' if verdict in ('open', 'prepare') else 'STUCK'}  {verdict}"


def lag_words(lag: int | None, lag_hw: int | None) -> str:
    """Return how far a group is from LSO and high watermark; None: it has no offset there."""
    return "no offset" if lag is None else f"lag {lag} to LSO, {lag_hw} to HW"


def wait_words(p: Prospect, now: int) -> str:
    """Return in a sentence what waiting leads to. now: epoch ms by our clock."""
    return "; ".join(part for part in (_ends(p), _deletes(p, now)) if part)


def _ends(p: Prospect) -> str:
    left = None if p.ends_in is None else age(abs(p.ends_in) / 1000)
    due = p.ends_in is not None and p.ends_in < 0
    if p.ending == "never":
        return "it never ends by itself"
    if p.ending == "markers":
        return "it ends when its markers are written"
    if p.ending == "brokers":
        return "it cannot end before missing brokers are back"
    if p.ending == "its-system":
        return "it ends when the system that owns it decides; Kafka never times it out"
    if p.ending == "not-known":
        return "whether it ends by itself is not known"
    if p.ending == "timeout-ignored":
        text = f"its coordinator should have aborted it {left} ago but does not"
    elif left is None:
        text = "its coordinator aborts it after its timeout; when that is, is not known"
    elif due:
        text = f"its coordinator aborts it at any moment (its timeout passed {left} ago)"
    else:
        text = f"its coordinator aborts it in {left}"
    if p.loses == "pre-committed":
        text += ", and records that look pre-committed are lost with it: restore their job before"
    elif p.loses == "committed":
        text += ", and the committed records under it are lost with it"
    return text


def _deletes(p: Prospect, now: int) -> str:
    if p.deletion == "at":
        assert p.deleted_at is not None
        return f"retention deletes the waiting records in {age((p.deleted_at - now) / 1000)}"
    return {
        "may-be-now": "retention may already delete the waiting records",
        "never": "retention never deletes here",
        "compacted": "nothing is deleted by time (compacted topic)",
        "not-known": "the topic's retention is not known",
        "nothing-known-to-wait": "",
    }[p.deletion]
