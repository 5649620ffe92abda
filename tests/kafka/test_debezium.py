"""Format `debezium` on a real connector: the rebuilt rows are what PostgreSQL's table holds.

Long: PostgreSQL, a worker of Connect and Debezium's connector, whose jars are pinned.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from eoctl.host.java import find_java
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import fetch
from eoctl.lab.record import LabSpec
from tests import java
from tests.connect import worker as connect
from tests.connect.worker import Worker
from tests.kafka.command import Ran, eoctl
from tests.kafka.conftest import SOON
from tests.postgres import PASSWORD, Postgres, postgres

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
LOCK = Path(connect.__file__).with_name("debezium-3.3.1.lock")
CREATE = """CREATE TABLE {} (
    id int, kind text, name text, price numeric(12, 4), data jsonb, large text, raw bytea,
    PRIMARY KEY (id, kind))"""


@pytest.fixture(scope="module")
def lab(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    lab = start_lab(LabSpec(name="debezium", settings=SOON))
    yield lab
    lab.down()


@pytest.fixture(scope="module")
def worker(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    plugins = tmp_path_factory.mktemp("plugins")
    (plugins / "debezium").mkdir()
    for jar in fetch(java.locked_jars(LOCK), find_java()):
        shutil.copy(jar, plugins / "debezium")
    settings = {"plugin.path": str(plugins)}
    worker = Worker(lab, tmp_path_factory.mktemp("worker"), "cdc", settings).start()
    yield worker
    worker.kill()


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with postgres(wal_level="logical") as server:
        yield server


class Captured:
    """A table, and the topic with its events."""

    def __init__(self, lab: Lab, worker: Worker, database: Postgres, table: str) -> None:
        self.lab, self.worker, self.table = lab, worker, table
        self._postgres = database
        self.topic = f"{table}.public.{table}"
        self.database = psycopg.connect(database.dsn(), autocommit=True)
        self.run(CREATE.format(table))

    def run(self, statement: str, *values: object) -> None:
        self.database.execute(statement, values)

    def capture(self, *, schemas: bool, **settings: str) -> None:
        """Start the connector, and wait until it runs."""
        converter = "org.apache.kafka.connect.json.JsonConverter"
        config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "plugin.name": "pgoutput",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._postgres.port),
            "database.user": "eoctl",
            "database.password": PASSWORD,
            "database.dbname": "postgres",
            "topic.prefix": self.table,
            "table.include.list": f"public.{self.table}",
            "slot.name": self.table,
            "publication.name": self.table,
            "publication.autocreate.mode": "filtered",
            "decimal.handling.mode": "string",
            "key.converter": converter,
            "key.converter.schemas.enable": str(schemas).lower(),
            "value.converter": converter,
            "value.converter.schemas.enable": str(schemas).lower(),
            **settings,
        }
        self.worker.create(self.table, config)

    def caught_up(self) -> None:
        """Wait until an event of all that was written so far is in the topic."""
        name = f"mark-{random.getrandbits(40)}"
        self.run(f"INSERT INTO {self.table} (id, kind) VALUES (0, %s)", name)
        consumer = Consumer(self.lab.client_properties() | {"group.id": "oracle"})
        partitions = consumer.list_topics(self.topic, 10).topics[self.topic].partitions
        consumer.assign([TopicPartition(self.topic, number, 0) for number in partitions])
        while True:
            [message] = consumer.consume(1, 60)
            if message.error() is None and name.encode() in (message.key() or b""):
                break
        consumer.close()

    def rebuild(self, folder: Path) -> Ran:
        words = ("state", "rebuild", self.topic, "--format", "debezium", "--at", "lso")
        return eoctl(*words, "--output", str(folder), "-o", "json", lab=self.lab)

    def rows(self) -> dict[tuple[int, str], dict[str, Any]]:
        """What the database says."""
        told = self.database.execute(
            f"SELECT id, kind, name, price::text, data, large, encode(raw, 'base64') "
            f"FROM {self.table}"
        )
        names = [column.name for column in told.description or ()]
        names = ["raw" if name == "encode" else name for name in names]
        found = [dict(zip(names, row, strict=True)) for row in told]
        return {(row["id"], row["kind"]): row for row in found}


def rebuilt(folder: Path) -> dict[tuple[int, str], dict[str, Any]]:
    manifest = json.loads((folder / "manifest.json").read_text())
    rows = {}
    for partition in manifest["partitions"]:
        for file in partition["files"]:
            for text in pq.read_table(folder / file["path"]).column("after").to_pylist():
                row = json.loads(text)
                row["data"] = row["data"] and json.loads(row["data"])  # a jsonb is a text there
                rows[row["id"], row["kind"]] = row
    return rows


@pytest.fixture
def captured(lab: Lab, worker: Worker, database: Postgres) -> Iterator[Callable[..., Captured]]:
    """Make a table, and its topic."""
    tables: list[Captured] = []

    def make(name: str, policy: str = "compact") -> Captured:
        tables.append(Captured(lab, worker, database, name))
        new = NewTopic(tables[-1].topic, 3, 1, config={"cleanup.policy": policy})
        admin = AdminClient(lab.client_properties())
        admin.create_topics([new], operation_timeout=10)[new.topic].result(20)
        return tables[-1]

    yield make
    for table in tables:
        table.database.close()


@pytest.mark.parametrize("schemas", [True, False])
def test_rows_are_the_tables(
    captured: Callable[..., Captured], tmp_path: Path, schemas: bool
) -> None:
    """Inserts, updates, deletes, changed keys; some rows are there before the first snapshot."""
    table = captured(f"goods_{str(schemas).lower()}")
    chance = random.Random(17)

    def change(times: int) -> None:
        for _ in range(times):
            row, kind = chance.randrange(1, 60), chance.choice(["a", "ü", 'q"\\'])
            what = chance.random()
            if what < 0.2:
                table.run(f"DELETE FROM {table.table} WHERE id = %s", row)
            elif what < 0.3:
                table.run(
                    f"UPDATE {table.table} SET id = 1000 + %s WHERE id = %s AND kind = %s "
                    f"AND NOT EXISTS (SELECT 1 FROM {table.table} WHERE id = 1000 + %s)",
                    *(row, row, kind, row),
                )
            else:
                data = json.dumps({"n": chance.random(), "after": {"op": "d"}, "s": "\u2028\t"})
                table.run(
                    f"INSERT INTO {table.table} VALUES (%s, %s, %s, %s, %s, NULL, %s) "
                    "ON CONFLICT (id, kind) DO UPDATE SET name = excluded.name, "
                    "price = excluded.price, data = excluded.data, raw = excluded.raw",
                    *(row, kind, chance.choice([None, "null", "{}", "x\n"]), chance.random() * 9),
                    *(chance.choice([None, data]), chance.choice([None, b"\0\xff"])),
                )

    change(100)
    table.capture(schemas=schemas)
    change(500)
    table.caught_up()
    ran = table.rebuild(tmp_path / "state")
    assert ran.status == 0, ran.stderr
    expected = table.rows()
    assert len(expected) > 40
    assert rebuilt(tmp_path / "state") == expected


def test_an_event_without_its_large_column_is_refused_until_it_is_whole(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    table = captured("large")
    table.run("ALTER TABLE large ALTER large SET STORAGE EXTERNAL")
    table.capture(schemas=False)
    table.run("INSERT INTO large (id, kind, large) VALUES (1, 'a', repeat('x', 20000))")
    table.run("UPDATE large SET name = 'only this' WHERE id = 1")
    table.caught_up()
    ran = table.rebuild(tmp_path / "part")
    assert (ran.status, ran.stdout) == (4, "")
    assert ": the event does not hold the complete row" in ran.stderr
    assert not (tmp_path / "part" / "manifest.json").exists()
    table.run("ALTER TABLE large REPLICA IDENTITY FULL")
    table.run("UPDATE large SET name = 'and this' WHERE id = 1")
    table.caught_up()
    ran = table.rebuild(tmp_path / "whole")
    assert ran.status == 0, ran.stderr
    assert rebuilt(tmp_path / "whole") == table.rows()


def test_an_emptied_table_is_refused(captured: Callable[..., Captured], tmp_path: Path) -> None:
    """Its event has no key, which a compacted topic does not take: there the connector fails."""
    table = captured("emptied", "delete")
    table.capture(schemas=False, **{"skipped.operations": "none"})
    table.run("INSERT INTO emptied (id, kind) VALUES (1, 'a')")
    table.run("TRUNCATE emptied")
    table.caught_up()
    ran = table.rebuild(tmp_path / "state")
    assert ran.status == 4
    assert "the table was emptied there" in ran.stderr
