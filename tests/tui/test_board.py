"""What the overview has besides its list: what is drawn was seen, and is where it happened."""

from typing import Any

import pytest

from eoctl.operations.dashboard.snapshot import Snapshot
from recovery.answers import Answer
from recovery.change.journal_rows import JournalRow
from recovery.inspect.cluster_rows import LsoRow
from recovery.row import ErrorRow
from recovery.values import replace
from tests.tui.driving import RECORDINGS
from tui.board.drawing import board_lines
from tui.board.history import MOST_TOPICS, Board
from tui.feed.frame import Builder
from tui.feed.recording import read
from tui.widgets.lines import line_width, plain
from tui.widgets.trend import BUCKETS, STEPS_MS, Trend, cell_of

SIZES = ((60, 7), (80, 7), (80, 12), (120, 20), (200, 40))


def snapshots(name: str) -> list[Snapshot]:
    return list(read(RECORDINGS / f"{name}.jsonl"))


def board_of(looks: list[Snapshot], *, ascii_only: bool = False) -> Board:
    builder = Builder(ascii_only=ascii_only)
    for s in looks[:-1]:
        builder.feed(s)
    return builder.frame(looks[-1]).board


def without_records(answer: Answer) -> dict[str, Any]:
    """The envelope of a list, as if a partition of `__transaction_state` had not been seen."""
    since = answer.extra.get("since_last_look")
    known = {"since_last_look": {**since, "records": None}} if since else {}
    return {**answer.extra, **known}


def drawn(board: Board, width: int, height: int) -> str:
    return "\n".join(plain(line) for line in board_lines(board, width, height))


def said(board: Board) -> str:
    return "\n".join(plain(line) for line in (*board.ends, *board.rate, *board.changes))


def test_a_lane_per_topic_says_what_is_held_now() -> None:
    looks = snapshots("incident")
    held: dict[str, int] = {}
    s = looks[-1]
    for r in s.partitions.rows if s.partitions else ():
        assert isinstance(r, LsoRow)
        if r.held:
            held[r.topic] = held.get(r.topic, 0) + r.held
    board = board_of(looks)
    lanes = {lane.topic: lane.held for lane in board.lanes}
    assert lanes.pop(board.lanes[0].topic) == sum(held.values())
    assert {topic: n for topic, n in lanes.items() if n} == held
    assert all(lane.held_samples[-1] == lane.held for lane in board.lanes if lane.held)


def test_nothing_is_drawn_while_the_broker_was_gone() -> None:
    looks = snapshots("incident")
    [first, *_] = silent = [s for s in looks if s.silent]
    assert not looks[-1].silent, "it came back"
    assert silent
    seen = max(s.partitions.collected_at for s in looks if s.partitions and not s.silent)
    board = board_of(looks)
    assert board.until - board.seconds * 1000 < first.taken_at < seen < board.until
    gone = BUCKETS - 1 - (board.until - silent[-1].taken_at) * BUCKETS // board.seconds // 1000
    assert board.lanes[0].held_samples[gone - 1] is None
    assert board.lanes[0].held_samples[-1] is not None


def test_a_change_is_marked_where_and_when_it_began() -> None:
    looks = snapshots("incident")
    s = looks[-1]
    assert s.journal is not None
    [entry] = [e for e in s.journal.rows if isinstance(e, JournalRow)]
    assert entry.scope == "payments:1"
    assert entry.started is not None
    board = board_of(looks)
    [(bucket, letter)] = next(lane.marks for lane in board.lanes if lane.topic == "payments")
    begin = board.until - (BUCKETS - bucket) * board.seconds * 1000 // BUCKETS
    assert letter == entry.action[0] == "a"
    assert begin <= entry.started < begin + board.seconds * 1000 // BUCKETS
    lines = drawn(board, 120, 30).splitlines()
    [marks] = [line for line in lines if line.startswith(" changes")]
    assert marks[36:].lstrip(" ").startswith("a")
    assert marks.count("a") == 2 + " changes".count("a"), "below both drawings"
    elsewhere = [replace(entry, cluster_id="another")]
    other = replace(s, journal=replace(s.journal, rows=elsewhere))
    board = board_of([*looks[:-1], other])
    assert not any(lane.marks for lane in board.lanes), "on another cluster"
    assert "none from this host" in said(board)


