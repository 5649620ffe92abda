"""How a group's offset was committed, from batches as a coordinator writes them."""

import struct

import pytest

from recovery.facts import TopicPartition
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS, GroupValue, OffsetKey
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateRecord
from recovery.restart.commits import GroupCommit, LastCommits, OutputEvidence, decided, written_with
from recovery.values import replace
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker, seal

IN, OUT, HOME = ("in", 0), TopicPartition("out", 0), 12
MINE = OffsetKey("payments", *IN)


def key(group: str = "payments", topic: str = "in", partition: int = 0) -> bytes:
    """OffsetCommitKey, version 1."""
    names = b"".join(struct.pack(">h", len(n)) + n.encode() for n in (group, topic))
    return struct.pack(">h", 1) + names + struct.pack(">i", partition)


def value(offset: int) -> bytes:
    """OffsetCommitValue, version 3, committed at 1000 ms."""
    return struct.pack(">hqih", 3, offset, -1, 0) + struct.pack(">q", 1000)


def commit(
    at: int,
    offset: int | None,
    producer: tuple[int, int] | None = None,
    *,
    group: str = "payments",
    codec: int = 0,
) -> bytes:
    """A batch with one commit, or its tombstone; producer: id and epoch of the transaction."""
    item = Item(0, key=key(group), value=None if offset is None else value(offset))
    who = (-1, -1, -1) if producer is None else (*producer, 0)
    return batch(at, [item], producer=who, transactional=producer is not None, codec=codec)


def read(*batches: bytes) -> GroupCommit | None:
    found = LastCommits({"payments"}, HOME)
    found.add(b"".join(batches))
    return found.commits.get(MINE)


@pytest.mark.parametrize("codec", [0, 1])
def test_a_commit_in_a_transaction(codec: int) -> None:
    found = read(commit(3, 40, (7, 2), codec=codec), marker(4, 7, COMMIT, epoch=2))
    assert found == GroupCommit(HOME, 3, 40, 1000, 7, 2, 4, 2, last=True)
    assert (found.in_transaction, found.is_v2) == (True, False)


def test_the_first_record_of_the_log_counts_too() -> None:
    found = read(commit(0, 40, (7, 2)), marker(1, 7, COMMIT, epoch=2))
    assert found is not None
    assert (found.at, found.in_transaction) == (0, True)


def test_a_commit_outside_of_one() -> None:
    found = read(commit(3, 40))
    assert found == GroupCommit(HOME, 3, 40, 1000)
    assert (found.in_transaction, found.is_v2) == (False, False)


def test_a_commit_whose_batch_hides_its_group_in_compressed_bytes() -> None:
    body = struct.pack(">hqih", 3, 40, -1, 400) + b"x" * 400 + struct.pack(">q", 1000)
    packed = batch(3, [Item(0, key=key(), value=body)], codec=1)
    assert b"payments" not in packed
    assert read(packed) == GroupCommit(HOME, 3, 40, 1000)


def test_a_transactional_batch_without_its_marker_does_not_count() -> None:
    assert read(commit(3, 40, (7, 2))) is None
    older = read(commit(1, 20), commit(3, 40, (7, 2)))
    assert older is not None
    assert (older.offset, older.in_transaction) == (20, False)


def test_an_aborted_commit_does_not_count() -> None:
    first = commit(1, 20, (7, 2)), marker(2, 7, COMMIT, epoch=2)
    found = read(*first, commit(3, 40, (7, 2)), marker(4, 7, ABORT, epoch=2))
    assert found is not None
    assert (found.offset, found.last) == (20, True)


def test_a_deletion_takes_what_a_transaction_holds() -> None:
    """As the coordinator does: a COMMIT afterwards brings nothing back."""
    assert read(commit(1, 20, (7, 2)), commit(2, None), marker(3, 7, COMMIT, epoch=2)) is None


