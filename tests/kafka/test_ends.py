"""Whatever the lab can break: what `why` names is accepted, and what it does not name is refused.

What is expected of each kind is written down here, from docs/verdicts.md; that a command is
accepted is its own exit status, and that nothing changed is what Kafka's own tools list before and
after.
"""

from collections.abc import Callable
from typing import Any

import pytest

from eoctl.lab.breaks import KINDS, break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.kafka.command import FAST, eoctl
from tests.kafka.test_breaks import delivered, found_hanging
from tests.kafka.test_drills_solved import said_of, solved
from tests.kafka.test_group_offsets import committed
from tests.kafka.test_groups import commit
from tests.share import SHARE, only_here

SETTINGS = {
    name: value for kind in ("overdue", "two-phase") for name, value in KINDS[kind].settings.items()
}
End = tuple[str | None, list[str], str]
OWNED: End = (None, ["owner-gone"], "wait-for-owner")
FENCE: End = ("fence", [], "wait-for-coordinator")
LOST: End = ("resolve", [], "never-ends")
UNPROVEN: End = (None, ["committed", "aborted"], "ask-owner")
ABORT: End = ("abort", [], "never-ends")
SYSTEM: End = (None, ["owner-gone"], "ask-system")
ID_FIRST: End = ("why", [], "wait-for-id")
MIXED: End = (None, ["owner-gone"], "wait-for-commit")
MOVE: End = (None, [], "move-leader")
OTHER_ID: End = (None, [], "another-id")
EXPECTED: list[tuple[str, dict[str, Any], End, End]] = [
    # kind, options, its end under transactions v1, and under v2
    # these restart a broker, which would let a coordinator load again
    ("marker-lost", {}, LOST, LOST),
    ("marker-lost", {"outcome": "abort"}, LOST, LOST),
    ("marker-lost", {"later": "elsewhere"}, LOST, LOST),
    ("marker-lost", {"later": "open"}, MIXED, MIXED),
    # one session of v1 commits twice: no order of its decisions and markers is certain
    ("offsets-marker-lost", {}, UNPROVEN, LOST),
    ("open", {"hold": False}, OWNED, OWNED),
    ("overdue", {}, FENCE, FENCE),
    # below version 2 only InitProducerId raises an id; brokers refuse its timeout
    ("two-phase", {"hold": False}, (None, [], "ask-system"), SYSTEM),
    ("orphan", {"variant": "fresh"}, ABORT, ABORT),
    ("orphan", {"variant": "foreign", "hold": False}, ID_FIRST, ID_FIRST),
    ("offsets-orphan", {}, ABORT, ABORT),
    ("offsets-pending", {"hold": False}, OWNED, OWNED),
    ("coordinator-fenced", {"ahead": 3}, MOVE, MOVE),
    ("coordinator-fenced", {}, UNPROVEN, ("resolve", [], "another-id")),
    ("coordinator-fenced", {"variant": "contradicted"}, OTHER_ID, OTHER_ID),
    ("holds-nothing", {"hold": False}, OWNED, OWNED),
]


def row_of(lab: Lab, truth: GroundTruth) -> dict[str, Any]:
    """The judged row of what was broken: of its partition, else of its id."""
    at = (f"{truth.topic}:{truth.partition}",)
    if truth.start_offset is None:
        at = (f"--transactional-id={truth.transactional_id}",)
    ran = eoctl("why", *at, "-o", "json", *FAST, lab=lab, timeout=120)
    rows = [r["held_by"] for r in ran.rows if r["held_by"]]
    mine = [h for h in rows if truth.producer_id in (None, h["producer_id"])]
    assert mine, (truth.kind, ran.stdout, ran.stderr)
    return dict(mine[0])


def end(row: dict[str, Any]) -> End:
    ends = row["ends"]
    now = None if ends["next"] is None else ends["next"]["action"]
    return now, [w["knows"] for w in ends["if_you_know"]], ends["otherwise"]["code"]


def quickly(words: list[str]) -> list[str]:
    """The command with a short pause between its looks; after `--` all words are arguments."""
    at = words.index("--") if "--" in words else len(words)
    return [*words[:at], *FAST, *words[at:]]


