"""`exporter --doctor`: the rules fail or are unknown, and the looks at the cluster go on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from eoctl.operations.doctor.doctor_check import SELDOM, DoctorRows, LastRows
from eoctl.operations.watch import exporting
from eoctl.render.watch_words import check_row
from eoctl.settings.context import Context
from recovery.answers import Answer
from recovery.diagnose.diagnosis import Diagnosis
from recovery.doctor.as_checks import as_checks, unseen_checks
from recovery.doctor.rules import WITHOUT_APP
from recovery.errors import UnreachableError
from recovery.facts import Missing, Transactions
from recovery.inspect.observation import Settings
from recovery.watch.check_rules import Thresholds
from recovery.watch.metrics import Sample
from recovery.watch.series import Limits

OK = DoctorRows(rows=tuple(map(check_row, as_checks([], WITHOUT_APP))))
UNKNOWN = DoctorRows(
    rows=tuple(map(check_row, unseen_checks(WITHOUT_APP, "a leader moved"))),
    missing=(Missing("topic", "NOT_LEADER", "a leader moved"),),
)
SILENT = UnreachableError("nobody answers")
ANSWER = Answer("check", None, 0, [], extra={"groups": []})


class FakeSession:
    """A cluster that answers at once; closed: how often it was closed."""

    seconds = 0.01

    def __init__(self) -> None:
        self.closed = 0

    async def ask(self, use: Callable[[Any], Awaitable[Any]]) -> Any:
        return await use(None)

    def close(self) -> None:
        self.closed += 1


class Doctor:
    """What its rules answer one time after the other; the last of them again and again."""

    def __init__(self, *answers: DoctorRows | Exception | float) -> None:
        self.answers = list(answers)
        self.asked_at: list[float] = []
        self.now = 1000.0
        self.last = LastRows(lambda: self.now)

    async def __call__(self, *_: object) -> DoctorRows:
        self.asked_at.append(self.now - 1000)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, float):
            await asyncio.sleep(answer)
            raise AssertionError("it was not bounded")
        return answer


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[[Doctor], tuple[str, list[Sample], str]]:
    """One look of an exporter, of a cluster where all is well but what doctor says."""
    transactions = Transactions()
    diagnosis = Diagnosis(None, 0, 0, 2, 3, 3, (), (), transactions, ())

    async def check(*_: object, **named: object) -> Any:
        assert named.get("doctor") is None
        return exporting_checked(diagnosis)

    async def show_offsets(*_: object, **__: object) -> Answer:
        return ANSWER

    monkeypatch.setattr(exporting, "check", check)
    monkeypatch.setattr(exporting, "show_offsets", show_offsets)
    request = exporting.Request(Thresholds(), Limits(records=0), (), 1, 1, 0, 1, doctor=True)

    def take(doctor: Doctor) -> tuple[str, list[Sample], str]:
        monkeypatch.setattr(exporting, "doctor_rows", doctor)
        trouble: list[str] = []
        session: Any = FakeSession()
        result, samples = asyncio.run(
            exporting._look(session, CONTEXT, Settings(), request, trouble, doctor.last)
        )
        return result, samples, "; ".join(trouble)

    return take


CONTEXT = Context("prod", {"bootstrap.servers": "b:9092"}, ())


def exporting_checked(diagnosis: Diagnosis) -> Any:
    from eoctl.operations.watch.check_answer import Checked

    return Checked(ANSWER, (Sample("eoctl_up", 1, (("context", "prod"),)),), diagnosis)


def states(samples: list[Sample]) -> set[str]:
    """The states of doctor's rules."""
    rules = [dict(s.labels) for s in samples if s.name == "eoctl_check_rule" and s.value == 1]
    assert {labels["rule"] for labels in rules} == {f"doctor.{r.name}" for r in WITHOUT_APP}
    return {labels["result"] for labels in rules}


@pytest.mark.parametrize(
    ("answer", "said"), [(SILENT, "doctor: nobody answers"), (60.0, "doctor: not done within")]
)
def test_a_doctor_that_fails_or_takes_too_long_leaves_the_look(
    look: Callable[[Doctor], tuple[str, list[Sample], str]], answer: Exception | float, said: str
) -> None:
    doctor = Doctor(answer, OK)
    result, samples, trouble = look(doctor)
    assert result == "complete"
    assert "eoctl_up" in {s.name for s in samples}
    assert "eoctl_groups" in {s.name for s in samples}
    assert states(samples) == {"unknown"}
    assert trouble.startswith(said)

    doctor.now += 1
    _, samples, again = look(doctor)  # not asked again yet, and the same is said
    assert (len(doctor.asked_at), states(samples), again) == (1, {"unknown"}, trouble)
    doctor.now += 60
    _, samples, trouble = look(doctor)
    assert (len(doctor.asked_at), states(samples), trouble) == (2, {"ok"}, "")


def test_what_is_known_is_kept_for_an_hour_and_what_is_unknown_is_asked_ever_more_seldom(
    look: Callable[[Doctor], tuple[str, list[Sample], str]],
) -> None:
    doctor = Doctor(OK, UNKNOWN)
    while doctor.now < 1000 + 4 * SELDOM:
        _, samples, trouble = look(doctor)
        known = len(doctor.asked_at) == 1
        assert states(samples) == ({"ok"} if known else {"unknown"})
        assert trouble == ("" if known else "doctor: a leader moved")
        doctor.now += 5
    first, second, *others = doctor.asked_at
    assert (first, second) == (0, SELDOM)
    waits = [b - a for a, b in zip(doctor.asked_at[1:], others, strict=False)]
    assert waits == [15, 30, 60, 120, 240, 480, 960, 1920, 3600]
