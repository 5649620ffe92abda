"""Counts of several pieces of partitions at once, against a log that knows every offset.

Only the broker that would send the responses is left out.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read import fetch
from eoctl.kafka.read.chunks import Chunk, Ended, Range
from eoctl.kafka.read.count import Cuts, count
from eoctl.kafka.read.pump import Reading
from recovery.facts import TopicPartition
from recovery.formats.batches import scan_headers
from recovery.formats.counting import Counts
from recovery.restart.producers import ProducerRuns
from tests.share import share
from tests.unit.formats_build import COMMIT
from tests.unit.log_model import Partition, Written, partitions

Logs = dict[TopicPartition, Partition]


def counted(
    logs: Logs,
    cuts: Iterable[Cuts],
    *,
    most: int = 10_000,
    reading: Reading = Reading(),
    broken: Iterable[TopicPartition] = (),
) -> Any:
    """Count where each response has about `most` bytes. broken: these cannot be read to the end."""

    async def read(
        cluster: object, ranges: Iterable[Range], *, isolation: int, **options: object
    ) -> AsyncIterator[Chunk | Ended]:
        for r in ranges:
            log, at = logs[r.topic_partition], r.start
            assert at < r.end
            while at < r.end:
                records, aborted = log.fetch(at, isolation, most)
                if not records:
                    break
                behind = int(scan_headers(records).last_offset[-1]) + 1
                listed = None if aborted is None else tuple(aborted)
                yield Chunk(
                    *r.topic_partition, at, behind, records, listed, log.end,
                    log.last_stable_offset, 0,
                )  # fmt: skip
                if r.topic_partition in broken:
                    yield Ended(*r.topic_partition, behind, "SILENT", "it is silent")
                    return
                at = behind
            yield Ended(*r.topic_partition, r.end)

    cluster = Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(1))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(fetch, "read", read)
        return asyncio.run(count(cluster, cuts, reading))


@given(partitions(), partitions(), st.data())
@settings(max_examples=share(300), deadline=None)
def test_each_piece_is_the_truth(one: Partition, two: Partition, data: st.DataObject) -> None:
    logs = {TopicPartition("a", 0): one, TopicPartition("b", 1): two}
    cuts = []
    for at, log in logs.items():
        begin = log.batches[0].base if log.batches else log.end
        inner = data.draw(st.lists(st.integers(begin, log.end), max_size=4))
        low = data.draw(st.sampled_from([begin, max(0, begin - 3)]))
        offsets = tuple(sorted({low, *inner, log.end}))
        cuts.append(Cuts(*at, offsets, begin, log.last_stable_offset))
    found, missing = counted(logs, cuts, most=data.draw(st.sampled_from([1, 250, 10_000])))
    assert missing == []
    for c in cuts:
        log = logs[c.topic_partition]
        expected = [log.truth(*ends) for ends in zip(c.offsets, c.offsets[1:], strict=False)]
        assert found[c.topic_partition] == expected


@given(partitions(), st.sampled_from([1, 250, 10_000]))
@settings(max_examples=share(300), deadline=None)
def test_who_wrote_is_the_truth(log: Partition, most: int) -> None:
    """Visible batches below the last stable offset, and the first COMMIT marker of the log."""
    begin = log.batches[0].base if log.batches else log.end
    if begin == log.end:
        return
    runs = ProducerRuns(begin, log.end)
    at, middle = TopicPartition("a", 0), (begin + log.end) // 2
    offsets = tuple(sorted({begin, middle, log.end}))
    counted({at: log}, [Cuts(*at, offsets, begin, log.last_stable_offset, runs)], most=most)
    there = [b for b in log.batches if b.kept and not b.removed]
    seen = [
        b.producer_id
        for b in there
        if b.marker is None
        and b.base < log.last_stable_offset
        and not (b.transaction is not None and b.transaction.aborted)
    ]
    found = runs.producers.producer_ids
    assert found == tuple(dict.fromkeys(seen))[: len(found)]
    assert runs.producers.interleaved is not None or set(found) == set(seen)
    commits = [b.base for b in there if b.marker == COMMIT]
    assert runs.first_commit == min(commits, default=None)


def plain(*batches: int) -> Partition:
    """Batches of so many plain records."""
    log = Partition()
    for size in batches:
        log.batches.append(Written(log.end, log.end + size - 1, [*range(log.end, log.end + size)]))
        log.end += size
    return log


A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def test_a_partition_that_fails_is_no_count_and_the_others_are_counted() -> None:
    logs = {A: plain(3, 3), B: plain(2, 2)}
    cuts = [Cuts(*at, (0, log.end), 0, log.end) for at, log in logs.items()]
    found, [missing] = counted(logs, reversed(cuts), most=1, broken=[A])
    assert found == {B: [Counts(data=4)]}
    assert (missing.topic_partition, missing.error, missing.detail) == (A, "SILENT", "it is silent")


@pytest.mark.parametrize("check", [True, False])
def test_a_damaged_batch_is_no_count_unless_crcs_are_left_out(
    monkeypatch: pytest.MonkeyPatch, *, check: bool
) -> None:
    log = plain(3, 3)
    whole = log.fetch(0, 1, 10_000)[0]
    monkeypatch.setattr(log, "fetch", lambda *given: (whole[:-1] + b"\xff", ()))
    found, missing = counted({A: log}, [Cuts(*A, (0, 2, 6), 0, 6)], reading=Reading(check))
    if check:
        assert found == {}
        assert missing[0].error == "CORRUPT_MESSAGE"
    else:
        assert found == {A: [Counts(data=2), Counts(data=4)]}


def test_progress_is_told_in_bytes_and_offsets_of_both_passes() -> None:
    told: list[tuple[int, int, int]] = []
    logs = {A: plain(3, 3)}
    reading = Reading(progress=lambda *now: told.append(now))
    found, _ = counted(logs, [Cuts(*A, (1, 6), 0, 3)], most=1, reading=reading)
    size = [len(b.encode()) for b in logs[A].batches]
    assert found == {A: [Counts(data=2, open=3)]}
    assert told == [
        (size[0], 2, 5),  # from 1 to 3
        (size[0], 2, 5),
        (sum(size), 5, 5),
        (sum(size), 5, 5),
    ]