@pytest.mark.parametrize("name", ["calm", "incident", "orders", "empty", "denied", "jobs"])
def test_it_fits_and_says_the_same_without_colour_and_in_ascii(name: str) -> None:
    looks = snapshots(name)
    board = board_of(looks, ascii_only=True)
    for width, height in SIZES:
        lines = board_lines(board, width, height)
        assert len(lines) <= height, (width, height)
        assert all(line_width(line) <= width for line in lines), (width, height)
        text = "\n".join(map(plain, lines)).replace("…", "")
        assert text.isascii()
    assert said(board).replace("…", "").isascii()


def test_what_could_not_be_seen_is_not_called_none() -> None:
    text = said(board_of(snapshots("denied")))
    assert "not known: what is open could not all be seen" in text
    assert "Describe on the ids would show it" in text
    [first, *_] = [s for s in snapshots("calm") if s.transactions]
    assert "it takes two looks" in said(board_of([first]))


def test_how_many_ended_is_said_from_where_to_where() -> None:
    """The state log's growth is an upper bound; without it there is none."""
    looks = snapshots("calm")
    text = said(board_of(looks))
    assert " to about " in text
    assert " a minute, over " in text
    blind = [
        replace(s, transactions=replace(s.transactions, extra=without_records(s.transactions)))
        if s.transactions
        else s
        for s in looks
    ]
    text = said(board_of(blind))
    assert "at least" in text
    assert "about" not in text


def test_many_topics_stay_bounded() -> None:
    [*_, s] = snapshots("orders")
    assert s.partitions is not None
    held = next(r for r in s.partitions.rows if isinstance(r, LsoRow) and r.held)
    builder = Builder()
    for n in range(5):
        rows = [replace(held, topic=f"t{n * 300 + k}", held=k + 1) for k in range(300)]
        at = s.partitions.collected_at + n * 5_000
        answer = Answer("lso", None, at, rows, [ErrorRow(scope="x", error="E", detail="d")])
        builder.feed(replace(s, partitions=answer))
    assert len(builder.history.held) <= MOST_TOPICS
    assert len(builder.history.ages) <= MOST_TOPICS


def test_a_trend_grows_from_minutes_to_half_an_hour_and_keeps_its_peaks() -> None:
    trend = Trend()
    trend.add(0, {"a": 9})
    trend.add(STEPS_MS[0], {"a": 1})
    assert trend.seconds == 300
    trend.add(299_999, {"a": 2})
    assert trend.seconds == 300
    trend.add(300_000, {"a": 3})
    assert trend.seconds == 600
    samples = trend.samples("a")
    assert [v for v in samples if v is not None] == [9, 2, 3], "two looks in one bucket: the peak"
    trend.add(600_000, {"a": 4})
    assert trend.seconds == 1800
    assert trend.samples("a")[-1 - 600_000 // STEPS_MS[-1]] == 9


def test_a_look_stands_until_the_next_one_if_that_is_not_late() -> None:
    trend = Trend()
    trend.add(0, {"a": 5})
    trend.add(12_000, {"a": 7}, joins_ms=15_000)
    assert trend.samples("a")[-3:] == (5, 5, 7)
    trend.add(32_000, {"a": 8}, joins_ms=15_000)
    assert trend.samples("a")[-5:] == (7, None, None, None, 8), "a gap"


@pytest.mark.parametrize("width", [15, 30, 38, 60])
def test_every_bucket_has_its_cell(width: int) -> None:
    cells = [cell_of(n, width) for n in range(BUCKETS)]
    assert cells == sorted(cells)
    assert (cells[0], cells[-1]) == (0, width - 1)
