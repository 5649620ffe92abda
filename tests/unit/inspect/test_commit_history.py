"""A group's commits from batches as coordinators write them, and from what a cleaner leaves."""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.facts import TopicPartition
from recovery.inspect.commits.commit_history import CommitHistory, CommitRecord
from recovery.inspect.commits.commit_rows import history_row
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker, seal

GROUP = "payments"
IN = TopicPartition("in", 0)
START = 1_700_000_000_000


def text(name: str) -> bytes:
    return struct.pack(">h", len(name)) + name.encode()


def key(partition: int = 0, group: str = GROUP) -> bytes:
    """OffsetCommitKey, version 1."""
    return struct.pack(">h", 1) + text(group) + text("in") + struct.pack(">i", partition)


def value(offset: int, time: int, expires: int | None = None, epoch: int = 5) -> bytes:
    """OffsetCommitValue, version 3, or 1 where it expires."""
    if expires is not None:
        return struct.pack(">hq", 1, offset) + text("m") + struct.pack(">qq", time, expires)
    return struct.pack(">hqi", 3, offset, epoch) + text("m") + struct.pack(">q", time)


def classic(members: int, protocol: str = "consumer") -> bytes:
    """GroupMetadataValue, version 3."""
    body = struct.pack(">h", 3) + text(protocol) + struct.pack(">ihhqi", 1, -1, -1, START, members)
    for n in range(members):
        names = text(f"m-{n}") + struct.pack(">h", -1) + text("client") + text("/10.0.0.1")
        body += names + struct.pack(">iiii", 1, 1, 0, 0)
    return body


KEY = key()


class Written(NamedTuple):
    """One record, or a marker (end) of producer pid. value None: a tombstone. time: ms of START."""

    at: int
    key: bytes = KEY
    value: bytes | None = None
    pid: int | None = None
    end: bytes | None = None
    time: int = 0

    def packed(self) -> bytes:
        if self.end is not None:
            assert self.pid is not None
            out = bytearray(marker(self.at, self.pid, self.end, epoch=1))
            struct.pack_into(">qq", out, 27, START + self.time, START + self.time)
            return seal(out)
        item = Item(0, START + self.time, self.key, self.value)
        who = (-1, -1, -1) if self.pid is None else (self.pid, 0, 0)
        return batch(self.at, [item], producer=who, transactional=self.pid is not None)


def commit(at: int, offset: int, pid: int | None = None, *, partition: int = 0) -> Written:
    """A commit at a time of its own: 1 s for each offset of the log."""
    return Written(at, key(partition), value(offset, START + at * 1000), pid, time=at * 1000)


def state(at: int, members: int, protocol: str = "consumer") -> Written:
    kept = struct.pack(">h", 2) + text(GROUP)
    return Written(at, kept, classic(members, protocol), time=at * 1000)


def member(at: int, name: str, *, left: bool = False) -> Written:
    """A member of a group of the newer protocol."""
    kept = struct.pack(">h", 5) + text(GROUP) + text(name)
    return Written(at, kept, None if left else b"\0\0", time=at * 1000)


def end(at: int, pid: int, how: bytes) -> Written:
    return Written(at, pid=pid, end=how, time=at * 1000)


def gone(at: int, partition: int = 0) -> Written:
    return Written(at, key(partition), None, time=at * 1000)


def read(
    written: Iterable[Written], *, until: int | None = None, **options: int | None
) -> CommitHistory:
    """A history from several buffers. until: the high watermark."""
    history = CommitHistory(GROUP, **options)  # type: ignore[arg-type]
    packed = [w.packed() for w in written]
    for n in range(0, len(packed), 3):
        history.add(b"".join(packed[n : n + 3]))
    history.ended(max(w.at + 1 for w in written) if until is None else until)
    return history


def of(*written: Written, **options: int | None) -> list[CommitRecord]:
    return read(written, **options).commits()


def events(*written: Written) -> list[tuple[str | None, bool | None]]:
    return [(c.event, c.proven) for c in of(*written)]


def test_a_plain_commit() -> None:
    [row] = of(commit(0, 40))
    assert (row.offset, row.leader_epoch, row.metadata, row.timestamp) == (40, 5, "m", START)
    assert (row.counts, row.outcome, row.before, row.at) == (True, None, None, 0)


def test_commits_in_transactions() -> None:
    rows = of(
        *(commit(0, 10, 7), end(1, 7, COMMIT), commit(2, 20, 7), end(3, 7, ABORT)),
        commit(4, 30, 8),
    )
    assert [(r.offset, r.outcome, r.counts, r.marker_at) for r in rows] == [
        (10, "committed", True, 1),
        (20, "aborted", False, 3),
        (30, "pending", None, None),
    ]
    assert rows[0].marker_timestamp == START + 1000
    assert {(r.committed_by, r.by_proven) for r in rows} == {("transaction", True)}


