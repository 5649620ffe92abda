"""Positions in a real PostgreSQL: races, lost answers, a frozen server, rights."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from eoctl.stores.offsets.opening import open_store
from recovery.errors import RefusedError, UnreachableError, UnverifiedError
from recovery.facts import TopicPartition
from recovery.shared.app_file import App
from recovery.shared.store_tables import SqlColumns, SqlStore
from tests.offset_stores import Open, change, kept, position, race, read, there_and_back
from tests.postgres import PASSWORD, Postgres, postgres
from tests.relay import Relay
from tests.share import only_here
from tests.zookeeper import wait_for

A, B = TopicPartition("orders", 0), TopicPartition("orders", 3)
COLUMNS = {
    **{key: key for key in ("app", "output", "state", "merge", "cluster_id", "topic_id")},
    "leader_epoch": "leader_epoch",
}
APP = App(name="enricher", strategy="output-end", inputs=("orders",), outputs=("out",))


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


@pytest.fixture
def admin(server: Postgres) -> Iterator[Any]:
    """A connection with a fresh table `Sales Data.offsets`."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute('DROP SCHEMA IF EXISTS "Sales Data" CASCADE')
        connection.execute('CREATE SCHEMA "Sales Data"')
        connection.execute(
            'CREATE TABLE "Sales Data".offsets (app text, topic text, partition int, '
            '"offset" numeric, output jsonb, state bytea, merge bigint, cluster_id text, '
            "topic_id text, leader_epoch int, PRIMARY KEY (app, topic, partition))"
        )
        yield connection


def store_in(url: str, *, seconds: float = 10, **columns: Any) -> Open:
    described = SqlStore(
        kind="sql",
        url=url,
        table='"Sales Data".offsets',
        columns=SqlColumns(**(COLUMNS | columns)),
    )
    return partial(open_store, described, app=APP, seconds=seconds)


