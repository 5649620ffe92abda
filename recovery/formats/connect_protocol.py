"""What a worker of Kafka Connect sends to its group: its REST address, and the tasks it runs.

A version (int16), then fields of Kafka's plain types; version 0 is eager, 1 and 2 (sessioned) are
incremental, with fields added at the end. Source: ConnectProtocol,
IncrementalCooperativeConnectProtocol; KIP-415, KIP-507.
"""

from recovery.facts import ConnectTask
from recovery.formats.reader import Buffer, Reader

_OF_CONNECTOR = -1  # instead of a task's number: the connector itself


def decode_url(metadata: Buffer) -> str:
    """Return the REST address that a worker's member metadata advertises. Raises CorruptError."""
    reader = _behind_version(metadata, "metadata of a Connect worker")
    return reader.string()


def decode_tasks(assignment: Buffer) -> tuple[ConnectTask, ...]:
    """Return the tasks in a worker's assignment. Raises CorruptError."""
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
