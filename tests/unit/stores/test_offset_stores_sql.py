"""Positions in SQLite: the SQL store where no server is needed."""

import json
import sqlite3
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eoctl.stores.offsets.opening import open_store
from eoctl.stores.offsets.sql_table import identifiers
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnreachableError, UsageError
from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError
from recovery.shared.app_file import App
from recovery.shared.store_tables import SqlColumns, SqlStore
from tests.offset_stores import Open, change, kept, position, race, read, there_and_back

A, B = TopicPartition("orders", 0), TopicPartition("orders", 3)
FULL = {key: key for key in ("app", "output", "state", "merge", "cluster_id", "topic_id")} | {
    "leader_epoch": "leader_epoch"
}
TABLE = """CREATE TABLE offsets (app TEXT, topic TEXT, partition INTEGER, "offset" BIGINT,
 output TEXT, state BLOB, "merge" BIGINT, cluster_id TEXT, topic_id TEXT, leader_epoch INTEGER,
 touched INTEGER DEFAULT 7, PRIMARY KEY (app, topic, partition))"""


def app(name: str = "enricher") -> App:
    return App(name=name, strategy="output-end", inputs=("orders",), outputs=("out",))


def database(path: Path, *statements: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    return connection


def sqlite(path: Path, columns: dict[str, Any] | None = None, **more: Any) -> Open:
    described = SqlStore(
        kind="sql",
        url=f"sqlite:///{path}",
        table=more.pop("table", "offsets"),
        columns=SqlColumns(**(FULL if columns is None else columns)),
        position=more.pop("position", "next"),
    )
    return partial(open_store, described, app=app(more.pop("name", "enricher")), **more)


def test_a_table_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "db"
    there = database(path, TABLE)
    there.execute("INSERT INTO offsets VALUES ('other', 'orders', 0, 9, '', '', 0, '', '', 0, 1)")
    there_and_back(sqlite(path), (A, B), state=b"\x00\xff", merge=7)
    assert there.execute('SELECT app, "offset", touched FROM offsets').fetchall() == [
        ("other", 9, 1)
    ]


def test_what_a_row_keeps(tmp_path: Path) -> None:
    path = tmp_path / "db"
    there = database(path, TABLE)
    store = sqlite(path, position="last")
    change(store, (A, None, kept(store, position(A, 0, 5, state=b"\x01"))))
    there.execute("UPDATE offsets SET touched = 8")
    [row] = there.execute("SELECT * FROM offsets").fetchall()
    assert row[:4] == ("enricher", "orders", 0, -1)
    assert json.loads(row[4]) == {"topic": "out", "partition": 7, "offset": 4}
    assert row[5:] == (b"\x01", None, None, None, None, 8)
    [entry] = read(store).entries
    assert entry.position == position(A, 0, 5, state=b"\x01")
    change(store, (A, entry.kept, kept(store, position(A, 3))))
    assert there.execute('SELECT "offset", output, touched FROM offsets').fetchall() == [
        (2, None, 8)  # columns of others stay
    ]


def test_hostile_names(tmp_path: Path) -> None:
    path = tmp_path / "db"
    table = 'a "b"; DROP TABLE x; --'
    quoted = table.replace('"', '""')
    key, offset = "to pic'%(x)s:y", 'off"set'
    columns = {"topic": key, "partition": "select", "offset": offset, "output": "☃ $1 ?"}
    there = database(
        path,
        f'CREATE TABLE "{quoted}" ("to pic\'%(x)s:y" TEXT, "select" INT, "off""set" INT, '
        '"☃ $1 ?" TEXT, PRIMARY KEY ("select", "to pic\'%(x)s:y"))',
        "CREATE TABLE x (y)",
    )
    topic_partition = TopicPartition("o'rders\"; --\u202e", 0)
    there_and_back(
        sqlite(path, columns, table=f'"{quoted}"'),
        (topic_partition, TopicPartition(topic_partition[0] + "%s", 4)),
    )
    assert there.execute("SELECT count(*) FROM x").fetchall() == [(0,)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("offsets", (None, "offsets")),
        ("Sales.Offsets", ("Sales", "Offsets")),
        ('"a.b"."c""d"', ("a.b", 'c"d')),
        ('sales."c d"', ("sales", "c d")),
    ],
)
def test_names_of_tables(text: str, found: tuple[str | None, str]) -> None:
    assert identifiers(text) == found


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a.b.c", 'a"b', '"a', '"a"b', "a..b"])
def test_what_names_no_table(text: str) -> None:
    with pytest.raises(UsageError, match="is not a table"):
        identifiers(text)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("'orders', 0, 1.5, NULL, NULL", r"orders:0: the offset 1\.5 is not an integer"),
        ("'orders', 0, 'x', NULL, NULL", r"the offset 'x' is not an integer"),
        ("'orders', 0, NULL, NULL, NULL", r"the offset None is not an integer"),
        ("'orders', 0, -2, NULL, NULL", r"orders:0: input\.offset"),
        ("'orders', -1, 0, NULL, NULL", r"input\.partition"),
        ("NULL, 0, 0, NULL, NULL", r"the topic None is not text"),
        ("'orders', 0, 1, '{', NULL", r"orders:0: its output is not JSON"),
        ("'orders', 0, 1, '{}', NULL", r"orders:0: output"),
        ("'orders', 0, 1, NULL, 'text'", r"its state is not bytes"),
    ],
)
def test_damaged_rows(tmp_path: Path, values: str, words: str) -> None:
    path = tmp_path / "db"
    database(
        path,
        'CREATE TABLE offsets (topic, partition, "offset", output, state)',
        f"INSERT INTO offsets VALUES ({values})",
    )
    store = sqlite(path, {"output": "output", "state": "state"})
    with pytest.raises(CorruptError, match=words):
        read(store)


