"""Flink's checkpoints against what Flink's own classes read from them (tests/flink/keep.py)."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.errors import EoctlError, RefusedError
from recovery.formats.flink_checkpoint import FlinkCheckpoint, handles, read_states
from recovery.formats.flink_metadata import StateHandle, read_metadata
from recovery.formats.reader import CorruptError

KEPT = Path(__file__).parents[1].parent / "kept" / "flink"
CASES = sorted(path.parent.name for path in KEPT.glob("*/loaded.json"))
NAMING = {"INCREMENTING": "IMPLICIT_BY_SUBTASK_ID", "POOLING": "EXPLICIT_BY_WRITER_STATE"}


def metadata_file(case: str, name: str = "_metadata") -> Path:
    [path] = (KEPT / case).glob(f"chk-*/{name}")
    return path


def file_of(case: str, handle: StateHandle) -> bytes:
    """The bytes of a handle: a kept file, whose absolute name was that of the job's own folder."""
    chk = metadata_file(case).parent
    if handle.relative:
        data = (chk / handle.path).read_bytes()
    else:
        [kept] = [p for p in (KEPT / case).rglob("*") if p.name == handle.path.rpartition("/")[2]]
        data = kept.read_bytes()
    return (
        data[handle.start :] if handle.size < 0 else data[handle.start : handle.start + handle.size]
    )


def read(case: str, data: bytes | None = None) -> FlinkCheckpoint:
    metadata = read_metadata(metadata_file(case).read_bytes() if data is None else data)
    return read_states(metadata, {handle: file_of(case, handle) for handle in handles(metadata)})


def as_loaded(found: FlinkCheckpoint) -> dict[str, Any]:
    return {
        "checkpoint": found.checkpoint_id,
        "committables": [[*c[:4]] for c in found.committables],
        "writers": [[w.prefix, w.subtask, NAMING[w.naming]] for w in found.writers],
        "offsets": [[*o[:3]] for o in found.offsets],
    }


def test_all_kinds_of_checkpoints_are_kept() -> None:
    assert [
        *("files", "incrementing-2.0", "incrementing-2.2", "merged-files"),
        *("pooling-2.0", "pooling-2.2", "unaligned"),
    ] == CASES


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_is_read_as_flink_reads_it(case: str) -> None:
    loaded = json.loads((KEPT / case / "loaded.json").read_text())
    found = read(case)
    assert loaded["committables"]
    assert as_loaded(found) == loaded
    assert found.skipped == ()
    assert found.prefixes == (loaded["writers"][0][0],)


@pytest.mark.parametrize("form", [3, 4, 5])
def test_older_formats_that_flink_wrote(form: int) -> None:
    data = metadata_file("incrementing-2.2", f"_metadata-{form}").read_bytes()
    found = read("incrementing-2.2", data)
    assert found.version == form
    assert as_loaded(found) == as_loaded(read("incrementing-2.2"))
    assert {c.operator for c in found.committables} == {"" if form < 5 else "to-kafka: Committer"}


def test_the_writers_of_both_strategies_name_what_they_handed_over() -> None:
    for case in ("incrementing-2.2", "pooling-2.2"):
        found = read(case)
        handed = {name for w in found.writers for name, _ in w.precommitted}
        assert handed == {c.transactional_id for c in found.committables}


def test_state_outside_of_metadata_is_named() -> None:
    assert handles(read_metadata(metadata_file("incrementing-2.2").read_bytes())) == ()
    relative = handles(read_metadata(metadata_file("files").read_bytes()))
    assert relative
    assert all(handle.relative and handle.size > 0 for handle in relative)
    merged = handles(read_metadata(metadata_file("merged-files").read_bytes()))
    assert merged
    assert not any(handle.relative for handle in merged)
    assert {handle.path.partition(":")[0] for handle in merged} == {"file"}


def test_compressed_state_is_refused_in_words() -> None:
    with pytest.raises(RefusedError, match=r"compressed .*let Flink itself restore"):
        read("compressed")


