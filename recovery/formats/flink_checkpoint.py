"""A Flink checkpoint's promises to Kafka: the sink's transactions, the source's offsets.

A KafkaCommittable is a transaction that was written up to the checkpoint's barrier and must be
committed: (transactional id, producer id, epoch) names exactly one, since the sink calls
initTransactions for each. Pure: `files` are the bytes of the state files that `handles` names.
Source: Flink's classes CommittableCollectorSerializer, SimpleVersionedSerialization,
OperatorBackendSerializationProxy, SourceOperator; of its Kafka connector (3.x to 5.0.0)
KafkaCommittableSerializer, KafkaWriterStateSerializer, KafkaPartitionSplitSerializer.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.formats.flink_metadata import Metadata, NamedState, Operator, StateHandle
from recovery.formats.reader import CorruptError, Reader
from recovery.plurals import counted
from recovery.values import Value

COMMITTABLES = "streaming_committer_raw_states"
WRITERS = "writer_raw_states"
SPLITS = "SourceReaderState"
_LEGACY = ("next-transactional-id-hint", "next-transactional-id-hint-v2")  # FlinkKafkaProducer

_COLLECTOR_MAGIC = 0xB91F252C
_OWNERSHIPS = ("INCREMENTING", "POOLING")  # IMPLICIT_BY_SUBTASK_ID, EXPLICIT_BY_WRITER_STATE
_STATES = range(4)  # of a request: received, to retry, failed, committed
_UNFINISHED = range(2)  # Flink's restore skips the two others

T = TypeVar("T")


class Committable(NamedTuple):
    """A transaction of Kafka's sink that the checkpoint commits.

    checkpoint_id: the checkpoint that prepared it. operator: the name of the sink's committer, ""
    before format 5.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    checkpoint_id: int
    operator: str


class SinkWriter(NamedTuple):
    """A writer of Kafka's sink. prefix: of its transactional ids (PREFIX-subtask-n).

    naming: INCREMENTING (n is a checkpoint's number) or POOLING (it is not). precommitted: ids that
    it had handed over without an answer yet, with the checkpoint of each; only for POOLING.
    """

    prefix: str
    naming: str
    subtask: int
    operator: str
    precommitted: tuple[tuple[str, int], ...]


class SourceOffset(NamedTuple):
    """A Kafka source's position in one partition. offset: below 0 = as configured (-2 earliest, -1
    latest, -3 committed). operator: the source's name, "" before format 5; uid: as its job set it,
    "" before format 5 or if not set; id: 32 hex digits."""

    topic: str
    partition: int
    offset: int
    operator: str
    uid: str = ""
    id: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Skipped(NamedTuple):
    """An operator's state that does not belong to Kafka. what: `committables` or `source`."""

    operator: str
    what: str
    items: int


