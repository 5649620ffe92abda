"""A walk asks for rights once, and never between its last look at the facts and a write."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import pytest

from eoctl.operations.change.steps import Effect, Outcome, Walk
from eoctl.stores.journal_files import Journal
from recovery.change.plan import Plan, Step
from recovery.inspect.rights import Need
from tests.unit import cell_change
from tests.unit.cell_change import CellOperation, cells


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLS", str(tmp_path / "cells.json"))
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    cell_change.path().write_text('{"a": 1, "b": 2, "c": 3}')


class Told(CellOperation):
    """Keeps what it was asked for, in order."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.observed)
        self.asked: list[str] = []

    async def ungranted(self, needs: Collection[Need]) -> frozenset[Need]:
        self.asked.append("rights")
        return await super().ungranted(needs)

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        self.asked.append("facts")
        return await super().observe(steps)

    async def verify(self, step: Step) -> Effect:
        self.asked.append("look")
        return await super().verify(step)

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        self.asked.append("write")
        return await super().perform(step, ensure_held)


class Job(Told):
    """A `Together`: the first write does every step; then nothing may be written any more."""

    def left(self, steps: Sequence[Step]) -> None:
        self._left = list(steps)

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        while self._left:
            await super().perform(self._left.pop(), ensure_held)
        return {}


def planned(*, independent: bool, all_or_none: bool = False) -> Plan:
    new = {"a": 5, "b": 6, "c": 7}
    return cell_change.plan(new, independent=independent, all_or_none=all_or_none)


def walked(plan: Plan, operation: CellOperation, entry: str | None = None) -> Outcome:
    kept = None if entry is None else Journal().get(entry)
    return asyncio.run(Walk(plan, operation, lambda: None, kept).to_the_end((), None))


def check(asked: list[str]) -> None:
    """Rights once, and first; facts or a look right before each write."""
    assert asked.count("rights") == 1
    assert asked[0] == "rights"
    assert asked[asked.index("write") - 1] in ("facts", "look")


@pytest.mark.parametrize(
    ("independent", "all_or_none"), [(False, False), (True, False), (True, True)]
)
def test_rights_are_asked_once_and_before_the_facts(independent: bool, all_or_none: bool) -> None:
    plan = planned(independent=independent, all_or_none=all_or_none)
    operation = Told(plan)
    assert walked(plan, operation).exit_status == 0
    check(operation.asked)


@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize("value", [5, cell_change.HALF])
def test_rights_are_asked_before_what_an_earlier_run_did_is_looked_at(
    independent: bool, value: object
) -> None:
    plan = planned(independent=independent)
    writer = Journal().begin(plan, ())
    writer.append("step-started", step=1)
    writer.close()
    cell_change.put("a", value)
    operation = Told(plan)
    assert walked(plan, operation, writer.entry).exit_status == 0
    check(operation.asked)
    assert cells() == {"a": 5, "b": 6, "c": 7}


def test_a_job_that_has_done_all_steps_calls_none_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rights, and what the plan stands on, change while it runs: by then all is committed."""
    plan = planned(independent=True)
    operation = Job(plan)
    monkeypatch.setattr(cell_change, "put", taken_back(monkeypatch, cell_change.put))
    outcome = walked(plan, operation)
    assert [step.status for step in outcome.steps] == ["done"] * 3
    check(operation.asked)


def taken_back(monkeypatch: pytest.MonkeyPatch, put: Callable[[str, object], None]) -> object:
    def putting(name: str, value: object) -> None:
        monkeypatch.setenv("CELL_TROUBLE", "ungranted:a ungranted:b ungranted:c")
        put(name, value)

    return putting
