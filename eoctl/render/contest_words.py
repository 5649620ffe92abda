"""Say of a contested transactional id how often it was initialised, why, and what to ask."""

from eoctl.render.words import spoken_age
from recovery.diagnose.diagnosis_rows import ContestRow
from recovery.plurals import counted

_CAUSES = {
    "two-owners": "two owners that fence each other",
    "restarts": "one owner that restarts again and again",
    "raises-its-own-epoch": "a client that raises its own epoch (KIP-360)",
}


def contest_words(row: ContestRow, now: int) -> str:
    """Return what happened, as one sentence. now: epoch ms by our clock."""
    ago = "" if row.until is None else f", last {spoken_age(max(0, now - row.until) / 1000)} ago"
    every = "less than a second" if row.interval_seconds < 1 else spoken_age(row.interval_seconds)
    return (
        f"initialised {row.initialisations} times, about every {every}{ago}, which ended "
        f"{counted(row.aborted, 'open transaction')}: {cause_words(row)}"
    )


def cause_words(row: ContestRow) -> str:
    """Return the causes that the records leave open."""
    causes = [_CAUSES.get(c, c) for c in row.causes]
    if len(causes) == 1:
        seconds = " and ".join(f"{ms / 1000:g} s" for ms in dict.fromkeys(row.timeouts_ms))
        return f"{causes[0]}, with timeouts of {seconds} by turns"
    return "either " + ", or ".join(causes)


def who_runs(row: ContestRow) -> str:
    """Return the question that tells the causes apart."""
    return (
        f"which processes run with transactional.id {row.transactional_id}? Two: give each an id "
        "of its own. One: its log says why it starts again. A fence ends neither"
    )
