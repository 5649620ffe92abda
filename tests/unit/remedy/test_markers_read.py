"""What a log says of single transactions: their records, and the marker that ended each.

The log is bytes that kafka-python wrote; only the broker that would give them is left out.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import (
    Cluster,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read import producer_markers, producer_records
from eoctl.kafka.read.chunks import Chunk, Ended, Range
from eoctl.kafka.read.producer_records import written
from eoctl.operations.remedy import marker as remedy_marker
from eoctl.operations.remedy.marker import End, end_of, how_it_ended
from eoctl.operations.remedy.remedy_plan import RemedyRequest
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import Missing, PartitionFacts, TopicPartition
from recovery.remedy.salvage import Written
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker, seal

AT = TopicPartition("t", 0)
MARKED = 1_700_000_000_000
"""The time of every record and marker, in ms."""
UNKNOWN_KIND = b"\0\0\0\x09"


def data(offset: int, producer: tuple[int, int, int], count: int, **options: Any) -> bytes:
    """A transaction's batch of so many records. producer: id, epoch, sequence of the first."""
    items = [Item(n) for n in range(count)]
    return batch(offset, items, producer=producer, transactional=True, **options)


def emptied(offset: int, producer_id: int, *, epoch: int = 0) -> bytes:
    """A marker's batch of which compaction left the header alone."""
    out = bytearray(marker(offset, producer_id, COMMIT, epoch=epoch)[:61])
    struct.pack_into(">i", out, 57, 0)
    return seal(out)


def chunk(records: bytes, *, fetch_offset: int = 0, next_offset: int = 100) -> Chunk:
    return Chunk(*AT, fetch_offset, next_offset, records, None, 100, 100, 0)


class Topics(Cluster):
    """A cluster of one topic, t, with one partition."""

    def __init__(self) -> None:
        super().__init__(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))

    async def metadata(self, topics: Any = None) -> ClusterMetadata:
        partition = PartitionMetadata("t", 0, 1, 0, (1,), None)
        topic = TopicMetadata("t", "t", False, (partition,), None)
        return ClusterMetadata("c", 1, {}, {"t": topic} if "t" in topics else {})


def log(monkeypatch: pytest.MonkeyPatch, *answers: Chunk | Ended) -> list[Range]:
    """Let the log be read as these answers. Return the ranges that are asked for."""
    asked: list[Range] = []

    async def read(
        cluster: Cluster, ranges: Sequence[Range], **options: Any
    ) -> AsyncIterator[Chunk | Ended]:
        asked.extend(ranges)
        for answer in answers:
            yield answer

    monkeypatch.setattr(producer_records, "read", read)
    monkeypatch.setattr(producer_markers, "read", read)
    return asked


def transactions(
    monkeypatch: pytest.MonkeyPatch, *records: bytes, fetch_offset: int = 0
) -> dict[tuple[int, int], Written | None]:
    """What the log says of producer 7's epochs 1 and 2, and of producer 8's epoch 1."""
    log(monkeypatch, chunk(b"".join(records), fetch_offset=fetch_offset), Ended(*AT, 100))
    wanted = [(7, 1), (7, 2), (8, 1)]
    found, missing = asyncio.run(written(Topics(), [Range(*AT, 0, 100)], wanted))
    assert not missing
    assert list(found) == wanted
    return {one: by_partition.get(AT) for one, by_partition in found.items()}


