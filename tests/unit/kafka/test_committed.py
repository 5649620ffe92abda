"""Where share groups stand: each partition that was asked for, from offset 0 on."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.committed import _share_offsets
from recovery.facts import TopicPartition


def at(number: int, start: int, error: int = 0) -> Any:
    return SimpleNamespace(
        partition_index=number, start_offset=start, leader_epoch=0, error_code=error, lag=-1
    )


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, [(0, 0, None), (1, 7, None), (3, None, "UNKNOWN_TOPIC_OR_PARTITION")]),
        ([TopicPartition("t", 1), TopicPartition("t", 2)], [(1, 7, None)]),
        ([TopicPartition("u", 1)], []),
    ],
)
def test_a_share_group_stands_where_it_has_begun(
    asked: list[TopicPartition] | None, expected: list[tuple[int, int | None, str | None]]
) -> None:
    partitions = [at(0, 0), at(1, 7), at(2, -1), at(3, -1, 3)]
    topic = SimpleNamespace(topic_name="t", partitions=partitions)
    group = SimpleNamespace(group_id="g", error_code=0, topics=[topic])

    class Answering:
        async def ask(self, _broker: int, _question: object) -> Any:
            return SimpleNamespace(groups=[group])

    found = asyncio.run(_share_offsets(cast("Cluster", Answering()), asked, 1, ["g"]))
    _, offsets = found["g"]
    assert [(o.partition, o.committed_offset, o.error) for o in offsets] == expected
    assert all(o.is_share and o.lag is None and o.leader_epoch is None for o in offsets)
