"""`offsets show --store`: any store against LSO and high watermark."""

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer as Transactional
from recovery.facts import TopicPartition
from tests.docs.pages import follows
from tests.flink.kept import CHECKPOINT, source_topic
from tests.kafka.command import environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.reading import Reading
from tests.kafka.test_cli_schemas import published
from tests.kafka.test_offset_stores import compacted, group, opening, produced
from tests.offset_stores import change, kept, position
from tests.postgres import postgres
from tests.zookeeper import serving

APP = """[app]
name = "enricher"
strategy = "output-end"
inputs = ["{topic}"]
outputs = ["out"]
[app.store]
kind = "sql"
url = "env:OFFSETS_DB"
table = "offsets"
[app.store.columns]
app = "app"
output = "output"
[app.mirror]
kind = "file"
path = "mirror.json"
position = "last"
"""


@pytest.fixture
def log(lab1: Lab, topic: MakeTopic) -> str:
    """[0..2] committed, marker 3, [4..5] aborted, marker 6, [7..8] plain, [9..12] open."""
    name = topic(lab1)

    async def make() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            owner = await Transactional.init(client, name)
            await owner.send(name, 0, [NewRecord(b"c")] * 3)
            await owner.commit()
            await owner.send(name, 0, [NewRecord(b"a")] * 2)
            await owner.abort()
            await client.plain(name, 0, [NewRecord(b"p")] * 2)
            await owner.send(name, 0, [NewRecord(b"o")] * 4)

    asyncio.run(make())
    return name


def numbers(row: dict[str, Any]) -> tuple[Any, ...]:
    keys = ("committed_offset", "last_stable_offset", "high_watermark", "lag", "data_records")
    return tuple(row[key] for key in keys)


