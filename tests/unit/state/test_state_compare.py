"""`state compare` and `state show` on states written here, without Kafka; serdes; cuts judged."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from eoctl.operations.state.delivery import DeliveryRequest, source
from eoctl.operations.state.state_comparison import Comparison, compare
from eoctl.operations.state.state_entries import ShowRequest, show
from eoctl.stores.serdes import serde
from eoctl.stores.state import folder as state_folder
from eoctl.stores.state.files import StateWriter
from eoctl.stores.storage import LocalFolder
from recovery.audit.range_counts import merged
from recovery.errors import RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.formats.columns import rows_schema
from recovery.shared.cut import (
    Behind,
    Cut,
    CutPartition,
    CutTopic,
    differences,
    judge,
    load,
    ranges,
)
from recovery.shared.digest import digest
from recovery.shared.log_position import Standing
from recovery.state.changelogs.changelog import changelog_format
from recovery.state.compare import Compared, Side
from recovery.state.incremental import why_full
from recovery.state.manifest import Manifest, ManifestDigest, ManifestFile, ManifestPartition, whole
from recovery.state.state_rows import StateCompareRow
from recovery.values import replace

Entries = dict[int, dict[bytes, tuple[int | None, bytes]]]


def cut(*ends: int) -> Cut:
    parts = tuple(
        CutPartition(
            partition=p, start=0, end=e, last_stable_offset=e, high_watermark=e, leader_epoch=3
        )
        for p, e in enumerate(ends)
    )
    topic = CutTopic(topic="log", topic_id="id", partitions=parts)
    return Cut(cluster_id="c", created_at="2026-01-01T00:00:00.000Z", at="lso", topics=(topic,))


def state(folder: Path, entries: Entries, **changes: Any) -> Path:
    import pyarrow as pa

    parts = []
    for number, keys in entries.items():
        rows = [
            {"offset": i, "timestamp": t, "key": k, "value": v}
            for i, (k, (t, v)) in enumerate(keys.items())
        ]
        table = pa.Table.from_pylist(rows, schema=rows_schema())
        writer = StateWriter(LocalFolder(folder), "log", number)
        writer.write(table.slice(0, 2))
        writer.write(table.slice(2))
        file = writer.close()
        parts.append(
            ManifestPartition(
                topic="log",
                partition=number,
                start=0,
                end=9,
                counts={"data": len(rows), "with_headers": 0},
                expired=0,
                digest=ManifestDigest.of(digest(number, table)),
                files=(
                    ManifestFile(
                        path=file.path, rows=file.rows, size=file.size, sha256=file.sha256
                    ),
                ),
                bytes_read=0,
                seconds=0.0,
            )
        )
    made: dict[str, Any] = {
        "cluster_id": "c",
        "format": "plain",
        "options": {},
        "engine": "local",
        "reader": "own",
        "started_at": "",
        "finished_at": "",
        "seconds": 0.0,
        "cut": cut(*([9] * len(entries))),
        "complete": True,
        "incomplete": (),
        "consistent": True,
        "digest": whole(parts),
        "changelogs": {},
        "partitions": tuple(parts),
        "versions": {},
        "peak_bytes": 0,
    }
    state_folder.publish(LocalFolder(folder), Manifest(**made | changes))
    return folder


A: Entries = {
    0: {b"same": (1, b"v"), b"gone": (1, b"v"), b"value": (1, b"old"), b"time": (1, b"v")},
    1: {b"x": (None, b"\xff")},
}
B: Entries = {
    0: {b"time": (2, b"v"), b"value": (1, b"new"), b"same": (1, b"v"), b"new": (5, b"")},
    1: {b"x": (None, b"\xff")},
}


def no_context() -> Any:
    raise AssertionError("no cluster is asked")


def compared(a: Path, b: Path | str, **words: Any) -> Any:
    return compare(no_context, Comparison(str(a), str(b), **words), None)


def test_what_differs(tmp_path: Path) -> None:
    a, b = state(tmp_path / "a", A), state(tmp_path / "b", B)
    assert compared(a, a).exit_status == 0
    found = compared(a, b / "manifest.json")
    assert found.exit_status == 1
    parts = {r.partition: r for r in found.rows if r.key is None}
    assert (parts[0].only_a, parts[0].only_b, parts[0].different) == (1, 1, 2)
    assert parts[1].difference is None
    entries = {
        (r.difference, r.key_text) for r in found.rows if isinstance(r, StateCompareRow) and r.key
    }
    assert entries == {
        ("only_a", "gone"),
        ("only_b", "new"),
        ("different", "value"),
        ("different", "time"),
    }
    (changed,) = (r for r in found.rows if r.key_text == "value")
    assert (changed.a.value_text, changed.b.value_text) == ("old", "new")
    without = compared(a, b, timestamps=False)
    assert [r.different for r in without.rows if r.key is None] == [1, 0]
    few = compared(a, b, most=1)
    assert sum(r.key is not None for r in few.rows) == 1
    assert [r.different for r in few.rows if r.key is None] == [2, 0]


def test_a_partition_that_one_side_lacks(tmp_path: Path) -> None:
    found = compared(state(tmp_path / "a", A), state(tmp_path / "b", {0: A[0]}))
    assert [(r.partition, r.only_a) for r in found.rows if r.key is None] == [(0, 0), (1, 1)]
    assert found.exit_status == 1


def test_what_is_not_complete_proves_nothing_equal(tmp_path: Path) -> None:
    """Neither here nor there; the live changelog's rebuild is read from its manifest alike."""
    a = state(tmp_path / "a", A)
    b = state(tmp_path / "b", A, complete=False)
    c = state(tmp_path / "c", A, complete=False)
    told = json.loads((c / "manifest.json").read_text())
    told["partitions"][1]["incomplete"] = ["its log starts at 4"]
    (c / "manifest.json").write_text(json.dumps(told))
    for left, right, said in (
        (a, b, f"{b}: its manifest says"),
        (b, a, f"{b}: its manifest says"),
        (a, c, f"{c}: its log starts at 4"),
        (c, dump(tmp_path / "a.jsonl", A), f"{c}: its log starts at 4"),
    ):
        found = compared(left, right)
        assert (found.extra["equal"], found.complete, found.exit_status) == (True, False, 3)
        (error,) = found.errors
        assert error.detail.startswith(said)


