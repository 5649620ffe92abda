"""Make a twin: a lab whose brokers find the incident on their disk when they first start."""

import re
import struct
from base64 import b64decode
from collections.abc import Iterator

from eoctl.host.clock import now_ms
from eoctl.lab import cluster
from eoctl.lab.handle import Lab
from eoctl.lab.jars import FetchProgress, nothing
from eoctl.lab.record import LabSpec, Node, new_uuid
from eoctl.lab.twin.data_log import check_size, data_log, lay_out
from eoctl.lab.twin.encoding import (
    config_record,
    partition_record,
    producer_ids_record,
    topic_record,
)
from eoctl.lab.twin.files import NewLog, write_clean_end, write_log
from eoctl.lab.twin.group_logs import group_logs
from eoctl.lab.twin.metadata import add_records
from eoctl.lab.twin.seen import Seen
from eoctl.lab.twin.state_logs import TRANSACTION_STATE, state_logs
from eoctl.stores.bundle_files import Bundle
from recovery.errors import UsageError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.formats.batches import batch_headers
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS
from recovery.inspect.history import producer_ids_of
from recovery.quoting import quoted
from recovery.values import Value, replace

MOST_BROKERS = 3
MOST_PARTITIONS = 20_000
"""A broker keeps some six files for each."""
LONGEST_MS = 2**31 - 1
_LONG = str(LONGEST_MS)
STILL = {
    "auto.leader.rebalance.enable": "false",
    "log.cleaner.enable": "false",
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    "offsets.retention.minutes": _LONG,
    "producer.id.expiration.ms": _LONG,
    "transactional.id.expiration.ms": _LONG,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": _LONG,
    "transaction.remove.expired.transaction.cleanup.interval.ms": _LONG,
    "transaction.state.log.min.isr": "1",
    "min.insync.replicas": "1",
}
"""Nothing ends by itself on a twin: no expiry, no retention, no cleaner, no abort cycle."""
_TWO_PHASE = {
    "transaction.two.phase.commit.enable": "true",
    "unstable.api.versions.enable": "true",
}
_OF_THE_CONTROLLER = "__cluster_metadata"  # its folder is, and no topic
_DEFAULT_MAX_TIMEOUT = 900_000
_BLOCK = 1000  # producer ids that a broker gets at once
_TWO_ELECTIONS = 2
"""A partition's leader epochs at a first start: its broker registers, and is let in."""


def spec_of(bundle: Bundle, name: str) -> LabSpec:
    """Return the lab that a bundle's twin is."""
    rows = bundle.transactions.rows
    timeouts = [t.timeout_ms or 0 for t in rows]
    own_timeouts = [ms for ms in timeouts if ms < 2**31 - 1]
    seen = Seen(bundle, 0)
    settings = STILL | {
        "transaction.max.timeout.ms": str(max([_DEFAULT_MAX_TIMEOUT, *own_timeouts])),
        "transaction.state.log.num.partitions": str(max(1, seen.size(TRANSACTION_STATE))),
        "offsets.topic.num.partitions": str(max(1, seen.size(CONSUMER_OFFSETS))),
    }
    if len(own_timeouts) < len(timeouts):
        settings |= _TWO_PHASE
    return LabSpec(
        name=name,
        brokers=max(1, min(MOST_BROKERS, len(bundle.brokers))),
        transaction_version=min(2, bundle.diagnosis.transaction_version),
        settings=settings,
    )


class Twin(Value):
    """A twin that runs. shift: ms from a time in the bundle to that time on the twin.

    left_out: how many commits of groups had no room in the logs.
    """

    lab: Lab
    shift: int
    left_out: int = 0


def make(bundle: Bundle, name: str = "twin", progress: FetchProgress = nothing) -> Twin:
    """Start a new lab that is the bundle's incident.

    Raises RefusedError if there is a lab of that name, and what `cluster.up` raises.
    """
    _check_topics(bundle)
    now = now_ms()
    seen = Seen(bundle, now - bundle.diagnosis.collected_at)
    left_out: list[int] = []
    lab = cluster.up(
        spec_of(bundle, name),
        progress=progress,
        furnish=lambda lab: left_out.append(_furnish(lab, seen, now)),
    )
    return Twin(lab, seen.shift, sum(left_out))


def _check_topics(bundle: Bundle) -> None:
    """Raise UsageError for topics that no twin can have: a name becomes a folder's."""
    count = sum(len(topic.partitions) for topic in bundle.topics)
    if count > MOST_PARTITIONS:
        raise UsageError(
            f"the bundle names {count} partitions, and a twin at most has {MOST_PARTITIONS}",
            remedy="look at the bundle itself: `eoctl bundle open`",
        )
    if len({topic.name for topic in bundle.topics}) < len(bundle.topics):
        raise UsageError("a damaged bundle: it names a topic twice", remedy="make it again")
    for topic in bundle.topics:
        named = re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic.name) and topic.name.strip(".")
        good = named and topic.name != _OF_THE_CONTROLLER
        if not good or re.fullmatch(r"[\w-]{22}", topic.topic_id or "x" * 22, re.ASCII) is None:
            raise UsageError(
                f"a damaged bundle: {quoted(topic.name)} is no topic", remedy="make it again"
            )


