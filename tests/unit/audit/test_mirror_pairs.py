"""`audit mirror`: pairs, differences and translated offsets against counting by hand."""

import hashlib
import itertools
import random
import struct
import zlib
from bisect import bisect_left
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.audit.mirror_entries import Entries, joined
from recovery.audit.mirror_pairs import Pairing, Translated
from recovery.audit.mirror_unmatched import UnmatchedRecords, sorted_digests
from recovery.errors import IncompleteError
from recovery.formats.columns import ColumnBatch
from recovery.formats.mirror_maker import Checkpoint, OffsetSync, decode_checkpoint, decode_sync
from recovery.formats.reader import CorruptError
from recovery.shared.record_digests import (
    KEY_RANGES,
    field_digests,
    key_ranges,
    range_name,
    record_digests,
)
from tests.share import share
from tests.unit.formats_build import Item, batch, decoded

END = 2**62


def _log(rng: random.Random, ids: list[int]) -> ColumnBatch:
    """Records with gaps between their offsets; the id is in key, value and timestamp."""
    offsets, at = [], 0
    for _ in ids:
        at += rng.choice((0, 0, 0, 1, 5))
        offsets.append(at)
        at += 1
    items = [
        Item(offset, 1_000 + one, key=b"k%d" % (one % 7), value=b"v%d" % one)
        for offset, one in zip(offsets, ids, strict=True)
    ]
    return decoded(batch(0, items), None) if items else decoded(b"", None)


def _mirrored(rng: random.Random, ids: list[int]) -> list[int]:
    """The same with some of: a tail missing, holes, a rewind, strangers, records elsewhere."""
    out = list(ids[: rng.randrange(len(ids) + 1)]) if rng.random() < 0.5 else list(ids)
    for _ in range(rng.randrange(3)):
        kind = rng.randrange(4)
        at = rng.randrange(len(out) + 1)
        if kind == 0:
            del out[at : at + rng.randrange(1, 5)]
        elif kind == 1:
            out[at:at] = out[max(0, at - rng.randrange(1, 30)) : at]
        elif kind == 2:
            out.insert(at, 10_000 + rng.randrange(50))
        elif out:
            out.insert(rng.randrange(len(out)), out.pop(rng.randrange(len(out))))
    return out


def _paired(source: list[int], mirror: list[int]) -> dict[int, int]:
    """Row of the source → row of the mirror: the i-th of equals with the i-th."""
    waiting: dict[int, list[int]] = defaultdict(list)
    for row, one in enumerate(mirror):
        waiting[one].append(row)
    return {row: waiting[one].pop(0) for row, one in enumerate(source) if waiting[one]}


def _longest_rise(rows: list[int]) -> int:
    tails: list[int] = []
    for row in rows:
        at = bisect_left(tails, row)
        tails[at : at + 1] = [row]
    return len(tails)


def _entries(part: ColumnBatch) -> Entries:
    return Entries(record_digests(part), part.offset, key_ranges(part.key))


def _fed(pairing: Pairing, logs: list[ColumnBatch], chunk: int) -> None:
    at = [0, 0]
    while not (pairing.source.done and pairing.mirror.done):
        n = 0 if pairing.wants_source() else 1
        side = (pairing.source, pairing.mirror)[n]
        part = logs[n].select(np.arange(at[n], min(at[n] + chunk, len(logs[n]))))
        at[n] += chunk
        if len(part):
            pairing.add(side, _entries(part), int(part.timestamp.max()))
        side.done = at[n] >= len(logs[n])


