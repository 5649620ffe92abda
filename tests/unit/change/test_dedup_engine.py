"""Which engine a dedup runs on, and a walk whose steps are one job."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from eoctl.host.clock import now_ms
from eoctl.operations.change.steps import Effect, Outcome, Walk
from eoctl.operations.dedup.dedup_on_spark import SPARK_OFFSETS, choose_engine
from eoctl.stores.journal_files import Journal
from recovery.change.journal import JournalEntry
from recovery.change.plan import VALID_MS, Plan, Step
from recovery.dedup.dedup_request import DedupPart
from recovery.errors import IncompleteError, RefusedError


def parts(*sizes: int) -> list[DedupPart]:
    return [DedupPart(partition=n, begin=0, start=5, end=5 + size) for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("asked", "sizes", "there", "engine", "why"),
    [
        ("spark", (1,), True, "spark", "as asked"),
        ("local", (SPARK_OFFSETS, 1), True, "local", "as asked"),
        ("auto", (7, 5), True, "local", "12 offsets are copied faster here"),
        ("auto", (SPARK_OFFSETS,), True, "local", "one partition is one task"),
        ("auto", (SPARK_OFFSETS, 1), False, "local", "Spark is not available"),
        (
            "auto",
            (SPARK_OFFSETS - 1, 1),
            True,
            "spark",
            "5,000,000 offsets of 2 partitions are worth",
        ),
    ],
)
def test_auto_goes_by_size_and_says_why(
    asked: str, sizes: tuple[int, ...], there: bool, engine: str, why: str
) -> None:
    chosen, said = choose_engine(asked, parts(*sizes), there)
    assert chosen == engine
    assert why in said


class Together:
    """Does all that is left at the first perform. dies: instead it is not known what it did.
    refused: after these steps it is refused."""

    def __init__(
        self, done: set[str], dies: bool = False, refused: frozenset[str] | None = None
    ) -> None:
        self.done, self.dies, self.refused = done, dies, refused
        self.given: list[str] = []
        self.begun: list[int] = []  # steps in the journal as it acts

    async def cluster_id(self) -> str:
        return "c"

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        return {}

    def left(self, steps: Sequence[Step]) -> None:
        self.given = [step.target for step in steps]

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        if self.dies:
            raise IncompleteError("the job has died")
        if self.refused is not None:
            self.done |= self.refused
            raise RefusedError("b is no copy")
        if not self.begun:
            [entry] = Journal().find().entries
            self.begun = sorted(entry.steps("step-started"))
            self.done.update(self.given)
        return {"target": step.target}

    async def verify(self, step: Step) -> Effect:
        return Effect(step.target in self.done, None, step.target, final=True)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))


def plan() -> Plan:
    now = now_ms()
    return Plan(
        kind="dedup",
        action="dedup",
        created_at=now,
        expires_at=now + VALID_MS,
        context="here",
        argv=(),
        cluster_id="c",
        scope="dedup out",
        summary="",
        lock="this host only",
        observed={},
        steps=tuple(Step(action="copy", target=t, does="", stands_on=()) for t in "abc"),
        independent=True,
        details={},
    )


def walked(operation: Together, entry: JournalEntry | None = None) -> Outcome:
    return asyncio.run(Walk(plan(), operation, lambda: None, entry).to_the_end(["eoctl"], None))


def test_all_steps_are_journaled_before_the_job_that_does_them() -> None:
    operation = Together(set())
    outcome = walked(operation)
    assert operation.given == ["a", "b", "c"]
    assert operation.begun == [1, 2, 3]
    assert [step.status for step in outcome.steps] == ["done"] * 3
    [entry] = Journal().find().entries
    assert [e.event for e in entry.events].count("step-started") == 3


def test_a_job_that_died_is_looked_after_once_and_the_next_one_does_what_is_left() -> None:
    began = time.monotonic()
    died = walked(Together({"b"}, dies=True))
    assert time.monotonic() - began < 5  # not 10 s for each: nobody is at work any more
    assert [step.status for step in died.steps] == ["unverified", "done", "unverified"]
    [entry] = Journal().find().entries
    assert entry.state == "unfinished"
    again = Together({"b"})
    outcome = walked(again, entry)
    assert again.given == ["a", "c"]
    assert [step.status for step in outcome.steps] == ["done", "already-done", "done"]


@pytest.mark.parametrize("committed", ["", "a", "c", "abc"])
def test_what_a_refused_job_has_done_is_done(committed: str) -> None:
    """Its tasks run side by side: one is refused when others have committed."""
    outcome = walked(Together(set(), refused=frozenset(committed)))
    expected = ["done" if step in committed else "refused" for step in "abc"]
    assert [step.status for step in outcome.steps] == expected
    assert outcome.exit_status == (0 if committed == "abc" else 4)
    [entry] = Journal().find().entries
    assert sorted(entry.steps("step-done")) == [n for n, s in enumerate("abc", 1) if s in committed]
