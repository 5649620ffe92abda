"""Find gaps, repeats and decreasing epochs in the sequences of idempotent producers.

Each (producer id, epoch) numbers its records in a partition 0, 1, 2, ... With H(P) as the last
sequence of producer P in the log, the next batch of P must begin with H(P) + 1: a lower one is a
repeat, a higher one a gap (Kirwin's rule for merging, KIP-98 for the numbers). Batch headers hold
all of this. Compaction removes complete batches, so a gap is a finding only if the offsets that
are missing between its two batches are too few to explain it.
"""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from recovery.formats.batches import CONTROL, MAX_SEQUENCE, HeaderScan
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SequenceFault = Literal["gap", "repeat", "epoch-back"]
GAP: SequenceFault = "gap"
REPEAT: SequenceFault = "repeat"
EPOCH_BACK: SequenceFault = "epoch-back"
_HALF = 1 << 30  # up to this far back is a repeat, else a gap: sequences wrap at 2^31


class Finding(NamedTuple):
    """A batch that does not continue its producer's sequence.

    offset: of the batch. expected, found: its first sequence, as it should be and as it is; for
    epoch-back, the epochs. records: how many are missing (gap) or duplicate (repeat).
    after_offset: the last offset of the producer's previous batch; None = there is none.
    """

    kind: SequenceFault
    producer_id: int
    producer_epoch: int
    offset: int
    after_offset: int | None
    expected: int
    found: int
    records: int


class Examined(Value):
    """The part of a partition that was read.

    gaps, repeats, epochs_back: the number of all findings of each kind. explained: gaps with enough
    missing offsets between their batches. unnumbered: records without a sequence.
    """

    batches: int = 0
    records: int = 0
    unnumbered: int = 0
    producers: int = 0
    gaps: int = 0
    repeats: int = 0
    epochs_back: int = 0
    explained: int = 0


_STATE = ("pid", "epoch", "sequence", "offset", "missing")


