"""Every verdict ends with what is accepted now, and names nothing that its command refuses.

What is accepted is asked of the code that plans a remedy, not of the one that names it.
"""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast
from unittest.mock import patch

import pytest
from hypothesis import given

from eoctl.operations.diagnose.verdict_rows import hanging_row
from eoctl.operations.remedy.remedy_plan import RemedyRequest
from eoctl.render.ends import ends_blocks, ways_of, ways_table
from eoctl.render.explain import explain_lines, find
from recovery.diagnose.diagnosis import Judged, JudgedId
from recovery.diagnose.id_verdicts import judge_id
from recovery.diagnose.verdicts import judge
from recovery.facts import (
    GroupFacts,
    Missing,
    ProducerFacts,
    TransactionFacts,
    Transactions,
)
from recovery.inspect.observation import Sample
from recovery.remedy.ends import WAYS_OUT, Ends, Way, ends_of, marker_refused, way_out
from recovery.values import replace
from tests.unit.diagnose.accepting import accepted
from tests.unit.inspect import test_id_verdicts as ids
from tests.unit.inspect import test_verdicts as table
from tests.unit.inspect.test_verdicts import CASES, P, Q, live, lost, refused
from tests.unit.remedy import test_verdicts_model as model
from tests.unit.said import said
from tests.unit.transaction_model import Eyes, Id, World, sample

ROOT = Path(__file__).parents[3]
TWO_PHASE = 2_147_483_647
End = tuple[str | None, list[str | None], str]
"""The command for now, what somebody must know for the others, and what is left."""


@contextmanager
def kept(module: ModuleType) -> Iterator[list[Judged]]:
    """What a module's calls of `judge` saw and said."""
    found: list[Judged] = []

    def recording(about, start, first, second=None, past=None, settings=None):  # type: ignore[no-untyped-def]
        verdict = judge(about, start, first, second, past, settings)
        if verdict is not None:
            found.append(Judged(about, start, first, second, past, verdict))
        return verdict

    with patch.object(module, "judge", recording):
        yield found


def seen(play: Callable[[], object]) -> Judged:
    with kept(table) as found:
        verdict = play()
    return next(j for j in found if j.verdict is verdict)


@cache
def of_case(name: str) -> Judged:
    return seen(CASES[name][0])


def short(ends: Ends) -> End:
    now = None if ends.next is None else ends.next.action
    return now, [w.knows for w in ends.if_you_know], ends.otherwise.code


def requests(j: Judged) -> dict[tuple[str, str | None, str], RemedyRequest]:
    """Every remedy that somebody could type for this transaction."""

    def marker(action: str, **more: object) -> RemedyRequest:
        return RemedyRequest(
            action,  # type: ignore[arg-type]
            partition=j.about.name,
            producer_id=j.about.producer_id,
            start_offset=j.about.start_offset,
            **more,  # type: ignore[arg-type]
        )

    made = {
        ("abort", None, ""): marker("abort"),
        ("fence", None, ""): RemedyRequest("fence"),
        ("fence", None, "owner-is-gone"): RemedyRequest("fence", owner_is_gone=True),
        ("resolve", "commit", "owner-is-gone"): marker(
            "resolve", outcome="commit", owner_is_gone=True
        ),
    }
    for outcome in ("commit", "abort"):
        made["resolve", outcome, ""] = marker("resolve", outcome=outcome)
        made["resolve", outcome, "without-proof"] = marker(
            "resolve", outcome=outcome, without_proof=True
        )
    return made


def flags_of(w: Way) -> list[str]:
    return ["--owner-is-gone"] * w.owner_is_gone + ["--without-proof"] * w.without_proof


def walk(j: Judged, version: int = 2) -> None:
    """What is named is accepted; what is not named is refused, for the reason that is shown.

    A refusal names what is accepted from whoever knows more. version: the cluster's.
    """
    ends = ends_of(j, version)
    named = set()
    for w in (ends.next, *ends.if_you_know):
        if w is not None and w.action != "why":
            named.add((w.action, w.outcome, "".join(flags_of(w)).removeprefix("--")))
    all_made = requests(j)
    assert named <= set(all_made)
    shown = {row[0]: row[1] for row in hanging_row(j, (), "c", version).remedy.refused}
    by_knowledge = {(w.action, *flags_of(w)) for w in ends.if_you_know}
    for key, request in all_made.items():
        why = accepted(j, request, version)
        if key in named:
            assert why is None, key
            continue
        if why is None:
            # the same remedy by more words, or an outcome that is proven
            assert ends.next is not None, key
            assert ends.next.action == key[0], key
        elif not key[2]:
            if key[0] in shown:
                assert shown[key[0]] in why or ends.otherwise.code == "wait-for-id", key
            for action, *flags in by_knowledge:
                assert all(word in why for word in (f"txn {action}", *flags)), (key, why)
    rest = ends.otherwise
    # numbers and names, as JSON has them
    assert json.dumps([rest.data, {} if rest.refused is None else dict(rest.refused.data)])


