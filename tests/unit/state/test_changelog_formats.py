"""Formats of changelogs against slow models: what is live, however the records are cut in parts."""

import json
import random
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.engine import rebuild_task
from eoctl.kafka.connection.access import Access
from eoctl.stores.storage import LocalFolder
from recovery.errors import RefusedError, UsageError
from recovery.formats.columns import rows_schema
from recovery.formats.reader import CorruptError
from recovery.state.changelogs.changelog import FORMATS, ChangelogFormat, LogFacts, changelog_format
from tests.share import share

Record = tuple[int, int | None, bytes | None, bytes | None]
"""offset, timestamp, key, value"""

RETENTION = 100


def batches(records: Sequence[Record], parts: int) -> list[pa.RecordBatch]:
    size = max(1, len(records) // parts)
    return [
        pa.RecordBatch.from_arrays(
            [
                pa.array(list(column), field.type)
                for column, field in zip(
                    zip(*records[at : at + size], strict=True), rows_schema(), strict=True
                )
            ],
            schema=rows_schema(),
        )
        for at in range(0, len(records), size)
    ]


def live(form: ChangelogFormat, records: Sequence[Record], parts: int) -> list[dict[str, Any]]:
    """Through a rebuild's own work on a range: all of it but the reading and the writing."""
    how = rebuild_task.Making("", {}, "")
    task = rebuild_task.RangeTask(Access({}), "t", 0, 0, 1 << 62, how)
    work = rebuild_task._Range(task, form, None)
    for rows in batches(records, parts):
        work._add(rows)
    found: list[dict[str, Any]] = form.finish(work._latest.table(), work._seen).to_pylist()
    return sorted(found, key=lambda row: (row["key"], row["timestamp"]))


def window_key(key: bytes, start: int) -> bytes:
    return key + struct.pack(">qi", start, 0)


def session_key(key: bytes, start: int, end: int) -> bytes:
    return key + struct.pack(">qq", end, start)


def random_records(rng: random.Random, kind: str) -> list[Record]:
    records: list[Record] = []
    offset, now = 0, 1000
    for _ in range(rng.randrange(1, 60)):
        offset, now = offset + rng.randrange(1, 3), now + rng.randrange(9)
        time = now - rng.choice((0, 0, rng.randrange(150)))
        key = b"k%d" % rng.randrange(4)
        if kind == "streams-window":
            key = window_key(key, time // 10 * 10)
        elif kind == "streams-session":
            key = session_key(key, time - rng.randrange(20), time)
        value = None if rng.random() < 0.2 else b"%d" % offset
        records.append((offset, time, key, value))
    return records


@pytest.mark.parametrize("kind", ["streams-kv", "streams-window", "streams-session"])
@given(seed=st.integers(0, 2**32), parts=st.integers(1, 5))
@settings(deadline=None, max_examples=share(200))
def test_last_value_and_retention(kind: str, seed: int, parts: int) -> None:
    records = random_records(random.Random(seed), kind)
    state: dict[bytes, Record] = {}
    times = []
    for record in records:
        assert record[2] is not None
        state[record[2]] = record
        if kind != "streams-kv":
            at = -12 if kind == "streams-window" else -16
            times.append(struct.unpack(">q", record[2][at : at + 8])[0])
    expected = {
        key: (offset, time, value)
        for (offset, time, key, value), when in (
            (
                r,
                struct.unpack(">q", r[2][-12:][:8] if kind == "streams-window" else r[2][-16:][:8])[
                    0
                ],
            )
            if kind != "streams-kv"
            else (r, 0)
            for r in state.values()
            if r[2] is not None
        )
        if value is not None and (kind == "streams-kv" or when >= max(times) - RETENTION + 1)
    }
    found = live(changelog_format(kind, {"retention_ms": RETENTION}), records, parts)
    assert {r["key"]: (r["offset"], r["timestamp"], r["value"]) for r in found} == expected
    for row in found:
        if kind == "streams-window":
            assert row["key"] == row["user_key"] + struct.pack(
                ">qi", row["window_start"], row["window_sequence"]
            )
        if kind == "streams-session":
            assert row["key"] == session_key(
                row["user_key"], row["session_start"], row["session_end"]
            )


@given(seed=st.integers(0, 2**32), parts=st.integers(1, 5))
@settings(deadline=None, max_examples=share(200))
def test_versions_as_a_store_keeps_them(seed: int, parts: int) -> None:
    records = random_records(random.Random(seed), "streams-versioned")
    versions: dict[bytes, dict[int, tuple[int, bytes | None]]] = {}
    now = -1
    for offset, time, key, value in records:  # as RocksDBVersionedStore.restoreBatch
        assert key is not None
        assert time is not None
        if time < now - RETENTION:
            continue
        now = max(now, time)
        versions.setdefault(key, {})[time] = offset, value
    expected = []
    for key, times in sorted(versions.items()):
        ordered = sorted(times)
        for begin, end in zip(ordered, [*ordered[1:], None], strict=True):
            offset, value = times[begin]
            if value is not None and (end is None or end > now - RETENTION):
                expected.append((key, begin, end, value, offset))
    found = live(changelog_format("streams-versioned", {"retention_ms": RETENTION}), records, parts)
    assert [
        (r["key"], r["valid_from"], r["valid_to"], r["value"], r["offset"]) for r in found
    ] == expected
    assert all(r["timestamp"] == r["valid_from"] for r in found)


def test_a_version_as_old_as_the_history_is_kept() -> None:
    """RocksDBVersionedStore drops what is older, `timestamp < observedStreamTime - history`."""
    form = changelog_format("streams-versioned", {"retention_ms": RETENTION})
    records: list[Record] = [
        (0, 1000, b"k", b"new"),
        (1, 1000 - RETENTION, b"at the edge", b"kept"),
        (2, 1000 - RETENTION - 1, b"beyond", b"dropped"),
    ]
    assert [row["key"] for row in live(form, records, 1)] == [b"at the edge", b"k"]


def test_expired_counts_no_tombstones(tmp_path: Path) -> None:
    """Of four last records one is live, one too old, and two are null: only one has expired."""
    form = changelog_format("streams-window", {"retention_ms": RETENTION})
    records: list[Record] = [
        (0, 1000, window_key(b"live", 1000), b"v"),
        (1, 100, window_key(b"old", 100), b"v"),
        (2, 1000, window_key(b"deleted", 1000), None),
        (3, 100, window_key(b"old and deleted", 100), None),
    ]
    [rows] = batches(records, 1)
    parts = iter([pa.Table.from_batches([rows])])
    files, found, expired = rebuild_task._finish(
        form, LocalFolder(tmp_path), "log", 0, parts, form.observe(rows, {})
    )
    assert (sum(f.rows for f in files), found.rows, expired) == (1, 1, 1)


@pytest.mark.parametrize("kind", ["streams-window", "streams-session"])
def test_ranges_of_a_partition_share_the_highest_time(kind: str) -> None:
    form = changelog_format(kind, {"retention_ms": RETENTION})
    make = window_key if kind == "streams-window" else (lambda k, t: session_key(k, t, t))
    (old,) = batches([(0, 1, make(b"a", 10), b"1")], 1)
    (new,) = batches([(1, 1, make(b"b", 500), None)], 1)  # a tombstone counts too
    seen = form.merge(form.observe(old, {}), form.observe(new, {}))
    assert seen == form.merge({}, seen) == form.merge(seen, {}) == {"max": 500}
    assert form.finish(pa.Table.from_batches([old]), seen).num_rows == 0
    assert form.finish(pa.Table.from_batches([old]), {"max": 109}).num_rows == 1
    assert form.finish(pa.Table.from_batches([old]), {"max": 110}).num_rows == 0


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_without_records_there_is_a_table_without_rows(kind: str) -> None:
    form = changelog_format(kind, {"retention_ms": RETENTION})
    found = form.finish(rows_schema().empty_table(), {})
    assert found.schema.names == [*rows_schema().names, *form.extra.names]
    assert found.num_rows == 0


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("streams-window", b"12345678901"),
        ("streams-session", b"123456789012345"),
        ("coast", b"\0\0\0\7abc"),
        ("coast", b"\0\0"),
        ("coast", b"\0\0\0"),
        # debezium tells more of a record without a key: see below
        *((kind, None) for kind in sorted(FORMATS.keys() - {"debezium"})),
    ],
)
def test_keys_that_are_none_of_the_format(kind: str, key: bytes | None) -> None:
    form = changelog_format(kind, {"retention_ms": RETENTION})
    good = b"\0\0\0\x0f123456789012345"
    (rows,) = batches([(0, 1, key, b"1"), (1, 1, good, b"2")], 1)
    assert form.valid(rows).tolist() == [False, True]


