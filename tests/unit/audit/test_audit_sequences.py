"""Sequences of producers: faults planted in generated logs are found, and nothing else."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.audit.sequences import EPOCH_BACK, GAP, REPEAT, SequenceAudit
from recovery.formats.batches import scan_headers
from tests.share import share
from tests.unit.formats_build import COMMIT, Item, batch, marker

WRAP = 2**31


@dataclass
class Planted:
    """A log being written. found: (kind, producer id, offset, records) that an audit must name."""

    rng: random.Random
    log: list[bytes] = field(default_factory=list)
    end: int = 0
    found: list[tuple[str, int, int, int]] = field(default_factory=list)
    explained: int = 0
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)
    holes: dict[int, int] = field(default_factory=dict)  # since the producer's last batch ...
    own: dict[int, int] = field(default_factory=dict)  # ... of them the producer's own

    def write(self, pid: int, epoch: int, sequence: int, count: int) -> None:
        items = [Item(i) for i in range(count)]
        self.log.append(batch(self.end, items, producer=(pid, epoch, sequence)))
        self.end += count

    def step(self) -> None:
        pid = self.rng.randrange(4)
        count = self.rng.randrange(1, 4)
        known = pid in self.sequences
        epoch, sequence = self.sequences.get(pid, (0, self.rng.choice((0, WRAP - 2))))
        newer = known and self.rng.random() < 0.2
        if newer:
            epoch, sequence = epoch + self.rng.randrange(1, 3), 0
        fault = self.rng.random() if known else 1.0
        if fault < 0.08:  # records that never came
            lost = self.rng.randrange(1, 4)
            sequence = (sequence + lost) % WRAP
            missing = lost if newer else lost + self.own.get(pid, 0)
            if missing > self.holes.get(pid, 0):
                self.found.append((GAP, pid, self.end, missing))
            else:
                self.explained += 1
        elif (
            fault < 0.16 and not newer and sequence >= count and not self.own.get(pid)
        ):  # the batch before once more
            self.found.append((REPEAT, pid, self.end, count))
            sequence -= count
        elif fault < 0.24 and self.sequences[pid][0] > 0:  # an old incarnation writes
            self.found.append((EPOCH_BACK, pid, self.end, count))
            self.write(pid, self.sequences[pid][0] - 1, self.rng.randrange(9), count)
            return
        elif fault < 0.35 and not newer:  # a whole batch, compacted away
            self.own[pid] = self.own.get(pid, 0) + count
            self.end += count
            self.holes = {p: self.holes.get(p, 0) + count for p in self.sequences}
            self.sequences[pid] = epoch, (sequence + count) % WRAP
            return
        elif fault < 0.45:
            self.log.append(marker(self.end, pid, COMMIT))
            self.end += 1
        if fault >= 0.08 and not newer and self.own.get(pid):
            self.explained += 1
        self.holes[pid] = self.own[pid] = 0
        self.write(pid, epoch, sequence, count)
        self.sequences[pid] = epoch, (sequence + count) % WRAP


def audit(log: list[bytes], start: int, end: int, *, whole: bool, chunk: int) -> SequenceAudit:
    found = SequenceAudit(start, from_beginning=whole)
    for i in range(0, len(log), chunk):
        found.add(scan_headers(b"".join(log[i : i + chunk])), end)
    return found


@settings(deadline=None, max_examples=share(100))
@given(st.integers(0, 2**32), st.integers(1, 7))
def test_planted_faults_are_found_and_nothing_else(seed: int, chunk: int) -> None:
    planted = Planted(random.Random(seed))
    for _ in range(60):
        planted.step()
    found = audit(planted.log, 0, planted.end, whole=False, chunk=chunk)
    assert [(f.kind, f.producer_id, f.offset, f.records) for f in found.findings] == planted.found
    assert found.examined.gaps == sum(kind == GAP for kind, *_ in planted.found)
    assert found.examined.repeats == sum(kind == REPEAT for kind, *_ in planted.found)
    assert found.examined.epochs_back == sum(kind == EPOCH_BACK for kind, *_ in planted.found)
    assert found.examined.explained == planted.explained


@pytest.mark.parametrize(("whole", "gaps"), [(True, 1), (False, 0)])
def test_a_first_sequence_above_0_is_a_gap_only_where_nothing_was_deleted(
    whole: bool, gaps: int
) -> None:
    log = [batch(0, [Item(0), Item(1)], producer=(7, 0, 5))]
    found = audit(log, 0, 2, whole=whole, chunk=1)
    assert found.examined.gaps == gaps
    if whole:
        (finding,) = found.findings
        assert (finding.after_offset, finding.expected, finding.found) == (None, 0, 5)
        assert finding.records == 5


def test_sequences_wrap_at_2_to_the_31() -> None:
    log = [
        batch(0, [Item(i) for i in range(3)], producer=(7, 0, WRAP - 2)),  # ..., 2^31 - 1, 0
        batch(3, [Item(0)], producer=(7, 0, 1)),
    ]
    assert audit(log, 0, 4, whole=False, chunk=1).findings == []
    log[1] = batch(3, [Item(0)], producer=(7, 0, 2))
    (finding,) = audit(log, 0, 4, whole=False, chunk=1).findings
    assert (finding.kind, finding.expected, finding.found, finding.records) == (GAP, 1, 2, 1)


def test_a_thinned_batch_keeps_its_sequences() -> None:
    """Compaction removes records from a batch; base sequence and last offset delta stay."""
    log = [
        batch(0, [Item(1)], producer=(7, 0, 0), last_offset=4),
        batch(5, [Item(0)], producer=(7, 0, 5)),
    ]
    found = audit(log, 0, 6, whole=True, chunk=2)
    assert (found.findings, found.examined.explained, found.examined.records) == ([], 0, 2)


def test_findings_are_bounded_and_all_are_counted() -> None:
    log = [batch(i, [Item(0)], producer=(7, 0, 2 * i)) for i in range(9)]
    found = SequenceAudit(0, from_beginning=True, most=3)
    found.add(scan_headers(b"".join(log)), 9)
    assert (len(found.findings), found.examined.gaps) == (3, 8)
