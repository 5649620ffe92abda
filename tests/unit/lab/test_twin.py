"""A twin's files, read back by eoctl's decoders, which are tested against Kafka's own files."""

import struct
import time
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.kafka.connection.cluster import TopicMetadata
from eoctl.lab import cluster
from eoctl.lab.twin import build, encoding
from eoctl.lab.twin.build import make, spec_of
from eoctl.lab.twin.data_log import data_log, lay_out
from eoctl.lab.twin.encoding import NewBatch
from eoctl.lab.twin.files import SPAN, Aborted, NewLog, write_clean_end, write_log
from eoctl.lab.twin.group_logs import group_logs
from eoctl.lab.twin.lacks import lacks
from eoctl.lab.twin.metadata import add_records
from eoctl.lab.twin.seen import Seen
from eoctl.lab.twin.state_logs import FILLER, state_logs
from eoctl.lab.twin.stretches import Known, Layout
from eoctl.stores import bundle_files
from eoctl.stores.bundle_files import SeenRecords
from recovery.errors import UsageError
from recovery.facts import (
    GroupFacts,
    GroupOffsetFacts,
    PartitionFacts,
    ProducerFacts,
    TopicPartition,
)
from recovery.formats import consumer_offsets, transaction_state
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.broker_files import read_snapshot, read_transaction_index
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS, OffsetKey
from recovery.formats.records import marker, records
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.cluster_rows import StripRow
from recovery.inspect.history import Marker
from recovery.values import replace
from tests.unit.formats_build import ABORT, COMMIT, Item
from tests.unit.formats_build import batch as kafka_batch
from tests.unit.formats_build import marker as kafka_marker

KEPT = Path("tests/kept/0.2.0/incident.eoctl")
ORDERS = TopicPartition("orders", 0)

small = st.integers(0, 5)


def bytes_of(log: NewLog) -> bytes:
    return b"".join(b.encode() for b in log.batches)


def headers_of(log: NewLog) -> list[BatchHeader]:
    return list(batch_headers(bytes_of(log)))


text = st.binary(max_size=300) | st.none()


@pytest.fixture
def seen() -> Seen:
    bundle, _ = bundle_files.read(KEPT)
    return Seen(bundle, 1000)


@given(st.integers(0, 2**40), st.lists(st.tuples(text, text), max_size=20), small)
def test_kafka_pythons_decoder_reads_a_batch(
    base: int, pairs: list[encoding.Pair], missing: int
) -> None:
    from kafka.record.memory_records import MemoryRecords

    last = base + max(0, len(pairs) - 1) + missing
    written = NewBatch(base, last, pairs, 1_700_000_000_000, 7, 42, 3, 11, transactional=True)
    data = written.encode()
    [header] = batch_headers(data)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (base, last, 7)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (42, 3, 11)
    assert header.is_transactional
    assert not header.is_control
    [batch] = list(MemoryRecords(data))
    assert batch.validate_crc()
    assert [(r.offset, r.key, r.value) for r in batch] == [
        (base + n, *pair) for n, pair in enumerate(pairs)
    ]


@pytest.mark.parametrize(("outcome", "kind"), [("commit", COMMIT), ("abort", ABORT)])
def test_a_marker_is_as_brokers_write_it(outcome: str, kind: bytes) -> None:
    pair = encoding.end_marker(outcome, 31)
    ours = NewBatch(9, 9, [pair], 1_700_000_000_000, 3, 5, 2, -1, transactional=True, control=True)
    assert ours.encode() == kafka_marker(9, 5, kind, epoch=2)


states = st.sampled_from(tuple(TransactionState)[:8])
i64 = st.integers(-1, 2**62)


@given(
    st.builds(
        TransactionValue,
        i64,
        st.integers(-1, 32767),
        st.integers(0, 2**31 - 1),
        states,
        st.lists(
            st.builds(TopicPartition, st.sampled_from(["a", "b"]), small), unique=True, max_size=6
        ).map(lambda tps: tuple(sorted(tps))),
        i64,
        i64,
        i64,
        i64,
        st.integers(-1, 9),
        st.integers(0, 2),
    )
)
def test_a_state_reads_back(value: TransactionValue) -> None:
    if value.state is TransactionState.EMPTY:
        value = value._replace(partitions=())
    key, content = encoding.state_record("héllo", value)
    assert key is not None
    assert transaction_state.decode_key(key) == "héllo"
    assert transaction_state.decode_value(content) == value
    assert encoding.state_record("x", None)[1] is None


