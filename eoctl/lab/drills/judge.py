"""Mark a drill: compare the outcome of each case with the correct one."""

from collections.abc import Mapping, Sequence
from typing import Literal

from eoctl.lab.drills.drill_state import Case
from eoctl.lab.lab_tables import DrillGradeRow, Result
from recovery.plurals import counted
from recovery.values import Value

POINTS: Mapping[Result, int] = {"right": 10, "left": 0, "wrong": -10, "harmful": -30}
MOST = POINTS["right"]
WANTED = {
    "orphan": "abort",
    "dead": "abort",
    "alive": "left alone",
    "others": "left alone",
    "promised": "commit",
    "unpromised": "no commit",
    "lost-commit": "commit",
    "lost-abort": "abort",
    "broker": "back",
    "job": "finished",
    "store": "delivered",
    "copy": "copied once",
}


class Ending(Value):
    """How the log says that a transaction ended. outcome: None while it is open.

    records: how many it wrote there, up to its marker. marker: the marker's offset. unasked: nobody
    but the trainee can have ended it, whose owner had not been asked by then.
    """

    outcome: Literal["commit", "abort"] | None
    records: int
    marker: int | None = None
    unasked: bool = False

    def __str__(self) -> str:
        return "open" if self.outcome is None else f"{self.outcome} at offset {self.marker}"


class Fence(Value):
    """A completed fence, from the journal. after_question: its owner had been asked."""

    after_question: bool


def transaction(case: Case, ending: Ending, fence: Fence | None = None) -> DrillGradeRow:
    """Mark what became of a transaction."""
    done, n = ending.outcome, ending.records
    if case.role == "alive":
        if done == "abort":
            return _row(
                case, ending, "harmful", "its owner is alive and would have committed it", lost=n
            )
        why = "its owner has ended it" if done else "it is its owner's, who still works"
        return _row(case, ending, "right", why)
    if case.role == "others":
        if done is None:
            return _row(case, ending, "right", "its verdict leaves it to others")
        why = f"its verdict leaves it to others, and nothing proved {done}"
        lost, doubled = (n, 0) if done == "abort" else (0, n)
        return _row(case, ending, "harmful", why, lost=lost, doubled=doubled)
    if case.role in ("lost-commit", "lost-abort"):
        decided = "commit" if case.role == "lost-commit" else "abort"
        if done is None:
            why = f"{decided.upper()} was decided; its readers still wait"
            return _row(case, ending, "left", why)
        if done == decided:
            return _row(case, ending, "right", f"the marker is the one that was decided: {decided}")
        why = f"{decided.upper()} was decided, and the marker says {done}"
        lost, doubled = (n, 0) if decided == "commit" else (0, n)
        return _row(case, ending, "harmful", why, lost=lost, doubled=doubled)
    if case.role == "promised" and done != "commit":
        if done is None:
            return _row(case, ending, "left", "its checkpoint promises it, and its time runs out")
        return _row(case, ending, "harmful", "its checkpoint promised these records", lost=n)
    if case.role == "promised":
        return _row(case, ending, "right", "what the checkpoint promises is committed")
    if case.role == "unpromised" and done != "commit":
        return _row(case, ending, "right", "it was begun after the checkpoint, and nobody needs it")
    if done == "commit":
        return _row(case, ending, "harmful", "nobody ever committed these records", doubled=n)
    if done is None:
        return _row(case, ending, "left", "nobody will end it soon, and its readers wait")
    if case.role == "dead" and (ending.unasked or (fence and not fence.after_question)):
        return _row(case, ending, "wrong", "a guess: it was ended without asking its owner")
    if case.role == "dead":
        why = "its owner was asked, then fenced" if fence else "its owner is dead, and it is over"
        return _row(case, ending, "right", why)
    return _row(case, ending, "right", "no owner could end it; its readers go on")


def broker(case: Case, *, gone: bool, ready: bool) -> DrillGradeRow:
    """Mark whether a broker is back. gone: whether it has left yet."""
    if not gone:
        return _row(case, "still there", "left", "the worst is yet to come")
    if ready:
        return _row(case, "ready", "right", "its partitions and coordinators answer again")
    return _row(case, "away", "left", "what it leads or coordinates cannot be judged")


def records(
    case: Case, *, present: int, lost: int, doubled: int, whole: bool, done: str
) -> DrillGradeRow:
    """Mark a topic's content against the correct one.

    present: existing records. whole: none is missing. done: the work, as a participle.
    """
    outcome = counted(present, "record")
    if lost:
        why = f"records are missing: {done} in the wrong place or from the wrong state"
        return _row(case, outcome, "harmful", why, lost=lost, doubled=doubled)
    if doubled:
        return _row(case, outcome, "wrong", "records are there twice", doubled=doubled)
    if not whole:
        return _row(case, outcome, "left", "it is not there yet, or not to its end")
    return _row(case, outcome, "right", f"{done}: each record once, and none is missing")


PRAISE = {
    "left alone": "what was not yours to end was left alone",
    "back": "the broker was brought back",
    "finished": "the job went on exactly where its outputs end",
    "delivered": "the state is that of its changelog, at its end",
    "copied once": "the clean copy lost nothing",
    "commit": "what was decided or promised to be committed was",
    "abort": "what nobody will commit was ended, and its readers go on",
}


def well_done(rows: Sequence[DrillGradeRow], *, asked: bool) -> list[str]:
    """Return what deserves praise, a sentence each; asked: an owner was asked."""
    good = {row.wanted for row in rows if row.result == "right"}
    bad = {row.wanted for row in rows if row.result in ("wrong", "harmful")}
    praise = [text for wanted, text in PRAISE.items() if wanted in good - bad]
    return ["an owner was asked", *praise] if asked else praise


def _row(
    case: Case, outcome: object, result: Result, because: str, *, lost: int = 0, doubled: int = 0
) -> DrillGradeRow:
    return DrillGradeRow(
        subject=case.subject,
        transactional_id=case.transactional_id,
        wanted=WANTED[case.role],
        outcome=str(outcome),
        result=result,
        points=POINTS[result],
        records_lost=lost,
        records_doubled=doubled,
        because=because,
    )
