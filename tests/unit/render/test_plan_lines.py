"""A plan on the command line: whole sentences in lines of 80 columns; what it says of an id."""

import asyncio
from typing import cast

import pytest

from eoctl.cli.dialog.acting import plan_lines
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose.ids import JudgedIds
from eoctl.operations.remedy import remedy_plan
from eoctl.render.plans import plan_facts, subject
from recovery.facts import Missing, TransactionFacts, Transactions
from recovery.inspect.observation import Settings
from tests.unit.change.test_plan import make

WIDEST = 80


def test_every_line_fits_and_no_word_is_lost() -> None:
    told = make(summary="orders:3 pid 4001; " + "records that wait behind it, " * 12)
    lines = plan_lines(told)
    assert max(map(len, lines)) <= WIDEST
    assert " ".join(" ".join(lines[1:]).split()) == " ".join(
        " ".join(f"{label} {text}".split()) for label, text in plan_facts(told)
    )
    [what, second, *_] = lines[1:]
    assert what.startswith(" what     orders:3 pid 4001")
    assert second.startswith(" " * 10)


def test_a_word_is_never_broken() -> None:
    long = "t-" + "x" * 120 + ":0"
    assert any(long in line for line in plan_lines(make(summary=f"one {long} two")))


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ((), "its coordinator no longer lists it as open"),
        ((Missing("coordinator", "NOT_COORDINATOR", "it moves"),), "it moves"),
    ],
)
def test_an_id_that_could_not_be_judged_is_unknown_in_plan_and_journal(
    monkeypatch: pytest.MonkeyPatch, missing: tuple[Missing, ...], why: str
) -> None:
    async def nothing_seen(*_: object, **__: object) -> JudgedIds:
        return JudgedIds((), Transactions(), missing)

    monkeypatch.setattr(remedy_plan, "judge_ids", nothing_seen)
    row = TransactionFacts("orders", 1, 4001, "Ongoing")
    told = remedy_plan.told_of_id(cast("Cluster", None), row, Settings(), 0.1)
    [about] = asyncio.run(told)
    assert subject(about) == "no partition  pid 4001  orders  unknown (id-not-described)"
    assert [e["text"] for e in about["evidence"]] == [why]