def test_a_commit_reads_back() -> None:
    key = OffsetKey("g", "orders", 3)
    name, value = encoding.commit_record(key, 17, 4, 99)
    assert name is not None
    assert consumer_offsets.decode_key(name) == key
    read = consumer_offsets.decode_value(value)
    assert isinstance(read, consumer_offsets.OffsetValue)
    assert (read.offset, read.leader_epoch, read.commit_timestamp) == (17, 4, 99)
    assert encoding.commit_record(key, None, None, 99)[1] is None


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(0, 20))))
def test_stretches_never_overlap(asked: list[tuple[int, int, int]]) -> None:
    layout = Layout(5, 50)
    owner: dict[int, int] = {}
    for number, (first, length, count) in enumerate(asked):
        layout.put(Known(first, first + length, count, producer_id=number))
        for offset in range(max(5, first), min(50, first + length)):
            owner.setdefault(offset, number)
    got = {offset: k.producer_id for k in layout for offset in range(k.first, k.end)}
    assert got == owner
    assert [k.first for k in layout] == sorted(k.first for k in layout)
    assert sum(b - a for a, b in layout.free(0, 99)) == 45 - len(owner)
    assert all(k.records <= k.end - k.first for k in layout)


def test_a_folder_holds_what_a_broker_that_ended_cleanly_leaves(tmp_path: Path) -> None:
    producers = [
        ProducerFacts("t", 0, 7, 2, 13, 1234, 5, 3),
        ProducerFacts("t", 0, 8, 0, None, None, None, None),
    ]
    far = 10 + SPAN + 100
    batches = [NewBatch(4, 9, [(None, None)] * 6, 50, 2), NewBatch(far, far, [], 60, 3)]
    aborted = [Aborted(7, 4, 9, 4)]
    log = NewLog(
        TopicPartition("t", 0), "RpUtC_0DT5yyatzY7DqczQ", 4, far + 1, batches, producers, aborted
    )
    write_log(tmp_path, log)
    write_clean_end(tmp_path, [log])
    folder = tmp_path / "t-0"
    assert sorted(p.name for p in folder.glob("*.log")) == [f"{4:020}.log", f"{far:020}.log"]
    assert (folder / "leader-epoch-checkpoint").read_text() == f"0\n2\n2 4\n3 {far}\n"
    assert "topic_id: RpUtC_0DT5yyatzY7DqczQ" in (folder / "partition.metadata").read_text()
    first, second = read_snapshot((folder / f"{far + 1:020}.snapshot").read_bytes())
    assert (first.producer_id, first.producer_epoch, first.last_sequence) == (7, 2, 13)
    assert (first.coordinator_epoch, first.current_txn_first_offset) == (5, 3)
    assert second.producer_id == 8
    [index] = read_transaction_index((folder / f"{4:020}.txnindex").read_bytes())
    assert (index.producer_id, index.first_offset, index.last_offset) == (7, 4, 9)
    assert (folder / f"{far:020}.txnindex").read_bytes() == b""
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 4\n"


def test_records_are_put_before_the_footer(tmp_path: Path) -> None:
    """Head, records, footer: as BootstrapDirectory reads them; offsets go on without a gap."""
    path = tmp_path / "bootstrap.checkpoint"
    parts = [NewBatch(n, n, [(b"k", b"v")], 1, 0, control=n != 1) for n in range(3)]
    path.write_bytes(b"".join(b.encode() for b in parts))
    added = [encoding.topic_record("t", "RpUtC_0DT5yyatzY7DqczQ")] * 2500
    add_records(path, added, 5)
    headers = list(batch_headers(path.read_bytes()))
    assert [h.base_offset for h in headers] == [0, 1, 2, 1002, 2002, 2502]
    assert headers[-1].is_control
    assert sum(h.records_count for h in headers) == 2503