def test_another_producers_marker_ends_nothing() -> None:
    assert read(commit(3, 40, (7, 2)), marker(4, 8, COMMIT)) is None


def emptied(whole: bytes) -> bytes:
    """The batch as compaction leaves it where it still needs its header."""
    out = bytearray(whole[:61])
    struct.pack_into(">i", out, 57, 0)
    return seal(out)


NO_MARKERS = marker(4, 7, b"\0\0\0\2", epoch=2), emptied(marker(4, 7, COMMIT, epoch=2))


@pytest.mark.parametrize("between", NO_MARKERS)
def test_a_control_batch_that_is_no_marker_ends_nothing(between: bytes) -> None:
    """A control record of KRaft's own, and a marker that compaction took away."""
    assert read(commit(3, 40, (7, 2)), between) is None
    found = read(commit(3, 40, (7, 2)), between, marker(5, 7, COMMIT, epoch=2))
    assert found is not None
    assert (found.offset, found.marker_at) == (40, 5)


def test_the_commit_whose_record_came_later_counts() -> None:
    """A plain one between a transactional one and its marker (OffsetMetadataManager)."""
    found = read(commit(3, 40, (7, 2)), commit(4, 50), marker(5, 7, COMMIT, epoch=2))
    assert found is not None
    assert (found.offset, found.in_transaction) == (50, False)
    found = read(commit(3, 50), commit(4, 40, (7, 2)), marker(5, 7, COMMIT, epoch=2))
    assert found is not None
    assert (found.offset, found.in_transaction) == (40, True)


def test_a_tombstone_and_what_comes_after() -> None:
    assert read(commit(3, 40), commit(4, None)) is None
    found = read(commit(3, 40), commit(4, None), commit(5, 50))
    assert found is not None
    assert found.offset == 50


def test_other_groups_and_seams() -> None:
    assert read(commit(3, 40, group="payments-2")) is None
    found = LastCommits({"payments"}, HOME)
    mine = commit(3, 40, (7, 2)) + marker(4, 7, COMMIT, epoch=2)
    for chunk in (mine, mine + commit(5, 60, group="other"), mine):
        found.add(chunk)
    assert found.commits[MINE].at == 3
    assert found.commits[MINE].last
    gone = LastCommits({"payments"}, HOME)
    for chunk in (commit(3, 40) + commit(4, None), commit(3, 40)):
        gone.add(chunk)
    assert MINE not in gone.commits


def member(*members: str, at: int, since: int, group: str = "payments") -> bytes:
    """A batch with a GroupMetadataValue, version 2 (KIP-211), as of these members."""
    text = b"".join(struct.pack(">h", len(n)) + n.encode() for n in ("consumer",))
    rows = b"".join(
        struct.pack(">h", len(m)) + m.encode() + struct.pack(">hhiiii", 0, 0, 1, 2, 0, 0)
        for m in members
    )
    body = struct.pack(">h", 2) + text + struct.pack(">ihhqi", 3, -1, -1, since, len(members))
    name = struct.pack(">hh", 2, len(group)) + group.encode()
    return batch(at, [Item(0, key=name, value=body + rows)])


def test_several_groups_and_their_states() -> None:
    found = LastCommits({"payments", "billing"}, HOME)
    found.add(commit(1, 20) + member("m", at=2, since=500) + commit(3, 30, group="billing"))
    found.add(member(at=4, since=700) + commit(5, 9, group="payments-2") + commit(6, 25))
    assert {key: c.offset for key, c in found.commits.items()} == {
        MINE: 25,
        OffsetKey("billing", *IN): 30,
    }
    assert found.state("payments") == GroupValue("consumer", 700)
    assert found.last_clients("payments") == (("", ""),)  # who was there before it was left
    assert found.state("billing") is None
    found.add(member("m", at=7, since=800, group="other"))
    assert found.state("other") is None
    alone = LastCommits({"payments"}, HOME)
    alone.add(member("m", "n", at=2, since=500, group="billing") + member("m", at=3, since=600))
    assert alone.state("payments") == GroupValue("consumer", 600, (("", ""),))
    assert alone.state("billing") is None


