"""`why --group`: why a group does not move, partition by partition, and what to do about it."""

import time
from collections.abc import Callable, Mapping, Sequence

from eoctl.operations.diagnose.verdict_rows import unknown_as_missing
from eoctl.operations.diagnose.why_answer import (
    answer_of,
    healthy_rows,
    held_targets,
    holder_of,
    in_time,
    seen_row,
    story_row,
)
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.inspect.source import Source
from eoctl.render.shell import command
from eoctl.settings.context import Context
from recovery.answers import Answer
from recovery.diagnose.diagnosis import Diagnosis, Judged
from recovery.diagnose.group_verdict import (
    GroupSeen,
    GroupVerdict,
    Unread,
    judge_group,
    may_stand,
    problem_of,
    stops,
)
from recovery.diagnose.reach import READ_COMMITTED
from recovery.diagnose.why_rows import (
    Action,
    GroupPartitionRow,
    GroupStepRow,
    GroupStoryRow,
    WhyRow,
)
from recovery.facts import (
    GroupFacts,
    GroupOffsetFacts,
    GroupTimes,
    Missing,
    PartitionFacts,
    TopicPartition,
)
from recovery.inspect.observation import Settings
from recovery.selectors import Selector, parse_selector
from recovery.values import Value, replace

TIMES_SECONDS = 6.0  # to read when the group committed
_NOT_MOVABLE = frozenset({"share", "streams"})  # whose offsets `restart` never writes

_NO_GROUP = (
    "no such group: no members, no offsets. A member that starts begins where its "
    "auto.offset.reset says, unless `restart plan --group` sets an offset first; "
    "`offsets show` lists all groups"
)

FirstLook = Callable[[Answer], None] | None


async def why_group(
    source: Source,
    context: Context,
    group: str,
    settings: Settings,
    *,
    pause: float,
    on_first_look: FirstLook = None,
) -> Answer:
    """Judge a group on the partitions that it reads, and on its own of `__consumer_offsets`.

    That partition serves many groups: only transactions with this group in the keys of their open
    batches hold the group. Until these end, no member learns where to continue reading. rows: the
    stories of held partitions, or each partition's lag if none is held.
    """
    facts, missing = await source.named_groups([group])
    read = sorted({o.topic_partition for g in facts for o in g.offsets})
    complete = not missing
    # offsets that could not be read are not none
    dead = complete and any(g.state == "Dead" and not g.offsets for g in facts)
    if dead:
        missing.append(Missing("group", "GROUP_ID_NOT_FOUND", _NO_GROUP, id=group))
    own = await source.group_partition(group)
    if isinstance(own, Missing):
        missing.append(own)
    home = own if isinstance(own, TopicPartition) else None
    partitions = [*read, *([home] if home is not None and home not in read else [])]
    if not partitions:
        return answer_of(source, [], missing, [], group=group)

    def first_look(d: Diagnosis) -> None:
        if on_first_look is not None:
            d, targets = _holding(d, home, group)
            rows = [seen_row(context, d, p, _held_at(d, p)) for p in targets]
            on_first_look(answer_of(source, rows, [], [], d, group=group))

    d = await source.diagnose(_exactly(partitions), settings, pause=pause, on_first_look=first_look)
    d, targets = _holding(d, home, group)
    missing += d.missing
    if home is not None and not _at(d, home) and any(o.pending for g in facts for o in g.offsets):
        text = f"{group} has a commit that is not decided; its transaction was not found"
        missing.append(Missing("group", "HOLDER_NOT_FOUND", text, topic=home[0], id=group))
    rows, more = await _rows(source, context, d, targets, facts, home)
    if not rows and read:
        rows = await healthy_rows(source, context, _exactly(read), d, facts)
    missing += more
    story = None
    if facts and not dead:
        story = await _story(
            source, context, facts[0], home, d, settings, pause=pause, complete=complete
        )
    return answer_of(source, rows, missing, unknown_as_missing(d), d, group=group, story=story)


def _exactly(partitions: Sequence[TopicPartition]) -> Scope:
    selectors: list[Selector] = [parse_selector(str(p)) for p in partitions]
    return Scope(tuple(selectors))


