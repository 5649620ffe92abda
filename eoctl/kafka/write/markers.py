"""The requests that change a transaction: markers, ends, fences. Each is sent once, to one broker.

What they answer proves nothing (a marker for nothing answers NONE too, and NOT_COORDINATOR may
come after the change was written): whoever calls these looks afterwards. Only the names in
MARKER_REFUSED and END_REFUSED say that nothing was changed.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline, WireError
from recovery.remedy.repairs import EndRequest, InitRequest, MarkerRequest, RaiseRequest

MARKER_REFUSED = frozenset(
    {
        "INVALID_PRODUCER_EPOCH",
        "TRANSACTION_COORDINATOR_FENCED",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "CLUSTER_AUTHORIZATION_FAILED",
        "UNSUPPORTED_VERSION",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    }
)
"""Of WriteTxnMarkers: checked before the append. NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS and
REQUEST_TIMED_OUT are not among them: a leader that is deposed after its append answers these too
(Kafka's ReplicaManager)."""
END_REFUSED = frozenset(
    {
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "UNSUPPORTED_VERSION",
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_LOAD_IN_PROGRESS",
    }
)
"""Of EndTxn, sent once: checked before its record is appended. NOT_COORDINATOR and
COORDINATOR_NOT_AVAILABLE are not among them: a failed append of the Prepare* record, which may
still reach the other replicas, is answered so (Kafka's TransactionStateManager)."""
INVALID_TIMEOUT = "INVALID_TRANSACTION_TIMEOUT"
"""Of InitProducerId: checked before anything is changed. The id's timeout is above the brokers'
transaction.max.timeout.ms of today."""
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
    """EndTxn at exactly this version, with the observed producer id and epoch.

    The coordinator's error name: PRODUCER_FENCED or INVALID_PRODUCER_EPOCH = changed nothing.
    """
    answer = await cluster.ask(
        coordinator,
        messages.EndTxnRequest(
            transactional_id=end.transactional_id,
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            committed=end.commit,
        ),
        least=end.version,
        most=end.version,
    )
    return messages.error_name(answer.error_code)


@dataclass(frozen=True, slots=True)
class Initialised:
    """The answer to InitProducerId. error: Kafka's name or NONE; the rest holds only with NONE."""

    error: str
    producer_id: int = -1
    producer_epoch: int = -1


async def raise_id(
    cluster: Cluster,
    coordinator: int,
    request: RaiseRequest,
    deadline: Deadline,
    ensure_held: Callable[[], None],
) -> str:
    """Raise an idle id above its owner's epoch. The coordinator's last error name.

    ensure_held: called before each request but the first, raises when the lock is lost.

    By EndTxn v5 where the plan says so. Else, and where that is refused for want of a transaction,
    by InitProducerId twice: expecting the id's last epoch but one answers the present epoch
    unraised (KIP-360), so that only the second, which expects what the first answered, surely
    raises it.
    """
    if request.end_version is not None:
        end = EndRequest(
            request.end_version,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
        )
        name = await end_transaction(cluster, coordinator, end)
        if name != "INVALID_TXN_STATE":
            return name
        ensure_held()
    name, timeout = request.transactional_id, request.timeout_ms
    init = InitRequest(name, request.producer_id, request.producer_epoch, timeout)
    first = await initialise_producer(cluster, coordinator, init, deadline, ensure_held)
    if first.error != "NONE":
        return first.error
    ensure_held()
    init = InitRequest(name, first.producer_id, first.producer_epoch, timeout)
    return (await initialise_producer(cluster, coordinator, init, deadline, ensure_held)).error


async def initialise_producer(
    cluster: Cluster,
    coordinator: int,
    init: InitRequest,
    deadline: Deadline,
    ensure_held: Callable[[], None],
) -> Initialised:
    """InitProducerId with the expected producer id and epoch (KIP-360), until it is not busy.

    ensure_held: called before each request but the first. Only after `end_transaction`, or on an
    id seen idle: with a stale epoch it aborts an open transaction all the same.
    """
    initialised = Initialised("NO_ANSWER")
    while not deadline.passed:
        answer = await cluster.ask(
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
        initialised = Initialised(name, answer.producer_id, answer.producer_epoch)
        if name not in RETRIABLE:
            break
        await asyncio.sleep(0.05)
        ensure_held()
    return initialised
