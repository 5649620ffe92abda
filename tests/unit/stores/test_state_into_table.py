"""`state deliver` into SQLite of states written here, over the rows of another state: no Kafka."""

import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eoctl.stores.state.marks import marks, sorted_marks
from eoctl.stores.state.state_table import StateTable
from recovery.shared.store_tables import SqlStore
from tests.kafka.command import Ran, environment, eoctl
from tests.unit.state.test_state_compare import Entries, state

ACT = ("--execute", "--yes")
OFFSETS = ("--with-offsets", "offsets")
OURS: Entries = {0: {b"ours-%d" % n: (100 + n, b"v%d" % n) for n in range(6)}}
THEIRS: Entries = {0: {b"theirs-%d" % n: (5, b"theirs") for n in range(4)}}
THEIRS[0][b"ours-3"] = (5, b"theirs")
NEWER: Entries = {0: {b"ours-0": (100, b"v0"), b"ours-9": (300, b"w")}}  # ours-0 where it was

Row = tuple[Any, ...]


class Base:
    """A database with a state's table and one of restart offsets, read by its own driver."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "base.db"
        self.query(
            'CREATE TABLE state ("partition" int, "offset" int, "timestamp" int, "key" blob, '
            '"value" blob, PRIMARY KEY ("partition", "key"))'
        )
        self.query(
            'CREATE TABLE offsets (topic text, "partition" int, "offset" int, '
            'PRIMARY KEY (topic, "partition"))'
        )

    def query(self, text: str, *values: object) -> list[Row]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(text, values).fetchall()

    def put(self, entries: Entries) -> None:
        """As another application wrote them."""
        for row in rows_of(entries):
            self.query("INSERT INTO state VALUES (?, ?, ?, ?, ?)", *row)

    def rows(self) -> list[Row]:
        return self.query("SELECT * FROM state ORDER BY 1, 4")

    def offsets(self) -> list[Row]:
        return self.query("SELECT * FROM offsets")

    def deliver(self, folder: Path, *words: str, kill_at: str | None = None) -> Ran:
        into = f"sql:sqlite:///{self.path}#state"
        return eoctl(
            *("--bootstrap-server", "127.0.0.1:1", "state", "deliver", str(folder)),
            *("--into", into, *words),
            env=environment(
                EOCTL_TEST_KILL_AT=kill_at, EOCTL_STATE_DIR=str(self.path.parent / "state-dir")
            ),
        )


def rows_of(entries: Entries) -> list[Row]:
    """What a table of them holds: each key's place in the dict is its offset."""
    return sorted(
        (p, offset, timestamp, key, value)
        for p, keys in entries.items()
        for offset, (key, (timestamp, value)) in enumerate(keys.items())
    )


def by_key(entries: Entries) -> list[Row]:
    return sorted(rows_of(entries), key=lambda row: (row[0], row[3]))


@pytest.fixture
def base(tmp_path: Path) -> Base:
    return Base(tmp_path)


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    return state(tmp_path / "ours", OURS)


@pytest.mark.parametrize("words", [(), OFFSETS])
def test_another_states_rows_with_the_same_offsets_are_not_ours(
    base: Base, ours: Path, words: tuple[str, ...]
) -> None:
    """A key tells whose a row is: an offset is in every changelog."""
    base.put(THEIRS)
    refused = base.deliver(ours, *words, *ACT)
    assert refused.status == 4, refused.stderr
    assert "it holds 5 rows that this state has not" in refused.stderr
    assert (base.rows(), base.offsets()) == (by_key(THEIRS), [])
    done = base.deliver(ours, *words, "--replace", *ACT)
    assert done.status == 0, done.stderr
    assert base.rows() == by_key(OURS)
    assert base.offsets() == ([("log", 0, 9)] if words else [])


@pytest.mark.parametrize(
    ("words", "kill_at"),
    [
        (("--replace",), "deliver-write-3"),  # its rows are there, and theirs too
        ((*OFFSETS, "--replace"), "deliver-write-2"),
        ((*OFFSETS, "--replace"), "step-1-performed"),
    ],
)
def test_killed_over_another_states_rows(
    base: Base, ours: Path, words: tuple[str, ...], kill_at: str
) -> None:
    base.put(THEIRS)
    killed = base.deliver(ours, *words, *ACT, kill_at=kill_at)
    assert killed.status == -signal.SIGKILL, killed.stderr
    ended = base.deliver(ours, *words, *ACT)
    assert ended.status == 0, ended.stderr
    assert base.rows() == by_key(OURS)