def _at(d: Diagnosis, partition: TopicPartition) -> list[Judged]:
    return [j for j in d.judged if j.about.topic_partition == partition]


def _held_at(d: Diagnosis, p: PartitionFacts) -> Judged | None:
    return holder_of(_at(d, p.topic_partition))


def _holding(
    d: Diagnosis, home: TopicPartition | None, group: str
) -> tuple[Diagnosis, list[PartitionFacts]]:
    """Return the diagnosis without what holds only other groups, and the partitions left."""
    mine = [j for j in d.judged if j.about.topic_partition != home or _may_hold(j, group)]
    d = replace(d, judged=tuple(mine))
    here = {j.about.topic_partition for j in mine}
    return d, [
        p
        for p in held_targets(d, worst_only=False)
        if p.topic_partition != home or p.error is not None or home in here
    ]


def _may_hold(j: Judged, group: str) -> bool:
    """Return True if the group is in the keys of its open batches, or these were not all read."""
    return j.start is None or not j.start.groups_read or group in j.start.groups


async def _rows(
    source: Source,
    context: Context,
    d: Diagnosis,
    targets: Sequence[PartitionFacts],
    facts: Sequence[GroupFacts],
    home: TopicPartition | None,
) -> tuple[list[WhyRow], list[Missing]]:
    """Return the stories of the held partitions, the group's own among them."""
    retention, missing = await source.topic_configs(sorted({p.topic for p in targets}))
    rows = []
    for p in targets:
        at_home = p.topic_partition == home
        # the LSO may be another group's: the transaction with this name holds this group
        first = next(iter(_at(d, p.topic_partition)), None) if at_home else None
        row = await story_row(source, context, d, p, facts, retention.get(p.topic, {}), first)
        rows.append(_own_row(row, facts[0].group) if at_home and facts else row)
    return rows, missing


def _own_row(row: WhyRow, group: str) -> WhyRow:
    """Return the story of a group's own partition, where its newest commit waits."""
    sentence = (
        f"{group}: its newest offset commit waits in this transaction; until that ends no member "
        "of it learns where to read on (UNSTABLE_OFFSET_COMMIT)"
    )
    if row.held_by is not None and group not in row.held_by.groups:
        sentence = f"whether {group} is held by it is not known: its batches were not read"
    return replace(row, groups=None, groups_said=sentence)


class _Times(Value):
    """When the group committed, and why that is not known."""

    times: GroupTimes
    unseen: str | None


async def _story(
    source: Source,
    context: Context,
    g: GroupFacts,
    home: TopicPartition | None,
    d: Diagnosis,
    settings: Settings,
    *,
    pause: float,
    complete: bool,
) -> GroupStoryRow:
    """Return the story of one group. d: of its partitions. complete: all its offsets were seen."""
    logs, unseen = await _logs(source, g)
    starts = {
        o.topic_partition: o.committed_offset
        for o in g.offsets
        if o.committed_offset is not None and not o.is_share
    }
    unread = await source.unread(starts, list(logs.values()))
    committed = await _times(source, g.group)
    rows = [
        _partition_row(g, o, logs.get(o.topic_partition), unread, committed.times, d, unseen)
        for o in sorted(g.offsets, key=lambda o: o.topic_partition)
    ]
    own = _own_verdict(d, home, g)
    never = _never_had_members(g)
    seen = GroupSeen(
        state=g.state,
        members=None if g.members is None else len(g.members),
        rows=rows,
        own_verdict=own,
        now=source.now(),
        stuck_after=settings.stuck_after,
        commits_alone=never or _commits_alone(committed.times),
        complete=complete,
    )
    looks = None
    if _needs_second_look(seen):
        again = await source.group_again(g.group, pause)
        if again is not None:
            looks = pause
            seen = replace(seen, rows=[_with_moved(r, g, again) for r in rows], now=source.now())
    verdict = judge_group(seen)
    steps = _steps(context, g, verdict, seen.rows, home if stops(own) else None)
    return GroupStoryRow(
        group=g.group,
        type=g.type,
        state=g.state,
        isolation=g.isolation,
        verdict=verdict.name,
        about=[str(r.topic_partition) for r in verdict.about],
        members=None
        if g.members is None
        else [f"{client} at {host}" for client, host in g.members],
        never_had_members=never,
        empty_since=committed.times.state_since if committed.times.members == 0 else None,
        last_members=[f"{client} at {host}" for client, host in committed.times.last_clients],
        own_partition=None if home is None or own is None else str(home),
        own_verdict=own,
        looks_seconds=looks,
        since_unseen=committed.unseen,
        partitions=list(seen.rows),
        next=steps,
    )


