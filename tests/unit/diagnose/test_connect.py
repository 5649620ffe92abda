"""Kafka Connect: what its workers tell their group, and whose an id is by its name."""

import struct

import pytest

from recovery.diagnose.case import named_after
from recovery.facts import ConnectTask, ConnectWorker, GroupFacts
from recovery.formats.connect_protocol import decode_tasks, decode_url
from recovery.formats.reader import CorruptError
from recovery.inspect.connect_ids import ConnectOwner, connect_owner, possible_groups

URL = "http://127.0.0.1:49441/"
WORKER = ConnectWorker("connect-1", "127.0.0.1", URL, (ConnectTask("orders-2", 0),))
# as workers of Connect 4.3.1 sent them; of the protocols eager, compatible and sessioned
METADATA = {
    0: "0000" + "0017" + URL.encode().hex() + "0000000000000003",
    1: "0001" + "0017" + URL.encode().hex() + "0000000000000003" + "ffffffff",
    2: "0002" + "0017" + URL.encode().hex() + "0000000000000003" + "ffffffff",
}


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def assignment(version: int, *connectors: tuple[str, tuple[int, ...]]) -> bytes:
    """Written by the schema in IncrementalCooperativeConnectProtocol; version 0 ends earlier."""
    rows = b"".join(
        text(name) + struct.pack(f">i{len(tasks)}i", len(tasks), *tasks)
        for name, tasks in connectors
    )
    behind = b"" if version == 0 else struct.pack(">ii", -1, 0)
    head = struct.pack(">hh", version, 0) + text("connect-1-uuid") + text(URL)
    return head + struct.pack(">qi", 3, len(connectors)) + rows + behind


@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_a_worker_tells(version: int) -> None:
    assert decode_url(bytes.fromhex(METADATA[version])) == URL
    given = assignment(version, ("orders-2", (-1, 1, 0)), ("files", (-1,)))
    assert decode_tasks(given) == (ConnectTask("orders-2", 0), ConnectTask("orders-2", 1))


def test_a_worker_without_tasks() -> None:
    null = struct.pack(">hh", 1, 0) + text("") + text("") + struct.pack(">qi", 3, -1)
    assert decode_tasks(null) == ()


def test_cut_bytes_are_our_own_error() -> None:
    whole = assignment(2, ("orders", (0,)))
    for cut in range(len(whole) - 8):  # behind the tasks nothing is read
        with pytest.raises(CorruptError):
            decode_tasks(whole[:cut])
    with pytest.raises(CorruptError, match="version -1"):
        decode_url(b"\xff\xff")


def group(name: str, protocol: str | None = "connect", *workers: ConnectWorker) -> GroupFacts:
    return GroupFacts(name, "Stable", protocol=protocol, workers=workers)


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("etl-orders-0", ("etl",)),
        ("etl-orders-2-0", ("etl", "etl-orders")),
        ("connect-cluster-etl", ("etl",)),
        (
            "connect-cluster-etl-2-0",
            ("etl-2-0", "connect", "connect-cluster", "connect-cluster-etl"),
        ),
        ("orders-0", ()),
        ("connect-cluster-", ()),
        ("orders", ()),
        ("etl-orders-x", ()),
    ],
)
def test_groups_that_a_name_may_mean(name: str, groups: tuple[str, ...]) -> None:
    assert possible_groups(name) == groups


def test_a_group_of_connect_proves_that_there_is_such_a_worker_group() -> None:
    found = connect_owner("etl-orders-2-0", [group("etl", "connect", WORKER)])
    assert found == ConnectOwner("etl", True, "orders-2", 0, WORKER, (WORKER,))
    leads = connect_owner("connect-cluster-etl", [group("etl", "connect", WORKER)])
    assert leads == ConnectOwner("etl", True, workers=(WORKER,))


def test_the_group_whose_worker_runs_the_task_wins() -> None:
    both = [group("etl-orders"), group("etl", "connect", WORKER)]
    found = connect_owner("etl-orders-2-0", both)
    assert found is not None
    assert (found.group, found.connector) == ("etl", "orders-2")
    longest = connect_owner("etl-orders-3-0", [group("etl"), group("etl-orders")])
    assert longest == ConnectOwner("etl-orders", True, "3", 0)


def test_a_name_alone_is_a_hint_or_nothing() -> None:
    assert connect_owner("connect-cluster-etl", []) == ConnectOwner("etl", proven=False)
    assert connect_owner("connect-cluster-etl", [group("etl", "consumer")]) == ConnectOwner(
        "etl", proven=False
    )
    assert connect_owner("etl-orders-0", [group("etl", "consumer")]) is None
    assert connect_owner("etl-orders-0", []) is None


def test_a_leaders_id_is_named_after_its_group() -> None:
    assert named_after("connect-cluster-etl", "etl")
    assert not named_after("connect-cluster-etl", "et")
    assert not named_after("connect-cluster-", "")