class SequenceAudit:
    """The sequences of one partition, from headers that are added in offset order.

    start: where the range begins. from_beginning: nothing was ever deleted below the range, so a
    producer's first sequence must be 0. most: findings that are kept; all are counted.
    """

    def __init__(self, start: int, *, from_beginning: bool, most: int = 1000) -> None:
        import numpy as np

        self._findings: list[Finding] = []
        self.examined = Examined()
        self._from_beginning = from_beginning
        self._most = most
        self._next = start
        self._missing = 0  # offsets so far that are in no batch
        # the last batch of each producer id, in ascending order of id
        self._last = {name: np.zeros(0, np.int64) for name in _STATE}

    @property
    def findings(self) -> list[Finding]:
        """Return the findings by offset, at most `most`."""
        return sorted(self._findings, key=lambda finding: finding.offset)

    @property
    def next_offset(self) -> int:
        return self._next

    def add(self, scan: HeaderScan, end: int) -> None:
        """Add the next complete batches; those below `next_offset` or from `end` on are left out.

        A batch that begins below `next_offset` only because the range does is counted completely.
        """
        import numpy as np

        base, last = scan.column("base_offset"), scan.last_offset
        rows = np.flatnonzero((last >= self._next) & (base < end))
        if not len(rows):
            return
        base, last = base[rows], last[rows]
        holes = np.maximum(base - np.concatenate(([self._next], last[:-1] + 1)), 0)
        missing = self._missing + np.cumsum(holes)
        self._missing, self._next = int(missing[-1]), int(last[-1]) + 1
        sequence = scan.column("base_sequence")[rows]
        data = ~scan.has(CONTROL)[rows]
        numbered = data & (sequence >= 0)
        span = last - base + 1
        records = scan.column("records_count")[rows]
        self.examined = self._plus(
            batches=int(data.sum()),
            records=int(records[data].sum()),
            unnumbered=int(records[data & ~numbered].sum()),
        )
        if numbered.any():
            now = {
                "pid": scan.column("producer_id")[rows],
                "epoch": scan.column("producer_epoch")[rows],
                "first": sequence,
                "sequence": (sequence + span - 1) & MAX_SEQUENCE,
                "base": base,
                "offset": last,
                "missing": missing,
                "span": span,
            }
            self._follow({name: column[numbered] for name, column in now.items()})

    def _follow(self, now: dict[str, "NDArray[np.int64]"]) -> None:
        """Compare every batch with the previous one of its producer id."""
        import numpy as np

        order = np.argsort(now["pid"], kind="stable")  # each id's batches by offset
        now = {name: column[order] for name, column in now.items()}
        now = self._without_back(now)
        if not len(now["pid"]):
            return
        pid = now["pid"]
        before = {name: np.roll(now[name], 1) for name in _STATE}
        known = np.concatenate(([False], pid[1:] == pid[:-1]))
        heads = np.flatnonzero(~known)
        at, known[heads] = self._carried(pid[heads])
        for name in _STATE:
            before[name][heads[known[heads]]] = self._last[name][at[known[heads]]]
        self._judge(now, before, known)
        tails = np.append(heads[1:] - 1, len(pid) - 1)
        kept = ~np.isin(self._last["pid"], pid[tails])
        merged = {
            name: np.concatenate((self._last[name][kept], now[name][tails])) for name in _STATE
        }
        by_id = np.argsort(merged["pid"])
        self._last = {name: column[by_id] for name, column in merged.items()}
        self.examined = self._plus(producers=len(self._last["pid"]) - self.examined.producers)

    def _carried(self, pid: "NDArray[np.int64]") -> tuple["NDArray[np.intp]", "NDArray[np.bool_]"]:
        """Return the state's rows for these producer ids, and which of the ids have a row."""
        import numpy as np

        at = np.searchsorted(self._last["pid"], pid)
        known = at < len(self._last["pid"])
        known[known] = self._last["pid"][at[known]] == pid[known]
        return at, known

    def _without_back(self, now: dict[str, "NDArray[np.int64]"]) -> dict[str, "NDArray[np.int64]"]:
        """Remove batches with an epoch below an earlier one of their id, and record findings."""
        import numpy as np

        pid, epoch = now["pid"], now["epoch"]
        head = np.concatenate(([True], pid[1:] != pid[:-1]))
        heads = np.flatnonzero(head)
        at, known = self._carried(pid[heads])
        start = np.full(len(heads), -1, np.int64)
        start[known] = self._last["epoch"][at[known]]
        group = np.cumsum(head) - 1
        wide = group << 17  # epochs have 15 bits: one running maximum serves all ids
        highest = np.maximum.accumulate(wide + np.maximum(epoch, start[group])) - wide
        back = np.flatnonzero(epoch < highest)
        if not len(back):
            return now
        self.examined = self._plus(epochs_back=len(back))
        for i in back[np.argsort(now["base"][back])].tolist():
            self._add_finding(
                EPOCH_BACK, now, i, None, int(highest[i]), int(epoch[i]), int(now["span"][i])
            )
        return {name: np.delete(column, back) for name, column in now.items()}

    def _judge(
        self,
        now: dict[str, "NDArray[np.int64]"],
        before: dict[str, "NDArray[np.int64]"],
        known: "NDArray[np.bool_]",
    ) -> None:
        import numpy as np

        same = known & (now["epoch"] == before["epoch"])
        expected = np.where(same, (before["sequence"] + 1) & MAX_SEQUENCE, 0)
        ahead = (now["first"] - expected) & MAX_SEQUENCE
        repeat = same & (ahead >= _HALF)
        gap = (known | self._from_beginning) & (ahead > 0) & ~repeat
        explained = gap & (ahead <= now["missing"] - np.where(known, before["missing"], 0))
        gap &= ~explained
        again = np.minimum((expected - now["first"]) & MAX_SEQUENCE, now["span"])
        self.examined = self._plus(
            gaps=int(gap.sum()), repeats=int(repeat.sum()), explained=int(explained.sum())
        )
        rows = np.flatnonzero(gap | repeat)
        for i in rows[np.argsort(now["base"][rows])].tolist():
            kind, count = (GAP, ahead) if gap[i] else (REPEAT, again)
            after = int(before["offset"][i]) if known[i] else None
            self._add_finding(
                kind, now, i, after, int(expected[i]), int(now["first"][i]), int(count[i])
            )

    def _add_finding(
        self,
        kind: SequenceFault,
        now: dict[str, "NDArray[np.int64]"],
        i: int,
        after: int | None,
        expected: int,
        actual: int,
        count: int,
    ) -> None:
        if len(self._findings) < self._most:
            pid, epoch, offset = (int(now[name][i]) for name in ("pid", "epoch", "base"))
            self._findings.append(Finding(kind, pid, epoch, offset, after, expected, actual, count))

    def _plus(self, **more: Any) -> Examined:
        names = Examined.__struct_fields__
        return Examined(*(getattr(self.examined, name) + more.get(name, 0) for name in names))
