"""A partition that knows the truth of every offset, written, aborted and compacted at random."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import strategies as st

from recovery.formats.counting import Aborted, Counts
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker


@dataclass
class Transaction:
    """first: offset of its first record; end: its marker's; None while open."""

    producer_id: int
    first: int
    end: int | None = None
    aborted: bool = False
    left: int = 0  # records not compacted away


@dataclass
class Written:
    """A batch before compaction; `kept`: the offsets that still have a record."""

    base: int
    last: int
    kept: list[int]
    codec: int = 0
    epoch: int = 0
    producer_id: int = -1
    transaction: Transaction | None = None
    marker: bytes | None = None
    removed: bool = False

    def encode(self) -> bytes:
        if self.marker is not None and self.kept:
            return marker(self.base, self.producer_id, self.marker, epoch=self.epoch)
        producer = (self.producer_id, self.epoch, 0) if self.producer_id >= 0 else (-1, -1, -1)
        return batch(
            self.base,
            [Item(offset - self.base, value=b"some value") for offset in self.kept],
            codec=self.codec,
            producer=producer,
            transactional=self.transaction is not None,
            attributes=0x20 if self.marker is not None else 0,
            last_offset=self.last,
        )


@dataclass
class Partition:
    """A log as a leader has it, with what a broker derives from it."""

    batches: list[Written] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    end: int = 0

    @property
    def last_stable_offset(self) -> int:
        open_ = [t.first for t in self.transactions if t.end is None]
        return min(open_, default=self.end)

    def truth(self, start: int, end: int) -> Counts:
        """Offset by offset; nothing here knows of batches' headers or of aborted lists."""
        what = dict.fromkeys(range(start, end), "missing")
        for one in self.batches:
            for offset in one.kept:
                if one.removed or offset not in what:
                    continue
                if one.marker is not None:
                    what[offset] = "control"
                elif offset >= self.last_stable_offset:
                    what[offset] = "open"
                elif one.transaction is not None and one.transaction.aborted:
                    what[offset] = "aborted"
                else:
                    what[offset] = "data"
        return Counts(**Counter(what.values()))

    def fetch(self, offset: int, isolation: int, most: int) -> tuple[bytes, list[Aborted] | None]:
        """As a broker answers: from the batch that holds `offset`, at least one batch whole, then
        cut at `most` bytes, and the aborted transactions that overlap what is returned."""
        limit = self.last_stable_offset if isolation else self.end
        out, upper = b"", offset
        for one in self.batches:
            if one.removed or one.last < offset or one.base >= limit:
                continue
            if out and len(out) >= most:
                break
            out, upper = out + one.encode(), one.last + 1
            if len(out) == len(one.encode()):
                most = max(most, len(out))
        aborted = [
            (t.producer_id, t.first)
            for t in self.transactions
            if t.aborted and t.end is not None and t.end >= offset and t.first < upper
        ]
        return out[:most], aborted[::-1] if isolation else None


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    log = Partition(end=draw(st.integers(0, 1000)))
    current: dict[int, Transaction] = {}
    epochs = Counter[int]()
    for _ in range(draw(st.integers(0, 3) | st.integers(8, 25))):
        pid = draw(st.sampled_from([-1, 7, 8, 9]))
        base = log.end
        if pid in current and draw(st.booleans()):
            transaction = current.pop(pid)
            transaction.end, transaction.aborted = base, draw(st.booleans())
            epochs[pid] += draw(st.integers(0, 1))  # transactions version 2 bumps, 1 does not
            kind = ABORT if transaction.aborted else COMMIT
            log.batches.append(Written(base, base, [base], 0, epochs[pid], pid, transaction, kind))
        else:
            last = base + draw(st.integers(0, 6))
            transaction_of = None
            if pid >= 0 and (pid in current or draw(st.booleans())):
                transaction_of = current.get(pid) or Transaction(pid, base)
                if pid not in current:
                    current[pid] = transaction_of
                    log.transactions.append(transaction_of)
            codec = draw(st.sampled_from([0, 1, 4]))
            log.batches.append(
                Written(
                    base, last, list(range(base, last + 1)), codec, epochs[pid], pid, transaction_of
                )
            )
        log.end = log.batches[-1].last + 1
    compact(draw, log)
    return log


def compact(draw: st.DrawFn, log: Partition) -> None:
    """Removes records below the LSO as the cleaner does: single records, all of a batch (which may
    stay, empty), and markers of transactions that have no record left, with their index entry."""
    stable = log.last_stable_offset
    for one in log.batches:
        if one.last < stable and one.marker is None and draw(st.booleans()):
            one.kept = [offset for offset in one.kept if draw(st.booleans())]
            one.removed = not one.kept and draw(st.booleans())
    for one in log.batches:
        if one.transaction is not None and one.marker is None:
            one.transaction.left += len(one.kept)
    for one in log.batches:
        forgotten = one.marker is not None and one.transaction and not one.transaction.left
        if forgotten and one.transaction and draw(st.booleans()):
            one.kept, one.transaction.aborted = [], False
            one.removed = draw(st.booleans())
    if log.batches:  # the cleaner never touches the active segment
        log.batches[-1].removed = False
