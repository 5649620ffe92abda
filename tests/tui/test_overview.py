"""What the overview claims: never more than was seen; and what an operator must see is there."""

from pathlib import Path
from typing import Any

import pytest

from eoctl.operations.dashboard.snapshot import Snapshot
from recovery.change.journal_rows import JournalRow, PlanFileRow
from recovery.diagnose.diagnosis_rows import (
    ContestRow,
    EndsRow,
    OtherwiseRow,
    TxnHangingRow,
)
from recovery.inspect.cluster_rows import LsoRow
from recovery.row import ErrorRow
from recovery.values import replace
from tests.tui.driving import RECORDINGS, recording, run, running, until
from tui.app import Dashboard
from tui.feed.frame import Builder, Frame
from tui.feed.recording import read
from tui.feed.writer import Writer
from tui.screens.pages import why_page
from tui.widgets.lines import plain


def last(name: str) -> Snapshot:
    return list(read(RECORDINGS / f"{name}.jsonl"))[-1]


def frame(s: Snapshot) -> Frame:
    return Builder().frame(s)


def said(s: Snapshot) -> str:
    return "\n".join(plain(line) for line in frame(s).says)


def test_a_running_job_and_an_unfinished_change_are_named_and_can_be_opened() -> None:
    s = last("jobs")
    assert "jobs 1 running" in said(s)
    assert s.journal is not None
    [entry] = [e for e in s.journal.rows if isinstance(e, JournalRow)]
    assert not any(r.cells[1] == "unfinished" for r in frame(s).tables["overview"].rows)
    begun = replace(entry, state="unfinished")
    rows = frame(replace(s, journal=replace(s.journal, rows=[begun]))).tables["overview"].rows
    assert [(r.mark, r.opens) for r in rows] == [
        ("!", ("change", entry.id)),
        ("", ("job", f"job {rows[1].cells[2]}")),
    ]
    assert rows[1].cells[2] in frame(s).tables["jobs"].by_key


def test_what_is_held_and_was_not_judged_is_not_called_healthy() -> None:
    s = last("orders")
    assert s.partitions is not None
    assert s.hanging is not None
    held = [r for r in s.partitions.rows if isinstance(r, LsoRow) and r.held]
    hanging: list[Any] = list(s.hanging.rows)
    quiet = [
        replace(h, verdict="open", partition=r.partition, topic=r.topic)
        for h, r in zip(hanging, held, strict=False)
    ]
    judged = replace(s, hanging=replace(s.hanging, rows=quiet))
    assert f"{len(held)} partitions held by transactions within their limits" in said(judged)
    some = replace(s, hanging=replace(s.hanging, rows=quiet[:-1]))
    assert "within their limits" not in said(some)
    assert f"{len(held)} partitions held back, 1 of them not judged yet" in said(some)


def test_what_nobody_could_judge_is_not_called_healthy() -> None:
    s = last("orders")
    assert s.hanging is not None
    hanging = [h for h in s.hanging.rows if isinstance(h, TxnHangingRow)]
    rows = [replace(h, verdict="unknown") for h in hanging]
    text = said(replace(s, hanging=replace(s.hanging, rows=rows)))
    partitions = {(h.topic, h.partition) for h in hanging}
    assert f"? {len(partitions)} partitions held back, reason not known" in text
    assert "within their limits" not in text


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("look-again", "not known: look again"),
        ("ask-owner", "no safe remedy: ask"),
        ("wait-for-id", "its id comes first"),
    ],
)
def test_without_a_remedy_the_row_says_what_is_left(code: str, words: str) -> None:
    s = last("orders")
    assert s.hanging is not None
    [h, *_] = [h for h in s.hanging.rows if isinstance(h, TxnHangingRow)]
    ends = EndsRow(way=None, next=None, if_you_know=[], otherwise=OtherwiseRow(code=code, data={}))
    row = replace(h, verdict="unknown", ends=ends, remedy=replace(h.remedy, action="none"))
    table = frame(replace(s, hanging=replace(s.hanging, rows=[row]))).tables["overview"]
    assert [cells[-1] for cells in (r.cells for r in table.rows) if words in cells[-1]]


def test_what_could_not_be_seen_is_not_called_absent() -> None:
    s = last("denied")
    text = said(s)
    assert "could not be seen" in text
    assert "at least 0 open" in text
    assert "nothing is open" not in text
    tables = frame(s).tables
    for name in ("transactions", "producers", "groups"):
        assert tables[name].empty.startswith("?"), name
        assert "TOPIC_AUTHORIZATION_FAILED" in tables[name].empty
    assert "nothing is open" in said(last("empty"))


def test_a_dead_cluster_has_no_brokers_up() -> None:
    text = said(last("dead"))
    assert "the cluster does not answer; below: the last data" in text
    assert " up" not in text


