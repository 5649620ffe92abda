"""Which fences a host's journal proves, read from a journal that was written step by step."""

from pathlib import Path
from typing import Any

import pytest

from eoctl.operations.change.fences import Fence, fences
from eoctl.stores.journal_files import Journal
from recovery.change.plan import Plan, Step
from recovery.inspect.incarnation import Incarnation
from tests.unit.change.test_plan import make

USED, AT = Incarnation(7, 3), Incarnation(7, 6)
PROOF = {"used": USED.plain, "at": AT.plain}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))


def plan(*targets: str, cluster: str = "c") -> Plan:
    steps = [Step(action="fence", target=t, parameters={}, does="", stands_on=()) for t in targets]
    return make(steps=tuple(steps), cluster_id=cluster)


def carried_out(planned: Plan, *saw: Any) -> None:
    """One entry of the journal. saw: of each step that was done, in turn; None: it was not."""
    writer = Journal().begin(planned, ())
    for number, one in enumerate(saw, 1):
        writer.append("step-started", step=number)
        if one is not None:
            writer.append("step-done", step=number, saw=one, detail="")
    writer.finished()
    writer.close()


def test_each_step_proves_the_fence_of_its_own_id() -> None:
    carried_out(plan("x", "y", "z"), {"shut_out": PROOF}, None, {"shut_out": PROOF})
    assert fences("c") == [Fence("x", USED, AT), Fence("z", USED, AT)]


def test_another_clusters_fences_are_none_of_this_one() -> None:
    carried_out(plan("x", cluster="another"), {"shut_out": PROOF})
    carried_out(plan("y"), {"shut_out": PROOF})
    assert [f.transactional_id for f in fences("c")] == ["y"]
    assert [f.transactional_id for f in fences("another")] == ["x"]
    assert fences(None) == []


@pytest.mark.parametrize(
    "saw",
    [
        {"state": "Empty"},
        "a sentence, as earlier versions wrote",
        {"shut_out": "proven"},
        {"shut_out": {"used": USED.plain}},
        {"shut_out": {"at": AT.plain}},
        {"shut_out": {"used": None, "at": AT.plain}},
        {"shut_out": {"used": USED.plain, "at": [7]}},
    ],
)
def test_half_a_proof_is_none(saw: Any) -> None:
    carried_out(plan("x"), saw)
    assert fences("c") == []
