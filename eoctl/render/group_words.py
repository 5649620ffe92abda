"""Write the page of `why --group`: does the group move, who runs it, what waits, what to do."""

from collections.abc import Iterator, Mapping, Sequence

from eoctl.render.sanitise import visible
from eoctl.render.why import first_lines
from eoctl.render.width import LABEL, cells, cut_middle, labelled
from eoctl.render.words import age, spoken_age
from recovery.diagnose.group_verdict import stops
from recovery.diagnose.why_rows import GroupPartitionRow, GroupStepRow, GroupStoryRow
from recovery.plurals import counted
from recovery.quoting import some
from recovery.times import rfc3339

MOST_SHOWN = 20  # partitions on a page
MOST_NAMED = 6  # members, or partitions, in a sentence

_TITLES: Mapping[str, str] = {
    "held": "HELD",
    "out-of-range": "OUT OF RANGE",
    "not-running": "NOT MOVING",
    "not-moving": "NOT MOVING",
    "catching-up": "CATCHING UP",
    "up-to-date": "UP TO DATE",
    "nothing-committed": "NOTHING COMMITTED",
    "not-known": "NOT KNOWN",
}
_PROBLEMS: Mapping[str, str] = {
    "below-log-start": "below the log start: what lay between is deleted, read or not",
    "above-end": "above the end of the log, which was cut or recreated",
}


def headline(s: GroupStoryRow) -> str:
    """Return the verdict as one sentence, for the last line and other pages."""
    return visible(f"{s.group}: {_TITLES[s.verdict].lower()}, {_because(s)}")


def group_lines(
    s: GroupStoryRow,
    *,
    context: str,
    collected_at: int,
    width: int | None,
    ascii_only: bool = False,
) -> list[str]:
    """Return the page. width: the terminal's, None without one; commands have their own lines."""
    dots = "..." if ascii_only else "…"

    def shown(text: str) -> str:
        return visible(text, ascii_only=ascii_only)

    title = f"{s.group}  {_TITLES[s.verdict]}  {_because(s)}"
    clock = (rfc3339(collected_at) or "")[11:19] + "Z"
    lines = first_lines(shown(title), shown(f"{context}  {clock}"), width, dots)
    for label, text in _about(s, collected_at):
        lines += labelled(label, shown(text), width, dots)
    for row in _worst_first(s)[:MOST_SHOWN]:
        label = shown(str(row.topic_partition))
        text = shown(_position(row, collected_at))
        if cells(label) < LABEL - 1:
            lines += labelled(label, text, width, dots)
        else:  # a name on its own line
            name = label if width is None else cut_middle(label, max(width - 2, 20), dots)
            lines += [f" {name}", *labelled("", text, width, dots)]
    if (more := len(s.partitions) - MOST_SHOWN) > 0:
        text = f"{counted(more, 'partition')} more: eoctl offsets show --group lists all"
        lines += labelled("", text, width, dots)
    for label, text in _standstill(s, collected_at):
        lines += labelled(label, shown(text), width, dots)
    for step in s.next:
        lines += labelled("next", shown(_next(s, step)), width, dots)
        if step.command is not None:
            lines.append(f"   {step.command}")
    return lines if s.next else [*lines, *labelled("next", _nothing_to_do(s), width, dots)]


def _because(s: GroupStoryRow) -> str:
    """Return the reason of the verdict."""
    here = some(s.about, MOST_NAMED)
    if s.verdict == "held":
        if not s.about:
            return f"its newest commit waits: {s.own_verdict or 'open'} on {s.own_partition}"
        verdicts = sorted({r.verdict for r in _of(s) if r.verdict})
        return f"by {' and '.join(verdicts)} on {here}"
    if s.verdict == "not-running":
        return "nothing commits for it" if s.never_had_members else "nobody runs it"
    if s.verdict == "not-moving":
        who = "its members do not move" if s.members else "nothing commits for it"
        who = "whether anybody runs it was not seen" if s.members is None else who
        return who if len(s.about) == _waiting(s) else f"{who} on {here}"
    if s.verdict == "out-of-range":
        return f"its offset is not in the log of {here}"
    if s.verdict == "catching-up":
        return f"its lag is real work: {_records(_of(s))}"
    if s.verdict == "nothing-committed":
        return "where it reads, Kafka does not know"
    if s.verdict == "not-known":
        return f"not seen: {here}" if here else "not all of it was seen"
    return _up_to_date(s)


