"""A life of an application: run, killed, planned, applied, run again; and what must come out."""

import json
import os
import random
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from eoctl.lab.cluster import Lab
from tests.forked import fork
from tests.kafka import restart_app
from tests.kafka.command import Ran, environment, eoctl
from tests.kafka.restart_app import Config, process

PARTITIONS = 2


@dataclass(frozen=True)
class Input:
    """A topic, and the values that a read_committed reader sees in each partition."""

    topic: str
    values: Sequence[Sequence[str]]


def fill(lab: Lab, topic: str, partitions: int, records: int, seed: int = 0) -> Input:
    """Transactions, aborted ones among them, and plain records."""
    from confluent_kafka import Producer

    chance = random.Random(seed)
    plain = Producer(lab.client_properties() | {"enable.idempotence": True})
    grouped = Producer(lab.client_properties() | {"transactional.id": f"fills-{topic}"})
    grouped.init_transactions(30)
    values: list[list[str]] = []
    for p in range(partitions):
        mine: list[str] = []
        number = 0
        while len(mine) < records:
            kind = chance.choice(["plain", "commit", "abort"])
            batch = [str(number + i) for i in range(chance.randint(1, 6))]
            number += len(batch)
            if kind == "plain":
                for value in batch:
                    plain.produce(topic, value, partition=p)
                assert plain.flush(30) == 0
            else:
                grouped.begin_transaction()
                for value in batch:
                    grouped.produce(topic, value, partition=p)
                grouped.flush(30)
                (grouped.commit_transaction if kind == "commit" else grouped.abort_transaction)(30)
            if kind != "abort":
                mine += batch
        values.append(mine)
    return Input(topic, values)