def test_records_are_counted_for_each_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain records of the same producer, and those of others, are of none."""
    found = transactions(
        monkeypatch,
        data(0, (7, 1, 0), 3),
        data(3, (8, 1, 0), 1),
        data(4, (9, 1, 0), 2),
        batch(6, [Item(0)], producer=(7, 1, 3)),
        data(7, (7, 1, 3), 2),
    )
    assert found == {
        (7, 1): Written(5, 0, 8, next=5),
        (7, 2): None,
        (8, 1): Written(1, 3, 3, next=1),
    }


def test_the_first_marker_of_its_epoch_or_a_later_one_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = transactions(
        monkeypatch,
        marker(0, 8, COMMIT, epoch=1),  # before its records
        data(1, (7, 1, 0), 1),
        data(2, (8, 1, 0), 1),
        marker(3, 7, COMMIT, epoch=0),  # of an earlier epoch
        marker(4, 8, COMMIT, epoch=1),
        marker(5, 7, ABORT, epoch=2),  # as a fence writes it
        marker(6, 7, COMMIT, epoch=2),
        data(7, (7, 1, 1), 2),
    )
    assert found[7, 1] == Written(3, 1, 8, "abort", 5, MARKED, next=3, behind=2)
    assert found[7, 2] is None
    assert found[8, 1] == Written(1, 2, 2, "commit", 4, MARKED, next=1)


def test_a_control_record_of_another_kind_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a marker that compaction removed; an epoch that was not asked for is of none."""
    found = transactions(
        monkeypatch,
        data(0, (7, 1, 0), 1),
        marker(1, 7, UNKNOWN_KIND, epoch=1),
        emptied(2, 7, epoch=1),
        data(3, (7, 3, 0), 1),
    )
    assert found[7, 1] == Written(1, 0, 0, next=1)


def test_records_that_the_log_lost_are_counted_by_their_sequences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two before the first batch, one within it, four between the two."""
    kept = batch(
        2, [Item(0), Item(2)], producer=(7, 1, 2), transactional=True
    )  # compaction took the record between
    found = transactions(monkeypatch, kept, data(9, (7, 1, 9), 1))
    assert found[7, 1] == Written(3, 2, 9, lacking=2 + 1 + 4, next=10)


def test_sequences_go_on_from_zero_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    last = 2**31 - 1
    found = transactions(monkeypatch, data(0, (7, 1, last), 2), data(2, (7, 1, 1), 1))
    at = found[7, 1]
    assert at is not None
    assert (at.lacking, at.next) == (last, 2)


def test_a_batch_is_not_counted_again_at_the_next_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker gives the whole batch around the offset that is asked for."""
    records = data(0, (7, 1, 0), 3), data(3, (7, 1, 3), 2)
    found = transactions(monkeypatch, *records, fetch_offset=1)
    assert found[7, 1] == Written(2, 3, 4, lacking=3, next=5)


def test_what_cannot_be_read_makes_the_numbers_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = log(monkeypatch, Ended(*AT, 4, "SILENT", "no answer"))
    ranges = [Range(*AT, 0, 9), Range("empty", 0, 5, 5)]
    _, [missing] = asyncio.run(written(Topics(), ranges, [(7, 1)]))
    assert asked == ranges[:1], "nothing is in an empty range"
    assert (missing.topic, missing.partition, missing.error) == (*AT, "SILENT")
    assert "offset 4" in missing.detail


def offsets(monkeypatch: pytest.MonkeyPatch, *missing: Missing) -> None:
    """Let the partition end at 9, or not be seen."""

    async def partition_offsets(*given: Any) -> tuple[list[PartitionFacts], list[Missing]]:
        facts = PartitionFacts(
            *AT, "t", 1, 0, (1,), log_start_offset=0, last_stable_offset=9, high_watermark=9
        )
        return [] if missing else [facts], list(missing)

    monkeypatch.setattr(collect, "partition_offsets", partition_offsets)


def ended(monkeypatch: pytest.MonkeyPatch, outcome: str | None, *records: bytes) -> str:
    """Ask how producer 7's transaction that began at offset 2 ended. outcome: that is wanted."""
    offsets(monkeypatch)
    log(monkeypatch, chunk(b"".join(records), next_offset=9), Ended(*AT, 9))
    return asyncio.run(how_it_ended(Topics(), RemedyRequest("abort", "t:0", 7, 2, outcome=outcome)))


EARLIER = data(0, (7, 1, 0), 1), marker(1, 7, COMMIT, epoch=1)
BEGUN = data(2, (7, 1, 1), 1)