def test_the_log_holds_what_the_bundle_saw(seen: Seen) -> None:
    """An older bundle, without strips: the start batch is known, what is around it is filled."""
    p = seen.partitions[ORDERS]
    log = data_log(seen, p, "id", lay_out(seen, p))
    assert (log.log_start_offset, log.end) == (p.log_start_offset, p.high_watermark)
    assert [(h.base_offset, h.last_offset, h.producer_id) for h in headers_of(log)] == [
        (0, 2, -1),
        (3, 3, 1),
        (4, 8, -1),
    ]
    [row] = log.producers
    assert row.current_txn_start_offset == 3
    [t] = seen.open[ORDERS]
    assert t.start is not None
    assert t.start.timestamp is not None
    assert log.batches[1].timestamp == t.start.timestamp + 1000


def strip(*rows: dict[str, object]) -> tuple[StripRow, ...]:
    return tuple(StripRow(topic="orders", partition=0, **row) for row in rows)  # type: ignore[arg-type]


def test_a_strip_is_written_as_it_was_seen(seen: Seen) -> None:
    whose = {"producer_id": 4, "producer_epoch": 0}
    seen.strips[ORDERS] = strip(
        {"first_offset": 0, "end_offset": 2, "kind": "aborted", "records": 2, **whose},
        {
            "first_offset": 2,
            "end_offset": 3,
            "kind": "control",
            "records": 1,
            "outcome": "abort",
            "coordinator_epoch": 6,
            "timestamp": 5000,
            **whose,
        },
        {
            "first_offset": 3,
            "end_offset": 5,
            "kind": "open",
            "records": 2,
            "producer_id": 1,
            "producer_epoch": 0,
        },
        {"first_offset": 5, "end_offset": 7, "kind": "missing"},
        {"first_offset": 7, "end_offset": 9, "kind": "plain", "records": 2},
    )
    p = seen.partitions[ORDERS]
    log = data_log(seen, p, "id", lay_out(seen, p))
    data = bytes_of(log)
    aborted, ended, opened, hole, plain = batch_headers(data)
    assert aborted.is_transactional
    assert aborted.producer_id == 4
    end = marker(data, ended)
    assert end is not None
    assert (end.type.value, end.coordinator_epoch, ended.max_timestamp) == ("abort", 6, 6000)
    assert (opened.base_offset, opened.last_offset, opened.records_count) == (3, 4, 2)
    assert (hole.last_offset, hole.records_count) == (6, 0)
    assert not plain.is_transactional
    assert log.aborted == [Aborted(4, 0, 2, 3)]


def test_markers_beyond_the_strip_get_the_data_that_they_ended(seen: Seen) -> None:
    [t] = seen.open[ORDERS]
    assert t.history is not None
    m = Marker(2, "commit", 0, 9, 400, data=True, leader_epoch=1, data_epoch=0)
    history = replace(t.history, markers=(m,), markers_from=0)
    seen.open[ORDERS] = [replace(t, history=history)]
    p = replace(seen.partitions[ORDERS], leader_epoch=3)
    log = data_log(seen, p, "id", lay_out(seen, p))
    rows = [
        (h.base_offset, h.producer_id, h.is_transactional, h.is_control) for h in headers_of(log)
    ]
    assert rows == [
        (0, -1, False, False),
        (1, 1, True, False),
        (2, 1, True, True),
        (3, 1, True, False),
        (4, -1, False, False),
    ]
    assert {b.leader_epoch for b in log.batches} == {1}


def test_state_logs_keep_each_offset_and_miss_none(seen: Seen) -> None:
    there = {log.partition: log for log in seen.bundle.history.logs if log.records}
    logs = {log.topic_partition.partition: log for log in state_logs(seen, "id")}
    assert len(logs) == seen.size("__transaction_state") == 50
    for partition, original in there.items():
        data = bytes_of(logs[partition])
        read = {r.offset: r for h in batch_headers(data) for r in records(data, h)}
        assert sorted(read) == list(range(original.whole_from, logs[partition].end))
        for record in original.records:
            key = read[record.offset].key
            assert key is not None
            assert transaction_state.decode_key(key) == record.transactional_id
            value = transaction_state.decode_value(read[record.offset].value)
            assert isinstance(value, TransactionValue)
            assert isinstance(record.value, TransactionValue)
            assert value.producer_id == record.value.producer_id
            assert value.last_update_ms == record.value.last_update_ms + 1000