@pytest.mark.parametrize("options", [{}, {"retention_ms": None}, {"retention_ms": 0}])
@pytest.mark.parametrize("kind", ["streams-window", "streams-session", "streams-versioned"])
def test_retention_is_asked_for(kind: str, options: dict[str, Any]) -> None:
    form = changelog_format(kind, options)
    (rows,) = batches([(0, 1, session_key(b"a", 1, 1), b"1")], 1)
    seen = form.observe(rows, {})
    with pytest.raises(UsageError, match="retention"):
        form.finish(pa.Table.from_batches([rows]), seen)


@pytest.mark.parametrize(("log_start", "proven"), [(0, True), (1, False)])
def test_windows_are_all_there_while_the_log_begins_at_0(log_start: int, proven: bool) -> None:
    form = changelog_format("streams-window", {"retention_ms": RETENTION})
    log = LogFacts(log_start, frozenset({"compact", "delete"}), 86_400_100, None, 0)
    assert (form.proves(log, {"max": 5}) is not None) == proven


def coast(key: bytes, upstream: int, downstream: int, state: bytes) -> tuple[bytes, bytes]:
    value = struct.pack(">qqi", upstream, downstream, len(state)) + state
    return struct.pack(">i", len(key)) + key, value


def test_coast_gives_state_and_the_offsets_of_its_last_record() -> None:
    form = changelog_format("coast", {})
    told = [(b"a", 5, 1, b"x"), (b"b", 6, 2, b""), (b"a", 9, 4, b"yz"), (b"", 11, 4, b"q")]
    records: list[Record] = [(i, 1, *coast(*one)) for i, one in enumerate(told)]
    found = live(form, records, 2)
    assert {(r["user_key"], r["state"], r["upstream"], r["downstream"]) for r in found} == {
        (b"", b"q", 11, 4),
        (b"a", b"yz", 9, 4),
        (b"b", b"", 6, 2),
    }
    first, second = (form.observe(rows, {}) for rows in batches(records, 2))
    assert form.merge(first, second) == {"upstream": 11, "downstream": 4}
    assert form.merge(first, {}) == {"upstream": 6, "downstream": 2}


