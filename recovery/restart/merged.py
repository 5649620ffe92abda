"""merge-log: restart several inputs so that they are read in the order of the merge log.

A task's commit holds the offset of every input partition, of the merge log and of the output:
restart at these, replay the log to its tip, drop the first n outputs.
"""

from functools import partial

from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.plurals import count, counted
from recovery.quoting import some
from recovery.restart.decision import Basis, Check
from recovery.restart.input_rules import readable, visible
from recovery.restart.observed import Count, MergeTail, Observed, SourceRange, each
from recovery.restart.output_rules import final_end
from recovery.restart.positions import stored_or_base
from recovery.shared.app_file import App, named


def merge_log(app: App, observed: Observed, partition: TopicPartition) -> Basis:
    """Return where an input restarts. Raises RefusedError where commit, log and input disagree."""
    assert app.merge is not None
    where = named(partition)
    numbers = {output[1] for output in app.outputs_of(partition)}
    if len(numbers) != 1:
        raise RefusedError(
            f"it feeds the output partitions {sorted(numbers)}: a merge log's partition belongs to "
            "one of them",
            where=where,
        )
    merged = TopicPartition(app.merge.topic, numbers.pop())
    basis = stored_or_base(app, observed, partition)
    log = observed.log(merged)
    tip, final = final_end(log)
    start = _commit(app, observed, merged)
    if not log.log_start_offset <= start <= tip:
        raise RefusedError(
            f"the commit is at {start}, the merge log is [{log.log_start_offset}, {tip}): the "
            "order after the commit is lost",
            where=named(merged),
        )
    missing = observed.count(Count(*merged, start, tip)).counts.missing
    if missing:
        raise RefusedError(
            f"[{start}, {tip}) lacks {counted(missing, 'offset')} (compacted or deleted): the "
            "order after the commit is not complete",
            where=named(merged),
            remedy="check the log with `eoctl merge verify`",
        )
    offset, checks = basis.input.offset, [*basis.checks, final]
    tail = observed.merge_tail(MergeTail(*merged, start, tip))
    if foreign := [named(p) for p in sorted(tail) if not _feeds(app, observed, p, merged)]:
        raise RefusedError(
            f"entries of [{start}, {tip}) name {some(foreign)}, which does not feed this output",
            where=named(merged),
            remedy="check the log with `eoctl merge verify`",
        )
    mine = tail.get(partition)
    if mine is not None:
        if not mine.rising or mine.first < offset:
            raise RefusedError(
                f"the merge log [{start}, {tip}) names its offsets backwards: the commit is at "
                f"{offset}, the log's entries go from {mine.first} to {mine.last}",
                where=where,
                remedy="check the log with `eoctl merge verify`",
            )
        top = observed.log(partition).high_watermark
        if mine.last >= top:
            raise RefusedError(
                f"the merge log names offset {mine.last}, the log ends at {top}",
                where=where,
                remedy="the input lost records; look with `eoctl merge verify`",
            )
        readable(offset, observed.log(partition), app.isolation)
        _all_named(app, observed, partition, offset, mine)
    text = f"replay it from {start} to its tip {tip}, then read on"
    checks.append(Check("merge-log", True, text, named(merged)))
    return Basis(
        basis.input,
        basis.outputs,
        merge=(merged, start),
        checks=tuple(checks),
        stored=basis.stored,
    )


def _all_named(
    app: App, observed: Observed, partition: TopicPartition, offset: int, mine: SourceRange
) -> None:
    """Raise RefusedError unless the merge log names exactly the records that the application sees,
    from the commit to the log's last entry of this input."""
    where, end = named(partition), mine.last + 1
    remedy = "check the log with `eoctl merge verify`"
    before, inside = each(
        partial(visible, Count(*partition, *cut), app.isolation, observed)
        for cut in ((offset, mine.first), (mine.first, end))
    )
    lost = before + max(inside - mine.entries, 0)
    if lost:
        raise RefusedError(
            f"the merge log lacks {counted(lost, 'record')} of [{offset}, {end})",
            where=where,
            remedy=remedy,
        )
    if inside < mine.entries:
        raise RefusedError(
            f"the merge log names {counted(mine.entries, 'record')} of [{mine.first}, {end}), the "
            f"input holds {count(inside)} that the application sees",
            where=where,
            remedy=remedy,
        )


def _feeds(
    app: App, observed: Observed, topic_partition: TopicPartition, merged: TopicPartition
) -> bool:
    """Return True if it is an input partition of this merge log's task."""
    exists = (
        topic_partition[0] in app.inputs
        and topic_partition[1] < observed.partition_counts[topic_partition[0]]
    )
    return exists and merged[1] in {output[1] for output in app.outputs_of(topic_partition)}


def _commit(app: App, observed: Observed, merged: TopicPartition) -> int:
    """Return the merge offset of a task's commit, which all of its inputs must share."""
    merge_logs: dict[int, TopicPartition] = {}
    for entry in observed.stored:
        outputs = app.outputs_of(entry.input.topic_partition)
        if {output[1] for output in outputs} != {merged[1]}:
            continue
        if entry.merge is None:
            raise RefusedError(
                "the commit holds no merge offset", where=named(entry.input.topic_partition)
            )
        merge_logs.setdefault(entry.merge, entry.input.topic_partition)
    if len(merge_logs) > 1:
        (one, here), (other, there), *_ = sorted(merge_logs.items())
        raise RefusedError(
            f"{named(here)} was committed at {one} of the merge log, {named(there)} at {other}: "
            "not one commit",
            where=named(merged),
        )
    if merge_logs:
        return next(iter(merge_logs))
    if (start := observed.log(merged).log_start_offset) > 0:
        raise RefusedError(
            f"nothing was committed yet, and the merge log starts at {start}",
            where=named(merged),
        )
    return 0
