"""What a worker of Kafka Connect tells its group: its REST address, and what it is to run.

A version (int16), then fields of Kafka's plain types; version 0 is eager, 1 and 2 (sessioned) are
incremental, with fields added at the end. Source: ConnectProtocol,
IncrementalCooperativeConnectProtocol; KIP-415, KIP-507.
"""

from recovery.facts import ConnectTask
from recovery.formats.reader import Buffer, Reader

_OF_CONNECTOR = -1  # in the place of a task's number: the connector itself


def decode_url(metadata: Buffer) -> str:
    """The REST address that a worker advertises, from its member metadata. Raises CorruptError."""
    reader = _behind_version(metadata, "metadata of a Connect worker")
    return reader.string()


def decode_tasks(assignment: Buffer) -> tuple[ConnectTask, ...]:
    """The tasks that a worker was given, from its assignment. Raises CorruptError."""
    reader = _behind_version(assignment, "assignment of a Connect worker")
    reader.int16()  # error
    reader.string()  # the leader's member id
    reader.string()  # the leader's address
    reader.int64()  # the offset in the topic of configurations
    tasks: list[ConnectTask] = []

    def connector() -> None:
        name = reader.string()
        tasks.extend(ConnectTask(name, n) for n in reader.int32s() if n != _OF_CONNECTOR)

    reader.array(connector)
    return tuple(sorted(tasks))


def _behind_version(data: Buffer, where: str) -> Reader:
    reader = Reader(data, where)
    version = reader.int16()
    if version < 0:
        raise reader.corrupt(f"version {version}")
    return reader
