"""The page of `why --group`: the verdict, who runs it, what waits where, and the next step."""

from typing import Any, get_args

import pytest

from eoctl.render.group_words import group_lines, headline
from eoctl.render.width import cells
from recovery.diagnose.why_rows import (
    Action,
    GroupPartitionRow,
    GroupStepRow,
    GroupStoryRow,
    GroupVerdictName,
)
from tests.unit.render.test_render_why import GOLDEN, HOSTILE, NOW

HOUR = 3_600_000
WHY = "eoctl --context prod-eu why -- invoices:2"


def where(partition: int, committed: int, lso: int, high: int, **more: Any) -> GroupPartitionRow:
    given: dict[str, Any] = {
        "topic": "invoices",
        "partition": partition,
        "committed_offset": committed,
        "log_start_offset": 0,
        "last_stable_offset": lso,
        "high_watermark": high,
        "lag": lso - committed,
        "records": lso - committed,
        "oldest_timestamp": NOW - 2 * HOUR,
        "held": high - lso,
        "committed_at": NOW - 3 * HOUR,
        "since": NOW - 3 * HOUR,
        "pending": False,
    }
    return GroupPartitionRow(**given | more)


def story(**more: Any) -> GroupStoryRow:
    """The group of docs/transactions.md: nobody runs it, and one partition is held too."""
    given: dict[str, Any] = {
        "group": "billing",
        "type": "Classic",
        "state": "Empty",
        "isolation": None,
        "verdict": "not-running",
        "about": ["invoices:0", "invoices:2"],
        "members": [],
        "never_had_members": False,
        "empty_since": NOW - 3 * HOUR,
        "last_members": ["billing-1 at 10.2.0.7"],
        "own_partition": None,
        "own_verdict": None,
        "looks_seconds": None,
        "since_unseen": None,
        "partitions": [where(0, 10, 21, 21), where(2, 10, 23, 29, verdict="orphan")],
        "next": [
            GroupStepRow(action="start"),
            GroupStepRow(action="why", partition="invoices:2", argv=["eoctl"], command=WHY),
        ],
    }
    return GroupStoryRow(**given | more)


def page(s: GroupStoryRow, width: int | None = 80) -> list[str]:
    return group_lines(s, context="prod-eu", collected_at=NOW, width=width)


def test_the_page() -> None:
    assert "\n".join(page(story())) + "\n" == (GOLDEN / "why_group_80.txt").read_text()


LIVE = {
    "state": "Stable",
    "members": ["c-1 at 10.0.0.1", "c-2 at 10.0.0.2"],
    "empty_since": None,
    "last_members": [],
}
RUNS = GroupStepRow(action="look-at-members")
NEW_START = GroupStepRow(action="choose-start", partition="invoices:0")