def test_of_two_commits_in_one_transaction_the_last_counts() -> None:
    rows = of(commit(0, 10, 7), commit(1, 12, 7), end(2, 7, COMMIT))
    assert [(r.outcome, r.counts) for r in rows] == [("committed", False), ("committed", True)]


def test_a_later_record_overtakes_a_transaction() -> None:
    """Kafka's OffsetMetadataManager: the higher record counts, not the later marker."""
    rows = of(commit(0, 10, 7), commit(1, 50), end(2, 7, COMMIT))
    assert [(r.offset, r.counts) for r in rows] == [(10, False), (50, True)]
    assert rows[1].event is None


def test_a_tombstone_and_a_commit_after_it() -> None:
    rows = of(commit(0, 10), gone(1), gone(2), commit(3, 5))
    assert [(r.offset, r.event, r.before) for r in rows] == [
        (10, None, None),
        (None, "deleted", 10),
        (None, None, None),
        (5, None, None),
    ]


@pytest.mark.parametrize(
    ("first", "by", "event"),
    [
        ([state(0, 1)], "member", ("back", True)),
        ([state(0, 0)], "no-member", ("reset", True)),
        ([state(0, 0, "")], "no-member", ("back", True)),  # assigns its partitions itself
        ([member(0, "a")], "member", ("back", True)),
        ([member(0, "a"), member(1, "a", left=True)], "no-member", ("reset", True)),
        ([], "no-member", ("back", True)),  # it never had a member
    ],
)
def test_a_step_back(first: list[Written], by: str, event: tuple[str, bool]) -> None:
    rows = of(*first, *(commit(n, 1) for n in range(len(first), 2)), commit(2, 40), commit(3, 8))
    last = rows[-1]
    assert (last.before, last.committed_by, last.by_proven) == (40, by, True)
    assert (rows[-1].event, rows[-1].proven) == event


def test_a_step_back_after_records_that_are_gone() -> None:
    """Who was in the group may be in what compaction took."""
    gap = [commit(5, 40), commit(6, 8)]
    assert of(*gap)[-1].committed_by is None
    assert events(*gap)[-1] == ("back", True)
    left = [member(4, "a", left=True), *gap]
    assert events(*left)[-1] == ("reset", False)
    assert events(state(4, 0), *gap)[-1] == ("reset", True)
    assert events(state(4, 2), *gap)[-1] == ("back", True)


def test_ahead_without_members_is_a_reset() -> None:
    left = state(0, 1), commit(1, 40), state(2, 0)
    assert events(*left, commit(3, 90))[-1] == ("reset", True)
    assert events(*left, commit(3, 40))[-1] == (None, None)
    transaction = commit(2, 40, 7), end(3, 7, COMMIT)
    assert events(state(0, 1), state(1, 0), *transaction, commit(4, 90))[-1] == ("reset", True)


def test_a_job_that_took_a_group_over_is_no_tool() -> None:
    """Flink commits without members; only its first commit, and its steps back, stand out."""
    took_over = [state(0, 1), commit(1, 40), state(2, 0), *(commit(n, 60 + n) for n in (3, 4, 5))]
    assert [event for event, _ in events(*took_over)] == [None, "reset", None, None]
    assert events(*took_over, commit(6, 64))[-1] == ("reset", True)


def test_what_eoctl_wrote_is_a_reset() -> None:
    row = history_row(of(commit(0, 10), commit(1, 12))[-1], GROUP, 3, ids={}, entry="j-1")
    assert (row.event, row.proven, row.journal_entry) == ("reset", True, "j-1")


def moves(number: int, *, longest: int = 10) -> list[Written]:
    """So many moves ahead by 10, one each second; the second by `longest`."""
    offsets = [0, 10, 10 + longest]
    offsets += [offsets[-1] + 10 * n for n in range(1, number)]
    return [commit(n, offset) for n, offset in enumerate(offsets[: number + 1])]


@pytest.mark.parametrize(
    ("before", "distance", "ms", "leaps"),
    [
        (moves(10), 101, 1000, True),
        (moves(10), 100, 1000, False),
        (moves(10), 100, 500, False),  # fast, but not far
        (moves(10), 200, 2000, False),  # far, but not fast: what came during a pause
        (moves(10), 201, 2000, True),
        (moves(9), 101, 1000, False),  # too few to compare with
        (moves(10, longest=30), 299, 1000, False),
        (moves(10, longest=30), 301, 1000, True),
    ],
)
def test_a_leap_is_a_guess(before: list[Written], distance: int, ms: int, leaps: bool) -> None:
    last = of(*before)[-1]
    at, time = last.at + 1, last.timestamp + ms
    offset = (last.offset or 0) + distance
    row = of(*before, Written(at, key(), value(offset, time), time=time - START))[-1]
    assert (row.event, row.proven) == (("leap", False) if leaps else (None, None))