def test_an_application_with_its_mirror(lab1: Lab, log: str, tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text(APP.format(topic=log))
    at = {"topic": log, "partition": 0, "offset": 6}
    (tmp_path / "mirror.json").write_text(json.dumps({"partitions": [{"input": at}]}))
    with sqlite3.connect(tmp_path / "db") as database:
        database.execute('CREATE TABLE offsets (app, topic, partition, "offset", output)')
        output = json.dumps({"topic": "out", "partition": 0, "offset": 4})
        rows = [("enricher", log, 0, 5, output), ("other", log, 0, 1, None)]
        database.executemany("INSERT INTO offsets VALUES (?, ?, ?, ?, ?)", rows)
    env = environment(OFFSETS_DB=f"sqlite:///{tmp_path}/db")
    words = ("offsets", "show", "--store", f"{tmp_path}/app.toml", "--count")
    ran = eoctl(*words, "-o", "json", lab=lab1, env=env)
    assert ran.status == 0, ran.stderr
    jsonschema.validate(ran.json, published("offsets-show"))
    rows_by = {row["group"]: row for row in ran.rows}
    table, file = f"sqlite:{tmp_path}/db table offsets", f"file {tmp_path}/mirror.json"
    assert set(rows_by) == {table, file}
    assert numbers(rows_by[table]) == (5, 9, 13, 4, 2)
    assert numbers(rows_by[file]) == (7, 9, 13, 2, 2)  # `last` 6: the next is 7
    assert json.loads(rows_by[table]["metadata"]) == {"output": json.loads(output)}
    assert (rows_by[file]["metadata"], rows_by[file]["pending"]) == (None, None)
    assert ran.json["stores"] == [
        {"store": table, "kind": "sql", "exists": True},
        {"store": file, "kind": "file", "exists": True},
    ]
    (tmp_path / "mirror.json").write_text("damaged")
    ran = eoctl(*words, "-o", "json", lab=lab1, env=env)
    assert (ran.status, [row["group"] for row in ran.rows]) == (3, [table])
    [error] = ran.json["errors"]
    assert (error["scope"], error["error"]) == ("store", "UNREADABLE")
    assert "mirror.json" in error["detail"]


def in_group(lab: Lab, log: str, offset: int) -> str:
    """A group that holds an offset, beside an output's."""
    known, partition = f"g-{log}", TopicPartition(log, 0)
    store = opening(lab, group(known))
    change(store, (partition, None, kept(store, position(partition, offset, 2))))
    return known


def as_json(log: str, offset: int) -> str:
    """What a file and a topic's record hold."""
    at = {"topic": log, "partition": 0, "offset": offset}
    return json.dumps({"partitions": [{"input": at, "merge": 3}]})


def spark_folder(log: str, offset: int, folder: Path) -> None:
    """A checkpoint with one batch."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "offsets" / "0").write_text(f'v1\n{{}}\n{{"{log}":{{"0":{offset}}}}}')
    (folder / "commits" / "0").write_text("v1\n{}")


@follows("docs/restart.md", "Stores")
def test_the_stores_of_the_page(
    it: Reading, lab1: Lab, topic: MakeTopic, log: str, tmp_path: Path
) -> None:
    import psycopg

    known, name = in_group(lab1, log, 4), compacted(lab1, topic, 1)
    produced(lab1, name, known.encode(), as_json(log, 8).encode())
    (tmp_path / "offsets.json").write_text(as_json(log, 6))
    spark_folder(log, 7, tmp_path / "checkpoint")
    of_flink = source_topic(lab1)
    with serving(tmp_path / "zookeeper") as server, postgres() as database:
        with server.admin() as client:
            client.create(f"/consumers/{known}/offsets/{log}/0", b"9", makepath=True)
        with psycopg.connect(database.dsn()) as connection:
            connection.execute("CREATE SCHEMA sales")
            connection.execute(
                'CREATE TABLE sales.offsets (topic text, "partition" int, "offset" bigint)'
            )
            connection.execute("INSERT INTO sales.offsets VALUES (%s, 0, 5)", (log,))
        it.lab = lab1
        it.env["OFFSETS_DB"] = database.url()
        it.names |= {
            "orders-enricher": known,
            "/var/lib/app": str(tmp_path),
            "app-offsets": name,
            "zk1:2181,zk2:2181": server.address,
            "/data/checkpoint": str(tmp_path / "checkpoint"),
            "/data/checkpoints/9f2c/chk-42": str(CHECKPOINT),
        }

        def offsets(begins: str) -> dict[tuple[str, int], int]:
            rows = it.run(f"offsets show --store {begins}", 0, None, "-o", "json").rows
            return {(r["topic"], r["partition"]): r["committed_offset"] for r in rows}

        ran = it.run("offsets show --store group:", 0, None, "-o", "json")
        assert sorted(r["committed_offset"] for r in ran.rows) == [4, 6]
        assert offsets("'topic:") == {(log, 0): 8}
        assert offsets("zookeeper:") == {(log, 0): 9}
        assert offsets("'sql:") == {(log, 0): 5}
        assert offsets("spark:") == {(log, 0): 7}
        assert offsets("flink:") == of_flink


def test_stores_by_a_word(lab1: Lab, topic: MakeTopic, log: str, tmp_path: Path) -> None:
    known, name = in_group(lab1, log, 4), compacted(lab1, topic, 1)
    produced(lab1, name, b"key", as_json(log, 8).encode())
    spark_folder(log, 7, tmp_path)
    with serving(tmp_path / "zookeeper") as server:
        with server.admin() as client:
            client.create(f"/kafka/consumers/g/offsets/{log}/0", b"9", makepath=True)
        words = [
            f"group:{known}",
            f"topic:{name}#key",
            f"spark:{tmp_path}",
            f"zookeeper:{server.address}/kafka/consumers/g/offsets",
            f"file:{tmp_path}/none.json",
        ]
        given = [word for store_word in words for word in ("--store", store_word)]
        ran = eoctl("offsets", "show", *given, "-o", "json", lab=lab1)
        table = eoctl("offsets", "show", *given, lab=lab1)
        elsewhere = eoctl("offsets", "show", *given, name, "-o", "json", lab=lab1)
    assert ran.status == 0, ran.stderr
    assert {row["group"]: numbers(row) for row in ran.rows} == {
        known: (4, 9, 13, 5, None),
        f"topic {name} key key": (8, 9, 13, 1, None),
        f"Spark checkpoint {tmp_path}": (7, 9, 13, 2, None),
        f"ZooKeeper {server.address}/kafka/consumers/g/offsets": (9, 9, 13, 0, None),
    }
    [of_group] = [row for row in ran.rows if row["group"] == known]
    assert of_group["pending"] is False
    assert json.loads(of_group["metadata"])["output"]["offset"] == 2
    assert [s["exists"] for s in ran.json["stores"]] == [True, True, True, True, False]
    assert f"5 stores, 4 positions; there is no file {tmp_path}/none.json" in table.stderr
    assert elsewhere.rows == []


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (
            ["--store", "no.toml"],
            2,
            "no.toml: is neither an application file nor a store; write group:G",
        ),
        (["--store", "sql:u:secret@h"], 2, "--store: write sql:URL#TABLE"),
        (["--store", "sql:postgresql://u:secret@127.0.0.1:1/d#t"], 5, "Connection refused"),
        (["--store", "zookeeper:u:secret@127.0.0.1:1"], 2, "--store: write zookeeper:HOST"),
        (["--store", "spark:/no/such/directory"], 3, "there is no such directory"),
        (["--store", "group:g", "--group", "g"], 2, "name groups or stores"),
    ],
)
def test_what_cannot_be_shown(lab1: Lab, words: list[str], status: int, said: str) -> None:
    ran = eoctl("offsets", "show", *words, lab=lab1)
    assert ran.status == status, ran.stderr
    assert said in ran.stderr
    assert "secret" not in ran.stderr + ran.stdout
