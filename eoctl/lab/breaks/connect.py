"""Create what a Kafka Connect worker leaves that died inside a transaction, without Connect.

The source is Kafka's own file connector, with exactly-once support: a task reads lines of a file
that the lab writes. Keys and values are those of Connect 4.3.1's JSON converter: a worker of the
group that is started later takes the connector over, fences its id and reads the rest. Source:
Connect's KafkaConfigBackingStore, KafkaStatusBackingStore, OffsetStorageWriter; KIP-618.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eoctl.kafka.connection import messages
from eoctl.lab import admin
from eoctl.lab.breaks.owned import longest_timeout
from eoctl.lab.breaks.stage import BreakKind, Stage
from eoctl.lab.breaks.truth import GroundTruth, Ledger
from eoctl.lab.client import GROUP, NOT_NOW, NewRecord, refuse
from eoctl.lab.jars import KAFKA
from eoctl.lab.producer import Producer
from recovery.errors import UsageError
from recovery.plurals import counted

WORKERS = "etl"
WORKER = "127.0.0.1:8083"  # an address where nobody answers any longer
_SOURCE = "org.apache.kafka.connect.file.FileStreamSource"
_COMPACTED = {"cleanup.policy": "compact"}
_SESSION_MS = 10_000


async def make_connect(stage: Stage) -> list[GroundTruth]:
    """Make, per connector, a committed transaction with its source offset, and an open one."""
    if stage.options.transactional_id is not None:
        raise UsageError(
            "the id is `<group>-<connector>-<task>`", remedy="name --group and --topic instead"
        )
    group, client = stage.options.group or WORKERS, stage.client
    timeout_ms = await longest_timeout(stage)
    targets = await stage.targets()
    topics = {name: f"{group}-{name}" for name in ("configs", "offsets", "status")}
    there = await client.topics()
    for name in topics.values():
        if name not in there:
            replication = min(3, len(client.cluster.brokers))
            await admin.create_topic(client, name, 1, replication, _COMPACTED)
    leader = await Producer.init(client, f"connect-cluster-{group}")
    truths = []
    for target in targets:
        connector = target.topic if len(targets) == 1 else target.transactional_id
        file = group_folder(stage.lab.folder, group) / f"{connector}.txt"
        lines = [f"order {n} of {connector}" for n in range(1, 2 * stage.options.records + 1)]
        _write_source(file, lines)
        before, behind = lines[: stage.options.records], lines[stage.options.records :]
        for record in configs(connector, target.topic, file):  # a transaction each, as its leader's
            await leader.send(topics["configs"], 0, [record])
            await leader.commit()
        await client.plain(topics["status"], 0, statuses(connector, target.topic))

        ledger = await Ledger.begin(client, target.topic, target.partition)
        name = f"{group}-{connector}-0"
        task = await Producer.init(client, name, timeout_ms)
        producer_id = task.producer_id
        await ledger.send(task, _values(before))
        position = sum(len(line) + 1 for line in before)
        await task.send(topics["offsets"], 0, [source_offset(connector, file, position)])
        await task.commit()
        await ledger.ended(producer_id, commit=True)
        start = await ledger.send(task, _values(behind))
        repair = (
            f"start a worker of group {group}: it aborts this and reads "
            f"{counted(len(behind), 'line')} again; if none ever comes back, fence the id"
        )
        truths.append(
            await stage.truth(ledger, name, task, start, verdict="open", group=group, repair=repair)
        )
    await _leave_group(stage, group)
    return truths


def group_folder(lab_folder: Path, group: str) -> Path:
    """Return the folder of the files that a group's connectors read."""
    return lab_folder / "connect" / group


def _write_source(file: Path, lines: Sequence[str]) -> None:
    if file.exists():
        raise UsageError("the lab has this connector already", remedy="name another --topic")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def configs(connector: str, topic: str, file: Path) -> list[NewRecord]:
    """Return the records of the configuration topic, in order.

    They lack the workers' session key: a leader without a key makes one.
    """
    given = {
        "connector.class": f"{_SOURCE}Connector",
        "tasks.max": "1",
        "topic": topic,
        "file": str(file),
        "name": connector,
    }
    task = {  # in the order of a Java HashMap
        "connector.class": f"{_SOURCE}Connector",
        "file": str(file),
        "task.class": f"{_SOURCE}Task",
        "tasks.max": "1",
        "name": connector,
        "topic": topic,
    }
    return [
        _record(f"connector-{connector}", {"properties": given}),
        _record(f"task-{connector}-0", {"properties": task}),
        _record(f"commit-{connector}", {"tasks": 1}),
        _record(f"tasks-fencing-{connector}", {"task-count": 1}),
    ]


def statuses(connector: str, topic: str) -> list[NewRecord]:
    """Return the records of the status topic: none says that the connector stopped."""
    running = {
        "state": "RUNNING",
        "trace": None,
        "worker_id": WORKER,
        "generation": 1,
        "version": KAFKA,
    }
    used = {"name": topic, "connector": connector, "task": 0, "discoverTimestamp": 0}
    return [
        _record(f"status-connector-{connector}", running),
        _record(f"status-task-{connector}-0", running),
        _record(f"status-topic-{topic}:connector-{connector}", {"topic": used}),
    ]


def source_offset(connector: str, file: Path, position: int) -> NewRecord:
    """Return the record of the offsets topic. position: the bytes read from the file."""
    return _record(_json([connector, {"filename": str(file)}]), {"position": position})


def _values(lines: Sequence[str]) -> list[NewRecord]:
    return [NewRecord(line.encode()) for line in lines]


def _record(key: str, value: Mapping[str, Any]) -> NewRecord:
    return NewRecord(_json(value).encode(), key.encode())


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


async def _leave_group(stage: Stage, group: str) -> None:
    """Let a member with the protocol `connect` join and leave the group: it is then empty.

    Kafka forgets an empty group without offsets within its retention check interval (10 min).
    """
    client = stage.client
    protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol
    member = ""

    async def join() -> None:
        nonlocal member
        question = messages.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            member_id=member,
            protocol_type="connect",
            protocols=[protocol(name="sessioned", metadata=_metadata())],
        )
        broker = await client.coordinator(group, GROUP)
        answer = await client.cluster.ask(broker, question, most=4)
        member = answer.member_id or member
        refuse(answer.error_code, f"JoinGroup of {group!r}")

    async def leave() -> None:
        question = messages.LeaveGroupRequest(group_id=group, member_id=member)
        broker = await client.coordinator(group, GROUP)
        answer = await client.cluster.ask(broker, question, most=2)
        refuse(answer.error_code, f"LeaveGroup of {group!r}")

    await client.until(join, also=NOT_NOW | {"MEMBER_ID_REQUIRED"})
    await client.until(leave)


def _metadata() -> bytes:
    """Return a worker's metadata: version 2, its address, the end of the configurations."""
    url = f"http://{WORKER}/".encode()
    return b"".join(
        (
            (2).to_bytes(2, "big"),
            len(url).to_bytes(2, "big"),
            url,
            (0).to_bytes(8, "big"),
            (-1).to_bytes(4, "big", signed=True),
        )
    )


KINDS = (
    BreakKind(
        "connect",
        "what a dead Kafka Connect source task leaves (written by the lab, without Connect)",
        make_connect,
        takes=frozenset({"timeout_ms", "group"}),
    ),
)
