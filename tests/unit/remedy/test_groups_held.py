"""Groups whose offsets a transaction holds: what was not read of them is not nobody.

The log is bytes in Kafka's format; only the broker that would give them is left out.
"""

import asyncio
import struct
from collections.abc import Sequence
from typing import Any, cast

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import start_batches as reading
from eoctl.kafka.read.chunks import ENOUGH, Chunk, Ended, Range
from eoctl.operations.remedy.fence import refuse_members
from recovery.diagnose.diagnosis import Judged
from recovery.errors import IncompleteError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS
from recovery.inspect.observation import OpenTransaction, StartBatch
from tests.unit.formats_build import Item, batch

HOME, DATA = TopicPartition(CONSUMER_OFFSETS, 7), TopicPartition("t", 0)
NOBODY = cast("Cluster", None)  # whoever asks it fails


def offset_key(group: bytes) -> bytes:
    """An offset commit's key (version 1) of partition 0 of topic t."""
    return struct.pack(">hh", 1, len(group)) + group + struct.pack(">h", 1) + b"t" + b"\0" * 4


def read(
    monkeypatch: pytest.MonkeyPatch, key: bytes, error: str | None, at: TopicPartition = HOME
) -> StartBatch:
    """The start batch of producer 7, whose only record has this key; how reading ended."""
    records = batch(0, [Item(0, key=key)], producer=(7, 1, 0), transactional=True)

    async def read_all(cluster: Cluster, ranges: Sequence[Range], **options: Any) -> Any:
        chunks = {r.topic_partition: [Chunk(*at, 0, 1, records, None, 9, 0, 0)] for r in ranges}
        return chunks, {r.topic_partition: Ended(*r.topic_partition, 1, error) for r in ranges}

    monkeypatch.setattr(reading, "read_all", read_all)
    facts = PartitionFacts(
        *at, "id", 1, 0, (1,), log_start_offset=0, last_stable_offset=0, high_watermark=9
    )
    about = OpenTransaction(*at, 7, 0)
    found = asyncio.run(reading.start_batches(NOBODY, [about], {at: facts}, {}))
    return found.read[about]


def test_groups_are_all_known_only_if_all_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    key = offset_key(b"g")
    known = read(monkeypatch, key, None)
    assert (known.groups, known.groups_read) == (("g",), True)
    more = read(monkeypatch, key, ENOUGH)
    assert (more.groups, more.groups_read) == (("g",), False)
    damaged = read(monkeypatch, key[:-3], None)
    assert (damaged.groups, damaged.groups_read) == ((), False)
    elsewhere = read(monkeypatch, key[:-3], None, DATA)
    assert (elsewhere.groups, elsewhere.groups_read) == ((), True), "keys there mean no groups"


@pytest.mark.parametrize("start", [None, StartBatch(7, 1, groups_read=False)])
def test_a_fence_is_refused_where_groups_were_not_read(start: StartBatch | None) -> None:
    """Their members, which would be a sign of life, cannot be asked for."""

    def ask(at: TopicPartition) -> None:
        about = OpenTransaction(*at, 7, 0)
        mine = Judged(about, start, cast("Any", None), None, None, cast("Any", None))
        asyncio.run(refuse_members(NOBODY, [mine], "a"))

    with pytest.raises(IncompleteError, match="not all read"):
        ask(HOME)
    ask(DATA)  # there it holds no group's offsets
