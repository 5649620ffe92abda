"""The facts of a restart, frozen: logs, store, group and counted ranges.

Not all facts can be collected at once: which range to count depends on what the store holds. A
lookup that has no answer yet raises `Unobserved` with the question;
`recovery.restart.decide.wants` gathers the questions of all partitions, and once they are answered,
the caller decides again. Offsets are positions: the next one to read or to write.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec

from recovery.errors import IncompleteError
from recovery.facts import HasPartition, ProducerFacts, TopicPartition
from recovery.formats.counting import Counts
from recovery.formats.spark_checkpoint import Checkpoint
from recovery.restart.commits import GroupCommit, OutputEvidence
from recovery.restart.producers import Producers
from recovery.restart.stored import StoredPartition
from recovery.shared.log_position import Standing
from recovery.values import Value

A = TypeVar("A")


class Question(HasPartition, Value, Generic[A]):
    """A question about one partition. A: the type of its answer."""

    topic: str
    partition: int


class Count(Question["Counted"]):
    """Ask what became of the offsets [start, end). producers: also ask who wrote them."""

    start: int
    end: int
    producers: bool = False


class Walk(Question["int | None"]):
    """Ask which offset follows the `records`-th visible data record from `start` on.

    uncommitted: visible to read_uncommitted, up to the high watermark; otherwise up to the LSO.
    None: fewer records exist.
    """

    start: int
    records: int
    uncommitted: bool = False


class TimeAt(Question["int | None"]):
    """Ask for the timestamp (epoch ms) of the first data record at or after `offset`.

    None: no record exists, or it has no timestamp.
    """

    offset: int


class OffsetAt(Question["int | None"]):
    """Ask for the offset of the first record that is not older than `instant` (epoch ms).

    None: every record is older.
    """

    instant: int


class SameLog(Question[Standing]):
    """Ask whether the leader's log is the log of a position (see `LogPosition`)."""

    offset: int
    leader_epoch: int


class MergeTail(Question[Mapping[TopicPartition, "SourceRange"]]):
    """Ask what the entries [start, end) of a merge log's partition name."""

    start: int
    end: int


class ChangelogTip(Question["Attached | None"]):
    """Ask what the last data record below `end` of a changelog's partition carries.

    None: no record exists.
    """

    end: int


class CommitOf(Question[GroupCommit]):
    """Ask which record of `__consumer_offsets` holds the group's commit of this input partition."""


class InCommit(Question[OutputEvidence]):
    """Ask what shows that this output was written in the transaction of a commit.

    start, end: the range of the output's log.
    """

    start: int
    end: int
    commit: GroupCommit


class Counted(Value):
    """The answer to Count. producers: None where the question did not ask for them."""

    counts: Counts
    producers: Producers | None = None


class SourceRange(Value):
    """One input partition in a range of a merge log: its first and last offset in the log's order.
    rising: each offset is above the one before."""

    first: int
    last: int
    entries: int
    rising: bool = True


class Attached(Value):
    """The offsets that a changelog record carries (next input, next output), and its own."""

    upstream: int
    downstream: int
    offset: int


class LogEnd(Value):
    """One read of a log's end at its leader; log_end_offset is from ListOffsets as replica -2."""

    log_end_offset: int | None
    high_watermark: int
    last_stable_offset: int


class Log(HasPartition, Value):
    """A partition of an input, output, merge log or changelog.

    reads: where the end matters at least two, some time apart, oldest first. cleanup_policy:
    `delete`, `compact` or both; None = unknown. producers: from DescribeProducers.
    """

    topic: str
    partition: int
    topic_id: str | None
    leader_epoch: int | None
    log_start_offset: int
    reads: tuple[LogEnd, ...]
    cleanup_policy: str | None = None
    producers: tuple[ProducerFacts, ...] | None = None

    @property
    def last_stable_offset(self) -> int:
        return self.reads[-1].last_stable_offset

    @property
    def high_watermark(self) -> int:
        return self.reads[-1].high_watermark


class FlinkFacts(Value):
    """What else a Flink checkpoint holds besides its source offsets.

    promised: the number of Kafka transactions that it must commit. newer: the numbers of later
    checkpoints of the job in the same folder, ascending. unread: partition → where a source that
    has read nothing of it begins: `earliest`, `latest` or `committed`.
    """

    promised: int
    newer: tuple[int, ...]
    unread: Mapping[TopicPartition, str]