def test_other_offsets_of_the_state_log_are_of_nobody(seen: Seen) -> None:
    [first, *rest] = [log for log in seen.bundle.history.logs if log.records]
    longer = replace(first, end=(first.end or 0) + 5)
    history = replace(seen.bundle.history, logs=(longer, *rest))
    grown = Seen(replace(seen.bundle, history=history), 0)
    [log] = [each for each in state_logs(grown, "id") if each.topic_partition[1] == first.partition]
    data = bytes_of(log)
    keys = [
        (transaction_state.decode_key(r.key or b""), r.value)
        for h in batch_headers(data)
        for r in records(data, h)
    ]
    assert keys[-5:] == [(FILLER, None)] * 5


def test_a_plans_group_keeps_its_metadata(seen: Seen) -> None:
    pair = '{"output":{"topic":"b","partition":0,"offset":7}}'
    own, where = _of_group(seen, GroupOffsetFacts("g", "orders", 0, 7, 2, pair))
    [log] = [each for each in group_logs(own, "id") if each.topic_partition == where]
    data = bytes_of(log)
    values = [
        consumer_offsets.decode_value(r.value)
        for h in batch_headers(data)
        for r in records(data, h)
    ]
    assert pair in [v.metadata for v in values if isinstance(v, consumer_offsets.OffsetValue)]


def test_groups_commit_before_what_waits(seen: Seen) -> None:
    decided = GroupOffsetFacts("g", "orders", 0, 7, leader_epoch=2)
    waiting = GroupOffsetFacts(
        "g", "orders", 1, 3, pending=True, pending_offset=9, pending_producer_id=1
    )
    own, where = _of_group(seen, decided, waiting)
    assert _commits(own, where) == [(1, False, 0, 7), (2, False, 1, 3), (3, True, 1, 9)]


def test_nothing_ends_by_itself_and_ids_begin_above(seen: Seen) -> None:
    spec = spec_of(seen.bundle, "twin")
    assert spec.brokers == 1
    assert spec.settings["log.cleaner.enable"] == "false"
    assert spec.settings["transaction.state.log.num.partitions"] == "50"
    assert int(spec.settings["transaction.max.timeout.ms"]) >= 900_000
    spec.check()
    assert encoding.producer_ids_record(1, 3000)[-9:-1] == struct.pack(">q", 3000)


def test_it_says_what_it_lacks(seen: Seen) -> None:
    said = lacks(seen.bundle)
    assert any("0 records with key and value" in sentence for sentence in said)
    assert any("history of the ids of open transactions only" in sentence for sentence in said)
    [row, *rest] = seen.bundle.transactions.rows
    rows = (replace(row, state="PrepareCommit"), *rest)
    stuck = replace(seen.bundle, transactions=replace(seen.bundle.transactions, rows=rows))
    assert any(row.transactional_id in s and "Prepare" in s for s in lacks(stuck))


@pytest.mark.parametrize("codec", [0, 1])
def test_records_that_the_bundle_took_are_written_as_they_were(seen: Seen, codec: int) -> None:
    """Keys, values and compression stay; times move, and the checksum is right again."""
    items = [Item(n, 1_700_000_000_000 + n, b"k%d" % n, b"v" * 50) for n in range(3)]
    kept = kafka_batch(3, items, codec=codec, producer=(1, 0, 0), transactional=True)
    behind = kafka_batch(6, [Item(0), Item(1), Item(2)])
    over = kafka_batch(9, [Item(0)])  # written after the offsets were read
    data = b64encode(kept + behind + over).decode()
    took = SeenRecords("orders", 0, 3, 10, 6, data)
    own = Seen(replace(seen.bundle, records=(took,)), 5000)
    p = own.partitions[ORDERS]
    log = data_log(own, p, "id", lay_out(own, p))
    written = bytes_of(log)
    before, mine, after = batch_headers(written)
    assert (before.records_count, after.last_offset) == (3, 8)
    [old] = batch_headers(kept)
    assert (mine.attributes, mine.producer_id, mine.codec) == (old.attributes, 1, old.codec)
    assert [(r.offset, r.timestamp, r.key, r.value) for r in records(written, mine)] == [
        (3 + n, i.timestamp + 5000, i.key, i.value) for n, i in enumerate(items)
    ]
    from kafka.record.memory_records import MemoryRecords

    assert all(batch.validate_crc() for batch in MemoryRecords(written))
    assert "6 records" in lacks(own.bundle)[0]