@pytest.mark.parametrize("name", CASES)
def test_what_is_named_is_accepted_and_nothing_else(name: str) -> None:
    walk(of_case(name))


@pytest.mark.parametrize("name", CASES)
def test_every_case_ends_as_its_verdict_says(name: str) -> None:
    """docs/verdicts.md: the remedy of each verdict, written down beside each case."""
    j, expected = of_case(name), CASES[name][1]
    now, known, left = short(ends_of(j))
    if expected.remedy in ("abort", "fence"):
        assert (now, known) == (expected.remedy, [])
    elif expected.remedy in ("resolve", "write-prepared-marker"):
        assert (now, known) == ("resolve", [])
    elif expected.mixed:
        assert (now, known, left) == (None, ["owner-gone"], "wait-for-commit")
    elif expected.remedy in ("restore-leader", "restart-coordinator"):
        assert (now, known) == (None, [])
        assert left in ("start-brokers", "restart-coordinator", "move-leader")
    elif expected.verdict == "orphan":
        assert (now, known, left) == ("why", [], "wait-for-id")
    elif expected.verdict == "prepare":
        assert (now, known, left) == (None, [], "wait-for-markers")
    elif expected.verdict.startswith("unknown: "):
        assert now is None
        assert (left == "ask-owner") == (known == ["committed", "aborted"])
        assert left in ("ask-owner", "look-again")
    assert way_out("mixed" if expected.mixed else j.verdict.name, ends_of(j)) is not None


# --- the gates ----------------------------------------------------------------------------------

MEMBERS = GroupFacts("orders", "Stable", members=(("client", "host"),))
UNSEEN = Missing("group", "GROUP_AUTHORIZATION_FAILED", "DESCRIBE on orders", id="orders")
GATES: dict[str, Callable[[Sample], Sample]] = {
    "none": lambda s: s,
    "members": lambda s: replace(s, groups=(MEMBERS,)),
    "unseen": lambda s: replace(s, groups_missing=(UNSEEN,)),
    "short-log": lambda s: replace(
        s,
        transactions=replace(
            s.transactions,
            coordinators=tuple(
                replace(c, in_sync=1, least=2, away=(2,)) for c in s.transactions.coordinators
            ),
        ),
    ),
    "no-leader": lambda s: replace(
        s, named=tuple(replace(p, leader=None) for p in s.named if p.topic_partition == P)
    ),
}
GATED: End = (None, ["owner-gone"], "wait-for-owner")
AWAY: End = (None, [], "start-brokers")


def owned(version: int, verdict: str, gate: str) -> Judged:
    timeout = {"overdue": 60_000, "two-phase": TWO_PHASE}.get(verdict, 3_600_000)
    w, i = live(version, "flink-sink-3-17" if gate == "flink" else "orders", timeout)
    if verdict in ("overdue", "long"):
        w.tick(61_000 if verdict == "overdue" else 16 * 60_000)
    between = (lambda: w.write(i, P)) if gate == "moved" else (lambda: None)
    return seen(lambda: table.judged(w, between=between, change=GATES.get(gate, lambda s: s)))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("verdict", ["open", "long", "overdue", "two-phase"])
@pytest.mark.parametrize("gate", [*GATES, "moved", "flink"])
def test_an_owned_one_ends_by_its_gate(version: int, verdict: str, gate: str) -> None:
    j = owned(version, verdict, gate)
    assert j.verdict.name == verdict
    walk(j, version)
    found = short(ends_of(j, version))
    if gate in ("short-log", "no-leader"):
        assert found == AWAY
    elif verdict == "two-phase":
        # below 2 only InitProducerId raises an id, and its timeout is above the brokers' limit
        assert found == (None, ["owner-gone"] * (version == 2), "ask-system")
    elif verdict == "open" or gate != "none":
        assert found == GATED
    else:
        left = "wait-for-coordinator" if verdict == "overdue" else "wait-for-owner"
        assert found == ("fence", [], left)


@pytest.mark.parametrize("verdict", ["open", "two-phase"])
def test_no_fence_is_named_while_decided_data_may_lie_below(verdict: str) -> None:
    w, _ = live(1, timeout=TWO_PHASE if verdict == "two-phase" else 3_600_000)
    j = seen(lambda: table.judged(w, eyes=Eyes(history=False)))
    walk(j)
    assert ends_of(j).if_you_know == ()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("outcome", ["commit", "abort"])