async def _logs(
    source: Source, g: GroupFacts
) -> tuple[dict[TopicPartition, PartitionFacts], Mapping[TopicPartition | None, str]]:
    """Return the offsets of the partitions that the group reads, and the errors of others."""
    partitions = sorted({o.topic_partition for o in g.offsets})
    if not partitions:
        return {}, {}
    look = await source.look(replace(_exactly(partitions), internal=True))
    errors = {m.topic_partition: m.error for m in look.missing}
    return {p.topic_partition: p for p in look.partitions}, errors


async def _times(source: Source, group: str) -> _Times:
    """Return when the group committed, as far as its log can be read in a few seconds."""
    found = await in_time(source.group_times([group], 0), time.monotonic() + TIMES_SECONDS)
    if found is None:
        return _Times(GroupTimes(), "its log of commits is too long to be read in time")
    times, missing = found
    return _Times(times.get(group, GroupTimes()), missing[0].detail if missing else None)


def _never_had_members(g: GroupFacts) -> bool:
    """Return True for a classic group that nobody ever joined: its readers only commit."""
    return (g.type or "").lower() == "classic" and g.members == () and g.protocol is None


def _commits_alone(times: GroupTimes) -> bool:
    """Return True if something committed after the last member had left."""
    if times.members != 0 or times.state_since is None:
        return False
    return any(c.committed_at > times.state_since for c in times.commits.values() if c is not None)


def _own_verdict(d: Diagnosis, home: TopicPartition | None, g: GroupFacts) -> str | None:
    """Return the verdict on the transaction in which the group's newest commit waits.

    One whose keys were not read may be another group's: it counts only where a commit is pending.
    """
    mine = [] if home is None else _at(d, home)
    pending = any(o.pending for o in g.offsets)
    holds = (j for j in mine if pending or (j.start is not None and g.group in j.start.groups))
    return next((j.verdict.name for j in holds), None)


def _partition_row(
    g: GroupFacts,
    o: GroupOffsetFacts,
    log: PartitionFacts | None,
    unread: Mapping[TopicPartition, Unread],
    times: GroupTimes,
    d: Diagnosis,
    errors: Mapping[TopicPartition | None, str],
) -> GroupPartitionRow:
    """Return where the group is on one partition."""
    at = o.committed_offset
    commit = times.commits.get(o.topic_partition)
    row = GroupPartitionRow(
        topic=o.topic,
        partition=o.partition,
        committed_offset=at,
        pending=o.pending,
        pending_offset=o.pending_offset,
        committed_at=None if commit is None else commit.committed_at,
        since=times.unmoved_since.get(o.topic_partition),
        lag=o.lag if o.is_share else None,
        error=o.error,
    )
    if log is None or log.last_stable_offset is None or log.high_watermark is None:
        error = None if log is None else log.error
        said = errors.get(o.topic_partition)
        return replace(row, error=o.error or error or said or "NOT_SEEN")
    held = _held(g, o, log)
    waits = unread.get(o.topic_partition)
    holder = _held_at(d, log)
    lost = None if o.is_share else problem_of(at, log.log_start_offset, log.high_watermark)
    return replace(
        row,
        log_start_offset=log.log_start_offset,
        last_stable_offset=log.last_stable_offset,
        high_watermark=log.high_watermark,
        lag=_lag(o, log, held),
        records=None if waits is None or _reads_all(o, log) else waits.records,
        at_least=waits is not None and waits.at_least,
        oldest_timestamp=None if waits is None else waits.oldest_timestamp,
        held=held,
        verdict=None if holder is None or not held else holder.verdict.name,
        problem=lost,
    )


