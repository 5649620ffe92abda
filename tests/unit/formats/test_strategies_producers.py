"""Who wrote a range: runs, interleaving and gaps, against records written one by one."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.facts import ProducerFacts
from recovery.formats.batches import CONTROL, MAX_SEQUENCE, TRANSACTIONAL, BatchHeader
from recovery.restart.producers import (
    Gap,
    ProducerRun,
    ProducerRuns,
    ended_a_transaction,
    next_sequence,
)
from recovery.values import replace


def header(
    base: int, last: int, producer: int, epoch: int, sequence: int, attributes: int = 0
) -> BatchHeader:
    count = last - base + 1
    return BatchHeader(
        0, 0, base, last, 0, 2, 0, attributes, 0, 0, producer, epoch, sequence, count
    )


@given(
    st.lists(st.tuples(st.sampled_from([7, 8, 9]), st.integers(1, 3), st.booleans()), max_size=12),
    st.integers(0, 10),
    st.integers(0, 30),
)
@settings(deadline=None)
def test_runs_of_any_cut(batches: list[tuple[int, int, bool]], start: int, length: int) -> None:
    """Oracle: the producer of every single offset. A range may begin and end mid-batch."""
    runs, offset, sequences = ProducerRuns(start, start + length), 0, dict.fromkeys((7, 8, 9), 0)
    writers: list[tuple[int, bool, int]] = []
    for producer, count, visible in batches:
        runs.add(
            header(offset, offset + count - 1, producer, 0, sequences[producer]), visible=visible
        )
        for _ in range(count):
            writers.append((producer, visible, sequences[producer]))
            sequences[producer] += 1
        offset += count
    inside = list(enumerate(writers))[start : start + length]
    seen = [producer for _, (producer, visible, _) in inside if visible]
    changes = seen[:1] + [b for a, b in pairwise(seen) if a != b]
    found = runs.producers
    assert found.gaps == ()
    back = [n for n, producer in enumerate(changes) if producer in changes[:n]]
    assert (found.interleaved is not None) == bool(back)
    kept = changes[: back[0] + 1] if back else changes
    assert [run.producer_id for run in found.runs] == kept
    for producer in {p for _, (p, _, _) in inside}:
        mine = [s for _, (p, _, s) in inside if p == producer]
        assert found.first[producer] == (0, mine[0])
        assert found.last[producer] == (0, mine[-1])
    visible_offsets = [o for o, (_, visible, _) in inside if visible]
    if visible_offsets and not back:
        assert found.runs[0].first_offset == visible_offsets[0]
        assert found.runs[-1].last_offset == visible_offsets[-1]


@pytest.mark.parametrize(
    ("second", "gap"),
    [
        ((0, 3), None),
        ((0, 4), ((0, 3), (0, 4))),
        ((0, 0), ((0, 3), (0, 0))),
        ((1, 0), None),
        ((5, 0), None),
        ((1, 3), ((1, 0), (1, 3))),
    ],
)
def test_what_follows_a_batch(
    second: tuple[int, int], gap: tuple[tuple[int, int], tuple[int, int]] | None
) -> None:
    runs = ProducerRuns(0, 100)
    runs.add(header(0, 2, 7, 0, 0), visible=True)
    runs.add(header(3, 3, 7, *second), visible=False)
    assert runs.producers.gaps == (() if gap is None else (Gap(7, 3, *gap),))


def test_an_epoch_that_goes_back() -> None:
    runs = ProducerRuns(0, 100)
    runs.add(header(0, 0, 7, 3, 0), visible=True)
    runs.add(header(1, 1, 7, 2, 0), visible=True)
    assert runs.producers.gaps == (Gap(7, 1, (3, 1), (2, 0)),)


def test_sequences_begin_again_after_the_last() -> None:
    assert next_sequence(4, MAX_SEQUENCE) == (4, 0)
    runs = ProducerRuns(1, 100)
    runs.add(header(0, 2, 7, 0, MAX_SEQUENCE - 1), visible=True)
    assert runs.producers.first[7] == (0, MAX_SEQUENCE)
    assert runs.producers.last[7] == (0, 0)
    runs.add(header(3, 3, 7, 0, 1), visible=True)
    assert runs.producers.gaps == ()


def test_markers_and_batches_without_records_are_nobodys() -> None:
    runs = ProducerRuns(0, 100)
    runs.add(header(0, 0, 7, 0, -1, CONTROL | TRANSACTIONAL), visible=True)
    runs.add(replace(header(1, 5, 8, 0, 0), records_count=0), visible=True)
    assert runs.producers.runs == ()


def test_transactional_is_said_of_a_run_as_a_whole() -> None:
    runs = ProducerRuns(0, 100)
    runs.add(header(0, 0, 7, 0, 0, TRANSACTIONAL), visible=True)
    assert runs.producers.runs == (ProducerRun(7, 0, 0, True),)
    runs.add(header(1, 1, 7, 0, 1), visible=True)
    assert runs.producers.runs == (ProducerRun(7, 0, 1, False),)
    runs.add(header(2, 2, 7, 0, 2, TRANSACTIONAL), visible=True)
    assert runs.producers.runs == (ProducerRun(7, 0, 2, False),)
    runs.add(header(3, 3, -1, -1, -1), visible=True)
    assert runs.producers.producer_ids == (7, -1)


def test_so_many_gaps_are_kept_and_no_more() -> None:
    runs = ProducerRuns(0, 1000)
    for n in range(200):
        runs.add(header(n, n, 7, 0, 5 * n), visible=True)
    assert len(runs.producers.gaps) == ProducerRuns._MOST_GAPS
    assert runs.producers.gaps[0].producer_id == 7


@pytest.mark.parametrize(
    ("offsets", "first"),
    [((), None), ((4,), None), ((5,), 5), ((8,), 8), ((9,), None), ((4, 6, 7), 6), ((9, 12), None)],
)
def test_the_first_commit_marker_in_the_range(offsets: tuple[int, ...], first: int | None) -> None:
    runs = ProducerRuns(5, 9)
    for offset in offsets:
        runs.add_commit(offset)
    assert runs.producers.first_commit == first


@pytest.mark.parametrize(
    ("coordinator_epoch", "ended"), [(None, False), (-1, False), (0, True), (3, True)]
)
def test_who_has_a_marker_writes_in_transactions(
    coordinator_epoch: int | None, ended: bool
) -> None:
    row = ProducerFacts("out", 0, 7, 0, 4, None, coordinator_epoch, None)
    assert ended_a_transaction(row) is ended


def test_a_producer_that_comes_back_is_told_with_who_wrote_in_between() -> None:
    runs = ProducerRuns(0, 100)
    for offset, producer in enumerate((7, 7, 8, 9, 8, 7)):
        runs.add(header(offset, offset, producer, 0, offset), visible=True)
    back = runs.producers.interleaved
    assert back is not None
    assert [(r.producer_id, r.first_offset, r.last_offset) for r in back] == [
        (8, 2, 2),
        (9, 3, 3),
        (8, 4, 4),
    ]