class PendingCommit(HasPartition, Value):
    """A group's commit that an open transaction holds. transactional_id: None = not found.

    Proven by the group in the keys of that transaction's batches. way_out: only where the id does
    not provably own the batches: the verdict on the transaction in `__consumer_offsets`, and the
    command that ends it.
    """

    topic: str
    partition: int
    transactional_id: str | None
    producer_id: int | None
    producer_epoch: int | None = None
    way_out: str | None = None


class Unobserved(Exception):  # noqa: N818  (a question, no error)
    """Questions that are not answered yet; several of them do not depend on one another."""

    def __init__(self, *wants: Question[Any]) -> None:
        super().__init__(", ".join(map(str, wants)))
        self.wants = wants


def each(looks: Iterable[Callable[[], A]]) -> list[A]:
    """Return all answers. Raises Unobserved with the open questions of all lookups at once."""
    results: list[A] = []
    wants: dict[Question[Any], None] = {}
    for look in looks:
        try:
            results.append(look())
        except Unobserved as question:
            wants |= dict.fromkeys(question.wants)
    if wants:
        raise Unobserved(*wants)
    return results


class Observed(Value, dict=True):
    """Everything that `decide` looks at.

    partition_counts: those of existing topics. logs: all partitions of inputs, outputs, merge log
    and changelog that could be seen. stored: what the store holds for this application's inputs, as
    positions; () = nothing. pending: commits of the group that are undecided. fenced: producer ids
    proven unable to write. owners: producer id → transactional id, where a coordinator knows it.
    sources: source partition → source offset of a source connector. answers: question → answer.
    unseen: question → why it could not be answered.
    """

    cluster_id: str | None
    partition_counts: Mapping[str, int]
    logs: Mapping[TopicPartition, Log]
    stored: tuple[StoredPartition, ...] = ()
    pending: tuple[PendingCommit, ...] = ()
    fenced: frozenset[int] = frozenset()
    owners: Mapping[int, str] = msgspec.field(default_factory=dict)
    spark: Checkpoint | None = None
    flink: FlinkFacts | None = None
    sources: Mapping[str, str] = msgspec.field(default_factory=dict)
    answers: Mapping[Question[Any], Any] = msgspec.field(default_factory=dict)
    unseen: Mapping[Question[Any], str] = msgspec.field(default_factory=dict)

    @cached_property
    def _by_partition(self) -> Mapping[TopicPartition, StoredPartition]:
        return {s.input.topic_partition: s for s in self.stored}

    def log(self, partition: TopicPartition) -> Log:
        """Return a partition's log. Raises IncompleteError where it could not be seen."""
        entry = self.logs.get(partition)
        if entry is None or not entry.reads:
            raise IncompleteError("its offsets could not be read", where=str(partition))
        return entry

    def stored_at(self, partition: TopicPartition) -> StoredPartition | None:
        """Return what the store holds for an input partition."""
        return self._by_partition.get(partition)

    @property
    def counted(self) -> Mapping[Count, Counted]:
        """Return all counts that were requested."""
        return {w: answer for w, answer in self.answers.items() if isinstance(w, Count)}

    def answer(self, want: Question[A]) -> A:
        """Return the answer to a question. Raises Unobserved while the question is open,
        IncompleteError where it could not be answered; so do the lookups of single questions."""
        if want in self.answers:
            answer: A = self.answers[want]
            return answer
        if want in self.unseen:
            raise IncompleteError(self.unseen[want], where=str(want.topic_partition))
        raise Unobserved(want)

    def evidence(self, want: Question[A]) -> A | str:
        """Return the answer, or why it could not be read: no evidence, but no refusal either."""
        return self.unseen[want] if want in self.unseen else self.answer(want)

    def count(self, want: Count) -> Counted:
        """Return a range's counts; an empty range needs no answer."""
        if want.start == want.end:
            return Counted(Counts(), Producers() if want.producers else None)
        return self.answer(want)

    def walk(self, want: Walk) -> int | None:
        """Return the offset after a walk; a walk of no records needs no answer."""
        return want.start if want.records == 0 else self.answer(want)

    def merge_tail(self, want: MergeTail) -> Mapping[TopicPartition, SourceRange]:
        """Return the inputs that a range of a merge log names; an empty range names none."""
        return {} if want.start == want.end else self.answer(want)

    def changelog_tip(self, want: ChangelogTip) -> Attached | None:
        """Return what a changelog's last record carries; an empty log needs no answer."""
        return None if want.end == 0 else self.answer(want)