def test_an_end_that_the_client_named() -> None:
    """OffsetCommitValue, version 1."""
    body = struct.pack(">hqh", 1, 40, 0) + struct.pack(">qq", 1000, 9000)
    found = read(batch(3, [Item(0, key=key(), value=body)]))
    assert found == GroupCommit(HOME, 3, 40, 1000, expires=9000)


@pytest.mark.parametrize("kind", [1, 2])
def test_a_group_with_records_of_a_newer_version_is_known_to_be_unreadable(kind: int) -> None:
    name = key() if kind == 1 else struct.pack(">hh", 2, 8) + b"payments"
    found = LastCommits({"payments", "billing"}, HOME)
    found.add(batch(3, [Item(0, key=name, value=b"\0\7newer")]) + commit(4, 5, group="billing"))
    assert found.unreadable == {"payments"}
    gone = LastCommits({"payments"}, HOME)
    gone.add(batch(3, [Item(0, key=name, value=None)]))
    assert gone.unreadable == set()
    assert gone.deleted == (frozenset({MINE}) if kind == 1 else frozenset())


def test_last_is_said_only_while_no_later_transaction_committed_there() -> None:
    mine = commit(3, 40, (7, 2)), marker(4, 7, COMMIT, epoch=2)
    other = commit(5, 9, (7, 2), group="other"), marker(6, 7, COMMIT, epoch=2)
    found = read(*mine, *other)
    assert found is not None
    assert not found.last
    aborted = commit(5, 9, (7, 2), group="other"), marker(6, 7, ABORT, epoch=2)
    found = read(*mine, *aborted)
    assert found is not None
    assert found.last


# -- the outputs -----------------------------------------------------------------------------------

V1 = GroupCommit(HOME, 3, 40, 1000, 7, 2, 4, 2, last=True)
V2 = GroupCommit(HOME, 3, 40, 1000, 7, 2, 4, 3, last=True)
GROUP = TopicPartition(CONSUMER_OFFSETS, HOME)


def decision(
    *partitions: TopicPartition,
    epoch: int = 2,
    version: int = 0,
    pid: int = 7,
    state: TransactionState = TransactionState.PREPARE_COMMIT,
) -> TransactionValue:
    return TransactionValue(
        pid, epoch, 60_000, state, tuple(partitions), 0, 0, client_transaction_version=version
    )


def shown(commit: GroupCommit, *decisions: TransactionValue) -> OutputEvidence:
    history = [StateRecord("tx", 0, at, 0, v) for at, v in enumerate(decisions)]
    return decided(commit, OUT, reversed(history))


def test_the_newest_decision_of_v1() -> None:
    assert shown(V1, decision(GROUP, OUT)) is OutputEvidence.DECISION
    assert shown(V1, decision(GROUP, TopicPartition("out", 1))) is OutputEvidence.NOTHING
    assert shown(V1, decision(GROUP, OUT), decision(GROUP)) is OutputEvidence.NOTHING
    assert shown(V1, decision(GROUP, OUT), decision(OUT)) is OutputEvidence.LATER
    elsewhere = decision(TopicPartition("out", 1))
    assert shown(V1, decision(GROUP, OUT), elsewhere) is OutputEvidence.DECISION
    assert shown(V1, decision(OUT), decision(GROUP, OUT)) is OutputEvidence.DECISION
    assert shown(V1) is OutputEvidence.NOTHING


def test_v1_knows_the_decision_only_by_its_order() -> None:
    between = GroupCommit(HOME, 3, 40, 1000, 7, 2, 4, 2, last=False)
    assert shown(between, decision(GROUP, OUT)) is OutputEvidence.NOTHING