def _reads_all(o: GroupOffsetFacts, log: PartitionFacts) -> bool:
    """Return True if its offset shows that it reads undecided records: it is beyond the LSO."""
    at, lso = o.committed_offset, log.last_stable_offset
    return not o.is_share and at is not None and lso is not None and at > lso


def _held(g: GroupFacts, o: GroupOffsetFacts, log: PartitionFacts) -> int | None:
    """Return how many offsets beyond the LSO the group has to wait for; None: not known."""
    if not log.held or _reads_all(o, log):
        return 0
    if not o.is_share:
        return log.held
    if g.isolation is None:
        return None
    return log.held if g.isolation == READ_COMMITTED else 0


def _lag(o: GroupOffsetFacts, log: PartitionFacts, held: int | None) -> int | None:
    """Return how many offsets the group may read now. A share group's is Kafka's own, which
    reaches to the high watermark: what is held is taken off."""
    if o.is_share:
        return None if o.lag is None or held is None else max(0, o.lag - held)
    if o.committed_offset is None:
        return None
    end = log.high_watermark if _reads_all(o, log) else log.last_stable_offset
    return None if end is None else max(0, end - o.committed_offset)


def _needs_second_look(seen: GroupSeen) -> bool:
    """Return True if what was seen once cannot tell whether the group moves.

    Its offsets were read before the log: a group in full flow may seem to be below the log's start,
    where its application deletes what it has read (Kafka Streams).
    """
    if any(r.problem is not None for r in seen.rows):
        return True
    if seen.members == 0 and not seen.commits_alone:
        return False
    return any(may_stand(r, seen.now, seen.stuck_after) for r in seen.rows)


def _with_moved(row: GroupPartitionRow, before: GroupFacts, after: GroupFacts) -> GroupPartitionRow:
    first, second = _offset(before, row), _offset(after, row)
    if first is None or second is None:
        return row
    # a share group may be done with records above its start offset: then its lag shrinks
    less = first.is_share and (second.lag or 0) < (first.lag or 0)
    return replace(row, moved=less or first.committed_offset != second.committed_offset)


def _offset(g: GroupFacts, row: GroupPartitionRow) -> GroupOffsetFacts | None:
    return next((o for o in g.offsets if o.topic_partition == row.topic_partition), None)


def _steps(
    context: Context,
    g: GroupFacts,
    verdict: GroupVerdict,
    rows: Sequence[GroupPartitionRow],
    own: TopicPartition | None,
) -> list[GroupStepRow]:
    """Return what to do next, in order. own: its partition of `__consumer_offsets`, if stuck."""
    held = [str(own)] if own is not None else []
    held += [str(r.topic_partition) for r in rows if r.held and stops(r.verdict)]
    free = [_step(context, "why", where, "why", "--", where) for where in held]
    watch = _step(context, "watch", None, "offsets", "show", "--watch", "--group", g.group)
    by_verdict: dict[str, list[GroupStepRow]] = {
        "out-of-range": [_choose_start(context, g, r) for r in verdict.about],
        "not-running": [_step(context, "start", None)],
        "not-moving": [_step(context, "look-at-members", None), watch],
        "catching-up": [watch],
        "not-known": [_step(context, "see-more", None)],
    }
    if verdict.name == "held":
        nobody = g.members == () and not _never_had_members(g)
        return [*free, *([_step(context, "start", None)] if nobody else [])] or [watch]
    return [*by_verdict.get(verdict.name, []), *free]


def _choose_start(context: Context, g: GroupFacts, r: GroupPartitionRow) -> GroupStepRow:
    """Return the plan of a new start, if `restart` can write it."""
    where = str(r.topic_partition)
    # above the end: of a log that was recreated nothing was read, so only its owner knows
    if (g.type or "classic").lower() in _NOT_MOVABLE or r.problem == "above-end":
        return _step(context, "choose-start", where)
    words = ("restart", "plan", "--group", g.group, "--topic", where, "--to-earliest")
    return _step(context, "choose-start", where, *words)


def _step(context: Context, action: Action, partition: str | None, *words: str) -> GroupStepRow:
    argv = ["eoctl", *context.argv, *words] if words else None
    line = None if argv is None else command(argv)
    return GroupStepRow(action=action, partition=partition, argv=argv, command=line)
