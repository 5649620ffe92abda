"""Positions in a real ZooKeeper: versions, cut connections, frozen servers, expired sessions."""

import json
import signal
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from eoctl.stores.offsets.opening import open_store
from recovery.errors import RefusedError, UnreachableError, UnverifiedError, UsageError
from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError
from recovery.shared.store_tables import ZooKeeperStore
from tests.offset_stores import Open, change, kept, position, race, read, there_and_back
from tests.relay import Relay
from tests.zookeeper import Server, free_port, request_type, serving, wait_for

A, B = TopicPartition("orders", 0), TopicPartition("orders", 3)
MULTI = 14  # ZooDefs.OpCode.multi


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("zookeeper") / "server") as server:
        yield server


@pytest.fixture
def admin(server: Server) -> Iterator[Any]:
    with server.admin() as client:
        yield client


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}-{uuid.uuid4().hex[:8]}"


def consumer(connect: str, group: str, *, seconds: float = 10, **more: Any) -> Open:
    path = f"/consumers/{group}/offsets"
    described = ZooKeeperStore(kind="zookeeper", connect=connect, path=path, **more)
    assert described.is_consumer_offsets
    return partial(open_store, described, seconds=seconds)


def node(connect: str, path: str, *, seconds: float = 10, **more: Any) -> Open:
    described = ZooKeeperStore(kind="zookeeper", connect=connect, path=path, **more)
    return partial(open_store, described, seconds=seconds)


def tree(admin: Any, path: str) -> dict[str, bytes]:
    """Everything from a node on, itself included."""
    if not admin.exists(path):
        return {}
    found = {path: admin.get(path)[0]}
    for name in admin.get_children(path):
        found |= tree(admin, f"{path}/{name}")
    return found


def test_a_consumers_nodes_there_and_back(server: Server, admin: Any, group: str) -> None:
    there_and_back(consumer(server.address, group), (A, B), output=None)
    assert tree(admin, f"/consumers/{group}") == {}
    admin.create(f"/consumers/{group}/owners", makepath=True)
    there_and_back(
        consumer(server.address, group), (A, TopicPartition("it's \"; ☃ 's", 1)), output=None
    )
    assert list(tree(admin, f"/consumers/{group}")) == [
        f"/consumers/{group}",
        f"/consumers/{group}/owners",
    ]


def test_a_node_of_ones_own_there_and_back(server: Server, admin: Any, group: str) -> None:
    admin.create(f"/root/{group}", makepath=True)
    store = node(f"{server.address}/root/{group}", "/my app's ☃/offsets")
    there_and_back(store, (A, B), state=b"\x00\xff", merge=7)
    assert admin.exists(f"/root/{group}/my app's ☃")
    assert not admin.exists(f"/root/{group}/my app's ☃/offsets")


def test_what_a_node_holds(server: Server, admin: Any, group: str) -> None:
    store = consumer(server.address, group, position="last")
    change(store, (A, None, kept(store, position(A, 5))), (B, None, kept(store, position(B, 0))))
    folder = f"/consumers/{group}/offsets/orders"
    assert admin.get(f"{folder}/0")[0] == b"4"
    assert admin.get(f"{folder}/3")[0] == b"-1"
    with pytest.raises(RefusedError, match="hold an input offset and nothing else"):
        kept(store, position(A, 5, 8))
    path = f"/{group}"
    store = node(server.address, path)
    change(store, (A, None, kept(store, position(A, 5, 8))))
    assert json.loads(admin.get(path)[0]) == {
        "partitions": [
            {
                "input": {"topic": "orders", "partition": 0, "offset": 5},
                "output": {"topic": "out", "partition": 7, "offset": 8},
            }
        ]
    }


def test_damaged_nodes(server: Server, admin: Any, group: str) -> None:
    folder = f"/consumers/{group}/offsets/orders"
    store = consumer(server.address, group)
    for name, data, words in (
        ("0", b"12x", "holds no offset: '12x'"),
        ("0", b"", "holds no offset"),
        ("0", b"9" * 19, "holds no offset"),
        ("0", "١٢".encode(), "holds no offset"),
        ("0", b"\xff", "holds no text"),
        ("zero", b"1", "is not a partition"),
        ("007", b"1", "is not a partition"),
    ):
        admin.create(f"{folder}/{name}", data, makepath=True)
        with pytest.raises(CorruptError, match=words):
            read(store)
        with pytest.raises(RefusedError, match=f"{words}.*nothing was written"):
            change(store, (B, None, kept(store, position(B, 1))))
        admin.delete(f"{folder}/{name}")
    admin.create(f"/{group}", b'{"partition": []}')
    own = node(server.address, f"/{group}")
    with pytest.raises(CorruptError, match="partition"):
        read(own)
    assert admin.get(f"/{group}")[0] == b'{"partition": []}'
    with pytest.raises(UsageError, match=r"\[app\.store\] path"):
        read(node(server.address, "/a/../b"))


