"""`state deliver` into SQLite and PostgreSQL: what their own drivers read is what a dict holds."""

import asyncio
import json
import signal
import sqlite3
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from eoctl.lab.cluster import Lab
from eoctl.stores.offsets.store import Write
from eoctl.stores.state.marks import marks, sorted_marks
from eoctl.stores.state.state_table import StateTable
from recovery.errors import RefusedError
from recovery.shared.store_tables import SqlStore
from tests.docs.pages import follows
from tests.kafka.command import Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.reading import Reading
from tests.kafka.state_oracle import Rebuilt, State, dict_state, fill, fill_plainly
from tests.postgres import PASSWORD, Postgres, postgres
from tests.share import only_here

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.9"}
ACT = ("--execute", "--yes")
BARE = "--without-headers"  # some of what fill() writes has them
HOSTILE = 'state"; DROP TABLE offsets; --'  # a name as SQL has it
WORD = '"state""; DROP TABLE offsets; --"'  # and as it is quoted

Query = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


class Base:
    """A fresh database with a state's table and one of offsets, through its own driver."""

    def __init__(self, kind: str, url: str, query: Query) -> None:
        self.kind, self.url, self.query = kind, url, query
        binary = "bytea" if kind == "postgresql" else "blob"
        query(f"DROP TABLE IF EXISTS {WORD}")
        query("DROP TABLE IF EXISTS offsets")
        query(
            f'CREATE TABLE {WORD} ("partition" int, "offset" bigint, "timestamp" bigint, '
            f'"key" {binary}, "value" {binary}, mine text, PRIMARY KEY ("partition", "key"))'
        )
        query(
            'CREATE TABLE offsets (topic text, "partition" int, "offset" bigint, '
            'PRIMARY KEY (topic, "partition"))'
        )

    def deliver(self, lab: Lab, folder: Path | str, *words: str, **env: str | None) -> Ran:
        into = f"sql:env:STATE_DATABASE#{WORD}"
        return eoctl(
            *("state", "deliver", str(folder), "--into", into, BARE, *words),
            lab=lab,
            env=environment(STATE_DATABASE=self.url, **env),
        )

    def state(self) -> State:
        rows = self.query(f'SELECT "partition", "key", "timestamp", "value" FROM {WORD}')
        found = {(p, bytes(key)): (at, bytes(value)) for p, key, at, value in rows}
        assert len(found) == len(rows)
        return found

    def offsets(self) -> dict[tuple[str, int], int]:
        rows = self.query('SELECT topic, "partition", "offset" FROM offsets')
        return {(topic, p): offset for topic, p, offset in rows}


@pytest.fixture(params=only_here(["sqlite", "postgresql"], "postgresql"))
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Base]:
    connection: Any
    if request.param == "sqlite":
        path = tmp_path / "a database.db"
        connection = sqlite3.connect(path, isolation_level=None)
        url = f"sqlite:///{path}"
    else:
        server: Postgres = request.getfixturevalue("server")
        connection = psycopg.connect(server.dsn(), autocommit=True)
        url = server.url()
    try:
        yield Base(request.param, url, lambda text: list(_rows(connection.execute(text))))
    finally:
        connection.close()


def _rows(cursor: Any) -> list[tuple[Any, ...]]:
    return cursor.fetchall() if cursor.description else []


class Log:
    """A changelog whose states are rebuilt one after the other. ends: of the newest."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.topic = f"log-{folder.parent.name}-{time.time_ns()}"
        admin = AdminClient(lab.client_properties())
        admin.create_topics([NewTopic(self.topic, 2, 1, config=COMPACT)])[self.topic].result(20)
        self.states = [self._more(1), self._more(2)]

    def _more(self, seed: int) -> tuple[Path, State, dict[int, int]]:
        fill(self.lab, self.topic, seed=seed, records=4000, keys=3000, partitions=2)
        folder = self.folder / str(seed)
        made = eoctl(
            *("state", "rebuild", self.topic, "--format", "plain", "--at", "lso"),
            *("--output", str(folder)),
            lab=self.lab,
        )
        assert made.status == 0, made.stderr
        ends = Rebuilt(folder).ends
        return folder, dict_state(self.lab, self.topic, ends)[0], ends


@pytest.fixture(scope="module")
def log(lab1: Lab, tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Keys of the first state are gone from the second one."""
    log = Log(lab1, tmp_path_factory.mktemp("deliver-sql"))
    (_, first, _), (_, second, _) = log.states
    assert first.keys() - second.keys()
    assert second.keys() - first.keys()
    return log