def test_moves_within_a_millisecond() -> None:
    """Their speed is that of one millisecond."""
    steady = [Written(n, key(), value(n * 10, START)) for n in range(11)]
    for distance, event in ((101, "leap"), (100, None)):
        last = Written(11, key(), value(100 + distance, START + 1), time=1)
        assert of(*steady, last)[-1].event == event


def test_only_so_many_are_kept_and_all_that_stand_out() -> None:
    steps = [state(0, 1), *(commit(n, n) for n in range(1, 30)), commit(30, 25)]
    history = read([*steps, *(commit(n, n) for n in range(31, 61))], newest=10)
    rows = history.commits()
    assert [r.at for r in rows] == [30, *range(51, 61)]
    assert (rows[0].event, history.left_out) == ("back", 49)


def test_since_leaves_out_what_is_older() -> None:
    rows = of(
        *(commit(0, 1), commit(1, 5, 7), commit(2, 9), end(3, 7, COMMIT), commit(4, 3)),
        since=START + 2000,
    )
    assert [(r.at, r.before) for r in rows] == [(2, 1), (4, 9)]


def test_what_was_kept_while_it_was_pending_is_not_kept_for_ever() -> None:
    ended = [w for n in range(0, 100, 2) for w in (commit(n, n, 7), end(n + 1, 7, COMMIT))]
    history = read(ended, newest=0)
    assert (history.commits(), history.left_out) == ([], 50)


def test_an_offset_that_was_deleted_after_a_time_is_named() -> None:
    """It may have been of another log; one that was deleted before says nothing of later ones."""
    written = [commit(0, 5), gone(1), commit(2, 7), commit(3, 8, partition=1), gone(4)]
    for second, deleted in ((3, {0}), (0, {0}), (5, set())):
        history = read(written, newest=0, as_of=START + second * 1000)
        assert {p.partition for p in history.deleted_since} == deleted


def test_since_and_newest_together() -> None:
    """A transaction that was kept while it was pending is older, and is left out."""
    written = [commit(0, 1, 7), end(1, 7, COMMIT), *(commit(n, n) for n in (2, 3, 4))]
    assert [row.at for row in of(*written, since=START + 2000, newest=1)] == [4]


def test_where_it_is_complete() -> None:
    history = read([commit(0, 1), commit(1, 2)])
    assert (history.whole_from, history.commits()[0].earlier_missing) == (0, False)
    history = read([commit(0, 1), commit(4, 2), commit(5, 3), commit(6, 1, partition=1)])
    assert (history.whole_from, history.complete_since) == (4, START + 4000)
    assert [r.earlier_missing for r in history.commits()] == [True, False, False, True]
    assert history.partitions() == [IN, TopicPartition("in", 1)]


def test_several_gaps() -> None:
    """Each buffer has three batches; the last gap counts, also one before the end."""
    written = [commit(at, at) for at in (0, 1, 2, 4, 5, 6, 9, 10)]
    history = read(written)
    assert (history.whole_from, history.complete_since) == (9, START + 9000)
    cut = read(written, until=12)
    assert (cut.whole_from, cut.complete_since) == (12, None)
    assert read([], until=0).complete_since is None


def test_a_group_record_of_a_newer_version() -> None:
    """Who was in the group is not known then."""
    kept = struct.pack(">h", 2) + text(GROUP)
    newer = Written(0, kept, struct.pack(">h", 9))
    row = of(newer, commit(1, 5))[0]
    assert (row.committed_by, row.by_proven, row.counts) == (None, True, True)


def test_two_deletions_in_one_batch_have_their_times() -> None:
    items = [Item(n, START + n * 1000, key(n), None) for n in (0, 1)]
    history = CommitHistory(GROUP)
    history.add(batch(0, items))
    assert [row.timestamp for row in history.commits()] == [START, START + 1000]


def test_another_group_and_its_markers() -> None:
    other = commit(0, 9)._replace(key=key(group="other"))
    assert of(other, commit(1, 4, 7), end(2, 8, COMMIT))[0].outcome == "pending"


@pytest.mark.parametrize(
    ("days", "retention", "event", "proven"),
    [(8, 7, "expired", False), (6, 7, "deleted", True), (8, None, "deleted", True)],
)
def test_an_expired_offset_is_a_guess(
    days: int, retention: int | None, event: str, proven: bool
) -> None:
    day = 86_400_000
    late = Written(1, key(), None, time=days * day)
    ms = None if retention is None else retention * day
    row = history_row(of(commit(0, 10), late)[-1], GROUP, 3, ids={}, retention_ms=ms)
    assert (row.event, row.proven, row.deleted, row.previous_offset) == (event, proven, True, 10)
    assert (row.committed_offset, row.moved, row.previous_timestamp) == (None, None, START)


