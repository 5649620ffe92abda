"""Rebuilt changelogs against a real Kafka Streams application's own answers, byte for byte.

One run of the application serves all stores: it commits, dies in a transaction that stays open,
comes back, has its changelogs compacted, and at last restores its stores from them. At each stage
its interactive queries are compared with a rebuild up to the same cut.
"""

import asyncio
import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.chunks import Range
from eoctl.kafka.read.columns import read_columns
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from recovery.formats.columns import COMMITTED, NONE
from recovery.state.changelogs.changelog import changelog_format
from recovery.state.latest import Latest
from tests.kafka.command import eoctl
from tests.share import share
from tests.streams.app import (
    HISTORY_MS,
    PARTITIONS,
    RETENTION_MS,
    STORES,
    App,
    AsOf,
    Row,
    bounds,
    inputs,
    produce,
)

pytestmark = pytest.mark.timeout(900)  # the first test waits for the whole run

STAGES = ("committed", "open", "again", "compacted", "restored")
BY_COMMAND = ("open", "restored")
"""Stages at which `eoctl state rebuild` itself is asked; at the others the pieces that it uses."""

RESTORES = 6
"""Tries at a restore that nothing interrupts; on a busy machine the group may rebalance."""

CACHED = {"kv-cached", "window-cached", "session-cached"}
pytestmark = pytest.mark.long
VARIANTS = [
    pytest.param({"producer.compression.type": "lz4"}, id="lz4"),
    pytest.param({}, id="plain"),
    pytest.param(
        {"producer.compression.type": "zstd", "dsl.store.format": "HEADERS"},
        id="zstd-headers",
    ),
    pytest.param(
        {
            "producer.compression.type": "gzip",
            "__iq.consistency.offset.vector.enabled__": "true",
        },
        id="gzip-offset-vector",
    ),
    pytest.param(
        {"producer.compression.type": "snappy", "processing.guarantee": "at_least_once"},
        id="snappy-at-least-once",
    ),
]


@dataclass(frozen=True)
class Rebuilt:
    """One changelog partition, rebuilt. rows: with the columns of its format; read: records."""

    rows: list[dict[str, Any]]
    read: int


State = Mapping[tuple[str, int], Rebuilt]


@dataclass(frozen=True)
class Stage:
    """What the application said at one stage, and what the rebuild gave. newest: the highest
    timestamp of each partition of the versioned store's changelog."""

    said: list[Row]
    versions: list[AsOf]
    rebuilt: State
    newest: list[int]
    held: int


async def _rebuild(cluster: Cluster, app: App, store: str, partition: int, end: int) -> Rebuilt:
    options = {"retention_ms": HISTORY_MS if store == "versioned" else RETENTION_MS}
    form = changelog_format(STORES[store], options)
    seen: Mapping[str, Any] = {}
    latest = Latest(form, 1 << 30, lambda table: None)
    read = 0
    async for part in read_columns(cluster, Range(app.changelog(store), partition, 0, end)):
        outcome = part.outcome
        rows = part.select((outcome == NONE) | (outcome == COMMITTED)).rows()
        read += len(rows)
        assert form.valid(rows).all()
        kept = form.keep(rows, seen)
        seen = form.observe(rows, seen)
        latest.add(rows if kept is None else rows.filter(kept.tolist()))
    return Rebuilt(form.finish(latest.table(), seen).to_pylist(), read)


def rebuild(app: App, *, stores: Mapping[str, str] = STORES) -> State:
    """Every changelog up to its last stable offset."""

    async def all_of_them() -> dict[tuple[str, int], Rebuilt]:
        async with Client.to(app.lab.bootstrap_servers) as client:
            return {
                (store, partition): await _rebuild(
                    client.cluster,
                    app,
                    store,
                    partition,
                    (await client.offsets(app.changelog(store), partition))[1],
                )
                for store in stores
                for partition in range(PARTITIONS)
            }

    return asyncio.run(all_of_them())


def rebuild_by_command(app: App, folder: Path) -> State:
    """The same by `eoctl state rebuild`, retentions taken from the topics' settings."""
    import pyarrow.parquet as pq

    found: dict[tuple[str, int], Rebuilt] = {}
    for form in sorted(set(STORES.values())):
        topics = {app.changelog(store): store for store in STORES if STORES[store] == form}
        output = folder / form
        ran = eoctl(
            *("state", "rebuild", *topics, "--format", form, "--at", "lso"),
            *("--output", str(output), "--engine", "local", "-o", "json"),
            lab=app.lab,
            timeout=120,
        )
        assert ran.status == 0, ran.stderr
        for part in json.loads((output / "manifest.json").read_text())["partitions"]:
            files = [output / file["path"] for file in part["files"]]
            rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
            partition = topics[part["topic"]], part["partition"]
            found[partition] = Rebuilt(rows, part["counts"]["data"])
    return found