@pytest.mark.parametrize("later", ["idle", "elsewhere", "on it", "on it, two-phase"])
def test_a_lost_marker_ends_by_what_its_id_does(version: int, outcome: str, later: str) -> None:
    """Under v1 the id is at work with the very epoch that the marker would have."""
    w, i = lost(version, outcome)
    if later == "elsewhere":
        w.write(i, Q)
    elif later != "idle":
        i.timeout = TWO_PHASE if "two-phase" in later else i.timeout
        w.write(i, P)
    j = seen(lambda: table.judged(w, table.only(w, P)))
    assert j.verdict.name == "marker-lost"
    walk(j, version)
    expected: End
    if later == "on it" and outcome == "commit":
        expected = (None, ["owner-gone"], "wait-for-commit")
    elif later.startswith("on it"):
        left = "wait-for-commit" if outcome == "commit" else "wait-for-owner"
        expected = (None, [], left)
    elif later == "elsewhere" and version == 1:
        expected = ("why", [], "wait-for-id")
    else:
        expected = ("resolve", [], "never-ends")
    assert short(ends_of(j)) == expected


# --- coordinator-fenced: one truth --------------------------------------------------------------


def by_hand(version: int, above: int, *, contradicts: bool = False) -> tuple[World, Id]:
    """A COMMIT refused since somebody's marker by hand, with a coordinator epoch made up."""
    w = World()
    i = w.init("orders", version, 3_600_000)
    w.write(i, P)
    w.end(i, "commit")
    w.marker(P, i.pid, i.epoch, "abort", above)
    w.write(i, P)
    w.end(i, "commit", stalled=True)
    return w, i


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("above", [1, 10, 11, 1000])
def test_a_fenced_coordinator_ends_the_same_in_every_voice(version: int, above: int) -> None:
    w, _ = by_hand(version, above)
    j = seen(lambda: table.judged(w))
    assert j.verdict.name == "coordinator-fenced"
    walk(j, version)
    expected: End
    if above <= 10:
        expected = (None, [], "move-leader")
    elif version == 2:  # the epoch names the transaction
        expected = ("resolve", [], "another-id")
    else:  # no order of decisions explains a marker that nobody decided
        expected = (None, ["committed", "aborted"], "ask-owner")
    assert short(ends_of(j)) == expected
    row = hanging_row(j, (), "c")
    page = "\n".join(b.text for b in ends_blocks(row))
    assert ("--without-proof" in page) == (expected[2] == "ask-owner")
    if expected[2] == "ask-owner":
        assert j.verdict.proven_outcome is None
        assert "only the order of decisions and markers shows" in row.remedy.does
        refusal = str(accepted(j, requests(j)["resolve", "commit", ""], version))
        assert "another look may" not in refusal
        assert "outcome known otherwise: `txn resolve --without-proof" in refusal


def test_a_fenced_one_whose_history_was_not_read_is_looked_at_again() -> None:
    w, _ = by_hand(1, 1000)
    j = seen(lambda: table.judged(w, eyes=Eyes(history=False)))
    walk(j)
    assert short(ends_of(j)) == (None, [], "look-again")
    assert ends_of(j).otherwise.data["rule"] == "history-not-read"
    request = requests(j)["resolve", "commit", "without-proof"]
    assert "another look may" in str(accepted(j, request, 1))


@pytest.mark.parametrize("version", [1, 2])
def test_refused_on_one_partition_by_epoch_and_on_another_by_its_producer(version: int) -> None:
    """Each is judged by itself: the other one's refusal leaves no dead end here."""
    w = refused(version, 1000)
    [i] = w.ids.values()
    w.logs[Q].producers[i.pid].epoch = i.epoch + 1
    w.tick(120_000)
    j = seen(lambda: table.judged(w))
    walk(j)
    assert short(ends_of(j)) == ("resolve", [], "another-id")
    other = seen(lambda: table.judged(w, table.only(w, Q)))
    walk(other)
    assert short(ends_of(other)) == (None, ["committed", "aborted"], "ask-owner")
    assert ends_of(other).otherwise.data["rule"] == "written-beyond-decision"


# --- ids that hold no partition -----------------------------------------------------------------


def of_id(name: str) -> JudgedId:
    found: list[JudgedId] = []

    def recording(first, second=None, record=None, settings=None):  # type: ignore[no-untyped-def]
        verdict = judge_id(first, second, record, settings)
        found.append(JudgedId(first, second, record, verdict))
        return verdict

    with patch.object(ids, "judge_id", recording):
        verdict = ids.CASES[name][0]()
    return next(j for j in found if j.verdict is verdict)