def test_a_log_may_start_within_a_batch(seen: Seen, tmp_path: Path) -> None:
    """As after DeleteRecords: the batch stays whole, in a segment that begins where it does."""
    where = TopicPartition("deleted", 0)
    data = b64encode(kafka_batch(3, [Item(0), Item(1), Item(2)])).decode()
    took = SeenRecords(*where, 4, 6, 3, data)
    own = Seen(replace(seen.bundle, planned=(took,)), 0)
    p = PartitionFacts(*where, leader_epoch=5, log_start_offset=4, high_watermark=8)
    log = data_log(own, p, "id", lay_out(own, p))
    assert [(h.base_offset, h.last_offset, h.records_count) for h in headers_of(log)] == [
        (3, 5, 3),
        (7, 7, 0),
    ]
    write_log(tmp_path, log)
    assert [path.name for path in tmp_path.rglob("*.log")] == [f"{3:020}.log"]
    write_clean_end(tmp_path, [log])
    assert "deleted 0 4\n" in (tmp_path / "log-start-offset-checkpoint").read_text()


def test_the_logs_own_epochs_count_more_than_commits(seen: Seen) -> None:
    """A commit of another group may still be of a log that was replaced."""
    where = TopicPartition("replaced", 0)
    batches = [kafka_batch(n, [Item(0)], leader_epoch=n // 10) for n in (20, 30)]
    took = SeenRecords(*where, 20, 31, 2, b64encode(b"".join(batches)).decode())
    own = Seen(replace(seen.bundle, planned=(took,)), 0)
    p = PartitionFacts(*where, leader_epoch=9, log_start_offset=10, high_watermark=50)

    def epochs(*commits: tuple[int, int]) -> dict[int, int]:
        own.epochs[where] = list(commits)
        log = data_log(own, p, "id", lay_out(own, p))
        return {b.last_offset: b.leader_epoch for b in log.batches if b.leader_epoch}

    assert epochs()[20] == epochs((15, 5))[20] == epochs((20, 7), (25, 9))[20] == 2
    assert epochs((25, 9), (40, 1))[30] == 3
    assert epochs((15, 1), (40, 4)) == {15: 1, 19: 1, 20: 2, 29: 2, 30: 3, 40: 4, 49: 4}


@pytest.mark.parametrize("name", ["../../etc", "..", "a/b", ""])
def test_a_name_that_no_topic_has_is_refused(
    seen: Seen, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle is somebody's file, and a topic's name becomes a folder's."""
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))
    [first, *rest] = seen.bundle.topics
    forged = replace(seen.bundle, topics=(replace(first, name=name), *rest))
    with pytest.raises(UsageError, match="is no topic"):
        make(forged)


def test_an_unknown_stretch_is_a_hole_up_to_its_last_offset(seen: Seen, tmp_path: Path) -> None:
    """However long it is, it takes one batch; commits say the epoch of a record in it."""
    where = TopicPartition("idle", 0)
    p = PartitionFacts(*where, leader_epoch=5, log_start_offset=10, high_watermark=2**40)
    seen.epochs[where] = [(99, 2)]
    log = data_log(seen, p, "id", lay_out(seen, p))
    batches = [(h.base_offset, h.last_offset, h.records_count) for h in headers_of(log)]
    assert batches == [(99, 99, 0), (2**40 - 1, 2**40 - 1, 0)]
    assert [b.leader_epoch for b in log.batches] == [2, 2]
    write_log(tmp_path, log)
    assert sorted(path.name for path in (tmp_path / "idle-0").glob("*.log")) == [
        f"{10:020}.log",
        f"{2**40 - 1:020}.log",
    ]
    assert {p.stat().st_size for p in (tmp_path / "idle-0").glob("*.timeindex")} == {0}


def test_a_log_that_was_not_read_is_not_complete_on_the_twin(seen: Seen) -> None:
    """Its ids are there as they were described, and its offsets around them are missing."""
    [first, *_] = [log for log in seen.bundle.history.logs if log.records]
    unread = replace(first, records=(), error="TIMED_OUT", whole_from=0)
    for logs in ((), (unread,)):
        own = Seen(replace(seen.bundle, history=replace(seen.bundle.history, logs=logs)), 0)
        written = {log.topic_partition.partition: log for log in state_logs(own, "id")}
        log = written[first.partition]
        data = bytes_of(log)
        [record] = [r for h in batch_headers(data) for r in records(data, h)]
        assert transaction_state.decode_key(record.key or b"") != FILLER
        *_, last = batch_headers(data)
        assert (last.records_count, last.last_offset) == (0, log.end - 1)
        assert log.end == seen.partitions[log.topic_partition].high_watermark
        assert record.offset < last.last_offset


def test_the_first_producer_id_of_all_keeps_its_pending_commit(seen: Seen) -> None:
    """Producer id 0 is one as any other."""
    waiting = GroupOffsetFacts(
        "g", "orders", 1, 3, pending=True, pending_offset=9, pending_producer_id=0
    )
    own, where = _of_group(seen, waiting)
    own.open[where] = [
        replace(t, start=t.start and replace(t.start, producer_id=0)) for t in own.open[where]
    ]
    assert _commits(own, where) == [(2, False, 1, 3), (3, True, 1, 9)]


def _of_group(seen: Seen, *offsets: GroupOffsetFacts) -> tuple[Seen, TopicPartition]:
    """Return a bundle whose one topic is the groups', and the partition with their commits."""
    group = GroupFacts("g", "Empty", offsets=offsets)
    topic = replace(seen.bundle.topics[0], name=CONSUMER_OFFSETS)
    own = Seen(replace(seen.bundle, topics=(topic,), groups=(group,)), 0)
    where = TopicPartition(CONSUMER_OFFSETS, own.home_of("g"))
    own.partitions[where] = replace(
        seen.partitions[ORDERS], topic=where.topic, partition=where.partition
    )
    own.open[where] = [
        replace(t, about=replace(t.about, topic=where.topic, partition=where.partition))
        for t in seen.open[ORDERS]
    ]
    return own, where


def _commits(own: Seen, where: TopicPartition) -> list[tuple[int, bool, int, int]]:
    """Return offset, is transactional, partition and offset of each commit that is written."""
    [log] = [each for each in group_logs(own, "id") if each.topic_partition == where]
    data = bytes_of(log)
    commits = []
    for h in batch_headers(data):
        for r in records(data, h):
            key = consumer_offsets.decode_key(r.key or b"")
            value = consumer_offsets.decode_value(r.value)
            if isinstance(key, OffsetKey) and isinstance(value, consumer_offsets.OffsetValue):
                commits.append((r.offset, h.is_transactional, key.partition, value.offset))
    return commits


def test_what_a_bundle_makes_a_twin_fill_is_bounded(seen: Seen) -> None:
    """A bundle is somebody's file: it may say any number."""
    end = 10**12
    p = replace(seen.partitions[ORDERS], log_start_offset=0, high_watermark=end)
    [t] = seen.open[ORDERS]
    assert t.history is not None
    far = replace(t.about, start_offset=end - 10)
    reading = replace(t.history, markers_from=1, markers=())
    seen.open[ORDERS] = [replace(t, about=far, history=reading, start=None)]
    seen.strips.pop(ORDERS, None)
    layout = lay_out(seen, p)
    assert sum(k.records for k in layout) <= seen.filled + 10
    seen.strips[ORDERS] = strip(
        {"first_offset": 0, "end_offset": end, "kind": "plain", "records": end}
    )
    with pytest.raises(UsageError, match="a twin at most"):
        lay_out(seen, p)


def test_many_markers_take_no_longer_each(seen: Seen) -> None:
    """Kafka keeps markers of one producer by the ten thousands: each looks at its neighbour."""
    count = 30_000
    [t] = seen.open[ORDERS]
    assert t.history is not None
    markers = tuple(Marker(3 * n + 2, "commit", 0, 1, 400, data=True) for n in range(count))
    history = replace(t.history, markers=markers, markers_from=0)
    about = replace(t.about, start_offset=3 * count)
    seen.open[ORDERS] = [replace(t, about=about, history=history, start=None)]
    p = replace(seen.partitions[ORDERS], log_start_offset=0, high_watermark=3 * count + 5)
    began = time.process_time()
    layout = lay_out(seen, p)
    assert time.process_time() - began < 10  # it was minutes
    ended = [k for k in layout if k.outcome is None and k.transactional]
    assert [k.first for k in ended[:3]] == [1, 4, 7]
    assert len(ended) == count


def test_commits_without_room_are_counted(seen: Seen) -> None:
    """Below the first open transaction are three offsets, in it is one."""
    decided = [GroupOffsetFacts("g", "orders", n, 7) for n in range(5)]
    waiting = [
        GroupOffsetFacts("g", "x", n, None, pending=True, pending_offset=9, pending_producer_id=1)
        for n in range(3)
    ]
    own, where = _of_group(seen, *decided, *waiting)
    logs = {log.topic_partition: log for log in group_logs(own, "id")}
    assert logs[where].left_out == 4
    assert len(_commits(own, where)) == 4
    assert any("4 commits" in sentence for sentence in lacks(seen.bundle, 4))
    assert not any("commits" in sentence for sentence in lacks(seen.bundle, 0))


def _made_of(
    seen: Seen, monkeypatch: pytest.MonkeyPatch, folder: Path, *topics: TopicMetadata
) -> None:
    """Make the twin of a bundle with these topics, up to where a lab would start."""
    monkeypatch.setenv("EOCTL_STATE_DIR", str(folder))
    monkeypatch.setattr(cluster, "up", lambda *_, **__: pytest.fail("it was started"))
    make(replace(seen.bundle, topics=topics))


def test_topics_that_no_twin_can_have_are_refused(
    seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first, *rest] = seen.bundle.topics
    with pytest.raises(UsageError, match="twice"):
        _made_of(seen, monkeypatch, tmp_path, first, first, *rest)
    own = replace(first, name="__cluster_metadata")
    with pytest.raises(UsageError, match="is no topic"):
        _made_of(seen, monkeypatch, tmp_path, own, *rest)
    many = replace(first, partitions=first.partitions * 20_001)
    with pytest.raises(UsageError, match="partitions, and a twin at most"):
        _made_of(seen, monkeypatch, tmp_path, many)


def test_new_producer_ids_begin_above_all_that_the_bundle_names(seen: Seen) -> None:
    [log, *logs] = [each for each in seen.bundle.history.logs if each.records]
    [record, *_] = log.records
    assert isinstance(record.value, TransactionValue)
    later = replace(record, value=record.value._replace(producer_id=7001))
    history = replace(seen.bundle.history, logs=(replace(log, records=(later,)), *logs))
    assert build.next_producer_id(replace(seen.bundle, history=history)) == 9000
    held = SeenRecords("orders", 0, 0, 1, 1, "")
    raw = kafka_batch(3, [Item(0)], producer=(12_000, 0, 0))
    with_records = replace(held, data=b64encode(raw).decode())
    assert build.next_producer_id(replace(seen.bundle, records=(with_records,))) == 14_000


def test_logs_that_the_snapshot_did_not_read_are_said(seen: Seen) -> None:
    [first, *rest] = seen.bundle.history.logs
    failed = replace(first, error="TIMED_OUT")
    for logs in ((failed, *rest), tuple(rest)):
        own = replace(seen.bundle, history=replace(seen.bundle.history, logs=logs))
        assert any("could not read 1 partition of __transaction" in s for s in lacks(own))
    assert not any("could not read" in s for s in lacks(seen.bundle))


def test_a_state_of_a_newer_kafka_is_no_damage(seen: Seen) -> None:
    [row, *rest] = seen.bundle.transactions.rows
    new = replace(row, transactional_id="new", state="Paused", ghost=False, error=None)
    transactions = replace(seen.bundle.transactions, rows=(new, *rest))
    with pytest.raises(UsageError, match="a state of ids that this version"):
        list(state_logs(Seen(replace(seen.bundle, transactions=transactions), 0), "id"))