def newest(app: App) -> list[int]:
    """The highest timestamp of each partition of the versioned store's changelog."""
    from confluent_kafka import Consumer, TopicPartition

    found = []
    for partition in range(PARTITIONS):
        where = TopicPartition(app.changelog("versioned"), partition, 0)
        consumer = Consumer(
            {
                **app.lab.client_properties(),
                "group.id": "-",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )
        consumer.assign([where])
        times = []
        while (message := consumer.poll(20)) is not None and message.error() is None:
            times.append(message.timestamp()[1])
        consumer.close()
        found.append(max(times))
    return found


class Run:
    """The application's life, stage by stage."""

    def __init__(self, lab: Lab, folder: Path, settings: Mapping[str, str]) -> None:
        name = f"in-{uuid.uuid4().hex[:8]}"
        _topic(lab, name)
        self.app = App(lab, folder, f"app-{name}", name, settings)
        self.lab, self.source = lab, name
        self.transactional = settings.get("processing.guarantee") != "at_least_once"
        self.time = int(time.time() * 1000) - 3_600_000  # old enough to be late, young to be kept
        self.sent = 0
        self.stages: dict[str, Stage] = {}

    def feed(self, count: int, span_ms: int) -> None:
        """More input, whose times go on for span_ms."""
        begin, self.time = self.time, self.time + span_ms
        produce(self.lab, self.source, inputs(self.sent, count, begin, self.time))
        self.sent += count

    def take(self, stage: str, said: Stage | None = None) -> None:
        """Ask the application (or, while it is dead, remember its last answer), and rebuild."""
        held = sum(
            high - stable
            for _, stable, high in bounds(self.lab, map(self.app.changelog, STORES)).values()
        )
        if stage in BY_COMMAND:
            folder = self.app.folder / stage
            shutil.rmtree(folder, ignore_errors=True)
            rebuilt = rebuild_by_command(self.app, folder)
        else:
            rebuilt = rebuild(self.app)
        if said is not None:
            self.stages[stage] = Stage(said.said, said.versions, rebuilt, said.newest, held)
            return
        times = newest(self.app)
        keys = sorted(
            {row["key"] for p in range(PARTITIONS) for row in self._versioned(rebuilt, p)}
        )
        asked = sorted({t - HISTORY_MS + more for t in times for more in (-1, 0, 1, 9_000, 30_000)})
        versions = self.app.as_of(keys, [*asked, max(times)])
        self.stages[stage] = Stage(self.app.rows(), versions, rebuilt, times, held)

    def _versioned(self, rebuilt: State, partition: int) -> list[dict[str, Any]]:
        return rebuilt["versioned", partition].rows

    def live(self) -> None:
        app = self.app
        self.feed(share(20_000, 2_000), 200_000)
        app.start()
        app.commit()
        self.take("committed")
        already = app.ask("state")["processed"]
        self.feed(1_000, 60_000)
        app.processed(already + 1_000)
        if self.transactional:
            app.until(self._all_open, "no transaction is open")
        app.halt()
        if self.transactional:  # at_least_once has nothing to take back
            self.take("open", self.stages["committed"])
        app.start()
        app.commit()
        self.take("again")
        before = sum(part.read for part in self.stages["again"].rebuilt.values())
        for _ in range(2):
            time.sleep(1.2)  # segment.ms: the next record begins a new segment
            self.feed(400, 20_000)
            app.commit()
        app.until(lambda: self._cleaned(before), "the cleaner did nothing")
        self.take("compacted")
        for left in reversed(range(RESTORES)):
            app.stop()
            shutil.rmtree(app.folder / "state")
            app.start()
            self.take("restored")
            try:
                check_versions(self.stages["restored"])
                break
            except AssertionError:
                if not left:  # tried again, the test of it would see the same once more
                    raise

    def _all_open(self) -> bool:
        time.sleep(0.2)
        found = bounds(self.lab, [self.app.changelog("kv"), self.app.changelog("window")])
        return all(stable < high for _, stable, high in found.values())

    def _cleaned(self, before: int) -> bool:
        time.sleep(0.5)
        counts = rebuild(self.app, stores={s: f for s, f in STORES.items() if s != "versioned"})
        return all(
            part.read < 1_000 for (store, _), part in counts.items() if store in ("kv", "memory")
        )


def _topic(lab: Lab, name: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(lab.client_properties())
    admin.create_topics([NewTopic(name, PARTITIONS, 1)], operation_timeout=10)[name].result(20)


_tries: dict[str, int] = {}


@pytest.fixture(scope="module", params=VARIANTS)
def run(
    request: pytest.FixtureRequest,
    start_lab: Callable[[LabSpec], Lab],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Run]:
    # one run serves many tests: each of them is tried again, the run is not for each of them
    variant = str(request.param)
    _tries[variant] = _tries.get(variant, 0) + 1
    if _tries[variant] > 2:
        pytest.fail("the application's run failed twice already")
    settings = {"log.cleaner.backoff.ms": "300", "offsets.topic.num.partitions": "4"}
    lab = start_lab(LabSpec(name="streams", settings=settings))
    life = Run(lab, tmp_path_factory.mktemp("streams"), request.param)
    try:
        life.live()
        yield life
    finally:
        life.app.stop()


def plain_rows(store: str, rebuilt: State) -> set[Row]:
    """A rebuild as the application would say it."""
    found = set()
    for partition in range(PARTITIONS):
        for row in rebuilt[store, partition].rows:
            kind = STORES[store]
            found.add(
                Row(
                    store=store,
                    partition=partition,
                    key=row["user_key"] if "user_key" in row else row["key"],
                    value=row["value"],
                    timestamp=None if kind == "streams-session" else row["timestamp"],
                    start=row.get("window_start", row.get("session_start")),
                    end=row.get("session_end"),
                )
            )
    return found


def said_rows(store: str, stage: Stage) -> set[Row]:
    """What the application said; the end of a window is not in the changelog."""
    is_window = STORES[store] == "streams-window"
    return {
        Row(
            r.store, r.partition, r.key, r.value, r.timestamp, r.start, None if is_window else r.end
        )
        for r in stage.said
        if r.store == store
    }


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("store", [s for s in STORES if s != "versioned"])
def test_the_rebuild_is_what_the_application_says(run: Run, store: str, stage: str) -> None:
    if stage == "open" and not run.transactional:
        pytest.skip("nothing is open")
    seen = run.stages[stage]
    said, rebuilt = said_rows(store, seen), plain_rows(store, seen.rebuilt)
    assert len(rebuilt) > 100
    if store in CACHED and stage != "restored":
        # a cache still shows what its store hides
        for partition in range(PARTITIONS):
            hidden = {r for r in said - rebuilt if r.partition == partition}
            times = [r.end or r.start or 0 for r in said if r.partition == partition]
            assert all((r.end or r.start or 0) <= max(times) - RETENTION_MS for r in hidden)
        assert rebuilt <= said
    else:
        assert rebuilt == said


# Not after the crash: a versioned store forgets its stream time when its application starts again
# with the state it has, and until later records come takes and shows what a replay leaves out.
# A rebalance in the middle of a restore is such a start too: it is restored again (RESTORES).
@pytest.mark.parametrize("stage", ["committed", "open", "restored"])
def test_versions_are_what_the_versioned_store_answers(run: Run, stage: str) -> None:
    if stage == "open" and not run.transactional:
        pytest.skip("nothing is open")
    check_versions(run.stages[stage])


def check_versions(seen: Stage) -> None:
    """The versions that the store answered are those of the rebuild, at every time asked."""
    rows: dict[tuple[int, bytes], list[tuple[int, int | None, bytes]]] = {}
    for partition in range(PARTITIONS):
        for row in seen.rebuilt["versioned", partition].rows:
            version = (row["valid_from"], row["valid_to"], row["value"])
            rows.setdefault((partition, row["key"]), []).append(version)
            assert row["timestamp"] == row["valid_from"]
    horizon = [newest - HISTORY_MS for newest in seen.newest]
    said: dict[tuple[int, bytes], list[tuple[int, int | None, bytes]]] = {}
    answers = 0
    for v in seen.versions:
        key = (v.partition, v.key)
        if v.at is None:
            assert v.valid_from is not None
            assert v.value is not None
            if v.valid_to is None or v.valid_to > horizon[v.partition]:
                said.setdefault(key, []).append((v.valid_from, v.valid_to, v.value))
            continue
        expected = [
            (since, until, value)
            for since, until, value in rows.get(key, [])
            if since <= v.at and (until is None or (v.at < until and v.at >= horizon[v.partition]))
        ]
        answer = [] if v.value is None else [(v.valid_from, v.valid_to, v.value)]
        assert answer == expected, v
        answers += len(answer)
    assert {k: sorted(v, key=str) for k, v in said.items()} == {
        k: sorted(v, key=str) for k, v in rows.items()
    }
    assert answers > 100
    assert sum(map(len, rows.values())) > 1.5 * len(rows)  # histories, not only latest values


def test_the_crashed_transaction_was_open_and_was_aborted(run: Run) -> None:
    if not run.transactional:
        pytest.skip("nothing is open")
    assert run.stages["open"].held > 1_000
    assert run.stages["again"].held == 0


def test_compaction_took_records_away(run: Run) -> None:
    """These stores' changelogs got a record for each of the input."""
    compacted = run.stages["compacted"].rebuilt
    for store in ("kv", "memory"):
        left = sum(compacted[store, partition].read for partition in range(PARTITIONS))
        assert left < run.sent / 2