@given(
    seed=st.integers(0, 2**32),
    chunk=st.integers(1, 200),
    block=st.integers(1, 300),
    alike=st.booleans(),
)
@settings(deadline=None, max_examples=share(500))
def test_every_difference_is_counted_and_nothing_else(
    seed: int, chunk: int, block: int, alike: bool
) -> None:
    rng = random.Random(seed)
    n = rng.randrange(1, 120)
    source = [rng.randrange(n // 2 + 1) for _ in range(n)] if alike else list(range(n))
    mirror = _mirrored(rng, source)
    logs = [_log(rng, source), _log(rng, mirror)]
    groups = [
        Translated(rng.randrange(2 * n), rng.randrange(2 * n)) for _ in range(rng.randrange(3))
    ]
    pairing = Pairing(source_cut=False, mirror_cut=False, translated=groups, block=block)
    _fed(pairing, logs, chunk)
    left, extra = pairing.finish()
    pairs = _paired(source, mirror)
    assert pairing.pairs == len(pairs)
    chain, moved = pairing.in_order()
    inside = sum(run.records for run in chain)
    assert inside + sum(run.records for run in moved) == len(pairs)
    rising = _longest_rise([pairs[row] for row in sorted(pairs)])
    assert inside <= rising
    if block >= n + len(mirror) and chunk >= max(n, len(mirror)):  # one join sees all of it
        assert inside == rising
    if rising == len(pairs):
        assert not moved
    for before, after in itertools.pairwise(chain):
        assert before.source_last < after.source_first
        assert before.mirror_last < after.mirror_first

    unmatched = UnmatchedRecords(sorted_digests(joined([left, extra]).digest))
    if len(unmatched.wanted):
        for at in range(0, n, chunk):
            part = logs[0].select(np.arange(at, min(at + chunk, n)))
            unmatched.add_source(record_digests(part), part, END)
        unmatched.add_mirror(record_digests(logs[1]), logs[1])
    until = chain[-1].source_last + 1 if chain else 0
    judged = unmatched.judge(groups, (0, until), most=10**9)
    lost = [o for row, o in enumerate(logs[0].offset.tolist()) if row not in pairs and o < until]
    changed = [d for d in judged.differences if d.kind == "changed"]
    assert not changed  # strangers have times and values of their own
    assert [d.source_offset for d in judged.differences if d.kind == "lost"] == lost
    assert pairing.behind + len(left) + len(pairs) == n
    here, there = Counter(source), Counter(mirror)
    repeats = {i: there[i] - here[i] for i in here if there[i] > here[i]}
    assert judged.counts.get("repeat", 0) == sum(repeats.values())
    strangers = sum(there[i] for i in there if i not in here)
    assert judged.counts.get("only-in-mirror", 0) == strangers
    for one in judged.differences:
        if one.mirror_offset is not None:
            row = int(np.searchsorted(logs[1].offset, one.mirror_offset))
            assert logs[1].offset[row] == one.mirror_offset
            if one.kind == "repeat":
                assert one.source_offset is not None
                at = int(np.searchsorted(logs[0].offset, one.source_offset))
                assert source[at] == mirror[row]
    for group in groups:
        late = Counter(i for i, o in zip(source, logs[0].offset, strict=True) if o >= group.source)
        above = Counter(i for i, o in zip(mirror, logs[1].offset, strict=True) if o >= group.mirror)
        lacking = here - there
        skipped = sum(max(0, max(0, late[i] - lacking[i]) - above[i]) for i in late)
        assert group.skipped == skipped
    if not alike:
        for group in groups:
            early = {i for i, o in zip(source, logs[0].offset, strict=True) if o < group.source}
            again = sum(
                i in early and o >= group.mirror
                for i, o in zip(mirror, logs[1].offset, strict=True)
            )
            assert group.again == again


def _text(word: str) -> bytes:
    return struct.pack(">h", len(word)) + word.encode()


def test_syncs_and_checkpoints_are_read_as_mirror_maker_writes_them() -> None:
    key, value = _text("orders") + struct.pack(">i", 3), struct.pack(">qq", 11, 12)
    assert decode_sync(key, value) == OffsetSync("orders", 3, 11, 12)
    group = _text("g") + _text("a.orders") + struct.pack(">i", 1)
    content = struct.pack(">hqq", 0, 5, 6) + _text("m")
    assert decode_checkpoint(group, content) == Checkpoint("g", "a.orders", 1, 5, 6, "m")
    for n in range(len(content)):
        with pytest.raises(CorruptError):
            decode_checkpoint(group, content[:n])
    for n in range(len(key)):
        with pytest.raises(CorruptError):
            decode_sync(key[:n], value)
    with pytest.raises(CorruptError, match="version 1"):
        decode_checkpoint(group, struct.pack(">hqq", 1, 5, 6) + _text(""))
    with pytest.raises(CorruptError, match="more bytes"):
        decode_sync(key, value + b"x")


def test_digests_are_those_of_the_documented_bytes() -> None:
    items = [
        Item(0, 5, None, b"v"),
        Item(1, 5, b"", b"v"),
        Item(2, 6, b"k", None),
        Item(3, 6, b"k", b""),
        Item(7, 8, b"key", b"value", (("h", b"x"), ("h", None))),
    ]
    part = decoded(batch(0, items), None)
    # Kafka's header section: count, then length and name, length and value, varints in zigzag
    sections = [b"\0"] * 4 + [b"\x04" + b"\x02h\x02x" + b"\x02h\x01"]

    def field(content: bytes | None) -> bytes:
        if content is None:
            return struct.pack(">i", -1)
        return struct.pack(">i", len(content)) + content

    for timestamps in (True, False):
        for headers in (True, False):
            expected = [
                hashlib.blake2b(
                    (struct.pack(">q", item.timestamp) if timestamps else b"")
                    + field(item.key)
                    + field(item.value)
                    + (section if headers else b""),
                    digest_size=16,
                ).digest()
                for item, section in zip(items, sections, strict=True)
            ]
            found = record_digests(part, timestamps=timestamps, headers=headers)
            assert [row.tobytes() for row in found] == expected
    keys = key_ranges(part.key).tolist()
    assert keys[0] == KEY_RANGES
    assert range_name(keys[0]) == "no key"
    for number, item in zip(keys[1:], items[1:], strict=True):
        low, high = (int(end, 16) for end in range_name(number).split("-"))
        assert low <= zlib.crc32(item.key or b"") <= high
    assert field_digests(part.key)[0] == 0
    assert len(set(field_digests(part.key).tolist())) == 4
    assert len(record_digests(decoded(b"", None))) == 0


def test_a_changed_record_names_its_fields_and_where_it_stands() -> None:
    mine = [Item(i, 100 + i, b"k%d" % i, b"v%d" % i) for i in range(6)]
    theirs = [
        mine[0],
        mine[1]._replace(value=b"other"),
        mine[2]._replace(headers=(("h", b"x"),)),
        mine[3]._replace(timestamp=999),
        mine[4]._replace(key=b"kk"),
        mine[5],
    ]
    logs = [decoded(batch(0, items), None) for items in (mine, theirs)]
    unmatched = UnmatchedRecords(
        sorted_digests(np.concatenate([record_digests(log) for log in logs]))
    )
    unmatched.add_source(record_digests(logs[0]), logs[0], END)
    unmatched.add_mirror(record_digests(logs[1]), logs[1])
    judged = unmatched.judge((), most=10**9)
    assert [(d.source_offset, d.mirror_offset, d.differs) for d in judged.differences] == [
        (1, 1, ("value",)),
        (2, 2, ("headers",)),
        (3, 3, ("timestamp",)),
        (4, 4, ("key",)),
    ]
    assert judged.counts == {"changed": 4}
    assert not judged.ambiguous


def test_more_without_a_partner_than_fits_is_refused() -> None:
    part = decoded(batch(0, [Item(i, 1, b"k", b"%d" % i) for i in range(200)]), None)
    pairing = Pairing(source_cut=False, mirror_cut=False, most=100, block=10)
    pairing.source.done = True
    with pytest.raises(IncompleteError, match="more than 100 records"):
        pairing.add(pairing.mirror, _entries(part), 0)


def test_old_records_of_a_log_that_goes_back_farther_are_not_kept() -> None:
    """The mirror holds 10,000 records that the source has deleted; 100 may wait."""
    ids = list(range(12_000))
    rng = random.Random(1)
    whole = _log(rng, ids)
    source, mirror = whole.select(np.arange(10_000, 12_000)), whole
    pairing = Pairing(source_cut=True, mirror_cut=False, most=800, block=50)
    _fed(pairing, [source, mirror], 40)
    left, extra = pairing.finish()
    assert pairing.pairs == 2_000
    assert len(left) == 0
    assert pairing.mirror.dropped + len(extra) == 10_000
    assert pairing.mirror.dropped > 9_000
