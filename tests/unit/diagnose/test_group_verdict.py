"""Why a group does not move, as a table of cases. Times in seconds before now; 60 s are long."""

from typing import Any

import pytest

from recovery.diagnose.group_verdict import GroupSeen, judge_group, may_stand, stops
from recovery.diagnose.verdicts import FINDINGS
from recovery.diagnose.why_rows import GroupPartitionRow

NOW = 1_700_000_000_000
LONG = 60_000


def at(partition: int = 0, lag: int | None = 0, **more: Any) -> GroupPartitionRow:
    """A partition with this lag; since and oldest: seconds ago."""
    for name, field in (("since", "since"), ("oldest", "oldest_timestamp")):
        if name in more:
            more[field] = NOW - 1000 * more.pop(name)
    return GroupPartitionRow(
        topic="t", partition=partition, committed_offset=more.pop("committed", 10), lag=lag, **more
    )


def seen(*rows: GroupPartitionRow, **more: Any) -> tuple[str, list[int]]:
    """The verdict on a group with one member, if no other number is given, and what it is about."""
    given = {"state": "Stable", "members": 1, "own_verdict": None, **more}
    verdict = judge_group(GroupSeen(rows=rows, now=NOW, stuck_after=LONG, **given))
    return verdict.name, [r.partition for r in verdict.about]


OLD: dict[str, Any] = {"records": 5, "since": 90, "oldest": 90}
HELD: dict[str, Any] = {"held": 6, "verdict": "orphan"}


@pytest.mark.parametrize(
    ("rows", "group", "expected"),
    [
        # nobody is in it
        ([at(lag=5, **OLD)], {"members": 0}, ("not-running", [0])),
        ([at(lag=5, records=5, since=2, oldest=9)], {"members": 0}, ("not-running", [0])),
        ([at(lag=5, **OLD), at(1, **HELD)], {"members": 0}, ("not-running", [0])),
        ([at(lag=5)], {"members": 0}, ("not-running", [0])),  # a bundle counts no records
        # nobody joins it, yet something commits for it
        (
            [at(lag=5, records=5, since=2, oldest=9)],
            {"members": 0, "commits_alone": True},
            ("catching-up", [0]),
        ),
        (
            [at(lag=5, moved=True, **OLD)],
            {"members": 0, "commits_alone": True},
            ("catching-up", [0]),
        ),
        (
            [at(lag=5, moved=False, **OLD)],
            {"members": 0, "commits_alone": True},
            ("not-running", [0]),
        ),
        # its members do not move, on one partition or on all
        ([at(lag=5, moved=False, **OLD)], {}, ("not-moving", [0])),
        ([at(lag=5, moved=True, **OLD), at(1, 5, moved=False, **OLD)], {}, ("not-moving", [1])),
        ([at(lag=5, records=5, moved=False)], {}, ("not-moving", [0])),
        ([at(lag=5, moved=False, **OLD)], {"members": None}, ("not-moving", [0])),
        ([at(lag=5, moved=False, **OLD), at(1, **HELD)], {}, ("not-moving", [0])),
        # it moves
        ([at(lag=5, moved=True, **OLD)], {}, ("catching-up", [0])),
        ([at(lag=5, records=5, since=2, oldest=90)], {}, ("catching-up", [0])),
        # it had nothing to read for long, and then something came
        ([at(lag=5, records=5, since=9000, oldest=3)], {}, ("catching-up", [0])),
        # whether it moves was not seen
        ([at(lag=5, **OLD)], {}, ("not-known", [0])),
        ([at(lag=5, records=5)], {"members": None}, ("not-known", [0])),
        # markers and aborted records are nothing to read
        ([at(lag=5, records=0)], {}, ("up-to-date", [])),
        # held
        ([at(**HELD)], {}, ("held", [0])),
        ([at(**HELD), at(1)], {"members": 0}, ("held", [0])),
        ([at(held=6, verdict="unknown")], {}, ("held", [0])),
        ([at(lag=5, **OLD)], {"own_verdict": "orphan"}, ("held", [])),
        ([at(lag=None, committed=None, pending=True)], {"own_verdict": "open"}, ("held", [])),
        # what ends by itself holds nobody up
        ([at(held=6, verdict="open")], {}, ("up-to-date", [])),
        ([at(pending=True)], {"own_verdict": "open"}, ("up-to-date", [])),
        # its place is gone
        ([at(lag=5, problem="below-log-start", **OLD)], {"members": 0}, ("out-of-range", [0])),
        ([at(1, problem="above-end"), at(**HELD)], {}, ("out-of-range", [1])),
        # Streams deletes what it has read, up to an offset newer than the one that was seen
        ([at(1, problem="below-log-start", moved=True)], {}, ("up-to-date", [])),
        ([at(1, problem="below-log-start", moved=False)], {}, ("out-of-range", [1])),
        # nothing waits
        ([at(), at(1)], {}, ("up-to-date", [])),
        ([at()], {"members": 0, "state": "Empty"}, ("up-to-date", [])),
        ([], {}, ("nothing-committed", [])),
        # what was not seen is not told as well
        ([at(lag=None, error="LEADER_NOT_AVAILABLE"), at(1)], {}, ("not-known", [0])),
        ([at()], {"state": None}, ("not-known", [])),
        ([at()], {"complete": False}, ("not-known", [])),
        ([], {"complete": False}, ("not-known", [])),
        ([at(lag=5, **OLD)], {"members": 0, "complete": False}, ("not-running", [0])),
    ],
)
def test_the_first_verdict_that_holds(
    rows: list[GroupPartitionRow], group: dict[str, Any], expected: tuple[str, list[int]]
) -> None:
    assert seen(*rows, **group) == expected


@pytest.mark.parametrize(
    ("row", "second_look"),
    [
        (at(lag=0), False),
        (at(lag=5, records=0), False),
        (at(lag=5, records=5), True),
        (at(lag=5, records=5, oldest=3), True),  # the oldest record alone does not tell
        (at(lag=5, records=5, since=59, oldest=59), False),
        (at(lag=5, records=5, since=61, oldest=61), True),
        (at(lag=5, records=5, since=61, oldest=3), False),
    ],
)
def test_when_a_second_look_is_needed(row: GroupPartitionRow, second_look: bool) -> None:
    assert may_stand(row, NOW, LONG) is second_look


def test_what_ends_by_itself_holds_nobody() -> None:
    assert {v for v in (*FINDINGS, "unknown", "open", "prepare", None) if not stops(v)} == {
        "open",
        "prepare",
        None,
    }
