"""Plan a move of a group's offsets to a target, without an application file.

The targets are those of kafka-consumer-groups, but an offset is never clamped, and the plan states
the guarantee. at-least-once: no record is left out, some may come twice. at-most-once: some are.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from recovery.errors import EoctlError, IncompleteError, RefusedError
from recovery.facts import TopicPartition
from recovery.inspect.commits.commit_history import CommitRecord
from recovery.plurals import counted
from recovery.quoting import some
from recovery.restart.decision import (
    Check,
    Guarantee,
    InputDecision,
    Promise,
    RestartOrigin,
    RestartPlan,
    gathered,
)
from recovery.restart.input_rules import identity, moved, readable
from recovery.restart.observed import Log, Observed, OffsetAt, Question, SameLog, Unobserved
from recovery.restart.positions import refuse_pending, results_belong
from recovery.restart.stored import StoredOffset, StoredPartition
from recovery.shared.app_file import named
from recovery.times import rfc3339
from recovery.values import Value

TargetKind = Literal[
    "to-earliest",
    "to-latest-stable",
    "to-lso",
    "to-offset",
    "to-datetime",
    "by-duration",
    "shift-by",
    "to-current",
    "from-file",
    "from-store",
    "as-of",
    "from-cluster",
]
End = Literal["earliest", "latest"]
ENDS: tuple[End, ...] = get_args(End)
"""Of a range of offsets between which a group continues: leave out nothing, or repeat nothing."""


class Target(Value):
    """Where the offsets go. value: an offset for to-offset, a signed number for shift-by, an
    instant in epoch ms for to-datetime and by-duration (now less the duration). offsets: for
    from-file, from-store and from-cluster; commits: for as-of, what counted at the instant `value`.
    source: the store's name, or the log that says what counted. to-latest-stable and to-lso both
    mean the end that read_committed consumers see. promise, checks, origins: of from-cluster, whose
    offsets were found by comparing two clusters; None: the moves in records decide."""

    kind: TargetKind
    value: int = 0
    offsets: Mapping[TopicPartition, int] = msgspec.field(default_factory=dict)
    source: str = ""
    commits: Mapping[TopicPartition, CommitRecord] = msgspec.field(default_factory=dict)
    promise: Promise | None = None
    checks: tuple[Check, ...] = ()
    origins: tuple[RestartOrigin, ...] = ()

    def offset(self, log: Log, current: int | None, observed: Observed) -> int:
        """Return the new offset of a partition. Raises RefusedError where there is none."""
        where = named(log.topic_partition)
        match self.kind:
            case "to-earliest":
                return log.log_start_offset
            case "to-latest-stable" | "to-lso":
                return log.last_stable_offset
            case "to-offset":
                return self.value
            case "to-datetime" | "by-duration":
                at_instant = observed.answer(OffsetAt(*log.topic_partition, self.value))
                # No record is that late yet, and one can only come at the end.
                return log.high_watermark if at_instant is None else at_instant
            case "from-file" | "from-store" | "from-cluster":
                return self.offsets[log.topic_partition]
            case "as-of":
                return self.commits[log.topic_partition].offset or 0
        if current is None:
            raise RefusedError(
                f"nothing is committed for it: --{self.kind} has nothing to begin from",
                where=where,
                remedy="name it with --to-offset, or leave the partition out",
            )
        return current + self.value if self.kind == "shift-by" else current


def wanted_adhoc(
    target: Target, partitions: Sequence[TopicPartition], observed: Observed
) -> tuple[Question[Any], ...]:
    """Return the questions that `decide_adhoc` needs answered next; () when it has everything."""
    wants: dict[Question[Any], None] = {}
    for partition in partitions:
        try:
            _move(target, partition, observed)
        except Unobserved as question:
            wants |= dict.fromkeys(question.wants)
        except EoctlError:
            continue
    return tuple(wants)


def decide_adhoc(
    target: Target, group: str, topic_partitions: Sequence[TopicPartition], observed: Observed
) -> RestartPlan:
    """Return the plan for these partitions. Raises RefusedError, IncompleteError."""
    refuse_pending(observed)
    try:
        inputs = tuple(
            _move(target, topic_partition, observed) for topic_partition in sorted(topic_partitions)
        )
    except Unobserved as question:
        raise IncompleteError(f"not looked at: {question}") from None
    guarantee, because = _guarantee(target, inputs, observed)
    checks = [c for decision in inputs for c in decision.checks] + list(_pairs(observed, inputs))
    checks += target.checks
    if target.kind == "from-store":
        checks.append(results_belong(target.source))
    return RestartPlan(
        app=group,
        strategy=target.kind,
        inputs=inputs,
        outputs=(),
        state=(),
        guarantee=guarantee,
        because=because,
        checks=gathered(tuple(checks)),
        store=tuple(
            entry
            if (entry := observed.stored_at(i.topic_partition)) is not None
            and i.direction == "none"
            else StoredPartition(
                input=StoredOffset(
                    topic=i.topic,
                    partition=i.partition,
                    offset=i.restart_offset,
                    leader_epoch=_record_epoch(target, i.topic_partition, observed),
                )
            )
            for i in inputs
        ),
        origins=target.origins,
    )


def _move(target: Target, partition: TopicPartition, observed: Observed) -> InputDecision:
    log, entry = observed.log(partition), observed.stored_at(partition)
    current = None if entry is None else entry.input.offset
    # The log that the stored offset belongs to matters only if the new offset depends on it.
    checks: tuple[Check, ...] = ()
    if entry is not None and target.kind in ("shift-by", "to-current"):
        checks = identity(entry.input, log, observed)
    if (commit := target.commits.get(partition)) is not None:
        checks = (*_stood(commit, target.source), *identity(_position(commit), log, observed))
    offset = target.offset(log, current, observed)
    # Records above the last stable offset may still be aborted.
    checks = (*checks, readable(offset, log, "read_committed"))
    return moved(current, offset, log, "read_committed", observed, checks)


def _record_epoch(target: Target, partition: TopicPartition, observed: Observed) -> int | None:
    """Return the leader epoch of a commit if the record before its offset is proven to have it.

    At the log's end a commit may hold the epoch of a leader that had written nothing.
    """
    commit = target.commits.get(partition)
    if commit is None or commit.leader_epoch is None:
        return None
    standing = observed.answer(SameLog(*partition, commit.offset or 0, commit.leader_epoch))
    return commit.leader_epoch if standing.held else None


def _position(commit: CommitRecord) -> StoredOffset:
    return StoredOffset(
        topic=commit.topic,
        partition=commit.partition,
        offset=commit.offset or 0,
        topic_id=commit.topic_id,
        leader_epoch=commit.leader_epoch,
    )


def _stood(commit: CommitRecord, log: str) -> Iterator[Check]:
    """Yield the evidence for what counted at the instant of an as-of. log: where it is."""
    text = (
        f"offset {commit.offset} counted then, committed at {rfc3339(commit.timestamp)}: "
        f"{log} offset {commit.at}"
    )
    if commit.marker_at is not None:
        text += (
            f", in a transaction of producer {commit.producer_id} epoch {commit.producer_epoch}, "
            f"COMMIT marker at {commit.marker_at}"
        )
    yield Check("as-of", True, text, named(commit.topic_partition))


def _guarantee(
    target: Target, inputs: Sequence[InputDecision], observed: Observed
) -> tuple[Guarantee, str]:
    """Return the guarantee and why: markers alone do not count, an unknown number does."""
    if target.promise is not None:
        return target.promise.guarantee, target.promise.because
    skips = [i for i in inputs if i.direction == "skip" and i.records != 0]
    rewinds = [i for i in inputs if i.direction == "rewind" and i.records != 0]
    # Without a commit, the records below the new offset may never have been read. This is judged by
    # the offset, not by --to-earliest: an applied plan is decided again from its offsets alone.
    begins = [
        i
        for i in inputs
        if i.current_offset is None
        and i.restart_offset != observed.log(i.topic_partition).log_start_offset
    ]
    if skips or begins or target.kind in ("to-latest-stable", "to-lso"):
        skipped = [_sentence(i) for i in skips] + [
            f"{named(i.topic_partition)} begins at {i.restart_offset}" for i in begins
        ]
        text = f"records may be left out: {some(skipped)}" if skipped else "nothing is left out now"
        if rewinds:
            text += f"; others come again: {some([_sentence(i) for i in rewinds])}"
        return "at-most-once", text
    if rewinds:
        return "at-least-once", f"records come again: {some([_sentence(i) for i in rewinds])}"
    return "at-least-once", "what was processed after the last commit comes again"


def _sentence(i: InputDecision) -> str:
    records = "an unknown number of records" if i.records is None else counted(i.records, "record")
    verb = "leaves out" if i.direction == "skip" else "reads again"
    return f"{named(i.topic_partition)} {verb} {records}"


def _pairs(observed: Observed, inputs: Sequence[InputDecision]) -> Iterator[Check]:
    """Yield a check for each moved commit whose metadata names output offsets: they get lost."""
    for i in inputs:
        entry = observed.stored_at(i.topic_partition)
        if entry is not None and entry.output and i.direction != "none":
            text = (
                "the commit's metadata names an output offset, which does not belong to the new "
                "offset and is removed: plan from the application file instead"
            )
            yield Check("pair", False, text, named(i.topic_partition))
