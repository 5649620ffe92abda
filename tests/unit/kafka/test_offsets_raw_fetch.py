"""The decoder of Fetch answers, against kafka-python's own for every version it speaks."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.raw_fetch import LEAST, MOST, PartitionData, RawFetchResponse

int64 = st.integers(-1, 2**63 - 1)
partition = st.fixed_dictionaries(
    {
        "partition_index": st.integers(0, 2**31 - 1),
        "error_code": st.sampled_from([0, 1, 6, 29]),
        "high_watermark": int64,
        "last_stable_offset": int64,
        "log_start_offset": int64,
        "aborted": st.none() | st.lists(st.tuples(int64, int64), max_size=3),
        "records": st.none() | st.binary(max_size=300),
        "preferred": st.integers(-1, 2**31 - 1),
    }
)
name = st.text("abcdefgé-._", min_size=1, max_size=20)
answers = st.lists(st.tuples(name, st.lists(partition, max_size=3)), max_size=3)


def encoded(version: int, topics: list[tuple[str, list[dict[str, Any]]]]) -> bytes:
    response = messages.FetchResponse
    row = response.FetchableTopicResponse
    made = response(
        throttle_time_ms=0,
        error_code=0,
        session_id=7,
        responses=[
            row(
                topic=topic,
                partitions=[
                    row.PartitionData(
                        partition_index=p["partition_index"],
                        error_code=p["error_code"],
                        high_watermark=p["high_watermark"],
                        last_stable_offset=p["last_stable_offset"],
                        log_start_offset=p["log_start_offset"],
                        aborted_transactions=None
                        if p["aborted"] is None
                        else [
                            row.PartitionData.AbortedTransaction(producer_id=a, first_offset=b)
                            for a, b in p["aborted"]
                        ],
                        preferred_read_replica=p["preferred"] if version >= 11 else -1,
                        records=p["records"],
                    )
                    for p in partitions
                ],
            )
            for topic, partitions in topics
        ],
    )
    made.API_VERSION = version
    made.with_header(correlation_id=1)
    return bytes(made.encode(header=True))


@given(version=st.integers(LEAST, MOST), topics=answers)
def test_it_reads_what_kafka_python_wrote(
    version: int, topics: list[tuple[str, list[dict[str, Any]]]]
) -> None:
    frame = encoded(version, topics)
    theirs = messages.FetchResponse[version].decode(memoryview(frame), header=True)
    expected = [
        PartitionData(
            t.topic,
            p.partition_index,
            p.error_code,
            p.high_watermark,
            p.last_stable_offset,
            p.log_start_offset if version >= 5 else -1,
            tuple((a.producer_id, a.first_offset) for a in p.aborted_transactions or ()),
            memoryview(bytes(p.records or b"")),
            p.preferred_read_replica if version >= 11 else -1,
        )
        for t in theirs.responses
        for p in t.partitions
    ]
    assert list(RawFetchResponse(version).decode(memoryview(frame)).partitions) == expected


@given(topics=answers.filter(lambda topics: any(partitions for _, partitions in topics)))
def test_a_cut_answer_is_an_error(topics: list[tuple[str, list[dict[str, Any]]]]) -> None:
    frame = encoded(11, topics)
    for end in range(len(frame)):
        with pytest.raises((struct.error, ValueError)):
            RawFetchResponse(11).decode(memoryview(frame)[:end])


def test_the_error_of_the_whole_answer_is_kept() -> None:
    frame = bytearray(encoded(11, []))
    struct.pack_into(">h", frame, 8, 70)
    assert RawFetchResponse(11).decode(memoryview(frame)).error_code == 70
