"""What waiting leads to: a rule that gives values, and each time with its own clause."""

import pytest

from eoctl.render.diagnose_words import wait_words
from recovery.diagnose.prospect import Prospect, prospect
from recovery.diagnose.verdicts import Verdict
from recovery.values import replace
from tests.unit.diagnose.test_owned import ahead, having, overdue
from tests.unit.inspect.test_verdicts import CASES, judged, live

NOW = 1_700_000_000_000
DAY = 86_400_000
DELETE = {"cleanup.policy": "delete", "retention.ms": str(7 * DAY)}


def of(v: Verdict, oldest: int | None = NOW - 60_000, **config: str | None) -> Prospect:
    return prospect(v, oldest, DELETE | {k.replace("_", "."): s for k, s in config.items()}, NOW)


def words(p: Prospect) -> str:
    return wait_words(p, NOW)


def test_each_time_stands_with_its_own_clause() -> None:
    """It said "its timeout has passed in 6d 23h"."""
    v = judged(overdue(by=5_000)[0], change=having(abort_cycles=((1, 10_000),)))
    p = of(v)
    assert (p.ending, p.ends_in, p.deletion) == ("timeout", -5_000, "at")
    assert p.deleted_at == NOW - 60_000 + 7 * DAY
    assert words(p) == (
        "its coordinator aborts it at any moment (its timeout passed 5s ago); "
        "retention deletes the waiting records in 6d 23h"
    )


@pytest.mark.parametrize(
    ("case", "ending", "sentence"),
    [
        (
            "orphan: fresh, no coordinator ever knew the producer id",
            "never",
            "it never ends by itself",
        ),
        ("marker-lost: a commit, v2", "never", "it never ends by itself"),
        (
            "prepare: decided, markers on their way",
            "markers",
            "it ends when its markers are written",
        ),
        (
            "two-phase: timeout 2147483647 (KIP-939), however old",
            "its-system",
            "it ends when the system that owns it decides; Kafka never times it out",
        ),
        ("one sample only", "not-known", "whether it ends by itself is not known"),
        ("open: owned, within its timeout and 15 min", "timeout", "its coordinator aborts it in "),
    ],
)
def test_endings(case: str, ending: str, sentence: str) -> None:
    p = of(CASES[case][0]())
    assert p.ending == ending
    assert words(p).startswith(sentence)
    assert (p.ends_at is None) == (ending != "timeout")
    assert p.loses is None


def test_a_coordinator_that_does_not_do_it() -> None:
    cycles = having(abort_cycles=((1, 10_000),))
    v = judged(overdue(by=260_000)[0], change=lambda s: cycles(ahead(0)(s)))
    assert of(v).ending == "timeout-ignored"
    assert of(judged(overdue(by=260_000)[0], change=cycles)).ending == "timeout"  # whose clock?
    assert words(of(v)).startswith("its coordinator should have aborted it 4m ago but does not")


def test_the_deadline_of_a_flink_like_one_is_the_danger() -> None:
    v = judged(live(name="etl-7-0", timeout=600_000)[0])
    p = of(v)
    assert (p.ending, p.loses) == ("timeout", "pre-committed")
    assert p.ends_at is not None
    assert "records that look pre-committed are lost with it: restore their job before" in words(p)


def test_the_timeout_over_a_lost_commit_destroys_it() -> None:
    v = CASES["mixed, v2: the next transaction is open on it"][0]()
    assert v.mixed
    p = of(v)
    assert (p.ending, p.loses) == ("timeout", "committed")
    assert "and the committed records under it are lost with it" in words(p)


def test_a_deadline_that_could_not_be_told_is_said_so() -> None:
    v = replace(judged(live()[0]), deadline_in=None)
    assert words(of(v)).startswith("its coordinator aborts it after its timeout; when that is")


@pytest.mark.parametrize(
    ("oldest", "config", "deletion", "sentence"),
    [
        (NOW - 1, {}, "at", "retention deletes the waiting records in 6d 23h"),
        (NOW - 7 * DAY, {}, "may-be-now", "retention may already delete the waiting records"),
        (NOW, {"retention_ms": "-1"}, "never", "retention never deletes here"),
        (NOW, {"retention_ms": None}, "not-known", "the topic's retention is not known"),
        (
            NOW,
            {"cleanup_policy": "compact"},
            "compacted",
            "nothing is deleted by time (compacted topic)",
        ),
        (NOW - 8 * DAY, {"cleanup_policy": "compact,delete"}, "may-be-now", "retention may"),
        (None, {}, "nothing-known-to-wait", "it never ends by itself"),
    ],
)
def test_deletions(
    oldest: int | None, config: dict[str, str | None], deletion: str, sentence: str
) -> None:
    v = CASES["orphan: fresh, no coordinator ever knew the producer id"][0]()
    p = of(v, oldest, **config)
    assert p.deletion == deletion
    assert words(p).removeprefix("it never ends by itself; ").startswith(sentence)
    assert (p.deleted_at is not None) == (deletion in ("at", "may-be-now"))
