"""Which records are a transaction's own and which wait, held against a decision record by record.

The oracle knows nothing of batches, and reads the complete log.
"""

import random
from dataclasses import dataclass

import pytest

from recovery.diagnose.held_records import Batch, HeldRecords
from recovery.formats.records import records
from tests.share import share
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker

ME, OTHERS = 41, (42, 43)


@dataclass
class Truth:
    """pid None: not transactional. end: this offset ends the transaction of pid."""

    offset: int
    pid: int | None = None
    end: str | None = None


def fates(truth: list[Truth]) -> dict[int, str]:
    """Offset → own, waits, abort or open, for each data record from the first one of ME on."""
    over = next((t.offset for t in truth if t.pid == ME and t.end), None)
    found = {}
    for t in truth:
        if t.end is not None:
            continue
        if t.pid == ME and (over is None or t.offset < over):
            found[t.offset] = "own"
        elif t.pid is None:
            found[t.offset] = "waits"
        else:
            ends = (e.end for e in truth if e.end and e.pid == t.pid and e.offset > t.offset)
            fate = next(ends, "open")
            found[t.offset] = "waits" if fate == "commit" else fate or ""
    return found


def random_log(r: random.Random) -> tuple[list[bytes], list[Truth]]:
    """A log that begins with a batch of ME, at offset 100."""
    offset, batches, truth = 100, [], []
    for number in range(r.randrange(1, 25)):
        pid = ME if number == 0 else r.choice([None, None, ME, *OTHERS])
        if number and pid is not None and r.random() < (0.05 if pid == ME else 0.4):
            kind = r.choice(["abort", "commit"])
            batches.append(marker(offset, pid, ABORT if kind == "abort" else COMMIT))
            truth.append(Truth(offset, pid, kind))
            offset += 1
            continue
        n = r.randrange(1, 5)
        producer = (-1, -1, -1) if pid is None else (pid, 0, 0)
        items = [Item(i, value=str(offset + i).encode()) for i in range(n)]
        batches.append(batch(offset, items, producer=producer, transactional=pid is not None))
        truth += [Truth(offset + i, pid) for i in range(n)]
        offset += n
    return batches, truth


def offsets(batches: list[Batch]) -> list[int]:
    return [r.offset for b in batches for r in records(b.buffer, b.header)]


@pytest.mark.parametrize("seed", range(share(300)))
def test_against_a_decision_record_by_record(seed: int) -> None:
    r = random.Random(seed)
    batches, truth = random_log(r)
    end = truth[-1].offset + 1
    want = fates(truth)
    complete = HeldRecords(ME, 100, end, 1000)
    for one in batches:
        complete.add(one)
    own = [o for o, fate in want.items() if fate == "own"]
    waits = [o for o, fate in want.items() if fate == "waits"]
    over = next((t.offset for t in truth if t.pid == ME and t.end), None)
    assert offsets(complete.own) == own
    assert (complete.ended.offset if complete.ended else None) == over
    assert offsets(complete.waiting) == ([] if over is not None else waits)
    for fate in ("abort", "open"):
        number = sum(f == fate for f in want.values())
        assert complete.of_others("aborted" if fate == "abort" else fate) == number
    # as soon as it is enough, the first ones are known
    most = r.randrange(1, 6)
    brief = HeldRecords(ME, 100, end, most)
    for one in batches:
        if brief.enough:
            break
        brief.add(one)
    assert offsets(brief.own)[:most] == own[:most]
    if brief.ended is None:
        assert offsets(brief.waiting)[:most] == waits[:most]


def test_reading_ends_early() -> None:
    found = HeldRecords(ME, 100, 1000, 2)
    found.add(batch(100, [Item(0), Item(1)], producer=(ME, 0, 0), transactional=True))
    assert not found.enough, "what waits is not known"
    found.add(batch(102, [Item(0)], producer=(42, 0, 0), transactional=True))
    found.add(batch(103, [Item(0), Item(1)]))
    assert not found.enough, "whether the record at 102 waits is not known"
    found.add(marker(105, 42, ABORT))
    assert found.enough
    assert offsets(found.waiting) == [103, 104]


def test_what_was_deleted_and_what_is_above_the_end_is_left_out() -> None:
    """The log begins within a batch, which the broker sends completely."""
    found = HeldRecords(ME, 102, 105, 5)
    own = [Item(n) for n in range(4)]
    found.add(batch(98, [Item(0)], producer=(ME, 0, 0), transactional=True))
    found.add(batch(100, own, producer=(ME, 0, 0), transactional=True))
    found.add(batch(104, [Item(0)]) + batch(105, [Item(0)]))
    assert found.records(found.own) == 2
    assert found.records(found.waiting) == 1
    assert (found.first_read, found.next_offset) == (100, 105)


def test_its_own_plain_batches_wait() -> None:
    """An idempotent producer without a transaction may have the same producer id."""
    found = HeldRecords(ME, 100, 1000, 5)
    found.add(batch(100, [Item(0)], producer=(ME, 0, 0), transactional=True))
    found.add(batch(101, [Item(0)], producer=(ME, 0, 1)))
    assert (offsets(found.own), offsets(found.waiting)) == ([100], [101])
