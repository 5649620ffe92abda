"""Send the requests that change a transaction: markers, ends, fences. Each goes once to one broker.

Their answers prove nothing (a marker for nothing gets NONE too, and NOT_COORDINATOR may come after
the change was written): callers must check afterwards. Only the names in MARKER_REFUSED and
END_REFUSED say that nothing was changed.
"""

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from recovery.remedy.repairs import EndRequest, InitRequest, MarkerRequest
from recovery.values import Value

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
    """Send WriteTxnMarkers for one producer on one partition, only to the partition's leader.

    Return the broker's error name, NONE if it wrote the marker. Raises WireError if no answer came:
    the marker may have been written nevertheless.
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
        # v1 lacks this field and means the same as 0
        answer = await cluster.ask(leader, question, most=1)
    for m in answer.markers:
        for t in m.topics:
            for p in t.partitions:
                if (t.name, p.partition_index) == marker.topic_partition:
                    return messages.error_name(p.error_code)
    raise WireError("NO_ANSWER", "the broker did not answer for this partition")


class Answered(Value):
    """The answer of a coordinator. error: Kafka's name or NONE.

    producer_id, producer_epoch: the id's from now on; None = not given (EndTxn below version 5).
    """

    error: str
    producer_id: int | None = None
    producer_epoch: int | None = None


async def end_transaction(cluster: Cluster, coordinator: int, end: EndRequest) -> Answered:
    """Send EndTxn at exactly this version, with the observed producer id and epoch.

    Return the coordinator's error name: PRODUCER_FENCED or INVALID_PRODUCER_EPOCH = changed
    nothing.
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
    error = messages.error_name(answer.error_code)
    if end.version < 5 or error != "NONE" or answer.producer_id < 0:
        return Answered(error)
    return Answered(error, answer.producer_id, answer.producer_epoch)


async def initialise_producer(cluster: Cluster, coordinator: int, init: InitRequest) -> Answered:
    """Send InitProducerId once, with the expected producer id and epoch (KIP-360).

    Only after `end_transaction`, or on an id seen idle: with a stale epoch it aborts an open
    transaction nevertheless. If the last epoch but one is expected, the answer is the present one,
    unraised.
    """
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
    error = messages.error_name(answer.error_code)
    if error != "NONE":
        return Answered(error)
    return Answered(error, answer.producer_id, answer.producer_epoch)