def _up_to_date(s: GroupStoryRow) -> str:
    held = sum(r.held or 0 for r in s.partitions)
    text = "nothing waits for it"
    if held:
        text = f"{counted(held, 'more offset')} in transactions that end by themselves"
    return f"{text}; nobody runs it" if s.members == [] and not s.never_had_members else text


def _of(s: GroupStoryRow) -> list[GroupPartitionRow]:
    """Return the partitions that the verdict is about."""
    return [r for r in s.partitions if str(r.topic_partition) in s.about]


def _waiting(s: GroupStoryRow) -> int:
    return sum(r.waits for r in s.partitions)


def _records(rows: Sequence[GroupPartitionRow]) -> str:
    """Return how many records wait on some partitions; offsets where records were not counted."""
    counts = [r.records for r in rows if r.records is not None]
    if len(counts) < len(rows):
        return f"{counted(sum(r.lag or 0 for r in rows), 'offset')}, records not counted"
    least = "at least " if any(r.at_least for r in rows) else ""
    return f"{least}{counted(sum(counts), 'record')}"


def _about(s: GroupStoryRow, now: int) -> Iterator[tuple[str, str]]:
    """Yield what the group is, and who is in it."""
    kind = f"{(s.type or 'type not seen').lower()}, state {s.state or 'not seen'}"
    if s.isolation is not None:
        kind += f", {s.isolation}"
    yield "group", kind
    yield "members", _members(s, now)
    if s.own_verdict is not None:
        does = (
            "until that ends no member learns where to read on"
            if stops(s.own_verdict)
            else "it ends by itself"
        )
        yield (
            "own commit",
            f"waits in a transaction on {s.own_partition} ({s.own_verdict}): {does}",
        )


def _members(s: GroupStoryRow, now: int) -> str:
    if s.members is None:
        return "not seen"
    if s.members:
        return f"{len(s.members)}: {some(s.members, MOST_NAMED)}"
    if s.never_had_members:
        alone = "what commits for it joins no group, as Flink, Spark and tools do"
        return f"none that Kafka remembers: {alone}"
    text = "none now"
    if s.empty_since is not None:
        text = f"none since {_ago(s.empty_since, now)}"
    return f"{text}; last: {some(s.last_members, MOST_NAMED)}" if s.last_members else text


def _ago(then: int, now: int) -> str:
    return f"{age(max(0, now - then) / 1000)} ago"


def _worst_first(s: GroupStoryRow) -> list[GroupPartitionRow]:
    """Return the partitions: those of the verdict first, then what is held, waits, or is well."""
    return sorted(
        s.partitions,
        key=lambda r: (str(r.topic_partition) not in s.about, not r.held, not r.waits),
    )


def _position(r: GroupPartitionRow, now: int) -> str:
    """Return where the group is on a partition, and what waits for it there."""
    at = "nothing" if r.committed_offset is None else str(r.committed_offset)
    pending = "a newer one" if r.pending_offset is None else r.pending_offset
    text = f"committed {at}{f', {pending} pending' if r.pending else ''}"
    if r.error is not None:
        return f"{text}  not seen: {r.error}"
    text += f"  LSO {r.last_stable_offset}"
    if r.high_watermark != r.last_stable_offset:
        text += f"  HW {r.high_watermark}"
    if r.problem is not None:
        start = f" (log start {r.log_start_offset})" if r.problem == "below-log-start" else ""
        return f"{text}  {_PROBLEMS[r.problem]}{start}"
    return f"{text}  {_lag(r, now)}"


def _lag(r: GroupPartitionRow, now: int) -> str:
    text = "lag not known" if r.lag is None else f"lag {r.lag}"
    if r.lag and r.records is not None:
        least = "at least " if r.at_least else ""
        text += f", {least}{counted(r.records, 'record')}"
    elif r.lag:
        text += ", records not counted"
    if r.oldest_timestamp is not None:
        text += f", oldest ~{age(max(0, now - r.oldest_timestamp) / 1000)}"
    if r.held:
        text += f"; {counted(r.held, 'more offset')} held"
        if r.verdict is not None:
            text += f" ({r.verdict})"
    elif r.held is None and r.committed_offset is not None:
        text += "; whether open transactions hold it is not known"
    return text


