"""The timeline of a transaction: what happened when, and in red what did not."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.inspect.cluster_rows import HistoryRow, StripRow
from recovery.values import replace
from tests.tui.driving import recording, run, running, text_of
from tui.screens.views import OVERVIEW, TIMELINE, WHY
from tui.widgets.lines import line_width, plain
from tui.widgets.timeline import Transaction, newest_transaction, transaction_lines

T0 = 1_764_230_400_000  # 08:00:00Z


def record(state: str, at: int, partitions: tuple[str, ...] = (), start: int = 0) -> HistoryRow:
    return HistoryRow(
        transactional_id="a",
        offset=at,
        coordinator_partition=0,
        timestamp=T0 + at,
        state=state,
        producer_id=7,
        producer_epoch=3,
        epoch_bump=None,
        timeout_ms=60_000,
        start_timestamp=T0 + start if partitions else None,
        client_transaction_version=2,
        previous_producer_id=None,
        next_producer_id=None,
        partitions=list(partitions),
        tombstone=False,
    )


def stretch(kind: str, first: int, last: int, pid: int = 7, topic: str = "t") -> StripRow:
    return StripRow(
        topic=topic,
        partition=0,
        first_offset=first,
        end_offset=last + 1,
        kind=kind,  # type: ignore[arg-type]
        producer_id=pid,
        batches=2,
        records=5,
        first_timestamp=T0 + first,
        last_timestamp=T0 + last,
    )


def marker(outcome: Literal["commit", "abort"], at: int, topic: str = "t") -> StripRow:
    made = stretch("control", at, at, topic=topic)
    return replace(made, outcome=outcome, timestamp=T0 + at, batches=1, records=1)


BEGUN = record("Ongoing", 0, ("t:0", "u:0"))
OPEN = [record("Empty", -5), BEGUN]
DECIDED = [*OPEN, record("PrepareCommit", 80_000, ("t:0", "u:0"))]
ENDED = [*DECIDED, record("CompleteCommit", 90_000)]


def lanes(
    history: list[HistoryRow], rows: list[StripRow], lost: tuple[str, ...] = (), width: int = 100
) -> dict[str, str]:
    """What is drawn of each partition, by its name."""
    t = newest_transaction(history)
    assert t is not None
    lines = transaction_lines(t, ["t:0", "u:0"], rows, lost, T0 + 100_000, width)
    texts = [plain(line) for line in lines]
    return {text.split()[0]: text[13 : width - 26] for text in texts[1:4]} | {
        "head": texts[0],
        "times": texts[4],
        "legend": texts[5],
        **{f"{text.split()[0]} says": text[width - 24 :].strip() for text in texts[1:4]},
    }


def at(lane: str, ms: int, end: int) -> str:
    return lane[ms * (len(lane) - 1) // end]


def test_the_newest_transaction_is_the_last_that_names_partitions() -> None:
    assert newest_transaction([record("Empty", 0)]) is None
    assert newest_transaction(OPEN) == Transaction(7, 3, T0)
    assert newest_transaction(DECIDED) == Transaction(7, 3, T0, T0 + 80_000, "commit")
    done = Transaction(7, 3, T0, T0 + 80_000, "commit", T0 + 90_000)
    assert newest_transaction(ENDED) == done
    assert newest_transaction([*ENDED, record("Empty", 95_000)]) == done
    again = record("Ongoing", 96_000, ("t:0",), start=95_000)
    assert newest_transaction([*ENDED, again]) == Transaction(7, 3, T0 + 95_000)


def test_a_transaction_that_ended_has_its_batches_and_a_marker_in_each_partition() -> None:
    rows = [
        stretch("committed", -900, -800),
        marker("commit", -700),
        stretch("committed", 10_000, 20_000),
        stretch("aborted", 30_000, 40_000, pid=8),
        marker("commit", 85_000),
        stretch("committed", 50_000, 50_000, topic="u"),
        marker("commit", 88_000, "u"),
    ]
    drawn = lanes(ENDED, rows)
    assert "commit in 1m" in drawn["head"]
    top, t, u = drawn["transaction"], drawn["t:0"], drawn["u:0"]
    assert (top[0], at(top, 80_000, 90_000), top[-1]) == ("B", "P", "C")
    assert [at(t, ms, 90_000) for ms in (10_000, 15_000, 20_000, 35_000, 85_000)] == [*"=== C"]
    assert t.count("C") == 1, "the marker before it is of another transaction"
    assert [at(u, ms, 90_000) for ms in (50_000, 88_000)] == [*"=C"]
    assert drawn["t:0 says"] == "5 records, 2 b."
    assert drawn["times"].split() == ["08:00:00", "08:01:30Z"]


def test_an_open_one_goes_on_and_owns_no_earlier_marker() -> None:
    rows = [
        stretch("committed", -900, -800, topic="u"),
        marker("commit", -700, "u"),
        stretch("open", 0, 50_000),
    ]
    drawn = lanes(OPEN, rows)
    assert "open for 1m" in drawn["head"]
    assert drawn["t:0"][-1] == "."
    assert at(drawn["t:0"], 25_000, 100_000) == "#"
    assert not drawn["u:0"].strip()
    assert drawn["u:0 says"] == "nothing read of it"
    assert "no marker" not in drawn["legend"]


def test_the_gap_is_drawn_only_where_a_marker_is_proven_lost() -> None:
    rows = [stretch("open", 0, 50_000), marker("commit", 85_000, "u")]
    seen = lanes(ENDED, rows, lost=("t:0",))
    gap = seen["t:0"][80 * (len(seen["t:0"]) - 1) // 100 :]
    assert set(gap) == {"!"}
    assert seen["t:0 says"] == "its marker is missing"
    assert "!" not in seen["u:0"]
    assert "! no marker" in seen["legend"]
    t = newest_transaction(ENDED)
    assert t is not None
    lines = transaction_lines(t, ["t:0"], rows, ("t:0",), T0 + 100_000, 100)
    assert {role for text, role in lines[2] if "!" in text} == {"act"}
    unknown = lanes(ENDED, rows)
    assert "!" not in unknown["t:0"], "not seen is not lost"


@given(
    st.sampled_from([OPEN, DECIDED, ENDED]),
    st.lists(
        st.builds(
            stretch,
            st.sampled_from(["open", "committed", "control", "undecided"]),
            st.integers(-(10**9), 10**9),
            st.integers(-(10**9), 10**9),
            st.sampled_from([7, 8]),
            st.sampled_from(["t", "u"]),
        )
    ),
    st.sets(st.sampled_from(["t:0", "u:0"])),
    st.integers(20, 200),
)
def test_it_fits_whatever_the_clocks_say(
    history: list[HistoryRow], rows: list[StripRow], lost: set[str], width: int
) -> None:
    t = newest_transaction(history)
    assert t is not None
    for now in (T0 - 10**9, T0, T0 + 10**9):
        for line in transaction_lines(t, ["t:0", "u" * 300], rows, lost, now, width):
            assert line_width(line) <= width


@pytest.mark.parametrize("view", [OVERVIEW, WHY])
def test_t_opens_the_timeline_of_the_transaction_at_the_cursor(view: object) -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            if view is WHY:
                await pilot.press("6")
                app.go(replace(app.location, about="orders:3"))
            row = app.table.current
            judged = row.judged if row and view is OVERVIEW else next(iter(app.holders))
            assert judged is not None
            await pilot.press("t")
            if judged.transactional_id is None:
                assert "no transactional id is known here" in text_of(app)
                assert app.location.view is view
                return
            assert (app.location.view, app.location.about) == (TIMELINE, judged.transactional_id)
            await pilot.press("escape")
            assert app.location.view is view

    run(test)