def plain_log(lab: Lab, topic: MakeTopic) -> str:
    """A changelog whose records have no headers."""
    name = topic(lab, 2, config=COMPACT, name="plain")
    fill_plainly(lab, name)
    return name


def rebuilt(lab: Lab, name: str) -> None:
    """The state of a changelog, in the folder `totals` of this one."""
    words = ("state", "rebuild", name, "--format", "plain", "--at", "lso", "--output", "totals")
    ran = eoctl(*words, lab=lab)
    assert ran.status == 0, ran.stderr


def database(folder: Path) -> sqlite3.Connection:
    """An SQLite file `db` with the pages' tables."""
    found = sqlite3.connect(folder / "db", isolation_level=None)
    found.execute(
        'CREATE TABLE totals ("partition" int, "offset" bigint, "timestamp" bigint, '
        '"key" blob, "value" blob, PRIMARY KEY ("partition", "key"))'
    )
    found.execute(
        'CREATE TABLE offsets (topic text, "partition" int, "offset" bigint, '
        'PRIMARY KEY (topic, "partition"))'
    )
    return found


@follows("docs/state.md", "State from changelogs")
def test_the_page(it: Reading, lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    name, other = plain_log(lab1, topic), plain_log(lab1, topic)
    rebuilt(lab1, name)
    it.lab = lab1
    it.env["DATABASE"] = f"sqlite:///{tmp_path}/db"
    it.names |= {"app-a-changelog": name, "app-b-changelog": other}
    with closing(database(tmp_path)) as base:
        it.asked("state deliver")
        held = base.execute('SELECT "partition", "key", "timestamp", "value" FROM totals')
        ends = Rebuilt(tmp_path / "totals").ends
        state = dict_state(lab1, name, ends)[0]
        assert {(p, key): (at, value) for p, key, at, value in held} == state
        stored = base.execute('SELECT topic, "partition", "offset" FROM offsets')
        assert {(t, p): offset for t, p, offset in stored} == {
            (name, p): end for p, end in ends.items()
        }
    it.run("state rebuild", 0)
    both = json.loads(Path("both/manifest.json").read_text())
    assert {t["topic"] for t in both["cut"]["topics"]} == {name, other}


@follows("docs/state.md", "Into a topic or a database")
def test_the_page_on_deliveries(it: Reading, lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """Without `--execute` each is a plan, and nothing is written."""
    name = plain_log(lab1, topic)
    rebuilt(lab1, name)
    out = topic(lab1, 2, config=COMPACT)
    it.lab = lab1
    it.names |= {
        "DIR": "totals",
        "topic:NAME": f"topic:{out}",
        "sql:URL#TABLE": f"sql:sqlite:///{tmp_path}/db#totals",
        "OFFSETS": "offsets",
        "[--input TOPIC]": "",  # of states that have their inputs' offsets
        "LOG": name,
        "FORMAT": "plain",
        "CUT": "lso",
    }
    with closing(database(tmp_path)) as base:
        for _ in range(3):
            assert "nothing was sent yet" in it.run("state deliver", 0).text
        it.run("state rebuild", 0, {"DIR": "new"})
        assert base.execute("SELECT count(*) FROM totals").fetchone() == (0,)
    assert Path("new/manifest.json").exists()


@pytest.mark.long
def test_upserted_and_replaced(lab1: Lab, base: Base, log: Log) -> None:
    (one, first, _), (two, second, _) = log.states
    planned = base.deliver(lab1, one, "-o", "json")
    assert planned.status == 0, planned.stderr
    assert base.state() == {}
    done = base.deliver(lab1, one, *ACT)
    assert done.status == 0, done.stderr
    assert base.state() == first
    again = base.deliver(lab1, one, *ACT)
    assert (again.status, "there already" in again.stderr) == (0, True), again.stderr
    stale = base.deliver(lab1, two, *ACT)  # keys of the first would stay
    assert stale.status == 4
    others = len(first.items() - second.items())  # deleted since, and written again
    assert f"it holds {others:,} rows that this state has not; --replace" in stale.stderr
    assert base.state() == first
    base.query(f'INSERT INTO {WORD} ("partition", "key") VALUES (1, \'of nobody\')')
    done = base.deliver(lab1, two, "--replace", *ACT)
    assert done.status == 0, done.stderr
    assert base.state() == second
    assert base.query("SELECT * FROM offsets") == []
    shown = eoctl("journal", "list", "-o", "json").stdout + done.stdout + done.stderr
    assert PASSWORD not in shown


def test_with_the_offsets_in_one_transaction(lab1: Lab, base: Base, log: Log) -> None:
    """What an earlier delivery left goes with it; a stored cut that moved meanwhile refuses it."""
    words = ("--with-offsets", "offsets")
    for folder, state, ends in log.states:
        done = base.deliver(lab1, folder, *words, *ACT)
        assert done.status == 0, done.stderr
        assert base.state() == state
        assert base.offsets() == {(log.topic, p): end for p, end in ends.items()}
    (one, first, _), (_, second, _) = log.states
    back = base.deliver(lab1, one, *words, *ACT)
    assert (back.status, "older state" in back.stderr) == (4, True), back.stderr
    assert base.state() == second
    # planned, then somebody moves the stored cut: the same plan is refused
    planned = base.deliver(lab1, one, *words, "--replace", "-o", "json").rows[0]["sha256"]
    base.query('UPDATE offsets SET "offset" = "offset" + 1 WHERE "partition" = 1')
    moved = base.deliver(lab1, one, *words, "--replace", *ACT, "--plan-sha256", planned)
    assert moved.status == 4, moved.stderr
    assert base.state() == second
    done = base.deliver(lab1, one, *words, "--replace", *ACT)
    assert done.status == 0, done.stderr
    assert base.state() == first


KILLS = (
    ("deliver-write-3", ("--replace",)),
    ("step-1-done", ("--replace",)),
    ("begun", ("--with-offsets", "offsets")),
    ("deliver-write-3", ("--with-offsets", "offsets")),
    ("step-1-performed", ("--with-offsets", "offsets")),
)


@pytest.mark.parametrize(("kill_at", "words"), only_here(KILLS, KILLS[0]))
def test_killed_at_a_step_the_same_command_ends_it(
    lab1: Lab, base: Base, log: Log, kill_at: str, words: tuple[str, ...]
) -> None:
    (one, first, _), (two, second, _) = log.states
    assert base.deliver(lab1, one, *words, *ACT).status == 0
    killed = base.deliver(lab1, two, *words, *ACT, EOCTL_TEST_KILL_AT=kill_at)
    assert killed.status == -signal.SIGKILL, killed.stderr
    if words[0] == "--with-offsets":  # all of it, or nothing
        assert base.state() == (second if kill_at.startswith("step") else first)
    ended = base.deliver(lab1, two, *words, *ACT)
    assert ended.status == 0, ended.stderr
    assert base.state() == second


def test_refused(lab1: Lab, base: Base, log: Log) -> None:
    """No table, no column, no unique key, foreign partitions, a database of another kind."""
    folder = str(log.states[0][0])

    def refused(table: str, *words: str) -> Ran:
        into = f"sql:env:STATE_DATABASE#{table}"
        env = environment(STATE_DATABASE=base.url)
        return eoctl("state", "deliver", folder, "--into", into, BARE, *words, lab=lab1, env=env)

    missing = refused("nowhere")
    assert missing.status == 3
    assert 'CREATE TABLE "nowhere"' in missing.stderr
    made = missing.stderr.partition("make it: ")[2].strip()
    base.query(made)  # what is told can be used
    assert refused("nowhere", *ACT).status == 0
    base.query("DROP TABLE nowhere")
    base.query('CREATE TABLE nowhere ("partition" int, "offset" int, "timestamp" int, "key" int)')
    assert "no column 'value'" in refused("nowhere").stderr
    base.query("ALTER TABLE nowhere ADD value int")
    typed = refused("nowhere")
    assert (typed.status, "'key' is of type INTEGER" in typed.stderr) == (4, True), typed.stderr
    base.query("DROP TABLE nowhere")
    base.query(made.partition(", PRIMARY KEY")[0] + ")")
    keyless = refused("nowhere")
    assert (keyless.status, "no unique key" in keyless.stderr) == (4, True)
    base.query("DROP TABLE nowhere")
    base.query(f'INSERT INTO {WORD} ("partition", "offset", "key") VALUES (7, 1, \'x\')')
    foreign = base.deliver(lab1, folder, "--replace", *ACT)
    assert (foreign.status, "partition 7" in foreign.stderr) == (4, True)
    mysql = ("--into", "sql:mysql://h/d#t", BARE)
    other = eoctl("state", "deliver", folder, *mysql, lab=lab1, env=environment())
    assert (other.status, "only into postgresql and sqlite" in other.stderr) == (2, True)


def test_without_the_right(lab1: Lab, server: Postgres, log: Log, tmp_path: Path) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        base = Base("postgresql", server.url(), lambda text: list(_rows(admin.execute(text))))
        admin.execute("DROP ROLE IF EXISTS reader")
        admin.execute("CREATE ROLE reader LOGIN PASSWORD 'reader-secret'")
        admin.execute(f"GRANT SELECT ON {WORD}, offsets TO reader")
        reader = Base.__new__(Base)
        reader.url = server.url(user="reader", password="reader-secret")
        for words in ((), ("--with-offsets", "offsets")):
            refused = reader.deliver(lab1, log.states[0][0], *words, *ACT)
            assert refused.status == 4, refused.stderr
            assert "permission denied" in refused.stderr
            assert "reader-secret" not in refused.stderr
        assert base.state() == {}
        admin.execute(f"DROP TABLE {WORD}, offsets")
        admin.execute("DROP ROLE reader")


@pytest.mark.long
def test_rows_of_somebody_else_meanwhile(lab1: Lab, server: Postgres, log: Log) -> None:
    """One that is added while the transaction is open comes after it, and is told."""
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        base = Base("postgresql", server.url(), lambda text: list(_rows(admin.execute(text))))
        folder, state, _ = log.states[0]
        late = f'INSERT INTO {WORD} ("partition", "offset", "key") VALUES (0, 1, \'x\')'
        with psycopg.connect(server.dsn()) as other:
            other.execute(late)  # holds the table until it commits
            ran: list[Ran] = []
            work = threading.Thread(
                target=lambda: ran.append(
                    base.deliver(lab1, folder, "--with-offsets", "offsets", *ACT)
                )
            )
            work.start()
            time.sleep(4)  # planned with an empty table, waiting for the lock
            other.commit()
            work.join(60)
        assert ran[0].status == 4, ran[0].stderr
        assert "it holds 1 row that this state has not" in ran[0].stderr
        assert base.offsets() == {}
        assert len(base.query(f"SELECT 1 FROM {WORD}")) == 1
        assert state


def coast(key: bytes, upstream: int, state: bytes) -> tuple[bytes, bytes]:
    """A record of a coast changelog, by hand."""
    value = struct.pack(">qqi", upstream, 2 * upstream, len(state)) + state
    return struct.pack(">i", len(key)) + key, value


@pytest.mark.long
def test_a_coast_state_with_its_attached_offsets(
    lab1: Lab, topic: MakeTopic, base: Base, tmp_path: Path
) -> None:
    """Decoded columns, and the offsets of the partition's last record; none for an empty one."""
    name = topic(lab1, 2, config=COMPACT)
    writer = Producer(lab1.client_properties())
    for number in range(40):
        key, value = coast(b"user-%d" % (number % 7), 100 + number, b"state-%d" % number)
        writer.produce(name, value, key, partition=0, timestamp=1_700_000_000_000 + number)
    writer.flush(20)
    made = eoctl(
        *("state", "rebuild", name, "--format", "coast", "--at", "lso"),
        *("--output", str(tmp_path / "coast")),
        lab=lab1,
    )
    assert made.status == 0, made.stderr
    for column in ("user_key", "state"):
        base.query(
            f"ALTER TABLE {WORD} ADD {column} {'bytea' if base.kind != 'sqlite' else 'blob'}"
        )
    for column in ("upstream", "downstream"):
        base.query(f"ALTER TABLE {WORD} ADD {column} bigint")
    words = ("--with-offsets", "offsets")
    unnamed = base.deliver(lab1, tmp_path / "coast", *words)
    assert (unnamed.status, "input topic" in unnamed.stderr) == (2, True)
    done = base.deliver(lab1, tmp_path / "coast", *words, "--input", "events", *ACT)
    assert done.status == 0, done.stderr
    assert base.offsets() == {("events", 0): 139}
    rows = base.query(f"SELECT user_key, state, upstream, downstream FROM {WORD} ORDER BY upstream")
    expected = [
        (b"user-%d" % (n % 7), b"state-%d" % n, 100 + n, 2 * (100 + n)) for n in range(33, 40)
    ]
    assert [(bytes(k), bytes(s), u, d) for k, s, u, d in rows] == expected


@pytest.mark.long
def test_the_stored_cut_is_compared_in_the_transaction(base: Base) -> None:
    """Another's cut, another's new row, a lock that was lost: nothing of it is written."""
    import pyarrow as pa

    columns = dict.fromkeys(("partition", "offset", "timestamp"), "int64")
    columns |= dict.fromkeys(("key", "value"), "binary")
    table = StateTable(SqlStore(kind="sql", url=base.url, table=WORD), columns)
    offsets = SqlStore(kind="sql", url=base.url, table="offsets")

    def rows(*numbers: int) -> pa.Table:
        return pa.Table.from_pylist(
            [
                {
                    "partition": 0,
                    "offset": n,
                    "timestamp": 5,
                    "key": b"k%d" % (n % 3),
                    "value": b"v",
                }
                for n in numbers
            ]
        )

    def write(*numbers: int, before: int | None, held: bool = True) -> None:
        def ensure_held() -> None:
            if not held:
                raise RefusedError("the lock is lost")

        kept = None if before is None else {"offset": before}
        change = Write("log", 0, kept, {"offset": max(numbers) + 1})
        live = {0: sorted_marks([marks((n, b"k%d" % (n % 3)) for n in numbers)])}
        replacing = table.replace(
            lambda p: [rows(*numbers)], live, (offsets, [change]), ensure_held, replace=True
        )
        asyncio.run(replacing)

    def there() -> tuple[list[int], dict[tuple[str, int], int]]:
        found = base.query(f'SELECT "offset" FROM {WORD} ORDER BY 1')
        return [row[0] for row in found], base.offsets()

    write(1, 2, 3, before=None)
    first = ([1, 2, 3], {("log", 0): 4})
    assert there() == first
    for before in (None, 3, 5):
        with pytest.raises(RefusedError):
            write(4, 6, before=before)
        assert there() == first
    with pytest.raises(RefusedError, match="lock is lost"):
        write(4, 6, before=4, held=False)
    assert there() == first
    write(4, 6, before=4)  # k0, k1: those of 3 and 1 are updated, k2 of 2 goes
    assert there() == ([4, 6], {("log", 0): 7})
    base.query("DELETE FROM offsets")
    with pytest.raises(RefusedError):
        write(7, before=7)
    assert there() == ([4, 6], {})
