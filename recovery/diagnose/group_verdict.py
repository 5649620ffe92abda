"""Judge why a group does not move: nobody runs it, it does not move, it is held, or all is well.

A group is held by what it may not read yet, and lags by what it may. Sources: KafkaConsumer with
isolation.level=read_committed reads up to the last stable offset; KIP-447 on pending commits.
"""

from collections.abc import Sequence
from typing import Literal

from recovery.diagnose.verdicts import FINDINGS
from recovery.diagnose.why_rows import GroupPartitionRow, GroupVerdictName
from recovery.values import Value

Problem = Literal["below-log-start", "above-end"]


class Unread(Value):
    """The records that a read_committed reader still gets on a partition.

    at_least: more were not counted. oldest_timestamp: of the first, ms, by the producer's clock.
    """

    records: int
    at_least: bool
    oldest_timestamp: int | None


class GroupSeen(Value):
    """What was seen of a group. members: how many; None: not seen. state None: not seen.

    own_verdict: on the transaction in which its newest commit waits, None: none does.
    commits_alone: what commits for it need not be a member. complete: all its offsets were seen.
    now: epoch ms. stuck_after: ms that records may wait while the group commits nothing new.
    """

    state: str | None
    members: int | None
    rows: Sequence[GroupPartitionRow]
    own_verdict: str | None
    now: int
    stuck_after: int
    commits_alone: bool = False
    complete: bool = True


class GroupVerdict(Value):
    """The verdict on a group. about: the partitions that it is given for."""

    name: GroupVerdictName
    about: tuple[GroupPartitionRow, ...] = ()


def stops(verdict: str | None) -> bool:
    """Return True if a transaction with this verdict does not end as it should, or may not."""
    return verdict in FINDINGS or verdict == "unknown"


def problem_of(committed: int | None, log_start: int | None, end: int | None) -> Problem | None:
    """Return how a committed offset is not in the log; None: it is, or an offset is unknown.

    >>> problem_of(3, 5, 9), problem_of(10, 5, 9), problem_of(9, 5, 9)
    ('below-log-start', 'above-end', None)
    """
    if committed is None:
        return None
    if log_start is not None and committed < log_start:
        return "below-log-start"
    return "above-end" if end is not None and committed > end else None


def still_since(row: GroupPartitionRow) -> int | None:
    """Return since when records wait and the offset is the same; None: neither is known.

    A group without anything to read commits nothing new, so the later of the two counts.
    """
    return max((t for t in (row.since, row.oldest_timestamp) if t is not None), default=None)


def may_stand(row: GroupPartitionRow, now: int, stuck_after: int) -> bool:
    """Return True if only a second look can show whether the group moves on a partition."""
    since = still_since(row)
    return row.waits and (row.since is None or since is None or now - since > stuck_after)


def judge_group(seen: GroupSeen) -> GroupVerdict:
    """Return the first verdict that holds."""
    if stops(seen.own_verdict):
        return GroupVerdict("held")
    if lost := tuple(r for r in seen.rows if r.problem is not None and not r.moved):
        return GroupVerdict("out-of-range", lost)
    if waiting := tuple(r for r in seen.rows if r.waits):
        return _of_waiting(seen, waiting)
    if held := tuple(r for r in seen.rows if r.held and stops(r.verdict)):
        return GroupVerdict("held", held)
    if any(r.committed_offset is None and r.pending for r in seen.rows):
        return GroupVerdict("held")  # its first commit waits, in a transaction within its limits
    unseen = tuple(r for r in seen.rows if r.lag is None or r.error is not None)
    if unseen or seen.state is None or not seen.complete:
        return GroupVerdict("not-known", unseen)
    return GroupVerdict("up-to-date" if seen.rows else "nothing-committed")


def _of_waiting(seen: GroupSeen, waiting: Sequence[GroupPartitionRow]) -> GroupVerdict:
    """Judge a group with records to read by whether it reads them."""
    stand = [r for r in waiting if may_stand(r, seen.now, seen.stuck_after) and not r.moved]
    still = tuple(r for r in stand if r.moved is False)
    if seen.members == 0 and (not seen.commits_alone or len(stand) == len(waiting)):
        return GroupVerdict("not-running", tuple(waiting))
    if still:
        return GroupVerdict("not-moving", still)
    return GroupVerdict("not-known" if stand else "catching-up", tuple(stand or waiting))
