"""One partition of `__transaction_state` from its bytes, against the records it was made of.

Values are encoded here, from Kafka's TransactionLogKey.json and TransactionLogValue.json; whether
the log is whole is decided offset by offset.
"""

import random
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from recovery.formats import batches as headers
from recovery.formats.reader import CorruptError, UnknownVersion
from recovery.formats.transaction_state import TransactionValue
from recovery.inspect.log_part import Wholeness, part_of
from recovery.inspect.state_log import Fetched, state_log
from tests.share import share
from tests.unit.formats_build import Item, batch, seal

T = 1_700_000_000_000
CHANCE = struct.unpack(">q", b"order-1-")[0]
"""A producer id whose bytes are also the beginning of an id."""
IDS = ["orders", "orders-1", "order-1-x", "rder", "ö-1", "a"]
HOMES = dict(zip(IDS, [7, 0, CHANCE, 2**40, 9, 10], strict=True))


def key(name: str, version: int = 0) -> bytes:
    raw = name.encode()
    return struct.pack(">hh", version, len(raw)) + raw


def value(pid: int, epoch: int, version: int, previous: int = -1) -> bytes:
    """An Ongoing value with one topic and one partition."""
    head = struct.pack(">hqhib", version, pid, epoch, 60_000, 1)
    times = struct.pack(">qq", T, T)
    if version == 0:
        topics = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">ii", 1, 0)
        return head + topics + times
    topics = b"\x02" + b"\x02t" + b"\x02" + struct.pack(">i", 0) + b"\x00"
    tags = b"\x01\x00\x08" + struct.pack(">q", previous) if previous >= 0 else b"\x00"
    return head + topics + times + tags


@dataclass
class Put:
    """A record as it was written: pid None = tombstone, epoch its epoch, previous: its tag 0."""

    offset: int
    name: str
    pid: int | None
    epoch: int
    previous: int = -1


def random_log(r: random.Random) -> tuple[list[bytes], list[Put], list[bool], int]:
    """Batches, records that are left, per offset whether something is left, and the end."""
    batches: list[bytes] = []
    left: list[Put] = []
    present: list[bool] = [False] * (r.choice([0, 0, 3]))
    for _ in range(r.randrange(1, 15)):
        n = r.choice([1, 1, 1, 2, 5])  # a coordinator writes one
        base = len(present)
        items = []
        keeps = r.random() < 0.75
        for i in range(n):
            kept = keeps or r.random() < 0.5
            present.append(kept)
            if not kept:
                continue
            name = r.choice(IDS)
            # a producer id that ran out of epochs is followed by another
            pid = HOMES[name] + r.choice([0, 0, 0, 100]) if r.random() < 0.85 else None
            version = r.choice([0, 1])
            tagged = version == 1 and pid is not None and r.random() < 0.2
            previous = HOMES[r.choice(IDS)] if tagged else -1
            put = Put(base + i, name, pid, r.randrange(100), previous)
            left.append(put)
            data = None if pid is None else value(pid, put.epoch, version, previous)
            items.append(Item(i, T + base + i, key(name), data))
        if items or r.random() < 0.5:  # an empty batch stays, or goes
            last, codec = base + n - 1, r.choice([0, 0, 1])
            made = batch(base, items, codec=codec, last_offset=last) if items else None
            batches.append(made or emptied(base, last))
    end = len(present)
    if r.random() < 0.2:
        end += 2
        present += [False, False]
    return batches, left, present, end


@dataclass(slots=True)
class InMemory:
    """A log without an index: each batch of it is searched."""

    extents: list[Fetched] = field(default_factory=list)
    wholeness: Wholeness = field(default_factory=Wholeness)

    def cut(self, name: str) -> int:
        return 0


def in_memory(buffers: Iterable[bytes]) -> InMemory:
    """What one read fetched, from the log's start on. Raises CorruptError."""
    log = InMemory()
    for data in buffers:
        part = part_of(data).after(log.wholeness.end - 1)
        if part is not None:
            log.wholeness.add(part, 0)
            log.extents.append(Fetched(part))
    return log


def emptied(base: int, last: int) -> bytes:
    out = bytearray(batch(base, [Item(0)], last_offset=last)[:61])
    struct.pack_into(">i", out, 57, 0)
    return seal(out)


