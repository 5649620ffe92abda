"""Answers with a null where Kafka allows none: the field is named, as Java refuses them."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.kafka.connection import messages, wire
from eoctl.kafka.connection.failures import Deadline, WireError


def metadata(**changes: Any) -> bytes:
    """An answer of one topic with one partition."""
    made = messages.MetadataResponse[12]
    topic = made.MetadataResponseTopic
    partition = topic.MetadataResponsePartition
    parts: dict[str, Any] = {"replica_nodes": [1], "isr_nodes": [1], "offline_replicas": []}
    parts |= {k: v for k, v in changes.items() if k in parts}
    p = partition(error_code=0, partition_index=0, leader_id=1, leader_epoch=0, **parts)
    t = topic(
        error_code=0,
        name="t",
        topic_id=None,
        is_internal=False,
        partitions=changes.get("partitions", [p]),
        topic_authorized_operations=0,
    )
    answer: bytes = made(
        throttle_time_ms=0,
        brokers=changes.get("brokers", []),
        cluster_id=None,
        controller_id=1,
        topics=changes.get("topics", [t]),
    ).encode()
    return answer


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, None),
        ({"replica_nodes": None}, "topics.partitions.replica_nodes"),
        ({"isr_nodes": None}, "topics.partitions.isr_nodes"),
        ({"partitions": None}, "topics.partitions"),
        ({"topics": None}, "topics"),
        ({"brokers": None}, "brokers"),
    ],
)
def test_null_lists(changes: dict[str, Any], named: str | None) -> None:
    answer = messages.MetadataResponse[12].decode(metadata(**changes))
    assert messages.null_field(answer) == named


def test_an_exchange_says_which_field(monkeypatch: pytest.MonkeyPatch) -> None:
    class Transport:
        """Answers each request with an answer without its replicas."""

        def __init__(self, frames: wire._Frames) -> None:
            self.frames = frames

        def write(self, data: bytes) -> None:
            body = data[8:12] + b"\0" + metadata(replica_nodes=None)
            self.frames._deliver(memoryview(body))

    async def ask() -> None:
        frames = wire._Frames()
        frames.transport = Transport(frames)  # type: ignore[assignment]
        request = messages.MetadataRequest(topics=None)
        request.API_VERSION = 12
        await wire.Connection(frames, None)._exchange(request, Deadline(5))  # type: ignore[arg-type]

    with pytest.raises(WireError, match=r"topics\.partitions\.replica_nodes is null") as refused:
        asyncio.run(ask())
    assert refused.value.error == "NOT_KAFKA"


ASKED = {
    "ApiVersions": 3,
    "DescribeGroups": 5,
    "DescribeProducers": 0,
    "DescribeTransactions": 0,
    "Fetch": 12,
    "FindCoordinator": 4,
    "ListGroups": 4,
    "ListOffsets": 7,
    "ListTransactions": 1,
    "Metadata": 12,
    "OffsetFetch": 8,
    "OffsetForLeaderEpoch": 4,
}
"""Questions that commands ask, at a version that brokers answer."""


@settings(max_examples=200)
@given(name=st.sampled_from(sorted(ASKED)), data=st.data())
def test_whatever_comes_is_an_answer_or_no_answer_of_kafka(name: str, data: st.DataObject) -> None:
    """Bytes that are cut, changed, or no answer at all end in a WireError that says so."""
    whole = metadata() if name == "Metadata" else b""
    body = data.draw(
        st.one_of(
            st.binary(max_size=200),
            st.integers(0, len(whole)).map(lambda size: whole[:size]),
            st.tuples(st.integers(0, max(0, len(whole) - 1)), st.integers(0, 255)).map(
                lambda at: whole[: at[0]] + bytes([at[1]]) + whole[at[0] + 1 :]
            ),
        )
    )

    class Transport:
        def __init__(self, frames: wire._Frames) -> None:
            self.frames = frames

        def write(self, sent: bytes) -> None:
            tags = b"" if name == "ApiVersions" else b"\0"
            self.frames._deliver(memoryview(sent[8:12] + tags + body))

    async def ask() -> Any:
        frames = wire._Frames()
        frames.transport = Transport(frames)  # type: ignore[assignment]
        request = getattr(messages, f"{name}Request")()
        request.API_VERSION = ASKED[name]
        connection = wire.Connection(frames, None)  # type: ignore[arg-type]
        return await connection._exchange(request, Deadline(5))

    with suppress(WireError):
        assert asyncio.run(ask()) is not None
