"""A position in a log, and whether a leader's log still is the one that it was taken from.

An offset alone does not show that: after an unclean leader election a log can be cut off and filled
again, with other records at the same offsets. A leader epoch has one leader, so offset and leader
epoch identify a record (KIP-101, KIP-320) and with it everything before.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Literal

from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.values import Value

NO_EPOCH = "no leader epoch is kept beside it (eoctl before 0.3.0, or a broker without epochs)"


class LogPosition(Value):
    """A place in a partition before whose `offset` everything was read."""

    offset: int
    leader_epoch: int | None = None
    """Of the record right before `offset`, which may be a control record; None: not known."""
    of: Literal["record", "commit", "leader"] = "record"
    """Whose epoch that is, where others kept it. commit: a consumer's, which at the log's end may
    be that of a leader that had written nothing. leader: of the leader then (eoctl 0.2.0)."""


class LogAnswer(Value):
    """One leader's answers about a position.

    epoch, end: the latest leader epoch in its log, at most the position's, and the offset at which
    that epoch ends (OffsetForLeaderEpoch); None: there is none. first_epoch: that of the log's
    first offset (ListOffsets earliest); None: its epochs begin later, as on a rebuilt replica after
    compaction.
    """

    epoch: int | None
    end: int | None
    log_start: int
    first_epoch: int | None


class Standing(Value):
    """Whether the record before a position is in the leader's log.

    held: True = proven; False = the logs differ from `diverged_at` on, or from an offset below it
    if `at_latest` is set; None = not proven, for the reason in `because`.
    """

    held: bool | None
    because: str
    diverged_at: int | None = None
    at_latest: bool = False

    @property
    def divergence(self) -> str:
        """Return where the logs diverge, for a sentence."""
        return f"offset {self.diverged_at}{' or before it' if self.at_latest else ''}"


def judged(position: LogPosition, answer: LogAnswer) -> Standing | None:
    """Return what a leader's answers prove of a position; None: its record must be read.

    The log is proven if the position's own epoch ends above the position: one leader wrote that
    epoch. An end below the position, of whatever epoch, is the divergence, also on a compacted log.
    An earlier epoch that ends later proves nothing: the record was cut off, or compacted away
    before this replica was created.
    """
    offset, epoch = position.offset, position.leader_epoch
    if (known := _without_asking(position)) is not None:
        return known
    has_epoch = answer.first_epoch is not None and epoch is not None and answer.first_epoch <= epoch
    if answer.end is not None and answer.end < offset:
        because = f"leader epoch {answer.epoch} ends at {answer.end}"
        return Standing(False, because, answer.end, answer.epoch != epoch or not has_epoch)
    has_record = answer.log_start < offset or (answer.end is not None and answer.end > offset)
    if answer.epoch == epoch and has_epoch and has_record:
        return Standing(True, f"the leader's log has leader epoch {epoch} up to {answer.end}")
    if (start := answer.log_start) >= offset:
        return Standing(None, f"the record before it is deleted: the log starts at {start}")
    return None


def _without_asking(position: LogPosition) -> Standing | None:
    if position.offset <= 0:
        return Standing(True, "no record is before it")
    return Standing(None, NO_EPOCH) if position.leader_epoch is None else None


def needs_asking(position: LogPosition) -> bool:
    """Return False if no leader can help: no record is before the position, or it has no epoch."""
    return _without_asking(position) is None


def beside_record(position: LogPosition, answer: LogAnswer, found: int | None) -> Standing:
    """Return what the record before a position proves. found: the leader epoch at that offset in
    the leader's log; None: compaction left no batch that covers it."""
    if found == position.leader_epoch:
        return Standing(True, f"the record before it has leader epoch {found}")
    if found is None:
        because = "the record before it is compacted away, and with it the leader epoch"
        return Standing(None, because)
    last, epoch = position.offset - 1, position.leader_epoch or 0
    began_there = position.of == "commit" and answer.end == position.offset
    if found < epoch and (position.of == "leader" or began_there):
        because = f"no record of leader epoch {epoch} is in the log: that leader may have written"
        return Standing(None, f"{because} none")
    because = f"the record at {last} has leader epoch {found}, not {epoch}"
    return Standing(False, because, min(last, answer.end or last), at_latest=True)


def refuse_diverged(
    partition: TopicPartition, position: LogPosition, standing: Standing, remedy: str
) -> None:
    """Raise RefusedError, with the offset of the divergence, if the position is in another log."""
    if standing.held is False:
        raise RefusedError(
            f"its log was cut off at {standing.divergence} and written again (unclean leader "
            f"election): position {position.offset} is of the log before that; {standing.because}",
            where=str(partition),
            remedy=remedy,
        )


def not_proven(
    positions: Iterable[tuple[TopicPartition, LogPosition, Standing]],
) -> list[str]:
    """Return a sentence for each position whose log is not proven to be this one."""
    return [
        f"position {position.offset} of {partition} is not proven to be of this log: "
        f"{standing.because}"
        for partition, position, standing in positions
        if standing.held is None
    ]


class EpochSteps:
    """The leader epochs of a log's records, as they were read: they only rise.

    steps: (offset of the first record read with that epoch, leader epoch), rising.
    """

    def __init__(self, steps: Iterable[tuple[int, int]] = ()) -> None:
        self.steps = [(offset, epoch) for offset, epoch in steps]

    def add(self, offset: int, epoch: int | None) -> None:
        """Add the next record; an unknown leader epoch counts as -1."""
        known = -1 if epoch is None else epoch
        if not self.steps or self.steps[-1][1] != known:
            self.steps.append((offset, known))

    def of(self, offset: int) -> int | None:
        """Return the leader epoch of a record that was read; None: unknown."""
        at = bisect_right(self.steps, offset, key=lambda step: step[0])
        return self.steps[at - 1][1] if at and self.steps[at - 1][1] >= 0 else None


class RecordEpochs:
    """The leader epochs of the offsets read last, in runs without a gap."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, int, int]] = []  # first offset, end, leader epoch

    def add(self, batches: Iterable[tuple[int, int, int]]) -> None:
        """Add a response's batches in order: first offset, last offset, leader epoch."""
        del self._runs[:-1]
        for first, last, epoch in batches:
            before = self._runs[-1] if self._runs else None
            if before is not None and before[1:] == (first, epoch):
                self._runs[-1] = (before[0], last + 1, epoch)
            else:
                self._runs.append((first, last + 1, epoch))

    def before(self, offset: int) -> int | None:
        """Return the leader epoch at `offset` - 1; None if that was not read or is in a gap."""
        for first, end, epoch in reversed(self._runs):
            if first < offset <= end:
                return None if epoch < 0 else epoch
        return None