def responses(r: random.Random, batches: list[bytes]) -> list[bytes]:
    """As fetched: split anywhere between batches, some repeated, the last one cut."""
    out, at = [], 0
    while at < len(batches):
        upto = r.randrange(at + 1, len(batches) + 1)
        again = batches[max(0, at - r.randrange(3)) : at]
        cut = batches[upto][: r.randrange(len(batches[upto]))] if upto < len(batches) else b""
        out.append(b"".join([*again, *batches[at:upto]]) + cut)
        at = upto
    return out + [b""] * r.randrange(2)


@pytest.fixture(autouse=True, params=[True, False], ids=["numpy", "base"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test twice: as with the extra `data`, and as in a base install."""
    monkeypatch.setattr(headers, "has_numpy", lambda: bool(request.param))


@pytest.mark.parametrize("seed", range(share(400)))
def test_as_the_records_say(seed: int) -> None:
    r = random.Random(seed)
    batches, left, present, end = random_log(r)
    pids = r.sample(sorted(HOMES.values()), r.randrange(3))
    asked = r.choice([(), None, r.sample(IDS, 2)])
    log = state_log(4, in_memory(responses(r, batches)), end, pids, asked)

    naming = {p.name for p in left if p.pid in pids or (p.previous in pids)}
    names = set(IDS) if asked is None else set(asked) | naming
    wanted = [p for p in left if p.name in names]
    assert [r.offset for r in log.records] == [p.offset for p in wanted]
    for record, put in zip(log.records, wanted, strict=True):
        assert (record.transactional_id, record.partition) == (put.name, 4)
        assert record.timestamp == T + put.offset
        if put.pid is None:
            assert record.value is None
        else:
            assert isinstance(record.value, TransactionValue)
            found = (record.value.producer_id, record.value.producer_epoch)
            assert found == (put.pid, put.epoch)

    # never too early: from there on, every offset is there
    assert all(present[log.whole_from : end])
    gaps = [offset for offset in range(end) if not present[offset]]
    if not gaps:
        assert log.whole_from == 0
    else:
        # nor later than the first batch behind the last gap
        ends = [struct.unpack_from(">q", b)[0] for b in batches] + [end]
        assert log.whole_from == min(e for e in ends if e > gaps[-1])


def log_of(*records: tuple[bytes | None, bytes | None]) -> bytes:
    return batch(0, [Item(i, T, k, v) for i, (k, v) in enumerate(records)])


def test_an_id_within_another_is_not_it() -> None:
    data = log_of(
        (key("orders-10"), value(1, 0, 1)),
        (key("orders-1"), value(2, 0, 1)),
        (key("rders-1"), None),
    )
    log = state_log(0, in_memory([data]), 3, (), ["orders-1"])
    assert [r.offset for r in log.records] == [1]


def test_all_records_of_every_id_that_ever_bore_the_producer_id() -> None:
    """Tombstones and earlier producer ids too, before and after."""
    data = log_of(
        (key("a"), value(5, 0, 0)),
        (key("a"), value(7, 0, 0)),
        (key("b"), value(6, 0, 0)),
        (key("a"), value(8, 0, 0)),
        (key("a"), None),
    )
    log = state_log(0, in_memory([data]), 5, [7])
    assert [r.offset for r in log.records] == [0, 1, 3, 4]


@pytest.mark.parametrize(
    "tags",
    [
        {0: 7, 2: 2},
        {0: 7},
        {0: 5, 1: 7, 2: 2},
        {0: 5, 1: 7},
        {0: 5, 1: 7, 2: 2, 3: 0},
        {0: 7, 2: 2, 3: 0},
    ],
)
def test_a_producer_id_that_stands_in_a_tag_alone_is_found(tags: dict[int, int]) -> None:
    """Tag 0, the id's earlier producer id; tag 1, its next one; 2 and 3 are of two bytes."""
    made = b"".join(
        struct.pack(">bb", number, 8 if number < 2 else 2)
        + struct.pack(">q" if number < 2 else ">h", tag)
        for number, tag in tags.items()
    )
    data = value(5, 0, 1)[:-1] + bytes([len(tags)]) + made
    for many in (1, 2):  # alone in its batch, or with another record
        items = [Item(i, T, key("a"), data) for i in range(many)]
        padding = batch(many, [Item(0, T, key("b"), value(6, 0, 1))] * 1)
        log = state_log(0, in_memory([batch(0, items) + padding]), many + 1, [7])
        assert [r.offset for r in log.records] == list(range(many))


def test_a_value_of_a_later_version_is_said() -> None:
    later = struct.pack(">hq", 2, 7) + b"whatever comes"
    log = state_log(0, in_memory([log_of((key("a"), later), (key("b"), value(6, 0, 0)))]), 2, [7])
    [record] = log.records
    assert (record.transactional_id, record.value) == ("a", UnknownVersion(2))


@pytest.mark.parametrize("unknown", [key("a", 1), None])
def test_a_key_that_cannot_be_read_is_no_hole_in_a_history(unknown: bytes | None) -> None:
    with pytest.raises(CorruptError, match="__transaction_state-4 offset 0"):
        state_log(4, in_memory([log_of((unknown, value(7, 0, 1)))]), 1, [7])


@pytest.mark.parametrize("name", ["", "\udc80", "\0"])
def test_an_id_that_no_coordinator_has(name: str) -> None:
    log = state_log(0, in_memory([log_of((key("a"), value(7, 0, 1))), b""]), 1, (), [name])
    assert log.records == ()


def test_an_empty_partition() -> None:
    for buffers in ([], [b""]):
        log = state_log(0, in_memory(buffers), 0, [7])
        assert (log.records, log.whole_from) == ((), 0)
        assert state_log(0, in_memory(buffers), 9, [7]).whole_from == 9


def test_lone_records_are_found_as_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million batches of one record are not decoded: what stands where is the same."""
    monkeypatch.setattr(headers, "has_numpy", lambda: True)
    r = random.Random(1)
    batches: list[bytes] = []
    expected: dict[int, tuple[str, int]] = {}
    for offset in range(3000):
        name = "n" * r.choice([1, 5, 59, 60, 61, 300]) + str(offset)
        pid = r.choice([0, 1, 2**40, 2**63 - 1])
        kind = r.choice(["plain"] * 5 + ["tombstone", "later", "no key", "gzip", "two", "short"])
        data: bytes | None = value(pid, 3, r.choice([0, 1]))
        if kind == "tombstone":
            data = None
        elif kind == "later":
            data = value(pid, 3, 2)
        elif kind == "short":
            data = b"\0\1\0"
        items = [Item(0, T + r.randrange(2**40), None if kind == "no key" else key(name), data)]
        if kind == "two":
            items.append(Item(1, T, key("x"), None))
        made = batch(2 * offset, items, codec=int(kind == "gzip"), last_offset=2 * offset + 1)
        batches.append(made)
        left_plain = kind == "gzip" and made[22] & 7 == 0  # too short to gain by it
        if kind in ("plain", "tombstone") or left_plain:
            expected[offset] = name, -1 if data is None else pid
    data = b"".join(batches)
    part = part_of(data + batches[0][:-1])  # a cut batch follows
    lone = part.lone
    found = {
        row: (data[start : start + length].decode(), pid)
        for row, start, length, pid in zip(
            *(c.tolist() for c in (lone.rows, lone.id_start, lone.id_length, lone.producer_id)),
            strict=True,
        )
    }
    assert found == expected
    assert len(batches[0]) > 65
    assert set(part.others) == set(range(3000)) - set(expected)


@pytest.mark.parametrize("seed", range(share(60, 30)))
def test_damaged_records_never_leave_the_buffer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any byte may be wrong where no CRC was looked at: no index error, no made-up answer."""
    monkeypatch.setattr(headers, "has_numpy", lambda: True)
    r = random.Random(seed)
    names = [f"id-{n}" for n in range(40)]
    data = bytearray(
        b"".join(batch(n, [Item(0, T, key(i), value(7, 0, 1))]) for n, i in enumerate(names))
    )
    scan = part_of(bytes(data)).scan
    for _ in range(30):
        row = r.randrange(40)
        data[int(scan.positions[row]) + 61 + r.randrange(12)] = r.randrange(256)
    part = part_of(bytes(data))
    lone = part.lone
    for start, length in zip(lone.id_start.tolist(), lone.id_length.tolist(), strict=True):
        assert 0 <= start < start + length <= len(data)


@pytest.mark.parametrize("many", [3, 400])
def test_of_many_ids_and_producer_ids_each_is_found(many: int) -> None:
    """Whether few or many are looked for, by search or by place: the answer is the same."""
    names = [f"id-{n}-{'x' * (n % 9)}" for n in range(500)]
    data = b"".join(
        batch(n, [Item(0, T, key(name), value(1 << 40 | n, 0, 1))]) for n, name in enumerate(names)
    )
    wanted = list(range(0, 2 * many, 2))[: min(many, 250)]
    log = state_log(0, in_memory([data]), 500, [1 << 40 | n for n in wanted])
    assert [r.offset for r in log.records] == wanted
    log = state_log(0, in_memory([data]), 500, (), [names[n] for n in wanted])
    assert [r.offset for r in log.records] == wanted
