"""Checks that a leader's log goes on where the reader left it, and that nothing is missing."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from eoctl.kafka.ask.collect import READ_UNCOMMITTED, ids_of_leaders, list_offsets
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata, missing_broker
from eoctl.kafka.connection.failures import WireError
from recovery.errors import IncompleteError
from recovery.facts import Missing, PartitionFacts, TopicPartition, known
from recovery.shared import stream_offset
from recovery.shared.stream_offset import StreamOffset

EARLIEST_LOCAL = -4


LeaderEpochs = Mapping[TopicPartition, tuple[int, int, int]]
"""(leader, its present epoch, the epoch asked for) of each partition."""


async def epoch_ends(cluster: Cluster, epochs: LeaderEpochs) -> dict[TopicPartition, int]:
    """The ends of epochs in the leaders' logs (OffsetForLeaderEpoch, KIP-101 and KIP-320).

    An offset below what a reader has read of that epoch means that the logs diverged: a
    replica that was not in sync was elected. A partition whose leader did not tell, or does not
    know the epoch, is not in the result.
    """
    ends, _ = await asked_epoch_ends(cluster, epochs)
    return {place: end for place, end in ends.items() if end is not None}


async def asked_epoch_ends(
    cluster: Cluster, epochs: LeaderEpochs
) -> tuple[dict[TopicPartition, int | None], list[Missing]]:
    """The ends of epochs; None where the leader does not know the epoch, and who did not tell.

    Of an epoch in which a leader wrote nothing, others tell the end of the one before.
    """
    told, missing = await told_epochs(cluster, epochs)
    return {place: latest and latest[1] for place, latest in told.items()}, missing


async def record_epoch_ends(
    cluster: Cluster, epochs: LeaderEpochs
) -> dict[TopicPartition, int | None]:
    """The ends of epochs that records carry; None where the leader has no record of such a one."""
    told, _ = await told_epochs(cluster, epochs)
    return {
        place: None if latest is None or 0 <= latest[0] < epochs[place][2] else latest[1]
        for place, latest in told.items()
    }


async def told_epochs(
    cluster: Cluster, epochs: LeaderEpochs
) -> tuple[dict[TopicPartition, tuple[int, int] | None], list[Missing]]:
    """Return what leaders tell of epochs: (the latest that is known, up to that one; its end).

    None where it knows none, and who did not tell. A log that has records of an epoch knows it:
    where an earlier one is told, those that were read of it elsewhere are not in that log, or were
    compacted away before this replica was made.
    """
    request = messages.OffsetForLeaderEpochRequest
    topic = request.OffsetForLeaderTopic
    grouped: dict[int, dict[str, list[Any]]] = {}
    for (name, number), (leader, current, epoch) in epochs.items():
        row = topic.OffsetForLeaderPartition(
            partition=number, current_leader_epoch=current, leader_epoch=epoch
        )
        grouped.setdefault(leader, {}).setdefault(name, []).append(row)
    questions = {
        leader: request(
            replica_id=-1, topics=[topic(topic=name, partitions=p) for name, p in topics.items()]
        )
        for leader, topics in grouped.items()
    }
    answers, failures = await cluster.ask_each(
        {leader: partial(cluster.ask, leader, q, most=3) for leader, q in questions.items()}
    )
    missing = [missing_broker(b, error, detail="leader epochs") for b, error in failures.items()]
    told: dict[TopicPartition, tuple[int, int] | None] = {}
    for broker, answer in answers.items():
        for t in answer.topics:
            for p in t.partitions:
                place = (t.topic, p.partition)
                if p.error_code:
                    name = messages.error_name(p.error_code)
                    text = "the leader did not tell where the leader epoch ends"
                    missing.append(Missing("partition", name, text, broker, *place))
                else:
                    end = known(p.end_offset)
                    told[place] = None if end is None else (p.leader_epoch, end)
    return told, missing


async def refuse_other_logs(
    cluster: Cluster, offset: StreamOffset, facts: Iterable[PartitionFacts]
) -> None:
    """Refuse positions that are of another log than the partitions have now.

    Raises RefusedError for a topic that was made anew and for records that were replaced, and
    IncompleteError for what a leader did not tell, or what a broker that lags behind may tell.
    """
    mine = [f for f in facts if (f.topic, f.partition) in offset.positions]
    scope = [
        PartitionMetadata(f.topic, f.partition, f.leader, f.leader_epoch, f.replicas, None)
        for f in mine
    ]
    ids = await ids_of_leaders(cluster, scope)
    epochs = {
        (f.topic, f.partition): (f.leader, f.leader_epoch, epoch)
        for f, epoch in stream_offset.moved_epochs(offset, mine)
        if f.leader is not None and f.leader_epoch is not None
    }
    ends, missing = await asked_epoch_ends(cluster, epochs)
    for m in missing:
        where = None if m.topic is None else f"{m.topic}-{m.partition}"
        raise IncompleteError(f"{m.detail} ({m.error})", where=where)
    stream_offset.refuse_other_logs(offset, mine, ids, ends)


async def is_local(cluster: Cluster, broker: int, place: TopicPartition, offset: int) -> bool:
    """True if the log from `offset` on is on the broker's own disk."""
    start = await _local_start(cluster, broker, place)
    return start is not None and start <= offset


async def is_remote(cluster: Cluster, broker: int, place: TopicPartition, offset: int) -> bool:
    """True if the broker says that `offset` is in remote storage and not on its own disk."""
    start = await _local_start(cluster, broker, place)
    return start is not None and start > offset


async def _local_start(cluster: Cluster, broker: int, place: TopicPartition) -> int | None:
    """The start of the log on the broker's own disk (ListOffsets -4, KIP-405); None: not told."""
    named = PartitionMetadata(*place, broker, None, (), None)
    question = list_offsets([named], EARLIEST_LOCAL, READ_UNCOMMITTED)
    try:
        answer = await cluster.ask(broker, question, least=8, most=9)
    except WireError as error:  # a broker older than tiered storage has nothing elsewhere
        return 0 if error.error == "UNSUPPORTED_VERSION" else None
    rows = [p for t in answer.topics for p in t.partitions if (t.name, p.partition_index) == place]
    return None if not rows or rows[0].error_code else int(rows[0].offset)