def visible(lab: Lab, topic: str, partition: int) -> list[str]:
    """What a read_committed consumer gets: the independent oracle."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        lab.client_properties()
        | {
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    got: list[str] = []
    while True:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            got.append(message.value().decode())
            continue
        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
        consumer.close()
        return got


@dataclass
class Life:
    """One application, from its first start to its end."""

    lab: Lab
    config: Config
    app_file: Path
    plan_file: Path
    env: dict[str, str] = field(default_factory=dict)
    between: Callable[[], None] = lambda: None

    def run(self, kill_after: int | None) -> int:
        """Its exit status: -9 when it was killed."""
        done = self.ended(kill_after)
        assert done.returncode in (0, -9), done.stderr[-2000:]
        return done.returncode

    def ended(self, kill_after: int | None) -> "subprocess.CompletedProcess[str]":
        """Run it until it ends, however it does."""
        first = not self.env
        config = replace(self.config, kill_after=kill_after, first=first)
        words = [json.dumps(asdict(config))]
        with tempfile.TemporaryDirectory(prefix="eoctl-app-") as files:
            app = fork(words, environment() | self.env, Path(files), call=restart_app.main)
            return subprocess.CompletedProcess(words, *app.end(120))

    def plan(self, *more: str) -> Ran:
        return self.eoctl(
            "plan", str(self.app_file), "--out", str(self.plan_file), "--pause", "0.2s", *more
        )

    def apply(self, *more: str) -> Ran:
        return self.eoctl("apply", str(self.plan_file), "--execute", "--yes", *more)

    def eoctl(self, *words: str, env: dict[str, str] | None = None) -> Ran:
        return eoctl("restart", *words, lab=self.lab, env=env)

    def restart(self) -> None:
        """Plan, apply, and take the numbers."""
        planned = self.plan("--env", *self.fencing)
        assert planned.status == 0, planned.stderr
        applied = self.apply()
        assert applied.status == 0, applied.stderr
        self.env = dict(line.split("=", 1) for line in planned.stdout.splitlines())

    @property
    def fencing(self) -> Sequence[str]:
        transactional = self.config.strategy == "transactional"
        return ("--fence", "--execute", "--yes") if transactional else ()

    def live(self, kills: Sequence[int]) -> int:
        """Run to the end, killed after so many things each time; the number of restarts."""
        restarts = 0
        for kill in (*kills, None):
            if self.run(kill) == 0:
                break
            self.between()
            self.restart()
            restarts += 1
        return restarts


STRATEGIES = (
    ("commit-pair", "kafka-group"),
    ("output-end", "kafka-group"),
    ("checkpoint", "file"),
    ("transactional", "kafka-group"),
    ("changelog", "topic"),
    ("merge-log", "file"),
    ("commit-pair", "sql"),
    ("sql", "sql"),
    ("spark-checkpoint", "spark-checkpoint"),
    ("commit-pair", "file"),
)


OTHER_STORES = ("topic", "postgres", "zookeeper")
"""Of commit-pair, besides those of STRATEGIES."""


def begin(
    lab: Lab,
    topic: Any,
    folder: Path,
    strategy: str,
    store: str,
    inputs: Sequence[Input],
    *,
    every: int = 5,
    replicas: int = 1,
    order: Sequence[int] = (),
    server: str = "",
) -> Life:
    """An application with topics, store and application file of its own.

    server: of a store outside; for PostgreSQL as `Postgres.url` gives it, for ZooKeeper HOST:PORT.
    """
    merging = strategy == "merge-log"
    partitions = 1 if merging else len(inputs[0].values)
    output = topic(lab, partitions, replicas, name="out")
    group = f"app-{output}"
    extra = {"changelog": f"{group}-changelog", "merge-log": f"{group}-merge"}.get(strategy)
    if extra is not None:
        _make(lab, extra, partitions, replicas)
    if (strategy, store) == ("commit-pair", "topic"):
        extra = f"{group}-store"
        _make(lab, extra, 1, replicas)
    tables: dict[str, str] = {
        "kafka-group": f'kind = "kafka-group"\ngroup = "{group}"',
        "file": 'kind = "file"\npath = "offsets.json"',
        "topic": f'kind = "topic"\ntopic = "{extra}"',
        "sql": f'kind = "sql"\nurl = "sqlite:///{folder}/store.db"\ntable = "positions"',
        "postgres": f'kind = "sql"\nurl = "file:{folder}/url"\ntable = \'"{group}"\'',
        "zookeeper": f'kind = "zookeeper"\nconnect = "{server}"\npath = "/{group}"',
        "spark-checkpoint": ('kind = "spark-checkpoint"\npath = "checkpoint"\nsink = "batch-id"'),
    }
    if strategy != "changelog":
        tables["topic"] += '\nkey = "offsets"'
    outputs = [] if strategy in ("sql", "spark-checkpoint") else [output]
    lines = [
        "[app]",
        f'name = "{group}"',
        f'strategy = "{strategy}"',
        f"inputs = {json.dumps([i.topic for i in inputs])}",
        f"outputs = {json.dumps(outputs)}",
    ]
    if merging:
        lines += ["[app.mapping]"]
        lines += [f'"{i.topic}:0" = ["{output}:0"]' for i in inputs]
        lines += ["[app.merge]", f'topic = "{extra}"', 'format = "json"']
    # a partition that was not reached before the first kill has no commit
    all_topics = [*(i.topic for i in inputs), *outputs]
    lines += ["[app.base]", *(f'"{t}:{p}" = 0' for t in all_topics for p in range(partitions))]
    if strategy != "output-end":
        lines += ["[app.store]", tables[store]]
    if store == "sql":
        with sqlite3.connect(folder / "store.db") as db:
            db.execute(
                "CREATE TABLE positions (topic TEXT, partition INTEGER, "
                '"offset" INTEGER, output TEXT, PRIMARY KEY (topic, partition))'
            )
            db.execute("CREATE TABLE results (partition INTEGER, value TEXT)")
    if store == "postgres":
        _make_table(server, group)
        (folder / "url").write_text(server)
    if strategy == "commit-pair" and store in ("sql", "postgres"):
        lines += ["[app.store.columns]", 'output = "output"']
    app_file = folder / "app.toml"
    app_file.write_text("\n".join(lines) + "\n")
    config = Config(
        servers=lab.bootstrap_servers,
        strategy=strategy,
        inputs=[i.topic for i in inputs],
        output=output,
        partitions=partitions,
        every=every,
        folder=str(folder),
        group=group,
        store=store,
        address=server.replace("+psycopg", ""),
        order=list(order),
    )
    return Life(lab, config, app_file, folder / "plan.json")


def _make(lab: Lab, name: str, partitions: int, replicas: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(lab.client_properties())
    new = NewTopic(name, partitions, replicas)
    admin.create_topics([new], operation_timeout=10)[name].result(20)


def _make_table(url: str, name: str) -> None:
    import psycopg

    with psycopg.connect(url.replace("+psycopg", "")) as db:
        db.execute(
            f'CREATE TABLE "{name}" (topic text, partition int, "offset" bigint, output jsonb, '
            "PRIMARY KEY (topic, partition))"
        )


def outcome(life: Life) -> list[list[str]]:
    """What came out, by partition, in its order."""
    config, folder = life.config, Path(life.config.folder)
    if config.strategy == "sql":
        with sqlite3.connect(folder / "store.db") as db:
            return [
                [v for (v,) in db.execute("SELECT value FROM results WHERE partition = ?", (p,))]
                for p in range(config.partitions)
            ]
    if config.strategy == "spark-checkpoint":
        files = sorted((folder / "sink").iterdir(), key=lambda f: int(f.name))
        return [[row for f in files for row in json.loads(f.read_text())]]
    return [visible(life.lab, config.output, p) for p in range(config.partitions)]


def expected(life: Life, inputs: Sequence[Input]) -> list[list[str]]:
    """The uninterrupted run's, from the inputs' values alone."""
    strategy = life.config.strategy
    if strategy == "output-end":
        return [list(values) for values in inputs[0].values]
    if strategy == "merge-log":
        return [list(_merged(life, inputs))]
    if strategy == "spark-checkpoint":
        return _batches(life, inputs[0])
    found = []
    for values in inputs[0].values:
        state, mine = 0, []
        for value in values:
            state += int(value)
            with_state = f"#{state}" if strategy in ("checkpoint", "changelog") else ""
            mine += [made + with_state for made in process(value)]
        found.append(mine)
    return found


def _merged(life: Life, inputs: Sequence[Input]) -> Iterator[str]:
    """The run that met its inputs in the order which the log holds."""
    left = {i.topic: list(i.values[0]) for i in inputs}
    for state, entry in enumerate(visible(life.lab, f"{life.config.group}-merge", 0), 1):
        topic = json.loads(entry)["topic"]
        value = left[topic].pop(0)
        yield from (f"{topic[-1]}{made}#{state}" for made in process(value))
    assert not any(left.values())


def _batches(life: Life, source: Input) -> list[list[str]]:
    """Every record once; the batches cut all partitions at the same offsets."""
    rows = [row for values in outcome(life) for row in values]
    assert sorted(rows) == sorted(v for values in source.values for v in values)
    return [rows]


def no_home() -> dict[str, str]:
    """An environment as cron gives it: no HOME, no terminal."""
    return environment(HOME=None, TERM=None) | {
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", "/tmp")
    }
