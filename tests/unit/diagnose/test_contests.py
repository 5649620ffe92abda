"""Contested ids of a complete cluster: who is named, what the bounds left out, what is unknown."""

import asyncio
import json
from pathlib import Path

import jsonschema
import pytest

from docs.generate_schemas import schema
from eoctl.cli.main import run
from eoctl.kafka.read.chunks import Chunk, Ended, Range
from eoctl.kafka.read.recent_log import OF_CONTESTS, Tail, Tails, fair_share
from eoctl.operations.diagnose.recent_contests import _judged, _Reading, contest_rows, not_named
from eoctl.operations.diagnose.status_answer import status
from eoctl.operations.diagnose.why_answer import answer_of, of_contest, why
from eoctl.operations.inspect.offline import Offline
from eoctl.render.diagnose_words import (
    MOST_NOTED,
    contest_notes,
    contest_words,
    reading_notes,
)
from eoctl.render.watch_words import check_row
from eoctl.stores import bundle_files
from eoctl.stores.bundle_files import Bundle
from recovery.answers import Answer, error_rows
from recovery.diagnose.case import clients_of
from recovery.diagnose.contest import WINDOW_MS, Contest, Contests, Initialisation
from recovery.diagnose.contest_log import ContestLog
from recovery.diagnose.diagnosis_rows import EndsRow, OtherwiseRow, WayRow
from recovery.errors import Exit
from recovery.facts import GroupFacts, Missing, StreamsProcess
from recovery.formats.coordinator import coordinator_partition
from recovery.inspect.observation import Settings
from recovery.values import replace
from recovery.watch.contest_rule import contested_ids
from tests.unit.formats.test_state_log import key, value
from tests.unit.formats_build import Item, batch
from tests.unit.inspect.test_state_cache import one
from tests.unit.render.test_render_why import hanging, page_row

NOW = 1_700_000_000_000
DENIED = Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "grant READ", topic="__transaction_state")
SILENT = Missing("topic", "REQUEST_TIMED_OUT", "not read", topic="__transaction_state")
KEPT = Path(__file__).parents[2] / "kept" / "0.2.0" / "incident.eoctl"


def contest(name: str, turns: int = 4) -> Contest:
    """Initialised each second, the last time a second ago; each ended an open transaction."""
    begun = [
        Initialisation(NOW - 1000 * (turns - turn), turn * 4, 7, turn, 60_000, True)
        for turn in range(turns)
    ]
    causes = ("two-owners", "restarts", "raises-its-own-epoch")
    return Contest(name, tuple(begun), causes, 7, turns, "Ongoing", NOW)  # type: ignore[arg-type]


def group(name: str, *members: tuple[str, str]) -> GroupFacts:
    return GroupFacts(name, "Stable", members=members)


@pytest.mark.parametrize("most", [1, 7, 100, 10_000])
@pytest.mark.parametrize(
    "sizes", [[], [0, 0], [5], [1, 2, 3, 4], [0, 50, 50, 50], [10] * 30 + [900]]
)
def test_all_together_take_no_more_and_nobody_less_than_an_equal_part(
    sizes: list[int], most: int
) -> None:
    share = fair_share(sizes, most)
    assert sum(min(size, share) for size in sizes) <= most
    if sum(sizes) <= most:
        assert all(size <= share for size in sizes), "nothing is left out without need"
    else:
        assert share >= most // len(sizes)


@pytest.mark.parametrize(
    ("found", "number", "ok"),
    [
        (Contests(), 0, True),
        (Contests((contest("a"),)), 1, False),
        (Contests((contest("a"), contest("b"))), 2, False),
        (Contests(missing=(DENIED,)), None, None),
        (Contests((contest("a"),), missing=(DENIED,)), 1, False),
        (Contests(read_from=NOW - 40_000), 0, None),
        (Contests(read_from=NOW - 60_000), 0, True),
        (Contests((contest("a"),), read_from=NOW - 40_000), 1, False),
    ],
)
def test_the_rule_of_check(found: Contests, number: int | None, ok: bool | None) -> None:
    row = check_row(contested_ids(found, NOW, 1))
    assert (row.rule, row.observed, row.ok, row.unit) == ("contested_ids", number, ok, "ids")
    assert all(c.transactional_id in row.detail for c in found.contests)
    if found.read_from is not None:
        assert f"only the last {(NOW - found.read_from) // 1000} s were read" in row.detail
    assert ("not all of __transaction_state was read" in row.detail) == bool(found.missing)


