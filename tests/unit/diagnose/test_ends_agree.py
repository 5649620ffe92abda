"""Every verdict, under each protocol version and behind each gate: one way out in every voice.

The commands that `why` names are those that planning accepts, that `explain` lists for the verdict
and that the runbook has, and no page has another one.
"""

import re
import shlex
from collections.abc import Callable

import pytest

from eoctl.operations.diagnose.verdict_rows import hanging_row
from eoctl.render.ends import ends_blocks, way_words
from eoctl.render.explain import explain_lines, find
from recovery.diagnose.diagnosis import Judged
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.diagnose.verdicts import VerdictName
from recovery.facts import TopicPartition
from recovery.inspect.observation import Sample
from recovery.remedy.ends import WAYS_OUT, ends_of, way_out
from tests.unit.diagnose.test_ends import GATES, by_hand, of_id, owned, seen, walk
from tests.unit.inspect import test_id_verdicts as ids
from tests.unit.inspect import test_verdicts as table
from tests.unit.inspect.test_verdicts import P, Q, live, lost
from tests.unit.render.test_render_why import page_row
from tests.unit.render.test_runbook import told
from tests.unit.transaction_model import Eyes, World

Gate = Callable[[Sample], Sample]


def judged(w: World, gate: str, at: TopicPartition = P, eyes: Eyes = table.CLEAR) -> Judged:
    change: Gate = GATES[gate]
    return seen(lambda: table.judged(w, table.only(w, at), eyes, change=change))


def orphan(version: int, gate: str) -> Judged:
    w = World()
    w.stray(w.init("orders", version), P)
    return judged(w, gate)


def orphan_of_a_live_id(version: int, gate: str) -> Judged:
    w, i = live(version)
    w.stray(i, Q)
    return judged(w, gate, Q)


def lost_commit(version: int, gate: str) -> Judged:
    return judged(lost(version)[0], gate)


def lost_abort(version: int, gate: str) -> Judged:
    return judged(lost(version, "abort")[0], gate)


def mixed(version: int, gate: str) -> Judged:
    w, i = lost(version)
    w.write(i, P)
    return judged(w, gate)


def mixed_abort(version: int, gate: str) -> Judged:
    w, i = lost(version, "abort")
    w.write(i, P)
    return judged(w, gate)


def fenced_by_one(version: int, gate: str) -> Judged:
    return judged(by_hand(version, 1)[0], gate)


def fenced_for_good(version: int, gate: str) -> Judged:
    return judged(by_hand(version, 1000)[0], gate)


def fenced_and_unread(version: int, gate: str) -> Judged:
    return judged(by_hand(version, 1000)[0], gate, eyes=Eyes(history=False))


def decided(version: int, age_ms: int) -> World:
    w, i = live(version)
    w.write(i, Q)
    w.end(i, "commit", stalled=True)
    w.tick(age_ms)
    return w


def prepare(version: int, gate: str) -> Judged:
    return judged(decided(version, 1000), gate)


def prepare_stuck(version: int, gate: str) -> Judged:
    return judged(decided(version, 65_001), gate)


def prepare_stuck_half(version: int, gate: str) -> Judged:
    w = decided(version, 65_001)
    [i] = w.ids.values()
    w.marker(Q, i.pid, i.epoch, "commit", 0)
    return judged(w, gate)


def unread(version: int, gate: str) -> Judged:
    return judged(lost(version)[0], gate, eyes=Eyes(history=False))


def replaced(version: int, gate: str) -> Judged:
    w, _ = lost(version)
    w.replace_state(seen=False)
    return judged(w, gate)


def of_owner(verdict: str) -> Callable[[int, str], Judged]:
    return lambda version, gate: owned(version, verdict, gate)


MADE: dict[str, tuple[VerdictName, Callable[[int, str], Judged]]] = {
    "orphan": ("orphan", orphan),
    "orphan of a live id": ("orphan", orphan_of_a_live_id),
    "lost commit": ("marker-lost", lost_commit),
    "lost abort": ("marker-lost", lost_abort),
    "mixed": ("marker-lost", mixed),
    "mixed over an abort": ("marker-lost", mixed_abort),
    "fenced by one epoch": ("coordinator-fenced", fenced_by_one),
    "fenced for good": ("coordinator-fenced", fenced_for_good),
    "fenced, history unread": ("coordinator-fenced", fenced_and_unread),
    "prepare": ("prepare", prepare),
    "prepare-stuck": ("prepare-stuck", prepare_stuck),
    "prepare-stuck, half written": ("prepare-stuck", prepare_stuck_half),
    "open": ("open", of_owner("open")),
    "long": ("long", of_owner("long")),
    "overdue": ("overdue", of_owner("overdue")),
    "two-phase": ("two-phase", of_owner("two-phase")),
    "history unread": ("unknown", unread),
    "history replaced": ("unknown", replaced),
}
"""How each verdict comes about: the verdict without a gate, and who makes it."""

VERSIONS = (1, 2)
COMMAND = re.compile(r"^ +(eoctl .*)$", re.MULTILINE)


def named(row: TxnHangingRow) -> list[list[str]]:
    assert row.ends is not None
    ways = [w for w in (row.ends.next, *row.ends.if_you_know) if w is not None]
    return [w.argv for w in ways]


def in_runbook(row: TxnHangingRow) -> list[list[str]]:
    """The commands of the section that says what to do about a row."""
    sections = told(page_row(topic=row.topic, partition=row.partition, held_by=row))
    names = ("Safe now", "Needs a person's answer", "Escalate", "Leave alone", "Not known yet")
    text = "\n".join(sections.get(name, "") for name in names)
    return [shlex.split(line) for line in COMMAND.findall(text)]


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", MADE)
def test_one_way_out_in_every_voice(kind: str, version: int, gate: str) -> None:
    verdict, make = MADE[kind]
    j = make(version, gate)
    if gate == "none":
        assert j.verdict.name == verdict
    walk(j, version)  # what is named is accepted, what is not named is refused
    ends = ends_of(j, version)
    way = way_out("mixed" if j.verdict.mixed else j.verdict.name, ends)
    assert way is not None
    [entry] = find(way.verdict, ("verdict",))
    assert way_words(way) in "\n".join(explain_lines(entry, None))
    agree(hanging_row(j, ("--context", "prod"), "cluster-1", version))


@pytest.mark.parametrize("name", ids.CASES)
def test_an_id_that_holds_no_partition_has_one_way_out(name: str) -> None:
    agree(hanging_row(of_id(name), ("--context", "prod"), "cluster-1"))


def agree(row: TxnHangingRow) -> None:
    """`why` and the runbook show the commands of the row, and no others."""
    shown = [shlex.split(b.text) for b in ends_blocks(row) if b.kind == "command"]
    assert shown == named(row)
    if row.verdict != "open":
        assert in_runbook(row) == named(row)
        return
    # left alone: where whoever knows more finds the command
    page = ["--", row.where] if row.topic else [f"--transactional-id={row.transactional_id}"]
    assert [words[-len(page) :] for words in in_runbook(row)] == [page] * bool(named(row))


def test_the_matrix_has_every_verdict() -> None:
    verdicts = {verdict for verdict, _ in MADE.values()}
    assert verdicts == {w.verdict for w in WAYS_OUT} - {"mixed"}