class FlinkCheckpoint(Value):
    """Everything about Kafka in a checkpoint or savepoint."""

    version: int
    checkpoint_id: int
    committables: tuple[Committable, ...]
    writers: tuple[SinkWriter, ...]
    offsets: tuple[SourceOffset, ...]
    skipped: tuple[Skipped, ...]

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Return the sinks' prefixes of transactional ids, from their writers' states."""
        return tuple(sorted({w.prefix for w in self.writers}))


def sources(content: FlinkCheckpoint, uid: str | None, *, where: str) -> tuple[SourceOffset, ...]:
    """Return where a Kafka source goes on, each partition once.

    uid: of the source, or its name or operator id; None = all sources. Raises RefusedError if there
    is no such source, or if several read the same partition.
    """
    named = [o for o in content.offsets if uid is None or uid in (o.uid, o.operator, o.id)]
    known = ", ".join(sorted({o.uid or o.operator or o.id for o in content.offsets}))
    if not named:
        raise RefusedError(
            "it holds no offsets of a Kafka source" if not known else f"it has no source {uid}",
            where=where,
            remedy=f"name one of {known}" if known else None,
        )
    if len({o.topic_partition for o in named}) < len(named):
        raise RefusedError(
            "several of its sources read the same partition",
            where=where,
            remedy=f"name one of {known}: flink:DIR#UID, or uid in [app.store]",
        )
    return tuple(named)


def handles(metadata: Metadata) -> tuple[StateHandle, ...]:
    """Return the files that `read_states` needs besides what `_metadata` itself holds."""
    wanted = {
        state.handle
        for operator in metadata.operators
        for state in operator.states
        if state.name in (COMMITTABLES, WRITERS, SPLITS)
        and state.offsets
        and state.handle.inline is None
    }
    return tuple(sorted(wanted))


def read_states(metadata: Metadata, files: Mapping[StateHandle, bytes]) -> FlinkCheckpoint:
    """Return everything about Kafka in the checkpoint. files: the bytes of each of `handles`.

    Raises CorruptError for damaged bytes; RefusedError for compressed state, for a legacy
    FlinkKafkaProducer, and for unknown versions of states.
    """
    committables: set[Committable] = set()
    writers: set[SinkWriter] = set()
    offsets: set[SourceOffset] = set()
    skipped: list[Skipped] = []
    for operator in metadata.operators:
        _refuse_legacy(operator)
        where = operator.name or f"operator {operator.id}"
        requests = [
            request
            for item in _items(operator, COMMITTABLES, files)
            for request in _requests(item, where)
        ]
        kafka = [_whole(r.body, _committable) if r.version == 1 else None for r in requests]
        if requests and not any(kafka):
            skipped.append(Skipped(where, "committables", len(requests)))
        for found, request in zip(kafka, requests, strict=True):
            if found is not None:
                committables.add(Committable(*found, request.checkpoint_id, operator.name))
            elif any(kafka):
                raise request.body.corrupt("a committable is not as the others of its sink are")
        for version, reader in map(_versioned, _items(operator, WRITERS, files)):
            writer = _whole(reader, _writer(version)) if version in (1, 2) else None
            if writer is not None:
                writers.add(SinkWriter(*writer[:3], operator.name, writer[3]))
        unread = 0
        for version, reader in map(_versioned, _items(operator, SPLITS, files)):
            split = _whole(reader, _split) if version == 0 else None
            if split is not None:
                offsets.add(SourceOffset(*split, operator.name, operator.uid, operator.id))
            unread += split is None
        if unread:
            skipped.append(Skipped(where, "source", unread))
    return FlinkCheckpoint(
        metadata.version,
        metadata.checkpoint_id,
        tuple(sorted(committables)),
        tuple(sorted(writers)),
        tuple(sorted(offsets)),
        tuple(skipped),
    )


def _refuse_legacy(operator: Operator) -> None:
    if any(state.name in _LEGACY for state in operator.states):
        raise RefusedError(
            "it is a legacy FlinkKafkaProducer: its state is not supported",
            where=operator.name or f"operator {operator.id}",
            remedy="let Flink itself restore from this checkpoint",
        )


def _items(operator: Operator, name: str, files: Mapping[StateHandle, bytes]) -> Iterator[Reader]:
    """Yield each item of a list state, as the bytes that its serializer wrote."""
    for state in operator.states:
        if state.name == name and state.offsets:
            handle = state.handle
            data = handle.inline if handle.inline is not None else files[handle]
            where = f"{name} of subtask {state.subtask}"
            _refuse_compressed(data, where)
            for offset in state.offsets:
                yield _item(data, state, offset, where)


def _refuse_compressed(data: bytes, where: str) -> None:
    """Raise RefusedError unless a subtask's operator state is uncompressed, in a known version."""
    head = Reader(data, where)
    version = head.int32()
    if not 2 <= version <= 6:
        raise RefusedError(f"operator state of version {version} is not known", where=where)
    if version == 6 and head.int8() != 0:
        raise RefusedError(
            "the state is compressed (execution.checkpointing.snapshot-compression), which is "
            "not read",
            where=where,
            remedy="let Flink itself restore from this checkpoint",
        )


