"""What a plan says of an owner between two looks, and which plans `--yes` alone does not pass."""

from typing import Any

import pytest

from recovery.change.plan import Plan, Step
from recovery.facts import ProducerFacts, TransactionFacts
from recovery.remedy.life import (
    looks,
    looks_at_id,
    looks_words,
    members_words,
    position,
    unseen_looks,
    warning,
    writing,
)


def producer(sequence: int | None, epoch: int = 4, start: int | None = 9) -> ProducerFacts:
    return ProducerFacts("orders", 3, 4001, epoch, sequence, 1_000, 0, start)


def idle(epoch: int = 4, start: int = 7, state: str = "CompleteCommit") -> TransactionFacts:
    return TransactionFacts("x", 1, 4001, state, epoch, 60_000, start, ())


def step(*found: dict[str, Any] | None) -> Step:
    about: list[dict[str, Any]] = [
        {"transactional_id": "x", "partition": f"orders:{n}", "looks": one, "members": []}
        for n, one in enumerate(found)
    ]
    return Step(action="fence", target="x", does="", stands_on=(), about=about)


@pytest.mark.parametrize(
    ("first", "second", "wrote", "records"),
    [
        (producer(5), producer(5), False, 0),
        (producer(5), producer(7), True, 2),
        (producer(2**31 - 1), producer(1), True, 2),  # sequences wrap
        (producer(5), producer(0, epoch=5), True, None),
        (producer(5), producer(5, start=12), True, 0),  # it ended one and began another
        (producer(5), None, True, None),
        (None, producer(5), True, None),
        (None, None, False, 0),
        (producer(None), producer(3), True, None),
    ],
)
def test_two_looks_at_a_producer(
    first: ProducerFacts | None,
    second: ProducerFacts | None,
    wrote: bool,
    records: int | None,
) -> None:
    found = looks(first, second, 5_000)
    last = position(second)
    assert found == {"apart_ms": 5_000, "wrote": wrote, "records": records, "last": last}


@pytest.mark.parametrize(
    ("second", "wrote"),
    [
        (idle(), False),
        (idle(epoch=5), True),  # v2: each transaction has its own epoch
        (idle(start=9), True),  # v1: each has its own start
        (idle(state="Ongoing"), True),
        (None, None),
    ],
)
def test_two_looks_at_an_id_that_holds_no_partition(
    second: TransactionFacts | None, wrote: bool | None
) -> None:
    assert looks_at_id(idle(), second, 5_000)["wrote"] is wrote


QUIET, TWO = looks(producer(5), producer(5), 5_000), looks(producer(5), producer(7), 5_000)
UNCOUNTED = looks(producer(5), None, 300)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ((QUIET,), None),
        ((None,), None),  # of an earlier version
        ((TWO,), "IT WROTE 2 RECORDS BETWEEN TWO LOOKS, 5s apart: the owner of x lives."),
        ((TWO, QUIET, TWO), "IT WROTE 4 RECORDS BETWEEN TWO LOOKS"),
        ((looks(producer(5), producer(6), 5_000),), "IT WROTE 1 RECORD BETWEEN"),
        ((UNCOUNTED,), "IT WROTE BETWEEN TWO LOOKS"),
        ((UNCOUNTED, TWO), "IT WROTE AT LEAST 2 RECORDS BETWEEN TWO LOOKS"),
        ((unseen_looks(),), "Whether the owner of x writes could not be seen"),
    ],
)
def test_what_stands_first_in_a_plan(
    found: tuple[dict[str, Any] | None, ...], says: str | None
) -> None:
    plan = Plan(
        kind="txn-fence",
        action="fence",
        created_at=0,
        expires_at=1,
        context="c",
        argv=(),
        cluster_id="i",
        scope="id x",
        summary="",
        lock="",
        observed={},
        steps=(step(*found),),
    )
    assert bool(writing(plan)) is (says is not None)
    if says is not None:
        assert says in warning(plan.steps[0])


def test_an_id_that_holds_no_partition_went_on() -> None:
    moved = step(looks_at_id(idle(), idle(epoch=5), 5_000))
    moved.about[0]["partition"] = None
    assert warning(moved) == "IT WENT ON BETWEEN TWO LOOKS, 5s apart: the owner of x lives."


def test_the_words_of_a_row() -> None:
    assert looks_words({"looks": QUIET}) == "nothing was written between two, 5s apart"
    assert looks_words({"looks": TWO}) == "2 records written between two, 5s apart"
    assert "not counted" in looks_words({"looks": UNCOUNTED})
    assert "answered once" in looks_words({"looks": unseen_looks()})


def test_none_is_not_nobody() -> None:
    nobody = {"members": [], "members_more": 0, "members_unseen": None}
    unseen = nobody | {"members_unseen": "group pay"}
    one = nobody | {"members": [{"group": "pay", "client": "c-1", "host": "/10.0.0.1"}]}
    assert members_words([nobody]) == "its groups have none"
    assert members_words([unseen]) == "unknown; not seen: group pay"
    assert members_words([nobody, one]) == "c-1 at /10.0.0.1 (pay)"
