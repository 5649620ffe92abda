"""Create what a Flink job leaves that died between a checkpoint and its commits, without Flink.

The transactions are real, with ids as Flink's Kafka sink makes them. The lab writes the checkpoint,
in the format that Flink's own classes read (`_metadata`, format 3). It holds the sink's
committables and writers and nothing else, so no job could be restored from it.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

from eoctl.lab.breaks.owned import longest_timeout
from eoctl.lab.breaks.stage import BreakKind, Stage, batch
from eoctl.lab.breaks.truth import GroundTruth, Ledger
from eoctl.lab.producer import Producer

CHECKPOINT = 7

Promised = tuple[str, int, int]
"""Transactional id, producer id, producer epoch."""


async def make_checkpoint(stage: Stage) -> list[GroundTruth]:
    """Make two open transactions per subtask: one in checkpoint 7, one begun after it."""
    timeout_ms = await longest_timeout(stage)
    targets = await stage.targets()
    prefix = stage.options.transactional_id or targets[0].topic
    folder = stage.lab.folder / "checkpoints" / prefix / f"chk-{CHECKPOINT}"
    promised, open_ones = [], []
    for subtask, target in enumerate(targets):
        ledger = await Ledger.begin(stage.client, target.topic, target.partition)
        for number in (CHECKPOINT, CHECKPOINT + 1):
            name = f"{prefix}-{subtask}-{number}"
            producer = await Producer.init(stage.client, name, timeout_ms)
            start = await ledger.send(producer, batch(stage.options.records, f"of-{number}"))
            open_ones.append((ledger, name, producer, start))
            if number == CHECKPOINT:
                promised.append((name, producer.producer_id, producer.epoch))
    write_checkpoint(folder, prefix, promised)
    words = {
        CHECKPOINT: f"commit it, as its checkpoint promises: txn commit --checkpoint {folder}",
        CHECKPOINT + 1: "wait: it was begun after the checkpoint, its timeout aborts it",
    }
    return [
        await stage.truth(
            ledger,
            name,
            producer,
            start,
            verdict="open",
            repair=words[int(name.rpartition("-")[2])],
        )
        for ledger, name, producer, start in open_ones
    ]


def write_checkpoint(folder: Path, prefix: str, promised: Sequence[Promised]) -> None:
    """Write a folder `chk-N` with the `_metadata` of a checkpoint with these promises to commit.

    Source of the format: `recovery.formats.flink_metadata` and `flink_checkpoint`, which read it.
    """
    number = int(folder.name.removeprefix("chk-"))
    states = {
        "streaming_committer_raw_states": [_committer(one, number) for one in promised],
        "writer_raw_states": [
            _writer(prefix, subtask, len(promised)) for subtask in range(len(promised))
        ],
    }
    folder.mkdir(parents=True)
    (folder / "_metadata").write_bytes(
        struct.pack(">IiqiI", 0x4960672D, 3, number, 0, len(states))
        + b"".join(_operator(at, name, items) for at, (name, items) in enumerate(states.items()))
    )


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _list(version: int, item: bytes) -> bytes:
    """Return a versioned list of one item."""
    return struct.pack(">ii", version, 1) + _sized(item)


def _committer(one: Promised, checkpoint: int) -> bytes:
    name, producer_id, epoch = one
    committable = struct.pack(">hq", epoch, producer_id) + _text(name)
    request = struct.pack(">i", 1) + _sized(committable) + struct.pack(">ii", 0, 0)
    # subtask number, requests, how many of them are finished and failed
    subtask = struct.pack(">i", 0) + _list(0, request) + struct.pack(">ii", 0, 0)
    collector = _list(1, struct.pack(">qi", checkpoint, 1) + _list(2, subtask))
    return struct.pack(">i", 2) + _sized(struct.pack(">I", 0xB91F252C) + collector)


def _writer(prefix: str, subtask: int, of: int) -> bytes:
    """Return the state of a writer that derives its ids from checkpoints (INCREMENTING)."""
    state = _text(prefix) + struct.pack(">iiii", subtask, of, 0, 0)
    return struct.pack(">i", 2) + _sized(state)


def _operator(at: int, state: str, items: Sequence[bytes]) -> bytes:
    """Return an operator with one list state that holds one item per subtask."""
    subtasks = b"".join(_subtask(n, state, item) for n, item in enumerate(items))
    head = struct.pack(">qqiibi", 0, at, len(items), 128, 0, len(items))
    return head + subtasks


def _subtask(number: int, state: str, item: bytes) -> bytes:
    content = struct.pack(">i", 2) + _sized(item)  # follows the version of the operator state
    handle = struct.pack(">bi", 4, 1) + _text(state) + struct.pack(">biq", 0, 1, 4)
    handle += b"\x01" + _text("lab") + _sized(content)
    return struct.pack(">ii", number, 1) + handle + struct.pack(">ibbii", 0, 0, 0, 0, 0)


KINDS = (
    BreakKind(
        "checkpoint",
        "what a dead Flink job leaves, and its checkpoint (written by the lab, without Flink)",
        make_checkpoint,
        takes=frozenset({"timeout_ms"}),
    ),
)