@pytest.mark.parametrize("count", range(6))
def test_coast_takes_any_number_of_entries(count: int) -> None:
    """Arrow's own slice to the end overflows where the number is even."""
    told = [(b"key-%d" % i, i, i, b"state-%d" % i) for i in range(count)]
    records: list[Record] = [(i, 1, *coast(*one)) for i, one in enumerate(told)]
    found = live(changelog_format("coast", {}), records, 10) if records else []
    assert [(r["user_key"], r["state"]) for r in found] == [(k, s) for k, _, _, s in told]


@pytest.mark.parametrize(
    "value", [b"", b"short", bytes(19), coast(b"", 1, 1, b"state")[1] + b"!", b"\xff" * 20]
)
def test_a_value_that_is_not_coasts_is_told(value: bytes) -> None:
    form = changelog_format("coast", {})
    (rows,) = batches([(77, 1, coast(b"a", 1, 1, b"")[0], value)], 1)
    with pytest.raises(CorruptError, match="77"):
        form.finish(pa.Table.from_batches([rows]), {})
    with pytest.raises(CorruptError, match="77"):
        form.observe(rows, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    events=st.lists(
        st.tuples(st.integers(0, 4), st.none() | st.dictionaries(st.text(), JSON, max_size=4)),
        max_size=20,
    ),
    tombstones=st.booleans(),
    schema=st.booleans(),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 1]),
    parts=st.integers(1, 4),
)
@settings(max_examples=share(200), deadline=None)
def test_debezium_rows(
    events: list[tuple[int, dict[str, Any] | None]],
    tombstones: bool,
    schema: bool,
    ascii_only: bool,
    indent: int | None,
    parts: int,
) -> None:
    """The table is followed event by event; its rows are what `after` says, as it was written."""
    table: dict[bytes, tuple[dict[str, Any], str]] = {}
    records: list[Record] = []
    for row, after in events:
        key = f'{{"id":{row}}}'.encode()
        written = json.dumps(after, ensure_ascii=ascii_only, indent=indent)
        op = "d" if after is None else "u"
        event = f'{{"before":null, "after": {written},"source":{{"after":1}},"op":"{op}"}}'
        if schema:
            event = f' {{"schema":{{"op":"c","after":[]}}, "payload":{event} }} '
        try:
            records.append((len(records), 1, key, event.encode()))
        except UnicodeEncodeError:  # half a pair, written as it is: no JSON that Kafka carries
            continue
        if after is None:
            table.pop(key, None)
            if tombstones:
                records.append((len(records), 1, key, None))
        else:
            table[key] = (after, written)
    if not records:
        return
    found = live(changelog_format("debezium", {}), records, parts)
    assert {r["key"]: (json.loads(r["after"]), r["after"]) for r in found} == table


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        (b"1", b'{"id":1,"name":"flattened"}', "JSON without `op` and `after`"),
        (b"1", b'{"schema":{},"payload":{"id":1}}', "JSON without `op` and `after`"),
        (b"1", b'{"after":{"id":1},"op":"c"', "no JSON object"),
        (b"1", b'{"after":{"id":1},"op":"c"}x', "no JSON object"),
        (b"1", b'{"after":{"id":1},"op":"c",}', "no JSON object"),
        (b"1", b'{"after":{"id":1} "op":"c"}', "no JSON object"),
        (b"1", b'[{"after":{"id":1},"op":"c"}]', "no JSON object"),
        (b"1", b"[" * 100_000, "no JSON object"),
        (b"1", b"", "no JSON object"),
        (b"1", b"\xff", "no JSON"),
        (b"1", b"\0\0\0\0\1\2", "with a schema registry"),
        (None, b'{"source":{},"op":"t","ts_ms":1}', "was emptied there"),
        (None, b'{"before":null,"after":null,"op":"t"}', "was emptied there"),
        (b"1", b'{"after":{"a":"__debezium_unavailable_value"},"op":"u"}', "the complete row"),
        (b"1", b'{"after":{"a":["__debezium_unavailable_value"]},"op":"u"}', "the complete row"),
        (
            b"1",
            b'{"after":{"a":"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="},"op":"u"}',
            "the complete row",
        ),
    ],
)
def test_what_is_no_whole_row_of_debeziums_is_refused(
    key: bytes | None, value: bytes, sentence: str
) -> None:
    with pytest.raises(RefusedError, match=re.escape(sentence)) as refused:
        live(changelog_format("debezium", {}), [(7, 1, key, value)], 1)
    assert refused.value.where == "offset 7"
    assert refused.value.remedy


