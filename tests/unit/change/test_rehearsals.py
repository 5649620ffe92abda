"""A context that wants a rehearsal: of that very plan, of the kinds that can be rehearsed."""

from pathlib import Path

import pytest

from eoctl.operations import kinds  # noqa: F401 - fills KINDS
from eoctl.operations.change import rehearsals
from eoctl.operations.change.acting import KINDS, Door, permit
from eoctl.operations.change.rehearsals import Rehearsal
from eoctl.settings.context import Connect, Context, resolve
from recovery.change.plan import Plan, Step
from recovery.errors import RefusedError
from recovery.values import replace

FAR = 2**42  # epoch ms, in the year 2109


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    config = tmp_path / "config.toml"
    config.write_text(
        "[contexts.dear]\nbootstrap_servers = 'here:1'\n"
        "protected = true\nrequire_rehearsal = true\n"
    )
    monkeypatch.setenv("EOCTL_CONFIG", str(config))
    return tmp_path / "state"


def plan(kind: str = "txn-abort", observed: int = 1) -> Plan:
    step = Step(action="write-marker", target="orders:3", does="it", stands_on=("orders:3",))
    return Plan(
        kind=kind,
        action="abort",
        created_at=0,
        expires_at=FAR,
        context="dear",
        argv=(),
        cluster_id="c",
        scope="orders:3",
        summary="",
        lock="",
        observed={"orders:3": observed},
        steps=(step,),
    )


def dear() -> Context:
    context = resolve(Connect(context="dear"))
    assert (context.protected, context.require_rehearsal) == (True, True)
    return context


def permitted(wanted: Plan, context: Context) -> bool:
    door = Door(
        context, lambda question, word: None, execute=True, yes=True, plan_sha256=wanted.sha256
    )
    return permit(wanted, door)


def test_only_the_rehearsed_plan_is_permitted(state: Path) -> None:
    with pytest.raises(RefusedError, match="wants a rehearsal first") as refused:
        permitted(plan(), dear())
    assert "lab rehearse" in (refused.value.remedy or "")
    rehearsals.keep(Rehearsal(plan().sha256, "00", 1))
    assert permitted(plan(), dear())
    with pytest.raises(RefusedError, match="wants a rehearsal"):
        permitted(plan(observed=2), dear())
    (state / "rehearsals" / f"{plan().sha256}.json").write_text("{")
    with pytest.raises(RefusedError, match="wants a rehearsal"):
        permitted(plan(), dear())


def test_a_rehearsal_of_another_name_does_not_count(state: Path) -> None:
    other = plan(observed=2)
    rehearsals.keep(Rehearsal(other.sha256, "00", 1))
    there = state / "rehearsals"
    (there / f"{other.sha256}.json").rename(there / f"{plan().sha256}.json")
    with pytest.raises(RefusedError, match="wants a rehearsal"):
        permitted(plan(), dear())


def test_it_is_asked_for_before_the_question() -> None:
    def confirm(question: str, word: str) -> bool | None:
        raise AssertionError(question)

    with pytest.raises(RefusedError, match="wants a rehearsal"):
        permit(plan(), Door(dear(), confirm, execute=True))


def test_without_protection_or_for_other_kinds_nothing_is_asked() -> None:
    assert permitted(plan(), replace(dear(), protected=False))
    assert permitted(plan(), replace(dear(), require_rehearsal=False))
    assert permitted(plan("restart"), dear())
    assert rehearsals.KINDS.issubset(KINDS)