def unnamed(row: dict[str, Any]) -> list[list[str]]:
    """Commands for this transaction that its row does not name."""
    named = [w["argv"] for w in (row["ends"]["next"], *row["ends"]["if_you_know"]) if w]
    found: list[list[str]] = []
    if row["topic"] is not None and row["start_offset"] is not None:
        at = [f"{row['topic']}:{row['partition']}"]
        at += ["--pid", str(row["producer_id"]), "--start-offset", str(row["start_offset"])]
        found = [["txn", "abort", *at]]
        for outcome in ("commit", "abort"):
            resolve = ["txn", "resolve", *at, "--outcome", outcome]
            found += [resolve, [*resolve, "--without-proof"]]
        found.append(["txn", "resolve", *at, "--outcome", "commit", "--owner-is-gone"])
    if row["transactional_id"] is not None:
        found.append(["txn", "fence", row["transactional_id"]])
    plain = row["ends"]["next"]
    proven = plain is not None and plain["action"] == "resolve"

    def is_named(words: list[str]) -> bool:
        same = [
            argv
            for argv in named
            if words[1] in argv
            and ("--without-proof" in words) == ("--without-proof" in argv)
            and ("--owner-is-gone" in words) == ("--owner-is-gone" in argv)
            and ("--outcome" not in words or words[words.index("--outcome") + 1] in argv)
        ]
        # a proven outcome may be said to be known, which makes no difference
        return bool(same) or (proven and "--without-proof" in words and plain["outcome"] in words)

    return [words for words in found if not is_named(words)]


@pytest.mark.parametrize("version", only_here([1, 2], 2))
def test_what_is_named_is_accepted_and_the_rest_is_refused(
    start_lab: Callable[[LabSpec], Lab], version: int
) -> None:
    spec = LabSpec(f"ends-{version}", 2, transaction_version=version, settings=SETTINGS)
    lab = start_lab(spec)
    try:
        made = [
            (break_(lab, kind, **options)[0], (kind, options), (one, two)[version - 1])
            for kind, options, one, two in EXPECTED[:: 2 if SHARE < 1 else 1]
        ]
        before = found_hanging(lab)
        wrong: list[object] = []
        for truth, what, expected in made:
            row = row_of(lab, truth)
            if end(row) != expected:
                wrong.append((what, row["verdict"], row["rule"], end(row), expected))
            for w in (row["ends"]["next"], *row["ends"]["if_you_know"]):
                if w is not None:
                    ran = eoctl(*quickly(w["argv"][1:]), timeout=120)
                    allowed = (0,) if w["action"] != "why" else (0, 1)
                    if ran.status not in allowed:
                        wrong.append((what, w["argv"], ran.status, ran.stderr))
            for words in unnamed(row):
                ran = eoctl(*quickly(words), lab=lab, timeout=120)
                if ran.status not in (3, 4):
                    wrong.append((what, "not named, but", words, ran.status, ran.stdout))
        assert not wrong, "\n".join(map(str, wrong))
        assert found_hanging(lab) == before, "nothing was sent"
    finally:
        lab.down()


@pytest.fixture(scope="module")
def oldest(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    return start_lab(LabSpec("ends-known", transaction_version=1))


@pytest.mark.parametrize("knows", only_here(["committed", "aborted"], "committed"))
def test_an_outcome_that_no_log_proves_is_written_by_whoever_knows_it(
    oldest: Lab, knows: str
) -> None:
    """Of an id of v1 whose coordinator is fenced; a plain consumer reads what became of it."""
    [truth] = break_(oldest, "coordinator-fenced")
    after_start = [o for o in truth.offsets if o.offset >= (truth.start_offset or 0)]
    held = {o.offset for o in after_start}
    freed = {o.offset for o in after_start if o.content == "plain"}
    assert len(held) == 2 * len(freed) > 0
    assert not set(delivered(oldest, truth.topic, truth.partition, "read_committed")) & held
    [way] = [w for w in row_of(oldest, truth)["ends"]["if_you_know"] if w["knows"] == knows]
    words = quickly(way["argv"][1:])
    wrong = eoctl(*words, "--execute", "--yes", "--plan-sha256", "0" * 64, timeout=120)
    assert wrong.status == 4, wrong.stderr
    group = f"{truth.topic}-readers"
    commit(oldest, group, truth.topic, truth.start_offset or 0)
    plan = solved(oldest, f"{truth.topic}:{truth.partition}", knows=knows)
    assert said_of(plan, group) == []
    assert committed(oldest, group, truth.topic) == truth.start_offset
    after = set(delivered(oldest, truth.topic, truth.partition, "read_committed")) & held
    assert after == (held if knows == "committed" else freed)
