"""What the overview has besides its list: what is drawn was seen, and is where it happened."""

from typing import Any

import pytest

from eoctl.operations.dashboard.snapshot import Snapshot
from recovery.answers import Answer
from recovery.change.journal_rows import JournalRow
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.inspect.cluster_rows import LsoRow, OffsetsShowRow
from recovery.values import replace
from tests.tui.driving import RECORDINGS
from tui.board.history import Board
from tui.board.pictures import COLOURS, Colours, lag_picture
from tui.board.samples import MOST, MOST_NAMES, Sample, Samples, sample_of
from tui.feed.frame import Builder
from tui.feed.recording import read
from tui.widgets.charts import picture_lines
from tui.widgets.lines import Line, line_width, plain
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
    """The pictures, each in this room."""
    return "\n".join(plain(line) for line in picture_texts(board, width, height))


def picture_texts(board: Board, width: int, height: int) -> list[Line]:
    return [line for p in board.pictures for line in picture_lines(p, width, height)]


def said(board: Board) -> str:
    return "\n".join(plain(line) for line in (*board.ends, *board.rate, *board.changes))


def line(board: Board, picture: int, name: str) -> dict[int, float | None]:
    """A line of a picture: its value at each time."""
    made = board.pictures[picture]
    [values] = [s.values for s in made.series if s.name == name]
    return dict(zip(made.times, values, strict=True))


def held(s: Snapshot) -> dict[str, int]:
    """What is held by topic."""
    found: dict[str, int] = {}
    for r in s.partitions.rows if s.partitions else ():
        assert isinstance(r, LsoRow)
        if r.held:
            found[r.topic] = found.get(r.topic, 0) + r.held
    return found


def test_a_line_per_topic_has_what_each_look_held() -> None:
    looks = snapshots("incident")
    board = board_of(looks)
    seen = {s.partitions.collected_at: held(s) for s in looks if s.partitions}
    names = [s.name for s in board.pictures[0].series]
    assert names[0] == "orders", "the topic with a finding"
    assert names[-1] == "others"
    drawn = [line(board, 0, name) for name in names]
    for at, by_topic in seen.items():
        mine = [one.get(at) for one in drawn]
        if mine[0] is not None:  # else a look in the same second held more
            assert mine[:-1] == [by_topic.get(name, 0) for name in names[:-1]]
            assert sum(v or 0 for v in mine) == sum(by_topic.values())
    assert max(v or 0 for v in drawn[0].values()) == max(b.get("orders", 0) for b in seen.values())
    assert set(drawn[0]) - set(seen) <= {at - 1 for at in seen}, "and gaps"


def test_nothing_is_drawn_while_the_broker_was_gone() -> None:
    looks = snapshots("incident")
    silent = [s.taken_at for s in looks if s.silent]
    assert silent
    assert not looks[-1].silent, "it came back"
    for name in ("orders", "others"):
        values = line(board_of(looks), 0, name)
        [gap] = [at for at, v in values.items() if v is None]
        assert silent[0] < gap
        before = max(at for at in values if at < gap)
        assert before < silent[0]
        assert gap - before > 12_000, "three intervals"


def test_a_change_is_marked_where_and_when_it_began() -> None:
    looks = snapshots("incident")
    s = looks[-1]
    assert s.journal is not None
    [entry] = [e for e in s.journal.rows if isinstance(e, JournalRow)]
    assert entry.started is not None
    board = board_of(looks)
    for picture in board.pictures:
        assert picture.marks == ((entry.started, "a"),)
    lines = drawn(board, 120, 30).splitlines()
    axes = [row for row in lines if row.count("─") > 20]
    assert axes
    assert all("a─" in row or row.endswith("a") for row in axes)
    elsewhere = [replace(entry, cluster_id="another")]
    other = replace(s, journal=replace(s.journal, rows=elsewhere))
    board = board_of([*looks[:-1], other])
    assert not any(picture.marks for picture in board.pictures), "on another cluster"
    assert "none from this host" in said(board)


def test_a_leader_and_a_coordinator_that_moved_are_marked() -> None:
    first, *looks = [s for s in snapshots("calm") if s.partitions and s.transactions][:9]
    looks = [replace(s, journal=None) for s in looks]
    assert board_of([first, *looks]).pictures[0].marks == ()
    for part, broker in (("partitions", "leader"), ("transactions", "coordinator")):
        answer = getattr(looks[4], part)
        row = replace(answer.rows[0], **{broker: 99})
        moved = replace(looks[4], **{part: replace(answer, rows=[row, *answer.rows[1:]])})
        assert moved.partitions is not None
        [(at, letter), *back] = board_of([first, *looks[:4], moved, *looks[5:]]).pictures[0].marks
        assert (at, letter) == (moved.partitions.collected_at, "c")
        assert len(back) <= 1, "and back with the next look, if that is not of the same second"
        unknown = replace(answer, rows=[replace(row, **{broker: None}), *answer.rows[1:]])
        gone = replace(looks[4], **{part: unknown})
        assert board_of([first, *looks[:4], gone, *looks[5:]]).pictures[0].marks == ()


def test_a_topic_keeps_its_colour_while_it_is_drawn() -> None:
    colours = Colours()
    assert list(colours.of(["a", "b", "c", "d"]).values()) == list(COLOURS)
    again = colours.of(["d", "e", "b"])
    assert (again["d"], again["b"]) == (COLOURS[3], COLOURS[1])
    assert again["e"] == COLOURS[0]