def test_an_expire_time_that_the_client_asked_for() -> None:
    old = Written(0, key(), value(10, START, START + 5000), time=0)
    assert of(old)[0].expires == START + 5000


# What a cleaner leaves, against a model of the coordinator that has seen everything.

KEYS = 2


@st.composite
def logs(draw: st.DrawFn) -> list[Written]:
    """A log without gaps: plain commits, transactions of two producers, tombstones."""
    written: list[Written] = []
    holding: set[int] = set()
    for at in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["plain", "plain", "open", "end", "gone"]))
        partition, pid = draw(st.integers(0, KEYS - 1)), draw(st.integers(7, 8))
        if kind == "end" and holding:
            pid = draw(st.sampled_from(sorted(holding)))
            holding.discard(pid)
            written.append(end(at, pid, draw(st.sampled_from([COMMIT, ABORT]))))
        elif kind == "open":
            holding.add(pid)
            written.append(commit(at, draw(st.integers(0, 99)), pid, partition=partition))
        elif kind == "gone":
            written.append(gone(at, partition))
        else:
            written.append(commit(at, draw(st.integers(0, 99)), partition=partition))
    return written


def standing(written: Sequence[Written], time: int) -> dict[bytes, int | None]:
    """What the coordinator has replayed up to a time: key → record (None: it is a tombstone)."""
    counts: dict[bytes, Written] = {}
    pending: dict[int, dict[bytes, Written]] = {}
    for w in written:
        if w.time > time:
            break
        if w.end is not None and w.pid is not None:
            for k, p in pending.pop(w.pid, {}).items():
                if w.end == COMMIT and (k not in counts or counts[k].at < p.at):
                    counts[k] = p
        elif w.pid is not None:
            pending.setdefault(w.pid, {})[w.key] = w
        else:
            counts[w.key] = w
    return {k: None if w.value is None else w.at for k, w in counts.items()}


def cleaned(written: Sequence[Written], until: int, *, tombstones: bool) -> list[Written]:
    """What a cleaner leaves below `until`: of each key the newest that was not aborted."""
    outcome: dict[int, bytes] = {}
    for n, w in enumerate(written):
        if w.pid is not None and w.end is None:
            ended = next((e for e in written[n:] if e.end is not None and e.pid == w.pid), None)
            if ended is not None and ended.end is not None:
                outcome[w.at] = ended.end
    stable = min((w.at for w in written if _open(w, outcome)), default=len(written))
    until = min(until, stable)
    below = [w for w in written if w.at < until and outcome.get(w.at) != ABORT and w.end is None]
    newest = {w.key: w for w in below}
    left = {w.at for w in newest.values() if w.value is not None or tombstones}
    markers = {
        e.at
        for e in written
        if e.end is not None
        and any(w.pid == e.pid and w.at < e.at and w.at in left for w in written if w.end is None)
    }
    return [w for w in written if w.at >= until or w.at in left or w.at in markers]


def _open(w: Written, outcome: dict[int, bytes]) -> bool:
    return w.pid is not None and w.end is None and w.at not in outcome


@given(logs(), st.integers(0, 25), st.booleans(), st.integers(-1, 26))
def test_what_stood_is_right_or_not_known(
    written: list[Written], until: int, tombstones: bool, second: int
) -> None:
    left = cleaned(written, until, tombstones=tombstones)
    history = read(left, until=len(written), as_of=START + second * 1000)
    expected = standing(written, second * 1000)
    assert not history.disordered
    for partition in range(KEYS):
        commit = history.stood.get(TopicPartition("in", partition))
        before = expected.get(key(partition))
        if commit is None:
            assert history.whole_from > 0 or before is None
        else:
            assert (None if commit.offset is None else commit.at) == before


@given(logs(), st.integers(0, 25), st.booleans())
def test_all_commits_since_the_last_gap_are_there(
    written: list[Written], until: int, tombstones: bool
) -> None:
    left = cleaned(written, until, tombstones=tombstones)
    history = read(left, until=len(written))
    there = {row.at for row in history.commits()}
    since = history.complete_since
    for w in written:
        if w.end is None and since is not None and START + w.time >= since:
            assert w.at in there
    assert history.whole_from or len(there) == sum(w.end is None for w in written)


def test_clocks_that_run_backwards_are_noticed() -> None:
    late = commit(1, 5)._replace(value=value(5, START + 9000), time=9000)
    history = read([commit(0, 1), late, commit(2, 7)], as_of=START + 5000)
    assert history.disordered == {IN}