def test_the_rule_names_an_id_as_it_is() -> None:
    """The table and JSON escape it: a second time would make it another name."""
    assert check_row(contested_ids(Contests((contest("a\x1b"),)), NOW, 1)).detail == "a\x1b"


def test_the_rule_counts_up_to_its_threshold() -> None:
    found = Contests((contest("a"), contest("b")))
    assert [contested_ids(found, NOW, limit).ok for limit in (1, 2, 3)] == [False, False, True]


def chunk(partition: int, offset: int, data: bytes) -> Chunk:
    end = offset + 1
    return Chunk("__transaction_state", partition, offset, end, data, None, 9, 9, 0)


def tail(*partitions: int, cut: frozenset[int] = frozenset(), since: int = 0) -> Tail[_Reading]:
    """What is read of partitions that have three offsets each."""
    ranges = tuple(Range("__transaction_state", number, 0, 3) for number in partitions)
    tails = Tails("__transaction_state", 50, since, OF_CONTESTS, ranges, cut)
    return Tail(tails, _Reading(often=False))


def test_a_partition_that_breaks_off_is_named_and_the_others_count() -> None:
    reading = tail(0, 1, 2, 3)
    items: tuple[Chunk | Ended, ...] = (
        *(chunk(0, number, one(number, "a")) for number in range(3)),
        chunk(1, 0, one(0, "b")),
        Ended("__transaction_state", 1, 1, "TOPIC_AUTHORIZATION_FAILED"),
        chunk(2, 0, one(0, "c")[:-1] + b"!"),
        chunk(2, 1, one(1, "c")),
        chunk(3, 0, one(0, "d")),
    )
    for item in items:
        reading.take(item)
    assert set(reading.sink.contests._begun) == {b"a", b"b", b"d"}
    found = _judged(reading, NOW)
    assert found.unfinished == 2, "partition 2 goes on, partition 3 was not read to its end"
    denied, corrupt, too_much = found.missing
    assert denied.error == "TOPIC_AUTHORIZATION_FAILED"
    assert "1 of 50 partitions" in denied.detail
    assert "grant READ" in denied.detail
    assert corrupt.error == "CORRUPT"
    assert "grant" not in corrupt.detail
    assert "2 of 50 partitions" in too_much.detail
    assert "160 MiB" in too_much.detail
    assert found.number is None


def test_how_far_back_is_that_of_the_partition_with_the_least() -> None:
    """Of those that were cut; older records than the window say nothing."""
    reading = tail(0, 1, 2, 3, cut=frozenset({0, 1, 3}), since=NOW - 600_000)
    ago = {0: [50_000, 10_000], 1: [700_000, 30_000], 2: [1_000], 3: [700_000]}
    for partition, times in ago.items():
        for offset, ms in enumerate(times):
            item = Item(0, NOW - ms, key("a"), value(7, 0, 1))
            reading.take(chunk(partition, offset, batch(offset, [item])))
    assert reading.read_from == NOW - 30_000
    assert reading.newest == {0: NOW - 10_000, 1: NOW - 30_000, 2: NOW - 1_000, 3: NOW - 700_000}
    assert tail(0).read_from is None


def test_a_clock_that_is_ahead_hides_no_contest_of_another_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, reading = contest("a"), tail(0)
    own, until = coordinator_partition("a", 50), one.initialisations[-1].at
    monkeypatch.setattr(ContestLog, "contests", property(lambda self: [one]))
    reading.newest = {own: until + 1, own + 1: until + 2 * WINDOW_MS}
    assert _judged(reading, until + WINDOW_MS).contests == (one,)
    assert _judged(reading, until + WINDOW_MS + 1).contests == ()
    reading.newest = {own: until + WINDOW_MS + 1}
    assert _judged(reading, until).contests == (), "over, though our clock is behind"


