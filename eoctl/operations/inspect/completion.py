"""Complete names: topics and transactional ids of a cluster, cached for 60 s per context.

Pressing Tab waits a moment at most: a separate process asks the cluster and writes the cache, so
that a slow cluster's answer serves the next Tab. Nothing here prints or prompts.
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from eoctl.kafka.ask import coordinators
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.property_names import SECRET_KEY
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Context, cache_dir
from recovery.values import Value

FRESH_SECONDS = 60.0
ASK_SECONDS = 5.0
MOST_IDS = 20_000


class Names(Value):
    """topics: name → number of partitions. transactional_ids: the first 20,000, sorted."""

    topics: Mapping[str, int] = msgspec.field(default_factory=dict)
    transactional_ids: tuple[str, ...] = ()


def names(context: Context, wait_seconds: float) -> Names:
    """Return a cluster's names; older ones, or none, if it does not answer in time."""
    path = _cache_path(context)
    if _age(path) > FRESH_SECONDS:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _ask_in_background(context, path)
        end = time.monotonic() + wait_seconds
        while _age(path) > FRESH_SECONDS and time.monotonic() < end:
            time.sleep(0.01)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Names(dict(content["topics"]), tuple(content["transactional_ids"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Names()


def _cache_path(context: Context) -> Path:
    """Return one file per cluster and way to it, without a secret in its name."""
    known = {k: v for k, v in context.properties.items() if not SECRET_KEY.search(k)}
    way = json.dumps([context.name, sorted(known.items()), sorted(context.hosts.items())])
    return cache_dir() / "completion" / f"{hashlib.sha256(way.encode()).hexdigest()[:32]}.json"


def _age(path: Path) -> float:
    try:
        return abs(time.time() - path.stat().st_mtime)
    except OSError:
        return float("inf")


def _ask_in_background(context: Context, path: Path) -> None:
    """Start a child that outlives us, without terminal or output, so the shell does not wait."""
    if os.fork():
        return
    status = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        _ask(context, path)
        status = 0
    finally:
        os._exit(status)


def _ask(context: Context, path: Path) -> None:
    with path.with_suffix(".lock").open("w") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        names = with_cluster(context, ASK_SECONDS, _names)
        fresh = path.with_suffix(".new")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            json.dump(names, f)
        fresh.replace(path)


async def _names(cluster: Cluster) -> dict[str, object]:
    metadata = await cluster.metadata(None)
    listed = await coordinators.transactions(cluster)
    ids = sorted(t.transactional_id for t in listed.rows)
    return {
        "topics": {t.name: len(t.partitions) for t in metadata.topics.values()},
        "transactional_ids": ids[:MOST_IDS],
    }