def _furnish(lab: Lab, seen: Seen, now: int) -> int:
    """Write the incident into a lab whose brokers have not started yet. Raises UsageError.

    Return how many commits of groups had no room.
    """
    try:
        return _write(lab, seen, now)
    except (struct.error, ValueError, OverflowError) as error:
        raise UsageError(
            f"a damaged bundle: a number of it does not fit into Kafka's files ({error})",
            remedy="make it again",
        ) from None


def _write(lab: Lab, seen: Seen, now: int) -> int:
    """Write topics, settings, producer ids and logs; return how many commits had no room."""
    bundle = seen.bundle
    nodes = lab.record.nodes
    records = [producer_ids_record(nodes[0].id, next_producer_id(bundle))]
    kept: dict[int, list[NewLog]] = {node.id: [] for node in nodes}
    leaders = _Leaders(bundle, nodes)
    written = left_out = 0
    for topic in bundle.topics:
        if not topic.partitions:  # it could not be described
            continue
        topic_id = topic.topic_id or new_uuid()
        records.append(topic_record(topic.name, topic_id))
        append_time = _appends(bundle, topic.name)
        if append_time:
            records.append(config_record(topic.name, "message.timestamp.type", "LogAppendTime"))
        for log in _logs(seen, topic.name, topic_id, append_time=append_time):
            p = seen.partitions.get(log.topic_partition)
            node = leaders.of(log.topic_partition)
            epoch = ((p and p.leader_epoch) or 0) - _TWO_ELECTIONS
            where = (topic_id, log.topic_partition.partition, node.id, node.directory_id)
            records.append(partition_record(*where, epoch))
            write_log(lab.data_folder(node.id), log)
            written += sum(b.count for b in log.batches)
            left_out += log.left_out
            check_size(written)
            kept[node.id].append(replace(log, batches=(), producers=(), aborted=()))
    for node in nodes:
        data = lab.data_folder(node.id)
        write_clean_end(data, kept[node.id])
        add_records(data / "bootstrap.checkpoint", records, now)
    return left_out


def broker_on_twin(bundle: Bundle, broker: int) -> int:
    """Return the twin's broker that has the place of a broker of the incident."""
    ids = sorted(b.id for b in bundle.brokers)
    number = ids.index(broker) if broker in ids else 0
    return number % min(MOST_BROKERS, len(ids) or 1) + 1


class _Leaders:
    """The twin's broker for each partition: the one in the place of its leader."""

    def __init__(self, bundle: Bundle, nodes: tuple[Node, ...]) -> None:
        self._bundle = bundle
        self._nodes = {node.id: node for node in nodes}
        self._leader = {
            TopicPartition(p.topic, p.partition): p.leader
            for t in bundle.topics
            for p in t.partitions
        }

    def of(self, where: TopicPartition) -> Node:
        leader = self._leader.get(where)
        return self._nodes[broker_on_twin(self._bundle, -1 if leader is None else leader)]


def _logs(seen: Seen, topic: str, topic_id: str, *, append_time: bool) -> Iterator[NewLog]:
    """Yield the log of each of a topic's partitions."""
    if topic == TRANSACTION_STATE:
        yield from state_logs(seen, topic_id)
    elif topic == CONSUMER_OFFSETS:
        yield from group_logs(seen, topic_id)
    else:
        for partition in range(seen.size(topic)):
            p = seen.partitions.get(TopicPartition(topic, partition))
            p = p or PartitionFacts(topic, partition)
            layout = lay_out(seen, p)
            yield data_log(seen, p, topic_id, layout, append_time=append_time)


def _appends(bundle: Bundle, topic: str) -> bool:
    """Return True if a topic is known to have LogAppendTime."""
    return bundle.topic_configs.get(topic, {}).get("message.timestamp.type") == "LogAppendTime"


def next_producer_id(bundle: Bundle) -> int:
    """Return the first producer id of a block above all that the bundle names."""
    used = [p.producer_id for _, _, rows in bundle.producers.producers for p in rows]
    used += [t.producer_id for t in bundle.transactions.rows]
    used += [t.about.producer_id for t in bundle.open_transactions if t.about.producer_id]
    for log in bundle.history.logs:
        used += [number for record in log.records for number in producer_ids_of(record)]
    for each in bundle.ids:
        used += producer_ids_of(each.record) if each.record else ()
    for held in bundle.taken:
        used += [h.producer_id for h in batch_headers(b64decode(held.data))]
    return (max(used, default=-1) // _BLOCK + 2) * _BLOCK