def test_clients_are_those_of_the_groups_that_the_id_is_named_after() -> None:
    mine = group("app", ("worker-2", "/10.0.0.2"), ("worker-1", "/10.0.0.1"))
    other = group("apple", ("x", "/10.0.0.9"))
    assert clients_of("app-1", [mine, other]) == [
        ("worker-1", "/10.0.0.1"),
        ("worker-2", "/10.0.0.2"),
    ]
    process = StreamsProcess("worker-2", "/10.0.0.2", "6b1d")
    streams = replace(mine, processes=(process,))
    assert clients_of("app-6b1d-1", [streams]) == [("worker-2", "/10.0.0.2")]


@pytest.mark.parametrize(
    ("seconds", "often"), [(0.2, "more than once a second"), (1.0, "about every 1 s")]
)
def test_how_often_is_said_in_words(seconds: float, often: str) -> None:
    [row] = contest_rows(Contests((contest("a"),)))
    words = contest_words(replace(row, interval_seconds=seconds), NOW)
    assert words.startswith(f"initialised 4 times, {often}, last ")


def test_clients_that_were_not_seen_are_unknown_and_none_are_none() -> None:
    about = contest("app-1")
    assert contest_rows(Contests((about,)))[0].clients == []
    assert contest_rows(Contests((about,), groups_missing=(DENIED,)))[0].clients is None
    mine = group("app", ("worker", "/10.0.0.1"))
    [row] = contest_rows(Contests((about,), groups=(mine,), groups_missing=(DENIED,)))
    assert row.clients == ["worker at /10.0.0.1"]
    assert "clients of its group: worker at /10.0.0.1" in contest_notes([row], NOW)[0]


def test_some_are_told_and_all_are_counted() -> None:
    names = [f"app-{number}" for number in range(MOST_NOTED + 4)]
    notes = contest_notes(contest_rows(Contests(tuple(map(contest, names)))), NOW)
    assert len(notes) == MOST_NOTED + 1
    assert all(f"{name} is contested: initialised 4 times" in " ".join(notes) for name in names[:5])
    assert notes[-1] == "4 other ids are contested: app-5, app-6, app-7 and 1 more"


def test_what_the_bounds_left_out_is_said_and_else_nothing() -> None:
    assert reading_notes(Contests((contest("a"),)), NOW) == []
    [back] = reading_notes(Contests(read_from=NOW - 42_000), NOW)
    assert "only the last 42 s were read" in back
    assert "more records of the last 10 min than are read" in back


def test_what_the_bounds_left_out_is_in_the_answer() -> None:
    """A busy log is healthy; one that was not read to its end is not known."""
    cut = of_cluster(bundle(Contests(read_from=NOW)), "status")
    assert (cut.extra["contests"], cut.extra["contests_unfinished"]) == ([], 0)
    assert cut.extra["contests_read_from"] == "2023-11-14T22:13:20.000Z"
    assert cut.errors == []
    late = of_cluster(bundle(Contests(unfinished=3, missing=(SILENT,))), "status")
    assert (late.extra["contests"], late.extra["contests_unfinished"]) == (None, 3)
    assert late.extra["contests_read_from"] is None
    assert late.exit_status is Exit.INCOMPLETE


@pytest.mark.parametrize(
    ("others", "left"),
    [
        ((), (DENIED, SILENT)),
        ((DENIED,), (SILENT,)),
        ((Missing("broker", "CONNECTION_REFUSED", "away", broker=2),), (DENIED,)),
        ((Missing("coordinator", "COORDINATOR_NOT_AVAILABLE", "away"),), (DENIED,)),
        ((Missing("partition", "NOT_SEEN", "x", topic="t", partition=0),), (DENIED, SILENT)),
    ],
)
def test_an_absent_coordinator_is_told_once(
    others: tuple[Missing, ...], left: tuple[Missing, ...]
) -> None:
    found = Contests(missing=(DENIED, SILENT))
    assert tuple(not_named(found, error_rows(others))) == left