@pytest.mark.parametrize("name", ["orders", "jobs"])
def test_plans_that_can_no_longer_be_applied_are_told_apart(name: str) -> None:
    s = last(name)
    plans = [p for p in (s.plans.rows if s.plans else ()) if isinstance(p, PlanFileRow)]
    later = replace(s, taken_at=s.taken_at + 3600_000)
    states = [
        frame(at).tables["plans"].by_key[f"plan {p.path}"].cells[2]
        for p in plans
        for at in (s, later)
    ]
    assert states == ["planned", "expired"] * len(plans)


def test_a_broker_that_is_down_stands_above_what_it_hides_and_that_in_one_line() -> None:
    s = last("orders")
    assert s.partitions is not None
    assert s.brokers is not None
    known: list[Any] = list(s.brokers.rows)
    brokers = [replace(b, up=n > 0) for n, b in enumerate(known)]
    hidden = [
        ErrorRow(scope="partition", topic="t", partition=p, error="NOT_SEEN", detail="no leader")
        for p in range(3000)
    ]
    down = replace(
        s,
        brokers=replace(s.brokers, rows=brokers),
        partitions=replace(s.partitions, errors=hidden),
    )
    marks = [r.mark for r in frame(down).tables["overview"].rows]
    assert marks == sorted(marks, key=["!!", "!", "?", ""].index)
    rows = frame(down).tables["overview"].rows
    assert [r.cells[2] for r in rows if r.cells[1] == "broker down"] == ["broker 1"]
    assert [r.cells[2] for r in rows if r.cells[1] == "not seen"] == ["3,000 partitions"]
    one = replace(down, partitions=replace(s.partitions, errors=hidden[:1]))
    rows = frame(one).tables["overview"].rows
    assert [r.cells[2] for r in rows if r.cells[1] == "not seen"] == ["t:0"]


def contested(s: Snapshot) -> Snapshot:
    """The snapshot, with an id whose owners fence each other beside all else."""
    found = ContestRow(
        transactional_id="sales-7\x1b",
        initialisations=9,
        aborted=8,
        since=s.taken_at - 60_000,
        until=s.taken_at - 2_000,
        interval_seconds=7.0,
        timeouts_ms=[60_000],
        causes=["two-owners", "restarts"],
        producer_id=4001,
        producer_epoch=8,
        state="Ongoing",
    )
    assert s.hanging is not None
    extra = {**s.hanging.extra, "contests": [found]}
    return replace(s, hanging=replace(s.hanging, extra=extra))


def test_a_broker_that_is_down_is_said_before_a_contested_id() -> None:
    s = contested(last("empty"))
    assert s.brokers is not None
    gone = replace(s.brokers.rows[0], up=False)  # type: ignore[call-arg]
    down = replace(s, brokers=replace(s.brokers, rows=[gone, *s.brokers.rows[1:]]))
    assert "1 broker down" in said(down)
    assert "contested" not in said(down)


@pytest.mark.parametrize("name", ["empty", "orders"])
@pytest.mark.parametrize("replayed", [False, True])
def test_a_contested_id_is_in_the_list_and_opens_its_page(
    name: str, replayed: bool, tmp_path: Path
) -> None:
    before, s = last(name), contested(last(name))
    if replayed:
        writer = Writer(tmp_path / "kept.jsonl")
        writer.add(s)
        writer.close()
        [s] = read(tmp_path / "kept.jsonl")
    rows = {r.cells[1]: r for r in frame(s).tables["overview"].rows}
    assert "contested-id" not in {r.cells[1] for r in frame(before).tables["overview"].rows}
    mine = rows["contested-id"]
    assert (mine.mark, mine.opens) == ("!!", ("why", "id sales-7\x1b"))
    assert "\x1b" not in "".join(map(str, mine.cells))
    if name == "empty":
        assert "1 contested id" in said(s)
        assert s.why is None or s.why_about != "id sales-7\x1b"
        assert s.hanging is not None
        nothing = replace(s.hanging, rows=[], errors=[])
        page = replace(s, why=nothing, why_about="id sales-7\x1b")
        text = "\n".join(plain(line) for line in why_page(page, "id sales-7\x1b", 79))
        assert "initialised 9 times" in text
        assert "which processes run with transactional.id" in " ".join(text.split())
        assert "\x1b" not in text


def test_back_on_the_overview_all_its_panels_are_of_now() -> None:
    """A frame that comes while another screen is shown is what its pictures show afterwards."""

    def panels(app: Dashboard) -> list[str]:
        return [panel.text() for panel in (*app.pictures, app.ends, app.changes)]

    async def test() -> None:
        async with running(recording("incident")) as (app, pilot):
            await until(pilot, lambda: "abort done" in app.changes.text())
            wanted = panels(app)
            app.feed.seek_to(4)
            await until(pilot, lambda: "abort done" not in app.changes.text())
            await pilot.press("2")
            app.feed.seek_to(1_000)
            await until(pilot, lambda: app.frame is not None and len(set(app.frame.position)) == 1)  # type: ignore[arg-type]
            await pilot.press("1")
            await pilot.pause(0.1)
            assert panels(app) == wanted

    run(test)
