"""The requests that change a transaction: markers, ends, fences. Each is sent once, to one broker.

What they answer proves nothing (a marker for nothing answers NONE too): whoever calls these reads
DescribeProducers and the LSO afterwards.
"""

import asyncio
from typing import Any

from eoctl.kafka import messages
from eoctl.kafka.cluster import Cluster
from eoctl.kafka.failures import Deadline, WireError
from recovery.repairs import EndRequest, InitRequest, MarkerRequest

RETRIABLE = frozenset(
    {
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "CONCURRENT_TRANSACTIONS",
    }
)


async def write_marker(cluster: Cluster, leader: int, marker: MarkerRequest) -> str:
    """WriteTxnMarkers for one producer on one partition, to that partition's leader only.

    The broker's error name, NONE when it wrote the marker. Raises WireError when no answer came:
    the marker may have been written all the same.
    """
    request = messages.WriteTxnMarkersRequest
    entry, topic = request.WritableTxnMarker, request.WritableTxnMarker.WritableTxnMarkerTopic
    question = request(
        markers=[
            entry(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.outcome == "commit",
                topics=[topic(name=marker.topic, partition_indexes=[marker.partition])],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        ]
    )
    if marker.transaction_version:
        answer = await cluster.ask(leader, question, least=2)
    else:
        # v1 has no such field and means what 0 means
        answer = await cluster.ask(leader, question, most=1)
    for m in answer.markers:
        for t in m.topics:
            for p in t.partitions:
                if (t.name, p.partition_index) == (marker.topic, marker.partition):
                    return messages.error_name(p.error_code)
    raise WireError("NO_ANSWER", "the broker did not answer for this partition")


async def end_transaction(cluster: Cluster, coordinator: int, end: EndRequest) -> str:
    """EndTxn (abort) at exactly this version, with the observed producer id and epoch.

    The coordinator's error name: PRODUCER_FENCED or INVALID_PRODUCER_EPOCH = changed nothing.
    """
    answer = await cluster.ask(
        coordinator,
        messages.EndTxnRequest(
            transactional_id=end.transactional_id,
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            committed=False,
        ),
        least=end.version,
        most=end.version,
    )
    return messages.error_name(answer.error_code)


async def initialise_producer(
    cluster: Cluster, coordinator: int, init: InitRequest, deadline: Deadline
) -> str:
    """InitProducerId with the expected producer id and epoch (KIP-360), until it is not busy.

    The coordinator's error name. Only after `end_transaction`: with a stale epoch it aborts all
    the same.
    """
    name = "NO_ANSWER"
    while not deadline.passed:
        answer: Any = await cluster.ask(
            coordinator,
            messages.InitProducerIdRequest(
                transactional_id=init.transactional_id,
                transaction_timeout_ms=init.timeout_ms,
                producer_id=init.producer_id,
                producer_epoch=init.producer_epoch,
            ),
            least=3,
            most=4,
        )
        name = messages.error_name(answer.error_code)
        if name not in RETRIABLE:
            return name
        await asyncio.sleep(0.05)
    return name