@pytest.mark.parametrize(
    "other",
    [
        decision(GROUP, OUT, epoch=1),
        decision(GROUP, OUT, pid=8),
        decision(GROUP, OUT, version=2),
        decision(GROUP, OUT, state=TransactionState.PREPARE_ABORT),
        decision(GROUP, OUT, state=TransactionState.COMPLETE_COMMIT),
        decision(TopicPartition(CONSUMER_OFFSETS, 13), OUT, epoch=1),
    ],
)
def test_decisions_that_are_not_the_commits(other: TransactionValue) -> None:
    assert shown(V1, other) is OutputEvidence.NOTHING


def test_the_commits_own_decision_is_compacted_away_and_a_later_one_is_left() -> None:
    assert shown(V1, decision(TopicPartition(CONSUMER_OFFSETS, 13), OUT)) is OutputEvidence.LATER
    assert shown(V1, decision(OUT)) is OutputEvidence.LATER
    assert shown(V1, decision(OUT, epoch=3)) is OutputEvidence.LATER
    assert shown(V1, decision(TopicPartition("out", 1))) is OutputEvidence.NOTHING
    assert shown(V2, decision(OUT, epoch=4, version=2)) is OutputEvidence.LATER
    assert shown(V2, decision(GROUP, OUT, epoch=4, version=2)) is OutputEvidence.NOTHING
    assert shown(V2, decision(OUT, epoch=3, version=2)) is OutputEvidence.NOTHING, (
        "it is the commit's own"
    )
    assert shown(V2, decision(OUT, epoch=2, version=2)) is OutputEvidence.NOTHING, "it came before"


def test_what_is_left_of_later_transactions_shows_nothing_where_its_order_is_not_known() -> None:
    earlier = replace(V1, last=False)
    assert shown(earlier, decision(GROUP, OUT), decision(OUT)) is OutputEvidence.NOTHING
    assert shown(replace(V1, marker_epoch=None), decision(OUT)) is OutputEvidence.NOTHING
    with_group = decision(GROUP, epoch=2, version=2)
    assert shown(V2, with_group, decision(OUT, epoch=4, version=2)) is OutputEvidence.LATER


def test_the_decision_of_v2_is_known_by_its_epoch() -> None:
    mine, later = decision(GROUP, OUT, epoch=3, version=2), decision(GROUP, epoch=4, version=2)
    assert shown(V2, mine, later) is OutputEvidence.DECISION
    assert shown(V2, mine, decision(GROUP, OUT, epoch=4, version=2)) is OutputEvidence.DECISION
    assert shown(V2, mine, decision(OUT, epoch=4, version=2)) is OutputEvidence.LATER
    assert shown(V2, later) is OutputEvidence.NOTHING
    assert shown(V2, decision(GROUP, OUT, epoch=2, version=2)) is OutputEvidence.NOTHING


def test_decisions_of_an_id_that_moved() -> None:
    """Partitions were added to __transaction_state: v1 has no order then, v2 has its epochs."""
    old = StateRecord("tx", 1, 900, 0, decision(GROUP, TopicPartition("out", 1)))
    new = StateRecord("tx", 3, 5, 0, decision(GROUP, OUT))
    assert decided(V1, OUT, [old, new]) is OutputEvidence.NOTHING
    assert decided(V1, OUT, [new, StateRecord("tx", 3, 6, 0, None)]) is OutputEvidence.DECISION
    old = StateRecord("tx", 3, 900, 0, decision(GROUP, OUT, epoch=3, version=2))
    new = StateRecord("tx", 1, 5, 0, decision(OUT, epoch=4, version=2))
    assert decided(V2, OUT, [old, new]) is OutputEvidence.LATER
    earlier = StateRecord("tx", 5, 5, 0, decision(OUT, epoch=2, version=2))
    assert decided(V2, OUT, [old, earlier]) is OutputEvidence.DECISION


def output(at: int, epoch: int, pid: int = 7, *, transactional: bool = True) -> bytes:
    return batch(at, [Item(0)], producer=(pid, epoch, 0), transactional=transactional)