def test_states_of_different_meaning_are_refused(tmp_path: Path) -> None:
    a = state(tmp_path / "a", A)
    b = state(tmp_path / "b", A, retention_ms={"log": 5})
    with pytest.raises(RefusedError, match="mean different"):
        compared(a, b)


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    a, b = state(tmp_path / "a", A), state(tmp_path / "b", B)
    (file,) = (b / "data" / "log").glob("0-*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(RefusedError, match="has changed"):
        compared(a, b)


def removed(folder: Path, manifest: Any) -> None:
    next((folder / "data" / "log").glob("1-*.parquet")).unlink()


def damaged(folder: Path, manifest: Any) -> None:
    file = next((folder / "data" / "log").glob("1-*.parquet"))
    file.write_bytes(file.read_bytes()[:-1] + b"x")


def absolute(folder: Path, manifest: Any) -> None:
    """The very file, which has the hash that is listed: it is not in the state's folder."""
    [file] = manifest["partitions"][1]["files"]
    elsewhere = folder.parent / "elsewhere.parquet"
    elsewhere.write_bytes((folder / file["path"]).read_bytes())
    file["path"] = str(elsewhere)


def above(folder: Path, manifest: Any) -> None:
    absolute(folder, manifest)
    manifest["partitions"][1]["files"][0]["path"] = "data/../../elsewhere.parquet"


def nothing_listed(folder: Path, manifest: Any) -> None:
    manifest["partitions"][1]["files"] = []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (removed, "cannot be read"),
        (damaged, "has changed since"),
        (absolute, "leads out of the state's folder"),
        (above, "leads out of the state's folder"),
        (nothing_listed, "list 0 rows, its digest is of 1"),
    ],
)
@pytest.mark.parametrize("side", [0, 1])
def test_equal_digests_prove_nothing_of_files_that_are_not_there(
    tmp_path: Path, damage: Any, said: str, side: int
) -> None:
    """Both manifests hold the same digests; the files of one are not what they list."""
    both = [state(tmp_path / name, A) for name in ("a", "b")]
    assert compared(*both).exit_status == 0
    path = both[side] / "manifest.json"
    manifest = json.loads(path.read_text())
    damage(both[side], manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(RefusedError, match=said) as caught:
        compared(*both)
    assert caught.value.exit_status == 4
    if damage is not nothing_listed:  # which key it was is not known
        with pytest.raises(RefusedError, match=said):
            show(ShowRequest(str(both[side]), "nobody"))


@pytest.mark.parametrize("null", [0, 1])
def test_a_null_value_is_not_an_empty_one(null: int) -> None:
    """A window store keeps a null; the digest tells them apart, so must the entries."""
    import pyarrow as pa

    values: list[bytes | None] = [b"", b""]
    values[null] = None
    sides = [
        pa.Table.from_pylist(
            [{"offset": 0, "timestamp": 1, "key": b"k", "value": v}], schema=rows_schema()
        )
        for v in values
    ]
    found = Compared(most=5)
    found.add(changelog_format("plain", {}), *sides)
    assert (found.equal, found.different) == (False, 1)
    [entry] = found.found
    assert (entry.a, entry.b) == (Side(1, values[0]), Side(1, values[1]))
    same = Compared(most=5)
    same.add(changelog_format("plain", {}), sides[null], sides[null])
    assert same.equal


def dump(path: Path, entries: Entries, *fields: str) -> Path:
    lines = []
    for partition, keys in entries.items():
        for key, (time, value) in keys.items():
            row = {
                "key": base64.b64encode(key).decode(),
                "value": base64.b64encode(value).decode(),
                "timestamp": time,
                "partition": partition,
                "topic": "log",
            }
            lines.append(json.dumps({k: row[k] for k in ("key", "value", *fields)}))
    path.write_text("\n".join(lines) + "\n\n")
    return path


def test_against_a_dump(tmp_path: Path) -> None:
    a = state(tmp_path / "a", A)
    for fields in ((), ("partition",), ("partition", "topic")):
        assert compared(a, dump(tmp_path / "same.jsonl", A, *fields)).exit_status == 0
        other = compared(a, dump(tmp_path / "other.jsonl", B, *fields))
        assert other.exit_status == 1
        totals = [
            sum(getattr(r, name) for r in other.rows if r.key is None)
            for name in ("only_a", "only_b", "different")
        ]
        assert totals == [1, 1, 1]  # times are not in the dump
    dump(tmp_path / "wrong.jsonl", {3: A[0]}, "partition")
    with pytest.raises(UsageError, match="no partition"):
        compared(a, tmp_path / "wrong.jsonl")
    twice = dump(tmp_path / "twice.jsonl", A)
    twice.write_text(twice.read_text() * 2)
    with pytest.raises(UsageError, match="twice"):
        compared(a, twice)
    mixed = dump(tmp_path / "mixed.jsonl", A, "partition", "topic")
    other = dump(tmp_path / "part.jsonl", {0: {b"more": (1, b"v")}}, "partition")
    mixed.write_text(mixed.read_text() + other.read_text())
    with pytest.raises(UsageError, match="some lines name a topic"):
        compared(a, mixed)
    for line in (
        *("{}", '{"key": 1}', '{"key": "%"}', "[]", '{"key": "", "timestamp": "x"}'),
        *(f'{{"key": "", "timestamp": {n}}}' for n in (2**63, -(2**63) - 1)),
        "[" * 100_000,
    ):
        (tmp_path / "bad.jsonl").write_text(line)
        with pytest.raises(UsageError):
            compared(a, tmp_path / "bad.jsonl")


def test_show(tmp_path: Path) -> None:
    folder = state(tmp_path / "a", {0: {b"n": (7, struct.pack(">q", -5)), b"s": (8, b'{"a":1}')}})
    found: Any = show(ShowRequest(str(folder), "n", value_serde="long"))
    assert [(r.key_decoded, r.value_decoded, r.timestamp) for r in found.rows] == [("n", -5, 7)]
    found = show(ShowRequest(str(folder), "73", key_serde="hex", value_serde="json"))
    assert [r.value_decoded for r in found.rows] == [{"a": 1}]
    assert show(ShowRequest(str(folder), "nobody")).exit_status == 1
    wrong: Any = show(ShowRequest(str(folder), "s", value_serde="long"))
    assert wrong.exit_status == 3
    assert wrong.rows[0].value == base64.b64encode(b'{"a":1}').decode()
    assert len(show(ShowRequest(str(folder), None, value_serde="hex", most=1)).rows) == 1
    with pytest.raises(UsageError, match="not a valid long"):
        show(ShowRequest(str(folder), "x", key_serde="long"))


def test_serdes(tmp_path: Path) -> None:
    for text, value, content in (
        ("long", "-2", struct.pack(">q", -2)),
        ("int", "7", struct.pack(">i", 7)),
        ("double", "1.5", struct.pack(">d", 1.5)),
        ("string", "é", "é".encode()),
        ("hex", "00ff", b"\0\xff"),
        ("base64", "AP8=", b"\0\xff"),
    ):
        made = serde(text, "--key-serde")
        assert made.encode is not None
        assert made.encode(value) == content
        assert str(made.decode(content)) == value
    for text, value in (("float", "1e300"), ("short", "40000"), ("long", "9" * 30)):
        made = serde(text, "--key-serde")
        assert made.encode is not None
        with pytest.raises(ValueError, match=r"."):
            made.encode(value)
    for text in ("nothing", "avro", "protobuf:x", "avro:/no/such"):
        with pytest.raises(UsageError):
            serde(text, "--key-serde")


def test_avro(tmp_path: Path) -> None:
    import io

    import fastavro

    fields = [{"name": "id", "type": "long"}, {"name": "raw", "type": "bytes"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    file = tmp_path / "r.avsc"
    file.write_text(json.dumps(schema))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"id": 9, "raw": b"\xff"})
    content = out.getvalue()
    assert serde(f"avro:{file}", "x").decode(content) == {"id": 9, "raw": "/w=="}
    framed = serde(f"confluent-avro:{file}", "x")
    assert framed.decode(b"\0\0\0\0\7" + content) == {"id": 9, "raw": "/w=="}
    for wrong in (content, b"", b"\0\0\0\0\7" + content + b"x", b"\0\0\0\0\7" + content[:1]):
        with pytest.raises(ValueError, match=r"."):
            framed.decode(wrong)


def test_protobuf(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="p", syntax="proto3")
    message = file.message_type.add(name="R")
    message.field.add(name="id", number=1, type=5, label=1)
    (tmp_path / "r.desc").write_bytes(
        descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    )
    content = b"\x08\x2a"  # field 1 = 42
    assert serde(f"protobuf:{tmp_path}/r.desc:p.R", "x").decode(content) == {"id": 42}
    framed = serde(f"confluent-protobuf:{tmp_path}/r.desc:p.R", "x")
    assert framed.decode(b"\0\0\0\0\1\0" + content) == {"id": 42}
    with pytest.raises(UsageError, match="no message"):
        serde(f"protobuf:{tmp_path}/r.desc:p.X", "x")


def last(epoch: int, offset: int, outcome: str = "committed", marker: int | None = None) -> Any:
    return {
        "epoch": epoch,
        "last_offset": offset,
        "outcome": outcome,
        "marker": marker,
        "marker_epoch": None,
    }


P, Q = TopicPartition("a", 0), TopicPartition("b", 0)


def test_a_range_that_saw_only_the_marker_keeps_what_the_range_before_it_saw() -> None:
    """A partition read in two ranges: data in the first, its marker in the second. In the other
    changelog the same transaction's data lies above the end: the cut divides it."""
    only_marker = dict.fromkeys(("epoch", "last_offset", "outcome")) | {
        "marker": 6,
        "marker_epoch": 2,
    }
    both = merged({"7": last(1, 5)}, {"7": only_marker, "8": last(3, 9)})
    assert both["7"] == last(1, 5) | {"marker": 6, "marker_epoch": 2}
    assert both["8"] == last(3, 9)
    found = judge(
        {P: both, Q: {}},
        {Q: {7: Behind((3, 1), (4, 2))}},
        epoch_per_transaction=True,
        atomic=True,
    )
    assert (found.consistent, len(found.split)) == (False, 1)


@pytest.mark.parametrize(
    ("below", "behind", "v2", "consistent", "split"),
    [
        ({P: {"7": last(1, 5, marker=6)}}, {}, True, True, 0),
        # its marker lies above, its data all below
        ({P: {"7": last(1, 5)}}, {P: {7: Behind(None, (9, 2))}}, True, True, 0),
        # data on both sides
        ({P: {"7": last(1, 5)}}, {P: {7: Behind((8, 1), (9, 2))}}, True, False, 1),
        # the next transaction of the same producer
        ({P: {"7": last(1, 5, marker=6)}}, {P: {7: Behind((8, 2), (9, 3))}}, True, True, 0),
        ({P: {"7": last(1, 5)}}, {P: {7: Behind((9, 2), (8, 2), 9)}}, True, True, 0),
        # counted in one changelog, above the end in the other
        ({P: {"7": last(1, 5, marker=6)}, Q: {}}, {Q: {7: Behind((3, 1), (4, 2))}}, True, False, 1),
        # aborted: counted nowhere
        (
            {P: {"7": last(1, 5, "aborted", 6)}, Q: {}},
            {Q: {7: Behind((3, 1), (4, 2))}},
            True,
            True,
            0,
        ),
        # with v1 an equal epoch may be an earlier transaction
        ({P: {"7": last(1, 5, marker=6)}, Q: {}}, {Q: {7: Behind((3, 1), (4, 1))}}, False, None, 0),
        # an earlier epoch there is not counted, a later one here is
        ({P: {"7": last(4, 5, marker=6)}, Q: {}}, {Q: {7: Behind((3, 2), (4, 3))}}, True, False, 1),
        ({P: {"7": last(1, 5, marker=6)}, Q: {}}, {Q: {7: Behind((3, 2), None, 3)}}, True, True, 0),
        # a later one aborted here says nothing of the one that was before it here
        (
            {P: {"7": last(6, 5, "aborted", 6)}, Q: {}},
            {Q: {7: Behind((3, 5), (4, 6))}},
            True,
            None,
            0,
        ),
        # with v1 not even when their epochs are equal
        (
            {P: {"7": last(5, 5, "aborted", 6)}, Q: {}},
            {Q: {7: Behind((3, 5), (4, 5))}},
            False,
            None,
            0,
        ),
    ],
)
def test_what_a_cut_divides(
    below: Any, behind: Any, v2: bool, consistent: bool | None, split: int
) -> None:
    found = judge(below, behind, epoch_per_transaction=v2, atomic=True)
    assert (found.consistent, len(found.split)) == (consistent, split)
    open_there = sum(b.open_from is not None for p in behind.values() for b in p.values())
    assert len(found.open) == open_there


def test_records_outside_transactions_say_nothing() -> None:
    assert judge({P: {}, Q: {}}, {}, epoch_per_transaction=True, atomic=False).consistent is None


def test_what_changed_under_a_cut() -> None:
    made = cut(10, 10)
    same = [(TopicPartition("log", p), "id", 0, 3) for p in (0, 1)]
    assert differences(made, same) == []
    assert (
        differences(made, [(TopicPartition("log", 0), "id", 0, 9), same[1]]) == []
    )  # a new leader
    assert (
        "created again"
        in differences(made, [(TopicPartition("log", 0), "other", 0, 3), same[1]])[0]
    )
    assert (
        "moved from 0 to 4"
        in differences(made, [(TopicPartition("log", 0), "id", 4, 3), same[1]])[0]
    )
    assert "went back" in differences(made, [(TopicPartition("log", 0), "id", 0, 2), same[1]])[0]
    assert "no longer exists" in differences(made, same[:1])[0]


def test_cut_files(tmp_path: Path) -> None:
    folder = state(tmp_path / "a", A)
    text = (folder / "cut.json").read_text()
    assert load(text, "x") == cut(9, 9)
    assert load((folder / "manifest.json").read_text(), "x") == cut(9, 9)
    for wrong in ("", "{}", "[]", text.replace('"end": 9', '"end": "x"'), text[:-9]):
        with pytest.raises(UsageError):
            load(wrong, "x")


def test_ranges() -> None:
    assert ranges(0, 10, 4) == [(0, 3), (3, 6), (6, 10)]
    assert ranges(5, 5, 4) == [(5, 5)]


COMPACTED = {"log": {"cleanup.policy": "compact", "delete.retention.ms": "86400000"}}
START = 1_767_225_600_000  # the cut's created_at


SAME, UNPROVEN = Standing(True, "it is"), Standing(None, "it is compacted away")
DIVERGED = Standing(False, "leader epoch 1 ends at 8", 8)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"format_name": "other"}, "another format"),
        ({"cut": cut(9)}, "others now"),
        ({"cut": cut(9, 8)}, "below the earlier one"),
        ({"cut": cut(12, 12).model_copy(update={"cluster_id": "x"})}, "another cluster"),
        ({"configs": {"log": None}}, "not only compacted"),
        ({"configs": {"log": COMPACTED["log"] | {"cleanup.policy": "compact,delete"}}}, "not only"),
        ({"configs": {"log": COMPACTED["log"] | {"delete.retention.ms": "59000"}}}, "tombstones"),
        ({"now_ms": START + 86_400_000}, "tombstones"),
        ({"standings": {("log", 0): DIVERGED, ("log", 1): SAME}}, "log-0 was cut off at offset 8"),
        ({"standings": {("log", 0): SAME, ("log", 1): UNPROVEN}}, "log-1 is not proven to go on"),
        ({"form": changelog_format("streams-versioned", {"retention_ms": 5})}, "does not keep"),
        ({"complete": False}, "not provably complete"),
        ({"at": "hw"}, "not made at lso"),
        ({"start": 4}, "moved from 0 to 4"),
        ({"topic_id": "other"}, "others now"),
    ],
)
def test_when_an_earlier_state_is_not_enough(
    tmp_path: Path, changed: dict[str, Any], reason: str | None
) -> None:
    changed = dict(changed)
    now = cut(12, 12)
    if "topic_id" in changed:
        topic = now.topics[0].model_copy(update={"topic_id": changed.pop("topic_id")})
        now = now.model_copy(update={"topics": (topic,)})
    if "start" in changed:
        first, second = now.topics[0].partitions
        moved = (first.model_copy(update={"start": changed.pop("start")}), second)
        topic = now.topics[0].model_copy(update={"partitions": moved})
        now = now.model_copy(update={"topics": (topic,)})
    made = cut(9, 9).model_copy(update={"at": changed.pop("at", "lso")})
    folder = state(
        tmp_path / "a",
        A,
        cut=made,
        complete=changed.pop("complete", True),
        topic_configs=COMPACTED,
    )
    asked: dict[str, Any] = {
        "earlier": state_folder.read(folder),
        "cut": now,
        "form": changelog_format("plain", {}),
        "format_name": "plain",
        "options": {},
        "configs": COMPACTED,
        "standings": {("log", 0): SAME, ("log", 1): SAME},
        "now_ms": START + 60_000,
    }
    why = why_full(**asked | changed)
    assert (why is None) == (reason is None), why
    assert reason is None or reason in (why or "")


@pytest.mark.parametrize(
    ("counted", "what"),
    [
        ({}, "whether records of log had headers is not known"),
        ({"with_headers": None}, "whether records of log had headers is not known"),
        ({"with_headers": 2}, "2 records of log had headers, which a state does not hold"),
        ({"with_headers": 0}, None),
    ],
)
def test_a_delivery_of_a_state_whose_headers_are_not_known(
    tmp_path: Path, counted: dict[str, int | None], what: str | None
) -> None:
    folder = state(tmp_path / "a", {0: {b"k": (1, b"v")}})
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["partitions"][0]["counts"] = {"data": 1, **counted}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    request = DeliveryRequest(str(folder), "topic:new")
    if what is None:
        assert source(request).count == 1
        return
    with pytest.raises(RefusedError, match=what) as refused:
        source(request)
    assert "--without-headers" in (refused.value.remedy or "")
    assert source(replace(request, without_headers=True)).count == 1