def test_what_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with pytest.raises(IncompleteError, match="there is no such database"):
        read(sqlite(path))
    assert not path.exists()
    database(path, "CREATE TABLE other (x)")
    with pytest.raises(IncompleteError, match="there is no such table"):
        read(sqlite(path))
    with pytest.raises(IncompleteError, match="the table has no column 'topic'"):
        read(sqlite(path, {}, table="other"))
    for url, words in (
        ("nonsense", "is not a database address"),
        ("env:NOT_SET_ANYWHERE", "NOT_SET_ANYWHERE is not set"),
        ("nosuch://h/db", "cannot be opened"),
    ):
        described = SqlStore(kind="sql", url=url, table="t")
        with pytest.raises(UsageError, match=words):
            read(partial(open_store, described))


def test_no_row_is_added_where_no_key_forbids_a_second(tmp_path: Path) -> None:
    path = tmp_path / "db"
    there = database(path, 'CREATE TABLE offsets (topic TEXT, partition INT, "offset" INT)')
    store = sqlite(path, {})
    one = kept(store, position(A, 1))
    with pytest.raises(RefusedError, match="no unique key"):
        change(store, (A, None, one))
    there.execute("INSERT INTO offsets VALUES ('orders', 0, 1)")
    change(store, (A, one, kept(store, position(A, 2))))
    there.execute("INSERT INTO offsets VALUES ('orders', 0, 5)")
    with pytest.raises(CorruptError, match="orders:0 is in two rows"):
        read(store)
    with pytest.raises(RefusedError, match="has no column for a part of this entry"):
        kept(store, position(A, 1, 5))