def test_the_batches_of_v2() -> None:
    mine = output(5, 2), marker(6, 7, COMMIT, epoch=3)
    assert written_with(V2, [b"".join(mine)]) is OutputEvidence.MARKERS
    assert written_with(V2, mine) is OutputEvidence.MARKERS, "in several responses"
    assert (
        written_with(V2, [*mine, output(7, 3), marker(8, 7, ABORT, epoch=4)])
        is OutputEvidence.MARKERS
    )
    for of_v1 in (mine, (output(5, 2), marker(6, 7, COMMIT, epoch=2))):
        assert written_with(V1, of_v1) is OutputEvidence.NOTHING, (
            "under v1 an epoch has many transactions"
        )


def test_a_later_transaction_in_the_batches_of_v2() -> None:
    mine = output(5, 2), marker(6, 7, COMMIT, epoch=3)
    later = output(7, 4), marker(8, 7, COMMIT, epoch=5)
    assert written_with(V2, later) is OutputEvidence.LATER
    assert written_with(V2, [*mine, *later]) is OutputEvidence.LATER
    between = replace(V2, last=False)
    assert written_with(between, later) is OutputEvidence.NOTHING, (
        "it may have held the group's offset"
    )
    assert written_with(between, [*mine, *later]) is OutputEvidence.MARKERS


@pytest.mark.parametrize(
    "batches",
    [
        (output(5, 1), marker(6, 7, COMMIT, epoch=2)),
        (output(5, 2), marker(6, 7, ABORT, epoch=3)),
        (output(5, 2), emptied(marker(6, 7, COMMIT, epoch=3))),
        (output(5, 2), marker(6, 7, b"\0\0\0\2", epoch=3)),
        (output(5, 2), marker(6, 7, COMMIT, epoch=4)),
        (output(5, 2, 8), marker(6, 8, COMMIT, epoch=3)),
        (output(5, 2, transactional=False), marker(6, 7, COMMIT, epoch=3)),
        (marker(6, 7, COMMIT, epoch=3),),
        (output(5, 2),),
        (),
    ],
)
def test_batches_that_show_nothing(batches: tuple[bytes, ...]) -> None:
    assert written_with(V2, batches) is OutputEvidence.NOTHING


def at_time(at: int, offset: int, time: int, producer: tuple[int, int] | None = None) -> bytes:
    """A batch with a commit of this time, ms."""
    body = struct.pack(">hqih", 3, offset, -1, 0) + struct.pack(">q", time)
    who = (-1, -1, -1) if producer is None else (*producer, 0)
    item = Item(0, key=key(), value=body)
    return batch(at, [item], producer=who, transactional=producer is not None)


@pytest.mark.parametrize(
    ("batches", "since"),
    [
        ([at_time(1, 20, 100), at_time(2, 20, 200), at_time(3, 20, 300)], 100),
        ([at_time(1, 20, 100), at_time(2, 21, 200), at_time(3, 21, 300)], 200),
        # it went away and came back: not the same run
        ([at_time(1, 20, 100), at_time(2, 21, 200), at_time(3, 20, 300)], 300),
        ([at_time(1, 20, 100), commit(2, None), at_time(3, 20, 300)], 300),
        # what is aborted moves nothing
        ([at_time(1, 20, 100), at_time(2, 30, 200, (7, 2)), marker(3, 7, ABORT, epoch=2)], 100),
        ([at_time(1, 20, 100), at_time(2, 30, 200, (7, 2)), marker(3, 7, COMMIT, epoch=2)], 200),
    ],
)
def test_since_when_a_group_has_not_moved(batches: list[bytes], since: int) -> None:
    """A consumer with auto-commit writes the same offset again and again."""
    found = LastCommits({"payments"}, HOME)
    found.add(b"".join(batches))
    assert found.since == {MINE: since}