def test_rows_of_every_kind_go_and_each_version_of_a_key_stays(base: Base) -> None:
    """More rows than are looked at at once; texts and nulls for keys, equal keys, other offsets."""
    columns = dict.fromkeys(("partition", "offset", "timestamp", "valid_from"), "int64")
    table = StateTable(
        SqlStore(kind="sql", url=f"sqlite:///{base.path}", table="versions"),
        columns | dict.fromkeys(("key", "value"), "binary"),
    )
    base.query(
        'CREATE TABLE versions ("partition" int, "offset" int, "timestamp" int, "key" blob, '
        '"value" blob, valid_from int, PRIMARY KEY ("partition", "key", valid_from))'
    )
    ours = [
        {
            "partition": 0,
            "offset": n,
            "timestamp": n,
            "key": b"%05d" % (n // 3),
            "value": b"v",
            "valid_from": n % 3,
        }
        for n in range(12_000)
    ]
    names = ("partition", "offset", "timestamp", "key", "value", "valid_from")
    wanted = [tuple(row[name] for name in names) for row in ours]
    other: list[Row] = [
        *((0, n, 1, b"%05d" % (n // 3), b"o", 3 + n % 3) for n in range(12_000)),  # versions
        *((0, n, 1, b"x%05d" % n, b"o", n % 3) for n in range(11_000)),  # keys
        (0, 0, 0, "00000", b"o", 0),
        (0, 0, 0, None, b"o", 0),
        (0, 0, 0, b"00000", b"o", None),
        (0, None, 0, b"00001", b"o", 7),
    ]
    outside = (1, 0, 0, b"00000", b"o", 0)
    with closing(sqlite3.connect(base.path)) as connection:
        connection.executemany("INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?)", [*other, outside])
        connection.commit()
    live = {
        p: sorted_marks([marks((r["offset"], r["key"], r["valid_from"]) for r in found)])
        for p, found in ((0, ours), (1, []))
    }
    rows = [pa.Table.from_pylist(ours)]
    asyncio.run(table.upsert(rows, 0, None, lambda: None))
    counted = asyncio.run(table.count(live))
    assert (counted[0].own, counted[0].others) == (12_000, 23_004)
    assert (counted[1].own, counted[1].others) == (0, 1)
    asyncio.run(table.upsert(rows, 0, live[0], lambda: None))
    assert base.query("SELECT * FROM versions ORDER BY 1, 2") == [*wanted, outside]
    assert asyncio.run(table.partition_rows(0)).marks.tolist() == live[0].tolist()


@pytest.mark.parametrize(
    "words",
    [
        (*OFFSETS, "--input", ""),
        ("--with-offsets", ""),
        ("--changelog", ""),
        ("--replace", "--with-offsets", "", "--input", "in"),
    ],
)
def test_an_empty_name_is_refused(base: Base, ours: Path, words: tuple[str, ...]) -> None:
    refused = base.deliver(ours, *words, *ACT)
    assert refused.status == 2, refused.stderr
    option = words[words.index("") - 1]
    assert refused.stderr == f"eoctl: {option}: an empty name; leave the option out, or name one\n"
    assert (base.rows(), base.offsets()) == ([], [])


def test_the_manifest_may_be_named_for_its_folder(base: Base, ours: Path) -> None:
    done = base.deliver(ours / "manifest.json", *ACT)
    assert done.status == 0, done.stderr
    assert base.rows() == by_key(OURS)
    again = base.deliver(ours, *ACT)
    assert (again.status, "there already" in again.stderr) == (0, True), again.stderr
    for name, why in (("cut.json", "not a manifest"), ("nothing", "cannot be read")):
        wrong = base.deliver(ours / name)
        assert (wrong.status, why in wrong.stderr) == (2, True), wrong.stderr


@pytest.mark.parametrize("words", [(), ("--replace",), (*OFFSETS, "--replace")])
def test_there_already_says_nothing_of_a_table_with_foreign_partitions(
    base: Base, ours: Path, words: tuple[str, ...]
) -> None:
    assert base.deliver(ours, *words, *ACT).status == 0
    assert "there already" in base.deliver(ours, *words).stderr
    base.put({7: {b"of-another-log": (1, b"v")}})
    refused = base.deliver(ours, *words, *ACT)
    assert (refused.status, "it has rows of partition 7" in refused.stderr) == (4, True), (
        refused.stderr
    )


GO = "; 5 rows of another state go"


@pytest.mark.parametrize("words", [OFFSETS, (*OFFSETS, "--replace"), ("--replace",)])
def test_the_plan_says_how_many_rows_go(
    base: Base, ours: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Of an earlier state without --replace too, where restart offsets are stored with it."""
    first = base.deliver(ours, *words, *ACT)
    assert (first.status, "of another state" in first.stderr) == (0, False), first.stderr
    newer = state(tmp_path / "newer", NEWER)
    planned = base.deliver(newer, *words, "-o", "json")
    assert planned.status == 0, planned.stderr
    step = planned.rows[0]["steps"][0]
    assert step["does"].endswith(GO)
    base.put({0: {b"a new one": (1, b"v")}})
    late = base.deliver(newer, *words, *ACT, "--plan-sha256", planned.rows[0]["sha256"])
    assert late.status == 4, late.stderr  # six would go
    assert len(base.rows()) == 7
    done = base.deliver(newer, *words, *ACT)
    assert done.status == 0, done.stderr
    assert "; 6 rows of another state go" in " ".join(done.stderr.split())
    assert base.rows() == by_key(NEWER)


def test_stored_offsets_alone_do_not_say_that_the_rows_are_of_an_earlier_state(
    base: Base, ours: Path
) -> None:
    base.put(THEIRS)
    base.query("INSERT INTO offsets VALUES ('log', 0, 3)")
    refused = base.deliver(ours, *OFFSETS, *ACT)
    assert refused.status == 4, refused.stderr
    assert "it holds 5 rows that this state has not; --replace" in refused.stderr
    assert (base.rows(), base.offsets()) == (by_key(THEIRS), [("log", 0, 3)])