@pytest.mark.parametrize(("outcome", "kind"), [(None, ABORT), ("abort", ABORT), ("commit", COMMIT)])
def test_a_transaction_that_ended_as_requested_is_done(
    monkeypatch: pytest.MonkeyPatch, outcome: str | None, kind: bytes
) -> None:
    """The first marker after its start decides, not the one before, nor the one after."""
    other = ABORT if kind == COMMIT else COMMIT
    said = ended(
        monkeypatch,
        outcome,
        *EARLIER,
        BEGUN,
        marker(3, 8, other, epoch=1),
        marker(4, 7, kind, epoch=1),
        data(5, (7, 1, 2), 1),
        marker(6, 7, other, epoch=1),
    )
    assert f"{outcome or 'abort'} marker is at offset 4" in said


@pytest.mark.parametrize(("outcome", "kind"), [(None, COMMIT), ("commit", ABORT)])
def test_a_transaction_that_ended_the_other_way_is_refused(
    monkeypatch: pytest.MonkeyPatch, outcome: str | None, kind: bytes
) -> None:
    with pytest.raises(RefusedError, match="marker at offset 4"):
        ended(monkeypatch, outcome, *EARLIER, BEGUN, marker(4, 7, kind, epoch=1))


def test_a_transaction_without_a_marker_did_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker of the transaction before it says nothing of it."""
    with pytest.raises(RefusedError, match="no transaction open"):
        ended(monkeypatch, "commit", *EARLIER, BEGUN)


@pytest.mark.parametrize("topic", ["t:1", "other:0"])
def test_a_partition_that_does_not_exist_says_nothing(
    monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    log(monkeypatch)
    with pytest.raises(IncompleteError, match="no such partition"):
        asyncio.run(how_it_ended(Topics(), RemedyRequest("abort", topic, 7, 2)))


def test_a_partition_that_cannot_be_seen_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets(monkeypatch, Missing("partition", "SILENT", "its leader is silent", topic="t"))
    with pytest.raises(IncompleteError, match="its leader is silent"):
        asyncio.run(how_it_ended(Topics(), RemedyRequest("abort", "t:0", 7, 2)))


@pytest.mark.parametrize(
    ("records", "end"),
    [
        ([marker(4, 7, ABORT)], End(0, None, 4, "abort")),
        ([data(2, (7, 1, 0), 2), marker(4, 7, ABORT)], End(0, None, 4, "abort")),
        ([data(4, (7, 1, 2), 3), marker(7, 7, COMMIT)], End(3, 4, 7, "commit")),
        (
            [
                data(4, (7, 1, 2), 1),
                data(5, (7, 1, 3), 2),
                marker(7, 7, ABORT),
                marker(8, 7, COMMIT),
            ],
            End(3, 4, 7, "abort"),
        ),
        (
            [data(4, (8, 1, 0), 1), marker(5, 8, COMMIT), marker(6, 7, ABORT)],
            End(0, None, 6, "abort"),
        ),
        ([marker(4, 7, UNKNOWN_KIND), marker(5, 7, ABORT)], End(0, None, 5, "abort")),
        ([emptied(4, 7), marker(5, 7, ABORT)], End(0, None, 5, "abort")),
        ([data(4, (7, 1, 2), 1)], End(1, 4)),
        ([], End()),
    ],
)
def test_how_a_transaction_went_on_from_its_planned_end(
    monkeypatch: pytest.MonkeyPatch, records: list[bytes], end: End
) -> None:
    """It was open up to offset 4. What its producer wrote after it and the marker count."""

    async def read_all(
        cluster: Cluster, ranges: Sequence[Range], **options: Any
    ) -> tuple[dict[tuple[str, int], list[Chunk]], dict[tuple[str, int], Ended]]:
        assert ranges == [Range(*AT, 4, 9)]
        return {AT: [chunk(one) for one in records]}, {}

    offsets(monkeypatch)
    monkeypatch.setattr(remedy_marker, "read_all", read_all)
    assert asyncio.run(end_of(Topics(), "t:0", 7, 4)) == end