@pytest.mark.parametrize(
    ("more", "title", "said"),
    [
        ({}, "NOT MOVING  nobody runs it", "start its process (it was last on 10.2.0.7)"),
        ({"never_had_members": True}, "NOT MOVING  nothing commits for it", "the job that commits"),
        (
            {**LIVE, "verdict": "not-moving", "next": [RUNS], "looks_seconds": 5.0},
            "NOT MOVING  its members do not move",
            "log and threads of c-1 at 10.0.0.1, c-2 at 10.0.0.2: a record that fails",
        ),
        (
            {**LIVE, "verdict": "not-moving", "about": ["invoices:2"], "next": [RUNS]},
            "NOT MOVING  its members do not move on invoices:2",
            "next: invoices:2 offset 10",
        ),
        (
            {**LIVE, "verdict": "not-moving", "next": [RUNS], "state": "PreparingRebalance"},
            "NOT MOVING  its members do not move",
            "members that join and leave again",
        ),
        (
            {"verdict": "not-moving", "members": None, "next": [RUNS]},
            "NOT MOVING  whether anybody runs it was not seen",
            "members not seen",
        ),
        (
            {"verdict": "held", "about": ["invoices:2"]},
            "HELD  by orphan on invoices:2",
            "start its process (it was last on 10.2.0.7), after that",
        ),
        (
            {
                "verdict": "held",
                "about": [],
                "own_partition": "__consumer_offsets:7",
                "own_verdict": "orphan",
            },
            "HELD  its newest commit waits: orphan on __consumer_offsets:7",
            "until that ends no member learns where to read on",
        ),
        (
            {**LIVE, "verdict": "catching-up"},
            "CATCHING UP  its lag is real work: 24 records",
            "moved last 3h ago",
        ),
        (
            {"verdict": "up-to-date", "about": [], "partitions": [], "next": []},
            "UP TO DATE  nothing waits for it; nobody runs it",
            "nothing to do",
        ),
        (
            {"verdict": "nothing-committed", "about": [], "partitions": [], "next": []},
            "NOTHING COMMITTED  where it reads, Kafka does not know",
            "where it keeps its offsets",
        ),
        (
            {"verdict": "out-of-range", "about": ["invoices:0"], "next": [NEW_START]},
            "OUT OF RANGE  its offset is not in the log of invoices:0",
            "--to-offset N sets it (from 0 to 21); a member that starts now goes",
        ),
        (
            {"partitions": [where(0, 10, 21, 21, pending=True, pending_offset=15)]},
            "NOT MOVING  nobody runs it",
            "committed 10, 15 pending LSO 21",
        ),
        (
            {"partitions": [where(0, 10, 21, 21, pending=True)]},
            "NOT MOVING  nobody runs it",
            "committed 10, a newer one pending LSO 21",
        ),
        (
            {"since_unseen": "grant READ", "partitions": [where(0, 1, 2, 2, since=None)]},
            "NOT MOVING  nobody runs it",
            "since when is not known: grant READ",
        ),
    ],
)
def test_each_verdict_says_what_to_do(more: dict[str, Any], title: str, said: str) -> None:
    lines = page(story(**more), None)
    assert lines[0].startswith(f"billing  {title}    ")
    assert said in " ".join(" ".join(lines).split())
    assert "over" not in "".join(line for line in lines if "next " in line)


def test_a_process_that_commits_the_same_offset_again_lives() -> None:
    again = [where(0, 10, 21, 21, committed_at=NOW - 2000)]
    lines = page(story(**LIVE, verdict="not-moving", partitions=again, next=[RUNS]), None)
    assert (
        " not moved    for at least 3h; its newest commit, 2s ago, is of the same offset" in lines
    )


def test_numbers_that_are_minimums_say_so() -> None:
    rows = [where(0, 10, 21, 21, at_least=True), where(1, 10, 21, 21, records=None)]
    text = "\n".join(page(story(partitions=rows), None))
    assert "lag 11, at least 11 records" in text
    assert "lag 11, records not counted" in text
    lost = [
        where(0, 10, 21, 21, problem="below-log-start", log_start_offset=15),
        where(1, 30, 21, 21, problem="above-end", lag=0),
        where(3, 30, 0, 0, error="LEADER_NOT_AVAILABLE"),
    ]
    steps = [GroupStepRow(action="choose-start", partition="invoices:0")]
    given = story(verdict="out-of-range", about=["invoices:0"], partitions=lost, next=steps)
    text = "\n".join(page(given, None))
    assert "what lay between is deleted, read or not (log start 15)" in text
    assert "above the end of the log" in text
    assert "not seen: LEADER_NOT_AVAILABLE" in text
    assert "auto.offset.reset" in text


def test_many_partitions_are_cut_and_counted() -> None:
    rows = [where(n, 10, 10, 10, records=0) for n in range(30)] + [where(99, 10, 21, 21)]
    lines = page(story(about=["invoices:99"], partitions=rows))
    shown = [line.split()[0] for line in lines if line.startswith(" invoices:")]
    assert (len(shown), shown[0]) == (20, "invoices:99")
    assert any("11 partitions more" in line for line in lines)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("verdict", get_args(GroupVerdictName))
def test_names_of_others_do_no_harm(name: str, verdict: GroupVerdictName) -> None:
    row = where(0, 10, 21, 29, topic=name, verdict="orphan")
    steps = [GroupStepRow(action=a, partition=f"{name}:0") for a in get_args(Action)]
    given = story(
        group=name,
        verdict=verdict,
        about=[f"{name}:0"],
        members=[f"{name} at {name}"],
        last_members=[f"{name} at {name}"],
        partitions=[row],
        next=steps,
    )
    for width in (40, 80):
        lines = page(given, width)
        assert max(map(cells, lines)) <= width
        assert all(line.isprintable() for line in lines)
    assert headline(given).isprintable()