def bundle(contests: Contests | None) -> Offline:
    kept, _ = bundle_files.read(KEPT)
    assert isinstance(kept, Bundle)
    return Offline(replace(kept, contests=contests))


def of_cluster(source: Offline, page: str) -> Answer:
    asked = (
        status(source, source.context, Settings(), pause=0)
        if page == "status"
        else why(source, source.context, [], Settings(), pause=0)
    )
    return asyncio.run(asked)


@pytest.mark.parametrize("page", ["status", "why"])
def test_a_bundle_of_an_earlier_version_does_not_know(page: str) -> None:
    answer = of_cluster(bundle(None), page)
    assert answer.extra["contests"] is None
    assert "NOT_IN_BUNDLE" in {e.error for e in answer.errors}
    assert answer.exit_status is Exit.INCOMPLETE


@pytest.mark.parametrize("page", ["status", "why"])
def test_a_bundle_answers_as_the_cluster_did(page: str, tmp_path: Path) -> None:
    none = of_cluster(bundle(Contests()), page)
    assert none.extra["contests"] == []
    assert none.errors == []
    source = bundle(Contests((contest("storm-1"),)))
    bundle_files.write(source._bundle, tmp_path / "kept")
    again = Offline(bundle_files.read(tmp_path / "kept")[0])
    answer = of_cluster(again, page)
    assert [c.transactional_id for c in answer.extra["contests"]] == ["storm-1"]
    assert any("storm-1 is contested: initialised 4 times" in note for note in answer.notes)
    assert answer.exit_status is Exit.FINDING


@pytest.mark.parametrize("page", ["status", "why", "runbook"])
def test_scripts_and_people_read_it(
    page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "storm\x1b[2J"
    source = bundle(Contests((contest(hostile),), groups=(group("storm", ("a\x1b", "/h")),)))
    bundle_files.write(source._bundle, tmp_path / "kept")
    assert run([page, "--from", str(tmp_path / "kept")]) == 1
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "initialised 4 times" in " ".join(f"{shown.out} {shown.err}".split())
    if page != "runbook":
        assert run([page, "--from", str(tmp_path / "kept"), "-o", "json"]) == 1
        output = json.loads(capsys.readouterr().out)
        jsonschema.validate(output, schema(page))
        [found] = output["contests"]
        assert (found["transactional_id"], found["since"][-1]) == (hostile, "Z")


def test_no_page_about_a_contest_offers_a_fence() -> None:
    """Nor calls it healthy. What else its owner may be known for stays."""
    ways = [
        WayRow(action=action, knows="owner-gone", outcome=None, argv=["eoctl"], command=action)
        for action in ("fence", "resolve")
    ]
    rest = OtherwiseRow(code="wait-for-owner", data={})
    ends = EndsRow(way="may-live", next=None, if_you_know=ways, otherwise=rest)
    row = page_row(held_by=hanging("long", "wait", ends=ends))
    [mine] = contest_rows(Contests((contest("storm-1"),)))
    assert of_contest(row, None) == row
    found = of_contest(row, mine)
    assert found.contest == mine
    assert found.held_by is not None
    assert found.held_by.ends is not None
    assert [w.action for w in found.held_by.ends.if_you_know] == ["resolve"]
    source = bundle(None)
    assert answer_of(source, [row], [], []).exit_status is Exit.OK
    assert answer_of(source, [found], [], []).exit_status is Exit.FINDING


def test_status_has_a_row_of_them() -> None:
    found = Contests((contest("a"), contest("b c", turns=9)))
    *others, mine = [row.json_values() for row in of_cluster(bundle(found), "status").rows]
    assert (mine["verdict"], mine["transactions"], mine["partitions"]) == ("contested-id", 2, 0)
    assert (mine["worst"], mine["next"]) == ("b c", "why '--transactional-id=b c'")
    assert "contested-id" not in {row["verdict"] for row in others}
