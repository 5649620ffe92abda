"""A group's commits over time: a lane a partition, what stands out, and when it is asked."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.operations.dashboard import once
from eoctl.operations.dashboard.collection import LiveCollection
from eoctl.operations.dashboard.snapshot import Snapshot
from eoctl.render.columns.commits import COMMITS
from eoctl.settings.context import Context
from recovery.answers import Answer
from recovery.inspect.commits.commit_rows import OffsetsHistoryRow, with_earlier
from recovery.inspect.commits.newest import newest_of
from recovery.row import ErrorRow
from recovery.values import replace
from tests.tui.driving import lines_of, recording, run, running, text_of, until
from tests.tui.test_doctor import HOSTILE, CountingFeed, rounds
from tui import panes
from tui.screens.groups import group_page
from tui.screens.views import GROUP, GROUPS, Location
from tui.widgets.commit_lanes import SIGNS, commit_lanes, kind_of
from tui.widgets.lines import Line, line_width, plain

T0 = 1_764_230_400_000  # 08:00:00Z
COMMIT = OffsetsHistoryRow(
    group="sales",
    topic="t",
    partition=0,
    timestamp=T0,
    committed_offset=10,
    leader_epoch=None,
    metadata=None,
    topic_id=None,
    expire_timestamp=None,
    deleted=False,
    counts=True,
    previous_offset=None,
    previous_timestamp=None,
    moved=None,
    committed_by="member",
    producer_id=None,
    producer_epoch=None,
    transactional_id=None,
    outcome=None,
    marker_offset=None,
    marker_timestamp=None,
    initialised_at=None,
    event=None,
    proven=None,
    journal_entry=None,
    coordinator_partition=3,
    record_offset=0,
    record_epoch=5,
    earlier_missing=False,
)
IN_TRANSACTION = replace(COMMIT, outcome="committed", producer_id=7, committed_by="transaction")
RESET = replace(
    COMMIT,
    committed_offset=3,
    previous_offset=10,
    previous_timestamp=T0,
    moved=-7,
    committed_by="no-member",
    event="reset",
    proven=True,
)
KINDS = {
    "outside of transactions": COMMIT,
    "in a transaction": IN_TRANSACTION,
    "does not count": replace(IN_TRANSACTION, outcome="aborted", counts=False),
    "pending": replace(IN_TRANSACTION, outcome="pending", counts=None),
    "deleted": replace(COMMIT, committed_offset=None, deleted=True, event="expired"),
    "stands out": RESET,
}


def at(row: OffsetsHistoryRow, seconds: float, partition: int = 0) -> OffsetsHistoryRow:
    return replace(row, timestamp=T0 + int(seconds * 1000), partition=partition)


def test_each_kind_of_commit_has_its_sign() -> None:
    assert {kind: kind_of(row) for kind, row in KINDS.items()} == {k: k for k in KINDS}
    assert len({sign for sign, _ in SIGNS.values()}) == len(SIGNS), "not by colour alone"


def test_a_lane_a_partition_with_what_stands_out() -> None:
    rows = [at(COMMIT, 0), at(IN_TRANSACTION, 0, 1), at(COMMIT, 50), at(RESET, 100)]
    lanes = [plain(line) for line in commit_lanes(rows, T0 + 100_000, 79)]
    first, second, times, legend = lanes
    assert first.startswith(" t:0 o")
    assert first[1:].split()[1].endswith("!")
    assert "10 > 3, 0s ago" in first
    assert "10, 1m ago" in second
    assert ("08:00:00" in times, "08:01:40Z" in times) == (True, True)
    assert all(f"{SIGNS[k][0]} {k}" in legend for k in ("stands out", "in a transaction"))


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 10**6), st.integers(0, 50)),
        min_size=1,
        max_size=80,
    ),
    st.integers(20, 200),
)
def test_lanes_are_within_the_width(found: list[tuple[str, int, int]], width: int) -> None:
    rows = [at(KINDS[kind], seconds, partition) for kind, seconds, partition in found]
    for line in commit_lanes(rows, T0, width):
        assert line_width(line) <= width


def test_the_page_in_sentences_and_hostile_names() -> None:
    rows = [at(replace(COMMIT, topic=HOSTILE), 0), at(replace(RESET, topic=HOSTILE), 9)]
    extra = {"group": "sales", "whole": True, "complete_since": None, "left_out": 0}
    answer = Answer("offsets-history", "c", T0 + 10_000, rows, extra=extra)
    s = Snapshot("x", T0, commits=answer, commits_about="sales")
    for width in (60, 79, 120):
        lines = [plain(line) for line in group_page(s, "sales", width)]
        text = "\n".join(lines)
        assert all(char.isprintable() for char in text.replace("\n", ""))
        whole = " ".join(text.split())
        assert "moved from 10 to 3 while the group had no members" in whole
        assert "2 records of 1 partition, 1 reset; complete" in whole
    [waiting] = group_page(s, "other", 80)
    assert "reading the commits of other" in plain(waiting)


@pytest.mark.parametrize("width", [60, 79, 118, 198])
def test_the_newest_commits_are_in_columns_whatever_the_alphabet(width: int) -> None:
    long = "a-topic-with-a-long-name-" + "漢字" * 40
    rows = [at(replace(COMMIT, topic=topic), n) for n, topic in enumerate(("t", "漢字漢字", long))]
    answer = Answer("offsets-history", "c", T0, rows, extra={"whole": True, "left_out": 0})
    lines = group_page(Snapshot("x", T0, commits=answer, commits_about="g"), "g", width)
    newest = lines[[plain(line).strip() for line in lines].index("newest commits") + 1 :]
    assert len(newest) == 3
    for line in newest:
        text = plain(line)
        assert line_width(line) <= width
        # up to the offset, which all have in common
        assert line_width(((text[: text.rindex(" 10 ")], ""),)) == line_width(
            ((plain(newest[0])[: plain(newest[0]).rindex(" 10 ")], ""),)
        )


def looked_twice(then: list[OffsetsHistoryRow], now: list[OffsetsHistoryRow]) -> list[int] | None:
    """The offsets in the log of what is known after a second look; None: of another log."""
    rows = with_earlier(now, then)
    return None if rows is None else [row.record_offset for row in rows]


def in_log(*offsets: int, epoch: int = 5) -> list[OffsetsHistoryRow]:
    """Commits at these offsets of `__consumer_offsets`."""
    return [replace(at(COMMIT, n), record_offset=n, record_epoch=epoch) for n in offsets]


def test_what_compaction_takes_between_two_looks_stays() -> None:
    then = [*in_log(0, 1, 2), replace(at(RESET, 3), record_offset=3)]
    left = replace(
        then[3],
        previous_offset=None,
        previous_timestamp=None,
        moved=None,
        event=None,
        proven=None,
        earlier_missing=True,
    )
    rows = with_earlier([left, *in_log(9)], then)
    assert rows is not None
    assert [row.record_offset for row in rows] == [0, 1, 2, 3, 9]
    assert rows[3] == then[3], "it knows what counted before it"
    assert with_earlier([then[3]], [left]) == [then[3]], "also if only the later look knows it"
    pending = replace(then[2], outcome="pending", counts=None)
    assert looked_twice([pending, then[3]], [then[3]]) == [3], "what became of it is not known"
    decided = replace(pending, outcome="committed", counts=True)
    assert with_earlier([decided, then[3]], [pending, then[3]]) == [decided, then[3]]


def test_what_an_unclean_leader_cut_off_does_not_come_back() -> None:
    """10, 60 and 100 were seen; a leader that ended at 50 appends up to 150 in the next epoch."""
    then = in_log(10, 60, 100)
    assert looked_twice(then, [*in_log(10), *in_log(150, epoch=6)]) == [10, 150]
    kept = [*in_log(10), *in_log(70), *in_log(150, epoch=6)]
    assert looked_twice(then, kept) == [10, 60, 70, 150], "it had the epoch up to 70"
    assert looked_twice(then, in_log(10, 150)) == [10, 60, 100, 150]
    nameless = [replace(row, record_epoch=None) for row in then]
    assert looked_twice(nameless, [nameless[0], *in_log(150)]) == [10, 150]


@pytest.mark.parametrize(
    "now",
    [
        in_log(7),  # nothing in common: another log, maybe
        [replace(at(COMMIT, 50), record_offset=3)],  # another record there
        in_log(3, epoch=6),
        [replace(row, coordinator_partition=4) for row in in_log(3)],
        [replace(row, outcome="aborted", marker_offset=14, counts=False) for row in in_log(2)],
    ],
)
def test_the_commits_of_another_log_are_not_mixed(now: list[OffsetsHistoryRow]) -> None:
    then = in_log(*range(4))
    then[2] = replace(then[2], outcome="committed", marker_offset=12)
    assert looked_twice(then, now) is None


def test_the_newest_are_kept_and_what_stands_out() -> None:
    rows = [replace(at(RESET, 0), record_offset=0), *in_log(*range(1, 6))]
    assert [row.record_offset for row in newest_of(rows, 2)] == [0, 4, 5]


GONE = ErrorRow(scope="group", topic="__consumer_offsets", id="sales", error="X", detail="unread")
UNSEEN = ErrorRow(scope="id", id="quote-engine", error="X", detail="its owner was not seen")


def answered(
    rows: list[OffsetsHistoryRow], *errors: ErrorRow, cluster: str = "c", left_out: int = 0
) -> Answer:
    extra = {"group": "sales", "whole": False, "complete_since": None, "left_out": left_out}
    extra |= {"coordinator_partition": 3}
    return Answer("offsets-history", cluster, T0, rows, errors, extra=extra)


def looks_of(monkeypatch: pytest.MonkeyPatch, *looks: Answer) -> list[Answer]:
    """What the dashboard shows of a group at each of these answers of the cluster."""
    left = list(looks)

    async def asked(*_: object) -> Answer:
        return left.pop(0)

    monkeypatch.setattr(once, "asked_once", asked)

    async def all_of_them() -> list[Answer]:
        collection = LiveCollection(Context("x", {}, ()))
        found = [(await collection.commits("sales")).parts["commits"] for _ in looks]
        assert all(isinstance(answer, Answer) for answer in found)
        return found  # type: ignore[return-value]

    return asyncio.run(all_of_them())


def test_the_dashboard_keeps_what_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = in_log(0, 1, 2)
    first, second, third = looks_of(
        monkeypatch, answered(rows), answered(rows[2:]), answered(rows[2:], cluster="another")
    )
    assert first.rows == second.rows == rows
    summary = COMMITS.summary(second)
    assert "3 records of 1 partition; 2 of them from an earlier look" in summary
    assert third.rows == rows[2:], "another cluster's"
    assert "nothing proves" in third.notes[0]


def test_a_look_that_fails_takes_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = in_log(0, 1, 2, 3)
    refused = Answer("offsets-history", None, T0 + 9, [], [GONE], extra={"group": "sales"})
    shown = looks_of(
        monkeypatch,
        answered(rows),
        answered(rows[:1], GONE),
        answered([]),
        refused,
        answered(rows[2:], UNSEEN),
        answered(rows[3:]),
    )
    assert [answer.rows for answer in shown] == [rows] * 6
    assert [answer.notes[0][:19] for answer in shown[1:4]] == ["nothing new was rea"] * 3
    assert shown[3].errors == [GONE]
    page = "\n".join(
        map(
            plain,
            group_page(Snapshot("x", T0, commits=shown[3], commits_about="sales"), "sales", 120),
        )
    )
    assert "nothing new was read" in page
    assert [len(answer.notes) for answer in shown[4:]] == [0, 0]


def test_what_is_kept_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "NEWEST", 3)
    rows = in_log(0, 1, 2, 3, 4, 5)
    first, second, third = looks_of(
        monkeypatch,
        answered(rows[:3]),
        answered([rows[1], rows[2], rows[3]], left_out=1),
        answered([rows[1], rows[3], rows[5]]),  # others were compacted
    )
    assert first.rows == rows[:3]
    assert second.rows == rows[1:4]
    assert (second.extra["kept"], second.extra["left_out"]) == (0, 1)
    assert [row.record_offset for row in third.rows if isinstance(row, OffsetsHistoryRow)] == [
        2,
        3,
        5,
    ]
    assert (third.extra["kept"], third.extra["left_out"]) == (1, 1)


def test_it_is_asked_when_the_page_opens_and_by_a_key() -> None:
    feed = CountingFeed()
    asked = feed.counting.asked

    async def test() -> None:
        async with running(feed, (120, 24)) as (app, pilot):
            await rounds(pilot, feed, 2)
            await pilot.press("colon", *"group sales", "enter")
            assert app.location == Location(GROUP, "sales")
            await until(pilot, lambda: "no commit of it is left" in text_of(app))
            await rounds(pilot, feed, 3)
            assert asked == ["commits of sales"], "not in the rounds that repeat"
            await pilot.press("r")
            await until(pilot, lambda: asked == ["commits of sales"] * 2)
            await pilot.press("2")
            await rounds(pilot, feed, 2)
            assert len(asked) == 2

    run(test)


def test_its_lines_are_made_once_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counting(s: Snapshot | None, group: str, width: int) -> list[Line]:
        made.append(width)
        return group_page(s, group, width)

    monkeypatch.setattr(panes, "group_page", counting)
    feed = CountingFeed()

    async def test() -> None:
        async with running(feed, (120, 24)) as (app, pilot):
            await pilot.press("colon", *"group sales", "enter")
            await until(pilot, lambda: "no commit of it is left" in text_of(app))
            made.clear()
            await rounds(pilot, feed, 3)
            assert made == [], "frames that bring nothing new of it"
            await pilot.resize_terminal(100, 24)
            await until(pilot, lambda: made == [98])
            await pilot.press("r")
            await until(pilot, lambda: made == [98] * 2)

    run(test)


def test_from_the_list_of_groups_and_back() -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            await pilot.press("5", "j")
            row = app.table.state.cursor
            assert "t timeline" in lines_of(app)[-1]
            await pilot.press("t")
            assert (app.location.view, app.location.about) == (GROUP, str(row).partition("\0")[0])
            await until(pilot, lambda: "the recording does not have this page" in text_of(app))
            assert "offsets history" in text_of(app)
            await pilot.press("escape")
            assert (app.location.view, app.table.state.cursor) == (GROUPS, row)

    run(test)


def test_why_in_a_recording_says_if_all_is_well() -> None:
    async def test() -> None:
        async with running(recording("calm")) as (app, pilot):
            await pilot.press("6")
            await until(pilot, lambda: "the recording does not have this page" in text_of(app))
            first = lines_of(app)[3].strip("│ ")
            assert first.endswith("within their limits"), first
            assert "why" in lines_of(app)[5]

    run(test)