def rows(admin: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = admin.execute(
        'SELECT app, topic, partition, "offset"::bigint FROM "Sales Data".offsets ORDER BY 1, 2, 3'
    ).fetchall()
    return found


def test_a_table_there_and_back(server: Postgres, admin: Any) -> None:
    admin.execute("INSERT INTO \"Sales Data\".offsets VALUES ('other', 'orders', 0, 9)")
    there_and_back(store_in(server.url()), (A, B), state=b"\x00\xff", merge=7)
    assert rows(admin) == [("other", "orders", 0, 9)]
    hostile = "o'rders\"; DROP TABLE x; -- %s $1 ☃"
    there_and_back(store_in(server.url()), (TopicPartition(hostile, 0), TopicPartition(hostile, 1)))


def test_json_columns_and_text_columns_hold_the_same(server: Postgres, admin: Any) -> None:
    store = store_in(server.url())
    first = position(A, 10, 5)
    for kind in ("jsonb", "json", "text"):
        admin.execute(f'ALTER TABLE "Sales Data".offsets ALTER output TYPE {kind} USING NULL')
        before = kept(store, first)
        change(store, (A, None, before))
        [(output,)] = admin.execute('SELECT output::jsonb FROM "Sales Data".offsets').fetchall()
        assert output == {"topic": "out", "partition": 7, "offset": 5}
        [entry] = read(store).entries
        assert (entry.position, entry.kept) == (first, before)
        change(store, (A, before, kept(store, position(A, 3))))
        [(is_null,)] = admin.execute('SELECT output IS NULL FROM "Sales Data".offsets').fetchall()
        assert is_null
        change(store, (A, kept(store, position(A, 3)), None))


@pytest.mark.parametrize("insert", only_here([True, False], True))
def test_of_several_writers_one_wins(server: Postgres, admin: Any, *, insert: bool) -> None:
    winner = race(store_in(server.url()), A, insert=insert)
    assert rows(admin) == [("enricher", *A, winner)]


def test_the_application_that_holds_the_row_or_inserts_first(server: Postgres, admin: Any) -> None:
    store = store_in(server.url(), seconds=4)
    one, two = kept(store, position(A, 1)), kept(store, position(A, 2))
    with psycopg.connect(server.dsn()) as other:
        other.execute(
            'INSERT INTO "Sales Data".offsets (app, topic, partition, "offset") '
            "VALUES ('enricher', 'orders', 0, 1)"
        )
        blocked = (
            r"(timeout;|no answer within 4s,) nothing was written"  # the latter: a busy machine
        )
        with pytest.raises(RefusedError, match=blocked):
            change(store, (A, None, two))
        other.commit()
        with pytest.raises(RefusedError, match="the store holds something else"):
            change(store, (A, None, two))
        other.execute('UPDATE "Sales Data".offsets SET "offset" = 1')
        with pytest.raises(RefusedError, match=blocked):
            change(store, (A, one, two))
        other.commit()

        def updating() -> bool:
            look = "SELECT FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'UPDATE%'"
            found = other.execute(look).fetchone()
            other.commit()  # or the next look would see the same
            return found is not None

        def meanwhile() -> None:
            wait_for(updating)
            other.execute(
                'INSERT INTO "Sales Data".offsets (app, topic, partition, "offset") '
                "VALUES ('enricher', 'orders', 3, 8)"
            )
            other.commit()

        # B's row is made between the comparison and the INSERT
        hooked = store_in(server.url())
        admin.execute(
            'CREATE FUNCTION "Sales Data".slow() RETURNS trigger AS '
            "$$ BEGIN PERFORM pg_sleep(0.7); RETURN NEW; END $$ LANGUAGE plpgsql"
        )
        admin.execute(
            'CREATE TRIGGER slow BEFORE UPDATE ON "Sales Data".offsets '
            'FOR EACH ROW EXECUTE FUNCTION "Sales Data".slow()'
        )
        thread = threading.Thread(target=meanwhile)
        thread.start()
        with pytest.raises(RefusedError, match="another process added this row just now"):
            change(hooked, (A, one, two), (B, None, one))
        thread.join()
    assert rows(admin) == [("enricher", *A, 1), ("enricher", *B, 8)]


def test_an_answer_to_commit_that_is_lost_is_looked_for(server: Postgres, admin: Any) -> None:
    direct = store_in(server.url())
    one, two = kept(direct, position(A, 1)), kept(direct, position(A, 2))
    change(direct, (A, None, one))

    def is_commit(data: bytes) -> bool:
        return b"COMMIT" in data

    relay = Relay(server.port, is_commit, lambda: rows(admin)[0][3] == 2)
    change(store_in(server.url(port=relay.port)), (A, one, two))
    assert relay.cuts == 1
    relay.close()
    relay = Relay(server.port, is_commit, lambda: rows(admin)[0][3] == 1, stay_cut=True)
    with pytest.raises(
        UnverifiedError, match="the database's answer to COMMIT did not arrive"
    ) as trouble:
        change(store_in(server.url(port=relay.port)), (A, two, one))
    assert PASSWORD not in trouble.value.sentence
    relay.close()
    relay = Relay(server.port, lambda data: b"UPDATE" in data)
    with pytest.raises(RefusedError, match="nothing was written"):
        change(store_in(server.url(port=relay.port)), (A, one, two))
    relay.close()
    assert rows(admin) == [("enricher", *A, 1)]


def test_a_commit_that_is_answered_with_no(server: Postgres, admin: Any) -> None:
    store = store_in(server.url())
    one, two = kept(store, position(A, 1)), kept(store, position(A, 2))
    change(store, (A, None, one))
    admin.execute(
        'CREATE FUNCTION "Sales Data".no() RETURNS trigger AS $$ BEGIN '
        "RAISE EXCEPTION 'not serializable' USING ERRCODE = '40001'; END $$ LANGUAGE plpgsql"
    )
    admin.execute(
        'CREATE CONSTRAINT TRIGGER no AFTER UPDATE ON "Sales Data".offsets '
        'DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "Sales Data".no()'
    )
    with pytest.raises(RefusedError, match="not serializable; nothing was written"):
        change(store, (A, one, two))
    assert rows(admin) == [("enricher", *A, 1)]


@pytest.mark.long
def test_a_frozen_server_is_not_waited_for_and_not_written_later(
    server: Postgres, admin: Any
) -> None:
    store, calm = store_in(server.url(), seconds=2), store_in(server.url())
    one, two = kept(store, position(A, 1)), kept(store, position(A, 2))
    change(calm, (A, None, one))
    begin = time.monotonic()
    try:
        with pytest.raises(UnverifiedError, match=r"COMMIT did not arrive: no answer within 2s"):
            change(store, (A, one, two), held=server.freeze)
        with pytest.raises(UnreachableError):
            read(store)
        with pytest.raises(RefusedError, match="nothing was written"):
            change(store, (A, one, two))
        assert time.monotonic() - begin < 12
    finally:
        server.thaw()
    # the COMMIT was in the socket: it is done when the server wakes up
    end = time.monotonic() + 10
    while rows(admin) != [("enricher", *A, 2)]:
        assert time.monotonic() < end
    change(calm, (A, two, one))

    def frozen_before() -> None:
        server.freeze()
        time.sleep(2.5)  # it was given up meanwhile: no COMMIT may follow

    try:
        with pytest.raises(RefusedError, match="no answer within 2s, nothing was written"):
            change(store, (A, one, two), held=frozen_before)
    finally:
        server.thaw()
    time.sleep(1)
    assert rows(admin) == [("enricher", *A, 1)]


def test_rights_that_are_missing(server: Postgres, admin: Any) -> None:
    admin.execute("DROP ROLE IF EXISTS clerk")
    admin.execute("CREATE ROLE clerk LOGIN PASSWORD 'clerk''s'")
    admin.execute("INSERT INTO \"Sales Data\".offsets VALUES ('enricher', 'orders', 0, 1)")
    store = store_in(server.url(user="clerk", password="clerk's"))
    one, two = kept(store, position(A, 1)), kept(store, position(A, 2))
    with pytest.raises(UnreachableError, match="permission denied for schema Sales Data"):
        read(store)
    admin.execute('GRANT USAGE ON SCHEMA "Sales Data" TO clerk')
    admin.execute('GRANT SELECT ON "Sales Data".offsets TO clerk')
    [entry] = read(store).entries
    assert entry.kept == one
    with pytest.raises(RefusedError, match=r"permission denied.*nothing was written"):
        change(store, (A, one, two))
    with pytest.raises(UnreachableError, match="password authentication failed") as wrong:
        read(store_in(server.url(user="clerk", password="wrong-secret")))
    assert "wrong-secret" not in wrong.value.sentence
    assert rows(admin) == [("enricher", *A, 1)]