def test_a_write_in_between_is_seen_by_the_version(server: Server, admin: Any, group: str) -> None:
    store = consumer(server.address, group)
    one, two = kept(store, position(A, 1)), kept(store, position(A, 2))
    path = f"/consumers/{group}/offsets/orders/0"

    def create() -> None:
        admin.create(path, b"9", makepath=True)

    with pytest.raises(RefusedError, match=r"another process wrote just now.*nothing was written"):
        change(store, (A, None, one), (B, None, one), held=create)
    assert tree(admin, f"/consumers/{group}/offsets/orders") == {
        f"/consumers/{group}/offsets/orders": b"",
        path: b"9",
    }
    admin.set(path, b"1")

    def same_value() -> None:
        admin.set(path, b"1")

    with pytest.raises(RefusedError, match="another process wrote just now"):
        change(store, (A, one, two), (B, None, one), held=same_value)
    with pytest.raises(RefusedError, match="another process wrote just now"):
        change(store, (A, one, None), held=same_value)
    assert [e.kept for e in read(store).entries] == [one]


@pytest.mark.parametrize("insert", [True, False])
def test_of_several_writers_one_wins(
    server: Server, admin: Any, group: str, *, insert: bool
) -> None:
    winner = race(consumer(server.address, group), A, insert=insert)
    data, stat = admin.get(f"/consumers/{group}/offsets/orders/0")
    assert (data, stat.version) == (str(winner).encode(), 0 if insert else 1)


def freeze(server: Server) -> None:
    server.process.send(signal.SIGSTOP)


def is_multi(data: bytes) -> bool:
    return request_type(data) == MULTI


@pytest.mark.long
@pytest.mark.parametrize("kind", ["create", "set", "delete"])
def test_cut_right_after_it_was_sent(server: Server, admin: Any, group: str, kind: str) -> None:
    """One node, one write; the look afterwards recognises its own."""
    direct = consumer(server.address, group)
    one, two = kept(direct, position(A, 1)), kept(direct, position(A, 2))
    before = None if kind == "create" else one
    after = None if kind == "delete" else two
    path = f"/consumers/{group}/offsets/orders/0"
    if before:
        change(direct, (A, None, before))

    def arrived() -> bool:
        there = admin.exists(path)
        return there is None if after is None else bool(there) and admin.get(path)[0] == b"2"

    relay = Relay(server.port, is_multi, arrived)
    change(consumer(relay.address, group), (A, before, after))
    assert relay.cuts == 1
    relay.close()
    if after is None:
        assert admin.exists(path) is None
    else:
        assert admin.exists(path).version == (0 if before is None else 1)  # written once
        assert admin.get_children(f"/consumers/{group}/offsets/orders") == ["0"]
        change(direct, (A, after, before))
    if after is None:
        change(direct, (A, None, before))
    relay = Relay(server.port, is_multi, arrived, stay_cut=True)
    with pytest.raises(UnverifiedError, match="the answer was lost"):
        change(consumer(relay.address, group, seconds=4), (A, before, after))
    relay.close()


def test_nothing_is_sent_over_a_connection_that_was_interrupted(
    server: Server, admin: Any, group: str
) -> None:
    """kazoo would keep the request and send it when it is connected again."""
    store = consumer(server.address, group)
    one, two = kept(store, position(A, 1)), kept(store, position(A, 2))
    change(store, (A, None, one))
    path = f"/consumers/{group}/offsets/orders/0"
    sessions: list[Any] = []
    real_start = KazooClient.start

    def remembered(self: Any, timeout: float = 15) -> Any:
        sessions.append(self)
        return real_start(self, timeout)

    def interrupted() -> None:
        client = sessions[-1]
        before = client._connection._socket
        client._connection._socket.shutdown(2)
        wait_for(lambda: client.connected and client._connection._socket is not before)

    def expired() -> None:
        session = sessions[-1].client_id
        thief = KazooClient(server.address, client_id=session)
        real_start(thief, 20)
        thief.stop()
        thief.close()
        wait_for(lambda: sessions[-1].client_id != session and sessions[-1].connected)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KazooClient, "start", remembered)
        for trouble in (interrupted, expired):
            with pytest.raises(RefusedError, match=r"interrupted.*nothing was written"):
                change(store, (A, one, two), held=trouble)
    data, stat = admin.get(path)
    assert (data, stat.version) == (b"1", 0)


