"""What people type for `offsets count`: bounds and rates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import UsageError
from recovery.facts import PartitionFacts
from recovery.shared.offset_bounds import MAX_OFFSET, parse_bound, range_problem
from recovery.sizes import byte_rate

NOW = 1_795_270_580_123  # 2026-11-21T14:16:20.123Z
FACTS = PartitionFacts("orders", 3, log_start_offset=10, last_stable_offset=20, high_watermark=30)


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("earliest", 10),
        ("lso", 20),
        ("HW", 30),
        (" 17 ", 17),
        ("0", 0),
        (str(MAX_OFFSET), MAX_OFFSET),
    ],
)
def test_bounds_by_name_and_number(text: str, offset: int) -> None:
    assert parse_bound(text, NOW).resolve(FACTS, None) == offset


@pytest.mark.parametrize(
    ("text", "instant"),
    [("2h ago", NOW - 7_200_000), ("now", NOW), ("2026-11-21T14:16:20.123Z", NOW)],
)
def test_an_instant_is_the_offset_found_for_it_or_the_end(text: str, instant: int) -> None:
    bound = parse_bound(text, NOW)
    assert (bound.kind, bound.value) == ("time", instant)
    assert bound.resolve(FACTS, 12) == 12
    assert bound.resolve(FACTS, None) == 30


@given(st.integers(0, MAX_OFFSET))
def test_digits_are_an_offset_however_much_they_look_like_a_time(number: int) -> None:
    bound = parse_bound(str(number), NOW)
    assert (bound.kind, bound.value) == ("offset", number)


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "1.5", "latest", "2026-13-01", "x ago", str(MAX_OFFSET + 1), "٣"]
)
def test_what_is_no_bound_says_so(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_bound(text, NOW, where="FROM")
    assert error.value.where == "FROM"


@pytest.mark.parametrize(
    ("start", "end", "error"),
    [
        (10, 30, None),
        (0, 30, None),  # what was deleted counts as missing
        (30, 30, None),
        (20, 19, "INVALID_REQUEST"),
        (20, 31, "OFFSET_OUT_OF_RANGE"),
    ],
)
def test_ranges_that_cannot_be_counted(start: int, end: int, error: str | None) -> None:
    problem = range_problem(start, end, FACTS)
    assert (problem and problem[0]) == error


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1", 1),
        ("65536", 65536),
        ("500k", 500 * 1024),
        ("20MiB", 20 * 1024**2),
        ("20 MiB/s", 20 * 1024**2),
        ("50MB", 50_000_000),
        ("1.5G", 1.5 * 1024**3),
        ("100B", 100),
        ("2tb", 2e12),
    ],
)
def test_rates(text: str, rate: float) -> None:
    assert byte_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "fast", "1 MiB per s", "1e6", "0.5", "10Mbit", "iB"]
)
def test_what_is_no_rate_says_so(text: str) -> None:
    with pytest.raises(UsageError):
        byte_rate(text, where="--max-rate")