def _standstill(s: GroupStoryRow, now: int) -> Iterator[tuple[str, str]]:
    """Yield since when the group has not moved, as far as its log or two looks show."""
    if s.verdict in ("nothing-committed", "up-to-date") or not s.partitions:
        return
    rows = _of(s) or s.partitions
    times = [r.since for r in rows if r.since is not None]
    if times:
        first, last = _for(min(times), now), _for(max(times), now)
        if s.verdict == "catching-up":
            yield "moved last", f"{last} ago"
        else:
            text = f"for at least {last}" if first == last else f"for at least {last} to {first}"
            yield "not moved", text + _same_again(rows, max(times), now)
    elif s.since_unseen is not None:
        yield "not moved", f"since when is not known: {s.since_unseen}"
    if s.looks_seconds is not None:
        moved = "moved" if any(r.moved for r in rows) else "did not move"
        yield "", f"{moved} between two looks {spoken_age(s.looks_seconds)} apart"


def _same_again(rows: Sequence[GroupPartitionRow], moved: int, now: int) -> str:
    """Say that its process commits the same offsets again and again: it lives."""
    newest = max((r.committed_at for r in rows if r.committed_at is not None), default=moved)
    if newest - moved < 1000:
        return ""
    return f"; its newest commit, {_ago(newest, now)}, is of the same offset"


def _for(then: int, now: int) -> str:
    return age(max(0, now - then) / 1000)


def _next(s: GroupStoryRow, step: GroupStepRow) -> str:
    """Return what to do, as a sentence without its command."""
    if step.action == "start":
        return _start(s)
    if step.action == "look-at-members":
        return _look_at_members(s)
    if step.action == "why":
        return f"free {step.partition}: its page names the remedy"
    if step.action == "watch":
        if s.verdict == "catching-up":
            return "nothing: it reads. Look again in a minute; its lag must fall"
        return "watch whether it moves"
    if step.action == "choose-start":
        return _choose_start(s, step)
    return "grant or restore what was not seen (the lines with ?), and ask again"


def _choose_start(s: GroupStoryRow, step: GroupStepRow) -> str:
    text = f"ask its owner where it may start again on {step.partition}"
    if step.command is None and (s.type or "").lower() in ("classic", "consumer"):
        text += f"; `restart plan --group` with --to-offset N sets it{_range(s, step)}"
    if s.members:
        return f"{text}; stop its members first"
    return f"{text}; a member that starts now goes where auto.offset.reset says"


def _range(s: GroupStoryRow, step: GroupStepRow) -> str:
    for r in s.partitions:
        if str(r.topic_partition) == step.partition and r.last_stable_offset is not None:
            return f" (from {r.log_start_offset or 0} to {r.last_stable_offset})"
    return ""


def _start(s: GroupStoryRow) -> str:
    if s.never_had_members:
        why = "it is down, takes no checkpoint, or commits as seldom as that"
        return f"look at the job that commits for it: {why}"
    text = "start its process"
    hosts = sorted({m.rpartition(" at ")[2] for m in s.last_members})
    if hosts:
        text += f" (it was last on {some(hosts, MOST_NAMED)})"
    return f"{text}, after that" if s.verdict == "held" else text


def _look_at_members(s: GroupStoryRow) -> str:
    first = next((r for r in _of(s) if r.committed_offset is not None), None)
    where = (
        "" if first is None else f"; next: {first.topic_partition} offset {first.committed_offset}"
    )
    if not s.members:
        return f"find what reads for it, and why it commits nothing{where}"
    why = (
        "a record that fails again and again, a paused partition, a call that never returns, or a "
        "commit interval as long as that"
    )
    if "rebalance" in (s.state or "").lower():
        why = "members that join and leave again: their log says why"
    names = some(s.members, MOST_NAMED)
    return f"look at the log and threads of {names}: {why}{where}"


def _nothing_to_do(s: GroupStoryRow) -> str:
    if s.verdict == "nothing-committed":
        return (
            "ask whoever runs it where it keeps its offsets: not in Kafka, or nothing was read yet"
        )
    return "nothing to do"
