"""Source numbers against a set that remembers everything."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import RefusedError
from recovery.shared.source_numbers import Number, Scattered, SourceNumbers


@given(
    runs=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 30)),
        min_size=1,
        max_size=12,
    ),
    window=st.integers(1, 60),
    again=st.integers(0, 40),
)
def test_a_job_that_goes_back_and_repeats(
    runs: list[tuple[int, int, int]], window: int, again: int
) -> None:
    """Each run of a source begins at or below where its last one ended, and goes on in order."""
    numbers, seen, highest = SourceNumbers(window), set[Number](), dict[int, int]()
    count = 0
    for source, back, length in runs:
        start = max(0, highest.get(source, 0) - back)
        for offset in range(start, start + length):
            one = Number("", source, offset)
            judged = numbers.judge(one, offset * 7 + source, "here")
            assert judged == ("repeated" if one in seen else "new")
            seen.add(one)
            highest[source] = max(highest.get(source, 0), offset + 1)
            count += 1
            if count == again:
                numbers = SourceNumbers.load(json.loads(json.dumps(numbers.dump())), window)


def test_one_source_record_gives_several() -> None:
    numbers = SourceNumbers()
    first = [Number("orders", 1, offset, index) for offset in range(3) for index in range(2)]
    assert [numbers.judge(n, n.nth, "") for n in first] == ["new"] * 6
    assert [numbers.judge(n, n.nth, "") for n in first[3:]] == ["repeated"] * 3
    assert numbers.judge(Number("payments", 1, 0), 0, "") == "new"


def test_other_content_under_a_number_is_told() -> None:
    numbers = SourceNumbers()
    numbers.judge(Number("", 0, 5), 1, "")
    numbers.judge(Number("", 0, 6), 1, "")
    assert numbers.judge(Number("", 0, 5), 2, "") == "differs"
    assert numbers.judge(Number("", 0, 5), 1, "") == "repeated"


@pytest.mark.parametrize("window", [2, 100])
def test_a_number_that_was_jumped_over_is_refused(window: int) -> None:
    numbers = SourceNumbers(window)
    for offset in (3, 5, 7):
        numbers.judge(Number("", 0, offset), 0, "")
    with pytest.raises(RefusedError, match="offset 6 comes for the first time after 0 offset 7"):
        numbers.judge(Number("", 0, 6), 0, "out:0")


def test_what_is_older_than_the_window_is_dropped_by_its_number_and_counted() -> None:
    numbers = SourceNumbers(2)
    for offset in range(10):
        numbers.judge(Number("", 0, offset), 0, "")
    assert numbers.judge(Number("", 0, 1), 99, "") == "repeated"
    assert numbers.unchecked == 1


@given(
    placed=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 300_000), st.integers(0, 3)), max_size=60
    )
)
def test_scattered_outputs(placed: list[tuple[int, int, int]]) -> None:
    scattered, seen = Scattered(), dict[tuple[int, int], set[int]]()
    alone = [Scattered() for _ in range(4)]
    first = None
    for source, offset, partition in placed:
        others = seen.setdefault((source, offset), set()) - {partition}
        number = Number("", source, offset)
        scattered.add(number, partition)
        alone[partition].add(number, partition)
        if others and first is None:
            first = f"source {source} offset {offset} is in partitions {min(others)} and"
        assert (scattered.found or "").startswith(first or "")
        assert (scattered.found is None) == (first is None)
        seen[source, offset].add(partition)
    joined = Scattered()
    for chunk in [chunk for one in alone for chunk in one.chunks()]:
        joined.add_chunk(chunk)
    twice = {
        f"source {source} offset {offset} is in partitions {one} and {other}"
        for (source, offset), topic_partitions in seen.items()
        for one in topic_partitions
        for other in topic_partitions
        if one < other
    }
    assert joined.found in twice if twice else joined.found is None
    assert not any(one.found for one in alone)