def test_debezium_events_without_a_key_are_invalid_rows_and_no_others_matter() -> None:
    """A table without a primary key; and an event that a later one of its key replaced."""
    whole = b'{"after":{"id":1},"op":"c"}'
    part = b'{"after":{"a":"__debezium_unavailable_value"},"op":"u"}'
    records: list[Record] = [(0, 1, None, whole), (1, 1, b"1", part), (2, 1, b"1", whole)]
    found = live(changelog_format("debezium", {}), records, 2)
    assert [(r["offset"], r["after"]) for r in found] == [(2, '{"id":1}')]


def test_connect_offsets() -> None:
    """As Kafka's FileStreamSource and Debezium write them."""
    file = json.dumps(["file", {"filename": "/tmp/in"}], separators=(",", ":")).encode()
    debezium = b'["inventory",{"server":"dbserver1"}]'
    records: list[Record] = [
        (0, 1, file, b'{"position":7}'),
        (1, 1, debezium, b'{"ts_sec":1,"file":"bin.3","pos":154}'),
        (2, 1, file, b'{"position":30}'),
        (3, 1, b'["gone",{"a":1}]', b"{}"),
        (4, 1, b'["gone",{"a":1}]', None),
        (5, 1, b"not JSON", b"neither"),
        (6, 1, b'["\\ud800",{}]', b'{"half a pair":"\\udfff"}'),
        (7, 1, b'["z",{"half":"\\ud800"}]', b"1"),
    ]
    found = live(changelog_format("connect-offsets", {}), records, 2)
    assert [(r["connector"], r["source_partition"], r["source_offset"]) for r in found] == [
        (None, None, None),
        ("file", '{"filename": "/tmp/in"}', '{"position": 30}'),
        ("inventory", '{"server": "dbserver1"}', '{"file": "bin.3", "pos": 154, "ts_sec": 1}'),
        (None, None, "1"),  # half a surrogate pair is no text
        (None, None, None),
    ]
