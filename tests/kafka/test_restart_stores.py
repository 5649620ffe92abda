"""`restart` there and back on stores that hold a pair: a topic, PostgreSQL, ZooKeeper."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from eoctl.lab.cluster import Lab
from tests.kafka.command import Ran, environment
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import Scene
from tests.kafka.test_offset_stores import compacted, everything, produced
from tests.postgres import postgres
from tests.zookeeper import serving

Pair = tuple[int, int | None]

TABLE = """CREATE TABLE positions (app text, topic text, partition int, "offset" bigint,
output jsonb, PRIMARY KEY (app, topic, partition))"""


@dataclass
class StoredValues:
    """A store outside: its [app.store], how a pair gets in, and what it holds as the store itself
    tells it: (input offset, output offset), None = no entry."""

    table: str
    put: Callable[[int, int], None]
    holds: Callable[[], Pair | None]
    env: Mapping[str, str]


def stored(scene: Scene, offset: int, output: int) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "input": {"topic": scene.input, "partition": 0, "offset": offset},
                "output": {"topic": scene.output, "partition": 0, "offset": output},
            }
        ]
    }


def pair(text: bytes | None) -> Pair | None:
    if text is None or not (rows := json.loads(text)["partitions"]):
        return None
    [row] = rows
    return row["input"]["offset"], row.get("output", {}).get("offset")


def in_a_topic(scene: Scene, topic: MakeTopic) -> StoredValues:
    name = compacted(scene.lab, topic, 1)

    def holds() -> Pair | None:
        values = [value for _, key, value in everything(scene.lab, name) if key == b"copy"]
        return pair(values[-1] if values else None)

    def put(offset: int, output: int) -> None:
        value = json.dumps(stored(scene, offset, output)).encode()
        produced(scene.lab, name, b"copy", value)

    return StoredValues(
        f'kind = "topic"\ntopic = "{name}"\nkey = "copy"', put, holds, environment()
    )


def in_postgres(scene: Scene, stack: ExitStack) -> StoredValues:
    server = stack.enter_context(postgres())
    admin = stack.enter_context(psycopg.connect(server.dsn(), autocommit=True))
    admin.execute(TABLE)

    def put(offset: int, output: int) -> None:
        [row] = stored(scene, offset, output)["partitions"]
        admin.execute(
            "INSERT INTO positions VALUES ('copy', %s, 0, %s, %s)",
            (scene.input, offset, json.dumps(row["output"])),
        )

    def holds() -> Pair | None:
        rows = admin.execute(
            "SELECT \"offset\", (output->>'offset')::bigint FROM positions"
        ).fetchall()
        return (rows[0][0], rows[0][1]) if rows else None

    table = (
        'kind = "sql"\nurl = "env:POSITIONS"\ntable = "positions"\n'
        '[app.store.columns]\napp = "app"\noutput = "output"'
    )
    return StoredValues(table, put, holds, environment(POSITIONS=server.url()))


def in_zookeeper(scene: Scene, stack: ExitStack, folder: Path) -> StoredValues:
    server = stack.enter_context(serving(folder / "zookeeper"))
    admin = stack.enter_context(server.admin())

    def put(offset: int, output: int) -> None:
        admin.create("/app/copy", json.dumps(stored(scene, offset, output)).encode(), makepath=True)

    def holds() -> Pair | None:
        return pair(admin.get("/app/copy")[0] if admin.exists("/app/copy") else None)

    table = f'kind = "zookeeper"\nconnect = "{server.address}/app"\npath = "/copy"'
    return StoredValues(table, put, holds, environment())


@pytest.fixture(params=["topic", "sql", "zookeeper"])
def kept(
    request: pytest.FixtureRequest, lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> Iterator[tuple[Scene, StoredValues]]:
    scene = Scene.make(lab1, topic, tmp_path)
    with ExitStack() as stack:
        if request.param == "topic":
            made = in_a_topic(scene, topic)
        elif request.param == "sql":
            made = in_postgres(scene, stack)
        else:
            made = in_zookeeper(scene, stack, tmp_path)
        yield scene, made


def done(ran: Ran) -> None:
    assert ran.status == 0, ran.stderr


def test_what_was_absent_is_written_and_absent_again(kept: tuple[Scene, StoredValues]) -> None:
    scene, store = kept
    scene.describe(store=store.table)
    app = str(scene.folder / "app.toml")
    words = ("--out", scene.plan_file, "--pause", "0.2s")
    done(scene("plan", app, *words, env=store.env))
    done(scene.apply(env=store.env))
    assert store.holds() == (12, None)  # twelve of the inputs are in the output
    done(scene("verify", scene.plan_file, "--pause", "0.2s", env=store.env))
    done(scene.apply(env=store.env))  # done already
    assert store.holds() == (12, None)
    done(scene.undo(env=store.env))
    assert store.holds() is None


@pytest.mark.long
def test_a_pair_is_moved_and_put_back(kept: tuple[Scene, StoredValues]) -> None:
    scene, store = kept
    store.put(5, 5)
    scene.describe(store=store.table)
    app = str(scene.folder / "app.toml")
    done(scene("plan", app, "--out", scene.plan_file, "--pause", "0.2s", env=store.env))
    done(scene.apply(env=store.env))
    assert store.holds() == (12, 12)
    done(scene.undo(env=store.env))
    assert store.holds() == (5, 5)
