"""Dropping the first n outputs: counted again at start, refused when anything moved."""

import pytest

from recovery.errors import RefusedError, UsageError
from recovery.restart.drop_first import DropFirst, OutputNow, restart_offset

ENV = {
    "EOCTL_RESTART_ORDERS_3": "1042",
    "EOCTL_DROP_ORDERS_ENRICHED_3": "2",
    "EOCTL_DROP_ORDERS_ENRICHED_3_FROM": "512",
    "EOCTL_DROP_ORDERS_ENRICHED_3_END": "515",
    "EOCTL_DROP_ORDERS_ENRICHED_3_LEADER_EPOCH": "4",
}
ASKED: list[tuple[str, int, int]] = []


def drop(env: dict[str, str] = ENV, seen: OutputNow = OutputNow(515, 2, 4)) -> DropFirst:
    def look(topic: str, partition: int, start: int) -> OutputNow:
        ASKED.append((topic, partition, start))
        return seen

    return DropFirst.from_env(env, "orders-enriched", 3, look)


def test_the_first_n_are_dropped_and_the_rest_is_sent() -> None:
    ASKED.clear()
    first = drop()
    assert ASKED == [("orders-enriched", 3, 512)]
    assert [first.sends() for _ in range(5)] == [False, False, True, True, True]
    assert restart_offset(ENV, "orders", 3) == 1042


@pytest.mark.parametrize(
    ("seen", "what"),
    [
        (OutputNow(516, 2, 4), "its end moved from 515 to 516"),
        (OutputNow(514, 2, 4), "its end moved from 515 to 514"),
        (OutputNow(516, 3, 4), "its end moved"),
        (OutputNow(515, 2, 5), "leader epoch was 4 when planned, is 5"),
        (OutputNow(515, 2, None), "leader epoch was 4 when planned, is None"),
        (OutputNow(515, 1, 4), "1 output is there now, the plan counted 2"),
        (OutputNow(515, 3, 4), "3 outputs are there now, the plan counted 2"),
    ],
)
def test_a_stale_n_is_refused(seen: OutputNow, what: str) -> None:
    with pytest.raises(RefusedError) as caught:
        drop(seen=seen)
    assert what in caught.value.what
    assert caught.value.where == "orders-enriched:3"


def test_an_epoch_that_the_plan_did_not_know_is_not_compared() -> None:
    env = {k: v for k, v in ENV.items() if not k.endswith("EPOCH")}
    assert drop(env, OutputNow(515, 2, 9)).left == 2


@pytest.mark.parametrize("gone", [k for k in ENV if "DROP" in k and not k.endswith("EPOCH")])
def test_a_variable_that_is_not_set(gone: str) -> None:
    with pytest.raises(UsageError) as caught:
        drop({k: v for k, v in ENV.items() if k != gone})
    assert (caught.value.where, caught.value.what) == (gone, "is not set")


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "²", " 3"])
def test_a_variable_that_is_no_number(text: str) -> None:
    with pytest.raises(UsageError, match="is not a number"):
        restart_offset({"EOCTL_RESTART_ORDERS_3": text}, "orders", 3)