def test_a_table_that_wants_more_says_so(tmp_path: Path) -> None:
    path = tmp_path / "db"
    there = database(
        path,
        'CREATE TABLE offsets (topic TEXT, partition INT, "offset" INT CHECK ("offset" < 100), '
        "owner TEXT NOT NULL, PRIMARY KEY (topic, partition))",
        "INSERT INTO offsets VALUES ('orders', 3, 1, 'me')",
    )
    store = sqlite(path, {})
    [entry] = read(store).entries
    with pytest.raises(RefusedError, match=r"NOT NULL.*nothing was written"):
        change(store, (A, None, kept(store, position(A, 1))))
    with pytest.raises(RefusedError, match=r"CHECK.*nothing was written"):
        change(
            store,
            (B, entry.kept, kept(store, position(B, 100))),
        )
    assert there.execute('SELECT "offset" FROM offsets').fetchall() == [(1,)]


def test_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "db"
    there = database(path, TABLE)
    store = sqlite(path)
    one, two = kept(store, position(A, 1)), kept(store, position(A, 2))
    change(store, (A, None, one), (B, None, one))
    there.execute(
        "CREATE TRIGGER t BEFORE UPDATE ON offsets WHEN NEW.partition = 3 "
        "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    )
    with pytest.raises(RefusedError, match=r"orders:3: not this one; nothing was written"):
        change(store, (A, one, two), (B, one, two))
    assert [e.kept for e in read(store).entries] == [one, one]
    there.execute("DROP TRIGGER t")
    there.execute(
        "CREATE TRIGGER t BEFORE UPDATE ON offsets WHEN NEW.partition = 3 "
        "BEGIN SELECT RAISE(IGNORE); END"
    )
    with pytest.raises(RefusedError, match="0 rows were hit instead of one"):
        change(store, (A, one, two), (B, one, two))
    assert [e.kept for e in read(store).entries] == [one, one]


def test_a_database_that_somebody_holds(tmp_path: Path) -> None:
    path = tmp_path / "db"
    there = database(path, TABLE)
    store = sqlite(path, seconds=1)
    one = kept(store, position(A, 1))
    there.execute("BEGIN IMMEDIATE")
    begin = time.monotonic()
    with pytest.raises(RefusedError, match="database is locked; nothing was written"):
        change(store, (A, None, one))
    assert time.monotonic() - begin < 2
    there.execute("ROLLBACK")
    change(store, (A, None, one))
    path.write_bytes(b"not a database, but some text that is long enough" * 100)
    with pytest.raises(UnreachableError, match="not a database"):
        read(store)


@pytest.mark.parametrize("insert", [True, False])
def test_of_several_writers_one_wins(tmp_path: Path, *, insert: bool) -> None:
    path = tmp_path / "db"
    database(path, TABLE).close()
    winner = race(sqlite(path), A, insert=insert)
    assert read(sqlite(path)).entries[0].position == position(A, winner)


def test_a_password_is_never_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = "hunter2"
    (tmp_path / "url").write_text(f"postgresql+psycopg://u:{secret}@127.0.0.1:1/db\n")
    monkeypatch.setenv("DB", f"postgresql+psycopg://u@127.0.0.1:1/{secret}?password={secret}")
    bad = (
        f"postgresql+psycopg://u:{secret}@127.0.0.1:1/db",
        f"postgresql+psycopg://u:x@{secret}@127.0.0.1:1/db",
        f"postgresql+psycopg://u:{secret}@127.0.0.1:notaport/db",
        f"u:{secret}@nowhere",
        f"nosuch://u:{secret}@h/db",
        f"file:{tmp_path}/url",
        "env:DB",
    )
    for url in bad:
        described = SqlStore(kind="sql", url=url, table="t")
        assert secret not in repr(described)
        with pytest.raises(EoctlError) as refusal:
            read(partial(open_store, described, seconds=3))
        error: BaseException | None = refusal.value
        assert "127.0.0.1" in str(error) or isinstance(error, UsageError)
        if url != "env:DB":  # there it is the database's name as well
            assert secret not in str(error)
        assert error is not None
        assert error.__suppress_context__ or error.__context__ is None
    assert secret not in "".join(capfd.readouterr())