def _item(data: bytes, state: NamedState, offset: int, where: str) -> Reader:
    reader = Reader(data, where)
    if not 0 <= offset <= len(data):
        raise reader.corrupt(f"an item begins at {offset}, of {counted(len(data), 'byte')}")
    reader.position = offset
    return _inner(reader)


def _inner(reader: Reader) -> Reader:
    return Reader(reader.take(reader.int32()), reader.where)


def _versioned(reader: Reader) -> tuple[int, Reader]:
    """Read SimpleVersionedSerialization: a version, a length, and the bytes of that version."""
    return reader.int32(), _inner(reader)


def _list(reader: Reader, most: int, of: str) -> tuple[int, list[Reader]]:
    """Read SimpleVersionedSerialization's list: version, count, then length and bytes of each."""
    version, count = reader.int32(), reader.int32()
    if not 0 <= version <= most:
        raise RefusedError(f"{of} of version {version} are not known", where=reader.where)
    if not 0 <= count * 4 <= reader.remaining:
        raise reader.corrupt(f"{of}: {count}, with {counted(reader.remaining, 'byte')} left")
    return version, [_inner(reader) for _ in range(count)]


class _Request(Value):
    """A committable of any connector, in the version of its serializer."""

    version: int
    body: Reader
    checkpoint_id: int


def _requests(item: Reader, operator: str) -> Iterator[_Request]:
    """Yield each committable of a sink's committer that must still be committed."""
    version, reader = _versioned(item)
    if version != 2:
        raise RefusedError(
            f"committables of version {version} are not known (Flink 1.15 to 2.2 write 2)",
            where=operator,
        )
    if reader.uint32() != _COLLECTOR_MAGIC:
        raise reader.corrupt("committables do not begin as they must")
    checkpoint_version, checkpoints = _list(reader, 1, "checkpoints of committables")
    reader.ends()
    for checkpoint in checkpoints:
        checkpoint_id = checkpoint.int64()
        if checkpoint_version >= 1:
            checkpoint.int32()  # number of subtasks
        subtask_version, subtasks = _list(checkpoint, 2, "subtasks of committables")
        for subtask in subtasks:
            if subtask_version >= 1:
                subtask.int32()  # the subtask's number
            for request in _list(subtask, 0, "requests of committables")[1]:
                committable_version, body = _versioned(request)
                request.int32()  # retries
                state = request.int32()
                request.ends()
                if state not in _STATES:
                    raise request.corrupt(f"a commit is in state {state}")
                if state in _UNFINISHED:
                    yield _Request(committable_version, body, checkpoint_id)


def _whole(reader: Reader, decode: Callable[[Reader], T]) -> T | None:
    """Return the value if the bytes are exactly one; None = they are something else."""
    try:
        value = decode(reader)
        reader.ends()
    except CorruptError:
        return None
    return value


def _committable(reader: Reader) -> tuple[str, int, int]:
    epoch, producer_id, name = reader.int16(), reader.int64(), reader.java_text()
    if epoch < 0 or producer_id < 0 or not name:
        raise reader.corrupt("not a transaction")
    return name, producer_id, epoch


_Writer = tuple[str, str, int, tuple[tuple[str, int], ...]]


def _writer(version: int) -> Callable[[Reader], _Writer]:
    def decode(reader: Reader) -> _Writer:
        prefix = reader.java_text()
        if version == 1:
            return prefix, _OWNERSHIPS[0], -1, ()
        subtask, _, ownership = reader.int32(), reader.int32(), reader.int32()
        count = reader.int32()
        if not 0 <= ownership < len(_OWNERSHIPS) or not 0 <= count * 10 <= reader.remaining:
            raise reader.corrupt("not a writer of Kafka's sink")
        ids = tuple((reader.java_text(), reader.int64()) for _ in range(count))
        return prefix, _OWNERSHIPS[ownership], subtask, ids

    return decode


def _split(reader: Reader) -> tuple[str, int, int]:
    topic, partition, offset = reader.java_text(), reader.int32(), reader.int64()
    reader.int64()  # where it stops
    if not topic or partition < 0:
        raise reader.corrupt("not a partition")
    return topic, partition, offset