@pytest.mark.parametrize(("at", "version"), [(4, 2), (4, 7), (4, -1)])
def test_other_formats_are_refused(at: int, version: int) -> None:
    data = bytearray(metadata_file("incrementing-2.2").read_bytes())
    data[at : at + 4] = struct.pack(">i", version)
    with pytest.raises(RefusedError, match=f"its format version is {version}; known are 3 to 6"):
        read("incrementing-2.2", bytes(data))


def test_another_file_is_not_metadata() -> None:
    with pytest.raises(CorruptError, match="does not begin as Flink's _metadata does"):
        read_metadata(b'{"version": 1}')


def committable(case: str, number: int = 0) -> bytes:
    """A committable's bytes as they stand in the file: version, length, content."""
    c = read(case).committables[number]
    name = c.transactional_id.encode()
    content = struct.pack(">hqH", c.producer_epoch, c.producer_id, len(name)) + name
    return struct.pack(">ii", 1, len(content)) + content


def test_other_connectors_are_skipped_and_named() -> None:
    data = metadata_file("incrementing-2.2").read_bytes()
    for number in (0, 1):
        one = committable("incrementing-2.2", number)
        assert data.count(one) == 1
        data = data.replace(one, struct.pack(">i", 3) + one[4:])
    found = read("incrementing-2.2", data)
    assert found.committables == ()
    assert [tuple(s) for s in found.skipped] == [("to-kafka: Committer", "committables", 2)]


def test_one_damaged_committable_beside_a_good_one_is_no_other_connector() -> None:
    data = metadata_file("incrementing-2.2").read_bytes()
    one = committable("incrementing-2.2")
    with pytest.raises(CorruptError, match="is not as the others of its sink are"):
        read("incrementing-2.2", data.replace(one, struct.pack(">i", 3) + one[4:]))


def test_the_legacy_producer_is_refused() -> None:
    data = metadata_file("files").read_bytes()  # its states' names stand nowhere else
    name = b"next-transactional-id-hint-v2"
    old = struct.pack(">H", len("writer_raw_states")) + b"writer_raw_states"
    assert data.count(old) == 2
    with pytest.raises(RefusedError, match="legacy FlinkKafkaProducer"):
        read("files", data.replace(old, struct.pack(">H", len(name)) + name))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_bytes_give_only_our_own_error(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(["incrementing-2.2", "pooling-2.0", "merged-files"]))
    whole = bytearray(metadata_file(case).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        with_ = data.draw(
            st.sampled_from([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"])
            | st.binary(min_size=0, max_size=9)
        )
        whole[at : at + data.draw(st.integers(0, 9))] = with_
    damaged = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        metadata = read_metadata(damaged)
        files = dict.fromkeys(handles(metadata), b"")
        read_states(metadata, files)
    except EoctlError:
        pass


def test_every_cut_of_a_file_is_damage() -> None:
    """But a cut behind the operators, in the properties, which are not read."""
    whole = metadata_file("incrementing-2.2").read_bytes()
    properties = whole.index(b"\xac\xed\x00\x05")  # Java's serialisation begins
    for cut in range(0, properties, 7):
        with pytest.raises(CorruptError):
            read("incrementing-2.2", whole[:cut])
    assert read("incrementing-2.2", whole[:properties]) == read("incrementing-2.2")


@pytest.mark.parametrize("kind", [3, 8])
def test_handles_within_handles_end(kind: int) -> None:
    """A stack of handles as deep as the file is long is damage, no RecursionError."""
    head = struct.pack(">Iiqii", 0x4960672D, 3, 1, 0, 1)
    operator = struct.pack(">qqiiBii", 1, 2, 1, 1, 0, 1, 0) + struct.pack(">ii", 0, 0)
    deep = {
        3: b"\x03" + struct.pack(">ii", 0, 0) + (b"\x03" + struct.pack(">ii", 0, 0)) * 5000,
        8: (b"\x08" + bytes(16) + struct.pack(">i", 1)) * 5000,
    }[kind]
    with pytest.raises(CorruptError, match="handles within handles"):
        read_metadata(head + operator + deep)