def test_the_oldest_finding_and_the_lag_of_a_group_are_what_the_rows_say() -> None:
    looks = snapshots("orders")
    board = board_of(looks)
    s = looks[-1]
    assert s.hanging is not None
    ages = [
        h.age_seconds or 0
        for h in s.hanging.rows
        if isinstance(h, TxnHangingRow) and h.verdict not in ("open", "prepare")
    ]
    assert [*line(board, 2, "oldest").values()][-1] == max(ages)
    builder = Builder()
    frame = [builder.frame(s) for s in looks][-1]
    rows = [r for r in s.groups.rows if isinstance(r, OffsetsShowRow)] if s.groups else []
    for group in {r.group for r in rows}:
        picture = lag_picture(frame.board.drawing, group)
        lag = sum(r.lag_hw or 0 for r in rows if r.group == group)
        assert picture.series[0].last == lag
    assert lag_picture(frame.board.drawing, "nobody").seen == []


def decided_in(s: Snapshot, begin: int, commits: list[int], aborts: list[int]) -> Snapshot:
    """The snapshot, with decisions counted from `begin` on, in stretches of 10 s."""
    answer = s.hanging or Answer("txn-hanging", None, s.taken_at, [])
    end = begin + 10_000 * len(commits)
    counted = {"begin": begin, "end": end, "commits": commits, "aborts": aborts}
    return replace(s, hanging=replace(answer, extra={**answer.extra, "decided": counted}))


def undecided(s: Snapshot) -> Snapshot:
    """The snapshot, as if `__transaction_state` had not been read."""
    if s.hanging is None:
        return s
    return replace(s, hanging=replace(s.hanging, extra={**s.hanging.extra, "decided": None}))


def test_commits_and_aborts_are_those_of_the_minute_before() -> None:
    [*_, s] = snapshots("calm")
    begin = s.taken_at // 10_000 * 10_000 - 120_000
    board = board_of([decided_in(s, begin, [1] * 6 + [2] * 6, [0] * 11 + [3])])
    commits, aborts = (line(board, 1, name) for name in ("committed", "aborted"))
    assert list(commits.values()) == [6] * 6 + [7, 8, 9, 10, 11, 12]
    assert list(aborts.values()) == [0] * 11 + [3]
    assert min(commits) == begin + 10_000
    text = said(board)
    assert "10 a minute, over 2m" in text
    assert "18 commits, 3 aborts" in text


def test_counts_that_overlap_are_not_added_up() -> None:
    """Every judgement counts the same ten minutes again, the newest stretch fuller."""
    [*_, s] = snapshots("calm")
    begin = s.taken_at // 10_000 * 10_000 - 120_000
    one = decided_in(s, begin, [6] * 11 + [2], [0] * 12)
    two = decided_in(s, begin + 5_000, [1] * 11 + [6], [0] * 12)
    values = line(board_of([one, two]), 1, "committed")
    assert set(values.values()) == {36.0}


def test_decisions_that_were_not_read_are_no_zeros() -> None:
    [*_, s] = snapshots("calm")
    board = board_of([undecided(s)])
    assert not board.pictures[1].series
    assert "not all of __transaction_state was read" in drawn(board, 120, 30)
    begin = s.taken_at // 10_000 * 10_000 - 400_000
    both = [
        decided_in(s, begin, [5] * 3, [0] * 3),
        decided_in(s, begin + 200_000, [5] * 3, [0] * 3),
    ]
    values = [*line(board_of(both), 1, "committed").values()]
    assert values == [30, 30, 30, None, 30, 30, 30]


@pytest.mark.parametrize("name", ["calm", "incident", "orders", "empty", "denied", "jobs"])
def test_it_fits_and_says_the_same_without_colour_and_in_ascii(name: str) -> None:
    looks = snapshots(name)
    board = board_of(looks, ascii_only=True)
    for width, height in SIZES:
        lines = picture_texts(board, width, height)
        assert len(lines) <= height * len(board.pictures), (width, height)
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
    looks = [*map(undecided, snapshots("calm"))]
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


def test_samples_stay_bounded_and_keep_the_peaks() -> None:
    samples = Samples()
    for n in range(20_000):
        held = {f"t{k}": n % 97 for k in range(3)}
        total = 1_000_000 if n == 18_345 else 3 * (n % 97)
        samples.add(Sample(n * 5_000, held, total, float(n % 50)))
        assert len(samples.samples) <= MOST
    kept = samples.samples
    assert kept[-1].at > 19_990 * 5_000
    assert kept[-1].at - kept[0].at > 5 * 3600_000, "five hours"
    assert max(s.total for s in kept) == 1_000_000


def test_many_topics_and_groups_stay_bounded_and_unknown_is_not_0() -> None:
    [*_, s] = snapshots("orders")
    assert s.partitions is not None
    row = next(r for r in s.partitions.rows if isinstance(r, LsoRow) and r.held)
    rows = [replace(row, topic=f"t{k:03}", held=k + 1) for k in range(300)]
    answer = replace(s.partitions, rows=rows)
    sample = sample_of(replace(s, partitions=answer), None)
    assert sample is not None
    assert len(sample.held) == MOST_NAMES
    assert sample.total == sum(range(1, 301))
    assert (sample.held_of("t299"), sample.held_of("t000")) == (300, None)


def test_a_trend_grows_from_minutes_to_half_an_hour_and_keeps_its_peaks() -> None:
    trend = Trend()
    trend.add(0, {"a": 9})
    trend.add(STEPS_MS[0], {"a": 1})
    trend.add(299_999, {"a": 2})
    assert trend.bucket_ms == STEPS_MS[0]
    trend.add(300_000, {"a": 3})
    assert trend.bucket_ms == STEPS_MS[1]
    samples = trend.samples("a")
    assert [v for v in samples if v is not None] == [9, 2, 3], "two looks in one bucket: the peak"
    trend.add(600_000, {"a": 4})
    assert trend.bucket_ms == STEPS_MS[2]
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