@pytest.mark.parametrize("name", ids.CASES)
def test_an_id_that_holds_nothing_ends_as_its_verdict_says(name: str) -> None:
    j, (_, verdict, _, action) = of_id(name), ids.CASES[name]
    now, known, left = short(ends_of(j))
    assert way_out(verdict, ends_of(j)) is not None
    assert now == ("fence" if action == "fence" else None)
    owned = j.verdict.about.state == "Ongoing" and verdict != "unknown"
    hidden = "hidden" in name or "no partition visible" in name
    assert known == ["owner-gone"] * (owned and action in ("wait", "none") and not hidden)
    if verdict == "unknown":
        assert left == "look-again"
    elif action == "restore-leader":
        assert left == "start-brokers"
    elif action == "write-prepared-marker":
        assert ends_of(j).otherwise.data["partitions"]
    row = hanging_row(j, (), "c")
    assert [b.text for b in ends_blocks(row, do="do") if b.label == "otherwise"] != ["another-id"]


def test_no_fence_of_an_id_is_named_where_a_partition_is_hidden() -> None:
    """Its record names two, its description one: decided records may lie on the other."""
    hidden = ids.row("Ongoing", partitions=(P,))
    for late in (False, True):
        seen_once = replace(ids.look("Ongoing", over_long=late), row=hidden)
        record = ids.record("Ongoing")
        verdict = judge_id(seen_once, seen_once, record)
        found = ends_of(JudgedId(seen_once, seen_once, record, verdict))
        assert (found.next, found.if_you_know) == (None, ())


# --- whatever happens -----------------------------------------------------------------------------


@model.many
@given(model.INCIDENTS, model.INCIDENTS.map(lambda ops: ops[:3]), model.VERSIONS, model.EYES)
def test_whatever_happened_no_command_is_named_that_is_refused(
    ops: list[tuple[str, int, int]],
    between: list[tuple[str, int, int]],
    versions: tuple[int, ...],
    eyes: Eyes,
) -> None:
    w = model.world(versions, 0, 0, 0, 0)
    model.play(w, ops)
    with kept(model) as found:
        verdicts = [v for _, v in model.judged(w, eyes, eyes, between)]
    for v in verdicts:
        j = next(j for j in found if j.verdict is v)
        walk(j)
        kind = "mixed" if v.mixed else v.name
        assert way_out(kind, ends_of(j)) is not None, (kind, short(ends_of(j)))


# --- the same everywhere --------------------------------------------------------------------------


def test_the_rows_of_the_table_differ() -> None:
    keys = [(w.verdict, w.next, w.if_you_know, w.otherwise) for w in WAYS_OUT]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("verdict", sorted({w.verdict for w in WAYS_OUT}))
def test_explain_lists_the_ways_out(verdict: str) -> None:
    [entry] = find(verdict, ("verdict",))
    page = "\n".join(explain_lines(entry, None))
    for text in ways_of(verdict):
        assert text in page


def test_the_docs_have_the_table() -> None:
    """Paste the lines of `eoctl.render.ends.ways_table()` where they differ."""
    assert "\n".join(ways_table()) in (ROOT / "docs/verdicts.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_the_page_shows_the_commands_of_its_row(name: str) -> None:
    row = hanging_row(of_case(name), ("--context", "prod"), "cluster-1")
    assert row.ends is not None
    ways = [w for w in (row.ends.next, *row.ends.if_you_know) if w is not None]
    shown = [b.text for b in ends_blocks(row) if b.kind == "command"]
    assert shown == [w.command for w in ways]
    for w in ways:
        assert shlex.split(w.command or "") == w.argv
        assert not {"--execute", "--yes"} & set(w.argv)
    now = row.ends.next
    assert row.remedy.argv == (None if now is None or now.action == "why" else now.argv)


def test_sample_is_what_the_gates_change() -> None:
    """Each gate changes a look; else a test of it would test nothing."""
    w, _ = live()
    plain = sample(w, P, Eyes(), table.SETTINGS)
    for name, change in GATES.items():
        assert (change(plain) == plain) == (name == "none"), name


def test_an_id_far_below_the_records_epoch_does_not_tell_to_wait() -> None:
    """It is never going to end: it has their producer id by chance."""
    row = ProducerFacts("t", 0, 7, 4_000, 9, 1, 11, 20)
    idle = TransactionFacts("x", 1, 7, "Empty", 3, 60_000, 1, ())
    newest = SimpleNamespace(producer=lambda producer_id: row, transactions=Transactions((idle,)))
    judged = SimpleNamespace(
        about=SimpleNamespace(producer_id=7, start_offset=20),
        newest=newest,
        partition=SimpleNamespace(leader=1),
    )
    why = said(marker_refused(cast("Judged", judged)))
    assert "its epoch is 3, the records' is 4000" in why
    assert why.endswith("; give that application a new transactional id")
