"""A real MirrorMaker 2 between two labs, in its dedicated mode: started, killed, started again.

It mirrors topics and the offsets of groups from SOURCE to TARGET (KIP-382); `orders` becomes
`a.orders`. The target's lab ends it.
"""

import signal
from collections.abc import Mapping
from pathlib import Path

from eoctl.host.processes import Process, spawn, uninterrupted, wait_ended
from eoctl.lab import brokers
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA, FetchProgress, fetch, nothing, read_lock
from eoctl.lab.owner_processes import adopt, find
from recovery.errors import RefusedError
from recovery.values import replace

SOURCE, TARGET = "a", "b"
_NAME = "mirror-maker"
_MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
_ONE_COPY = (
    "replication.factor",
    *(f"{topic}.topic.replication.factor" for topic in ("offset-syncs", "checkpoints")),
    "heartbeats.topic.replication.factor",
    *(f"{kind}.storage.replication.factor" for kind in ("config", "offset", "status")),
)


def properties(
    source: Lab, target: Lab, topics: str, groups: str, more: Mapping[str, str]
) -> dict[str, str]:
    """Return an mm2.properties. topics, groups: regular expressions; more: wins over the rest."""
    return {
        "clusters": f"{SOURCE}, {TARGET}",
        f"{SOURCE}.bootstrap.servers": source.bootstrap_servers,
        f"{TARGET}.bootstrap.servers": target.bootstrap_servers,
        f"{SOURCE}->{TARGET}.enabled": "true",
        f"{SOURCE}->{TARGET}.topics": topics,
        f"{SOURCE}->{TARGET}.groups": groups,
        f"{TARGET}->{SOURCE}.enabled": "false",
        **dict.fromkeys(_ONE_COPY, "1"),
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.interval.seconds": "1",
        "sync.topic.acls.enabled": "false",
        "refresh.topics.interval.seconds": "5",
        "refresh.groups.interval.seconds": "5",
        "tasks.max": "1",
        **more,
    }


def exactly_once(on: bool) -> dict[str, str]:
    """Return the property of the target that makes each copy a part of a transaction (KIP-618)."""
    return {f"{TARGET}.exactly.once.source.support": "enabled" if on else "disabled"}


def folder_of(target: Lab) -> Path:
    """Return the folder with its settings and its log, in the target's."""
    return target.folder / _NAME


def running(target: Lab) -> Process | None:
    """Return the MirrorMaker that writes into a lab; None: none runs."""
    process = find(target.folder, _NAME)
    return process if process is not None and process.alive else None


def start(target: Lab, settings: Mapping[str, str], progress: FetchProgress = nothing) -> Process:
    """Start it, or return the one that runs. Raises RefusedError if that has other settings."""
    folder = folder_of(target)
    folder.mkdir(exist_ok=True)
    file = folder / "mm2.properties"
    if (there := running(target)) is not None:
        if file.read_bytes() != brokers.settings_text(settings):
            raise RefusedError(
                "a MirrorMaker with other settings runs",
                where=str(file),
                remedy="first `eoctl lab mirror --kill`, with the same --name",
            )
        return there
    runtime = brokers.find_runtime(KAFKA, progress=progress)
    more = fetch(read_lock(KAFKA, "mirror"), runtime.java, progress=progress)
    runtime = replace(runtime, jars=(*runtime.jars, *more))
    brokers.write_settings(file, settings)
    flags = ("-Xmx512m", *brokers.log_flags(KAFKA, folder / "mm2.log"))
    with uninterrupted():
        process = spawn(runtime.argv(_MAIN, file, flags=flags), folder / "console.log")
        adopt(target.folder, _NAME, process)
    return process


def kill(target: Lab) -> bool:
    """Send it SIGKILL: what it had copied since it last saved its positions, it copies again.

    Return False if none runs.
    """
    process = running(target)
    if process is None:
        return False
    process.send(signal.SIGKILL)
    wait_ended([process], 20)
    return True
