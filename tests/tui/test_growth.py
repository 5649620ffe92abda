"""What grows, in the dashboard: the rows of the commands, asked only when the screens open."""

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.record import LabSpec
from eoctl.operations.dashboard.snapshot import Snapshot
from recovery.answers import Answer
from recovery.inspect.growth.growth_rows import ProducersSummaryRow, TxnSummaryRow
from recovery.row import ErrorRow
from tests.kafka.command import eoctl
from tests.tui.driving import lines_of, run, running, text_of, until
from tests.tui.test_doctor import HOSTILE, CountingFeed, rounds
from tests.tui.test_lab import UNCHECKED, StartLab, live
from tui.feed.frame import Builder
from tui.screens.views import COUNTS, PREFIXES, PRODUCERS, TRANSACTIONS

IDS = TxnSummaryRow(
    prefix=HOSTILE,
    transactional_ids=7,
    open=2,
    idle=5,
    oldest_idle_seconds=60.0,
    oldest_idle_id="sales-1",
    idle_unknown=0,
    states={"Ongoing": 2, "CompleteCommit": 5},
    new_ids=3,
    new_per_hour=2160.0,
)
PRODUCERS_ROW = ProducersSummaryRow(
    by="prefix",
    broker=None,
    topic=None,
    partition=None,
    prefix=HOSTILE,
    owner_known=True,
    partitions=2,
    partitions_unseen=0,
    producer_ids=3,
    producer_states=6,
    open=1,
)


def test_it_is_asked_when_a_screen_opens_and_by_a_key() -> None:
    feed = CountingFeed()
    asked = feed.counting.asked

    async def test() -> None:
        async with running(feed, (120, 24)) as (app, pilot):
            await pilot.press("3")
            await rounds(pilot, feed, 3)
            assert asked == []
            assert "z count" in lines_of(app)[-1]
            for key, listed, counted, what in (
                ("3", TRANSACTIONS, PREFIXES, "txn-list-summary"),
                ("4", PRODUCERS, COUNTS, "producers-summary"),
            ):
                asked.clear()
                await pilot.press(key, "z")
                assert app.location.view is counted
                await until(pilot, lambda: "there is none" in text_of(app))
                await rounds(pilot, feed, 3)
                assert asked == [what], "not in the rounds that repeat"
                await pilot.press("r")
                await until(pilot, lambda what=what: asked == [what, what])  # type: ignore[misc]
                assert app.check_action("remedy", ()) is False
                await pilot.press("z")
                assert app.location.view is listed
            await pilot.press("colon", *"prefixes", "enter", "z")
            assert app.location.view is PRODUCERS, "back to where it came from"
            await pilot.press("2", "z")
            assert app.location.view.name == "partitions", "the key does not exist here"

    run(test)


def test_rows_topics_what_grows_and_what_was_not_seen() -> None:
    topic = {
        "topic": "__transaction_state",
        "partitions": 50,
        "offsets": 900,
        "bytes": 4096,
        "largest_partition": 7,
        "largest_bytes": 2048,
        "held": 0,
        "logs": [],
    }
    grown = {
        "kind": "internal-topic",
        "topic": "__transaction_state",
        "partition": 7,
        "bytes": 1 << 31,
        "limit": 1 << 30,
        "prefix": "sales-",
        "transactional_ids": 9,
    }
    extra = {"internal_topics": [topic], "growth": [grown]}
    missing = ErrorRow(scope="broker", error="REQUEST_TIMED_OUT", detail="x", broker=2)
    answer = Answer("txn-list-summary", "c", 1_000, [IDS], [missing], extra=extra)
    tables = Builder().frame(Snapshot("grown", 1_000, growth=answer)).tables
    rows = tables["prefixes"].rows
    assert [row.mark for row in rows] == ["!", "", "", "?"]
    assert "prefix 'sales-*' has 9 transactional ids" in rows[0].cells[-1]
    assert rows[1].cells[2:8] == ("7", "2", "5", "1m", "3", "2160.0")
    assert rows[1].opens == ("timeline", "sales-1")
    assert rows[2].cells[1] == "__transaction_state"
    assert rows[2].cells[-1].startswith("50 partitions, 900 offsets, 4.0 KiB")
    assert "broker 2" in rows[3].cells[1]
    assert all(cell.isprintable() for row in rows for cell in row.cells)
    assert tables["counts"].empty.startswith("counting"), "the other one was not asked"


def test_producers_by_each_kind() -> None:
    partition = ProducersSummaryRow.read(
        {
            **{name: getattr(PRODUCERS_ROW, name) for name in PRODUCERS_ROW.__struct_fields__},
            "by": "partition",
            "topic": "orders",
            "partition": 3,
            "prefix": None,
            "owner_known": None,
        }
    )
    answer = Answer("producers-summary", "c", 1_000, [partition, PRODUCERS_ROW])
    rows = Builder().frame(Snapshot("grown", 1_000, growth=answer)).tables["counts"].rows
    assert [row.cells[1] for row in rows] == ["partition", "prefix"]
    assert rows[0].cells[2:] == ("orders:3", "6", "3", "2", "1", "-", "-")
    assert rows[0].opens == ("why", "orders:3")
    assert all(cell.isprintable() for row in rows for cell in row.cells)


@pytest.mark.long
def test_growth_on_a_lab(start_lab: StartLab) -> None:
    """The rows are those that the commands print."""
    lab = start_lab(LabSpec(name="tui-one", settings=UNCHECKED))
    break_(lab, "open", topic="grown")
    ids = eoctl("txn", "list", "--summary", "--top", "0", "-o", "json", lab=lab)
    states = eoctl("producers", "--summary", "--resolve", "--top", "0", "-o", "json", lab=lab)

    async def test() -> None:
        async with running(live(lab), (160, 40)) as (app, pilot):
            await until(pilot, lambda: app.frame is not None)
            await pilot.press("3", "z")
            await until(pilot, lambda: bool(app.table.state.data.rows), 60)
            shown = [r.source for r in app.table.state.data.rows]
            found = {r.prefix: r.transactional_ids for r in shown if isinstance(r, TxnSummaryRow)}
            assert found == {r["prefix"]: r["transactional_ids"] for r in ids.rows}
            assert "__transaction_state" in text_of(app)
            await pilot.press("4", "z")
            await until(pilot, lambda: bool(app.table.state.data.rows), 60)
            counted = [r.source for r in app.table.state.data.rows]
            by_topic = {
                r.topic: r.producer_states
                for r in counted
                if isinstance(r, ProducersSummaryRow) and r.by == "topic"
            }
            assert by_topic == {
                r["topic"]: r["producer_states"] for r in states.rows if r["by"] == "topic"
            }

    run(test)
