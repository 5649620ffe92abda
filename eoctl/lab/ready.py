"""Check a lab's readiness: each broker says over the wire whether it sees all the others."""

import asyncio
import time
from pathlib import Path

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.security import Security
from eoctl.kafka.connection.wire import Connection
from eoctl.lab import brokers
from eoctl.lab.jars import FetchProgress, nothing
from eoctl.lab.record import HOST, PLAINTEXT, LabRecord, Node
from recovery.errors import UnreachableError

READY_SECONDS = 90.0
ANSWER_SECONDS = 2.0


def wait(
    record: LabRecord, folder: Path, progress: FetchProgress = nothing, *, only: int | None = None
) -> None:
    """Wait until every broker sees all brokers, or `only` that one sees itself.

    Raises UnreachableError: a broker ended (with the reason and its log) or it took too long.
    """
    asyncio.run(_wait(record, folder, progress, only))


def answering(record: LabRecord) -> set[int]:
    """Return the brokers that answer and see themselves in the cluster."""

    async def ask() -> set[int]:
        running = [n for n in record.nodes if n.process and n.process.state == "running"]
        ids_by_node = await asyncio.gather(*map(_seen_by, running))
        return {node.id for node, ids in zip(running, ids_by_node, strict=True) if node.id in ids}

    return asyncio.run(ask())


async def _wait(record: LabRecord, folder: Path, progress: FetchProgress, only: int | None) -> None:
    waiting = {node.id: node for node in record.nodes if only in (None, node.id)}
    total, ids_needed = len(waiting), set(waiting)
    end = time.monotonic() + READY_SECONDS
    progress("brokers ready", 0, total)
    while waiting:
        for node in waiting.values():
            if node.process is None or not node.process.alive:
                raise _crashed(record, folder, node)
        if time.monotonic() > end:
            missing = next(iter(waiting))
            log = brokers.save_log(folder, missing)
            raise UnreachableError(
                f"broker {missing} is not ready after {READY_SECONDS:.0f} s", remedy=f"see {log}"
            )
        nodes = list(waiting.values())
        for node, ids in zip(nodes, await asyncio.gather(*map(_seen_by, nodes)), strict=True):
            if ids_needed <= ids:
                del waiting[node.id]
                progress("brokers ready", total - len(waiting), total)
        if waiting:
            await asyncio.sleep(0.05)


async def _seen_by(node: Node) -> set[int]:
    """Return the broker ids in this broker's Metadata answer; none while it does not answer."""
    deadline = Deadline(ANSWER_SECONDS)
    try:
        connection = await Connection.open(HOST, node.ports[PLAINTEXT], Security(), deadline)
        try:
            answer = await connection.ask(messages.MetadataRequest(topics=[]), deadline)
            return {broker.node_id for broker in answer.brokers}
        finally:
            connection.close()
    except WireError:
        return set()


def _crashed(record: LabRecord, folder: Path, node: Node) -> UnreachableError:
    log = brokers.save_log(folder, node.id)
    output = brokers.reason(log.read_text(errors="replace")) or "no reason in its log"
    return UnreachableError(
        f"broker {node.id} of lab {record.spec.name!r} ended at its start: {output}",
        remedy=f"see {log}",
    )