@pytest.mark.long
def test_a_frozen_server(tmp_path: Path, group: str) -> None:
    with serving(tmp_path / "server") as server:
        store = consumer(server.address, group, seconds=3)
        one, two = kept(store, position(A, 1)), kept(store, position(A, 2))
        change(store, (A, None, one))
        begin = time.monotonic()
        with pytest.raises(UnverifiedError, match="the answer was lost"):
            change(store, (A, one, two), held=lambda: freeze(server))
        assert time.monotonic() - begin < 11
        with pytest.raises(UnreachableError, match=r"did not answer within|no answer within"):
            read(consumer(server.address, group, seconds=1))
        with pytest.raises(RefusedError, match="nothing was written"):
            change(consumer(server.address, group, seconds=1), (A, one, two))
        server.process.send(signal.SIGCONT)
        wait_for(lambda: read(store).entries[0].kept in (one, two))


@pytest.mark.long
def test_a_server_that_is_frozen_until_the_session_is_suspended(tmp_path: Path, group: str) -> None:
    with serving(tmp_path / "server") as server:
        store = consumer(server.address, group)
        one = kept(store, position(A, 1))
        change(store, (A, None, one))

        def suspended() -> None:
            freeze(server)
            time.sleep(5)  # of 6 s that a session lives: SUSPENDED after 4
            server.process.send(signal.SIGCONT)

        slow = consumer(server.address, group, seconds=15)
        with pytest.raises(RefusedError, match=r"interrupted.*nothing was written"):
            change(slow, (A, one, kept(store, position(A, 7))), held=suspended)
        time.sleep(1)
        assert [e.kept for e in read(store).entries] == [one]


def test_rights(server: Server, admin: Any, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZK_PASSWORD", "p@ss:word")
    acl = [
        make_digest_acl("ops", "p@ss:word", all=True),
        make_acl("world", "anyone", read=True),
    ]
    admin.create(f"/consumers/{group}/offsets", makepath=True)
    admin.set_acls(f"/consumers/{group}/offsets", acl)
    mine = consumer(f"ops:env:ZK_PASSWORD@{server.address}", group)
    stranger = consumer(server.address, group)
    wrong = consumer(f"ops:wrong-secret@{server.address}", group)
    one, two = kept(mine, position(A, 1)), kept(mine, position(A, 2))
    with pytest.raises(RefusedError, match="ZooKeeper hides those from us"):
        change(stranger, (A, None, one))
    change(mine, (A, None, one))
    owner = KazooClient(server.address, auth_data=[("digest", "ops:p@ss:word")])
    owner.start(20)
    # nodes that we make have the rights of the node above, so that the application can go on
    assert owner.get_acls(f"/consumers/{group}/offsets/orders/0")[0] == acl
    assert owner.get_acls(f"/consumers/{group}/offsets/orders")[0] == acl
    assert [e.kept for e in read(stranger).entries] == [one]
    with pytest.raises(RefusedError, match="does not let these credentials write") as refusal:
        change(wrong, (A, one, two))
    assert "wrong-secret" not in refusal.value.sentence
    owner.set_acls(f"/consumers/{group}/offsets/orders/0", acl[:1])
    owner.stop()
    owner.close()
    with pytest.raises(UnreachableError, match="does not let these credentials read it"):
        read(stranger)


def test_nobody_at_the_address() -> None:
    store = consumer(f"127.0.0.1:{free_port()}", "g", seconds=1)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:\d+: ZooKeeper did not answer"):
        read(store)
    with pytest.raises(RefusedError, match="nothing was written"):
        change(store, (A, None, kept(store, position(A, 1))))
    with pytest.raises(
        UsageError, match=r"\[app\.store\] connect: 'x@' is not a ZooKeeper address"
    ):
        read(consumer("x@", "g"))
