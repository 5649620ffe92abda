"""A bad line between eoctl and its brokers: every command ends in time, with a sentence.

The relay breaks one answer, or all from one on: which and how is drawn from a seed.
"""

import random
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from recovery.errors import Exit
from tests.conftest import Tried
from tests.kafka.command import FAST, Ran, environment, eoctl, said
from tests.kafka.relay import WRITE_TXN_MARKERS, Relay, relayed
from tests.kafka.remedying import abort, end
from tests.share import fewer, only_here, share

pytestmark = pytest.mark.trust  # it leaves much behind in its lab

TIMEOUT = 2.0
LATE = 7.0
"""Beyond the deadline: a process starts, and a crowded machine is slow."""
KEYS = ("topic", "partition", "producer_id", "verdict", "last_stable_offset", "ok")
Damage = Callable[[bytes, random.Random], bytes]


def lost(frame: bytes, chance: random.Random) -> bytes:
    """The connection ends after the request was served."""
    raise ConnectionError


def noise(frame: bytes, chance: random.Random) -> bytes:
    """Length and correlation id are right, the rest is random."""
    return frame[:8] + chance.randbytes(len(frame) - 8)


FAULTS: Mapping[str, Damage] = {
    "lost": lost,
    "never-answered": lambda frame, chance: b"",
    "half": lambda frame, chance: frame[: chance.randrange(len(frame))],
    "noise": noise,
    "not-kafka": lambda frame, chance: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "too-long": lambda frame, chance: struct.pack(">i", 2**31 - 1) + frame[4:],
    "negative": lambda frame, chance: struct.pack(">i", -chance.randrange(1, 2**31)) + frame[4:],
    "empty": lambda frame, chance: struct.pack(">i", 0),
    "another-answer": lambda frame, chance: frame[:4] + struct.pack(">i", 2**30) + frame[8:],
    "twice": lambda frame, chance: frame + frame,
}


class Broken(dict[tuple[int, int], Callable[[bytes], bytes]]):
    """Damages the answer number `at`, and those after it unless `once`.

    only: counts answers to this API key alone. seen: answers so far; hits: those damaged.
    """

    def __init__(
        self, damage: Damage, at: int, once: bool, chance: random.Random, only: int | None = None
    ) -> None:
        self._damage, self._at, self._once, self._chance = damage, at, once, chance
        self._only = only
        self.seen = self.hits = 0

    def get(self, key: tuple[int, int], default: object = None) -> Callable[[bytes], bytes] | None:  # type: ignore[override]
        if self._only not in (None, key[1]):
            return None
        self.seen += 1
        number = self.seen - 1
        if number < self._at or (self._once and number > self._at):
            return None
        self.hits += 1
        return lambda frame: self._damage(frame, self._chance)


NEVER = 10**9
UNANSWERED = ("lost", "never-answered")


@pytest.fixture(scope="module")
def orphan(lab1: Lab) -> GroundTruth:
    [truth] = break_(lab1, "orphan")
    return truth


@pytest.fixture(scope="module")
def live(lab1: Lab) -> GroundTruth:
    [truth] = break_(lab1, "open")
    return truth


@pytest.fixture
def relay(lab1: Lab) -> Iterator[Relay]:
    with relayed(lab1) as found:
        yield found


def run(relay: Relay, folder: Path, *words: str, timeout: float = TIMEOUT) -> Ran:
    env = environment(EOCTL_CONFIG=relay.config(folder))
    asked = ("--context", "relayed", *words, "--timeout", f"{timeout:.0f}s")
    return eoctl(*asked, env=env, timeout=60)


def commands(orphan: GroundTruth, live: GroundTruth) -> Mapping[str, tuple[str, ...]]:
    where = [f"{t.topic}:{t.partition}" for t in (orphan, live)]
    return {
        "status": ("status", *FAST),
        "hanging": ("txn", "hanging", "--all", *FAST),
        "why": ("why", where[0], *FAST),
        "lso": ("lso", *where),
        "check": ("check", *FAST),
        "doctor": ("doctor",),
        "txn list": ("txn", "list"),
        "history": ("txn", "history", "--pid", str(orphan.producer_id)),
        "audit": ("audit", "sequences", orphan.topic),
        "plan": abort(orphan),
    }


NAMES = (
    *("status", "hanging", "why", "lso", "check", "doctor", "txn list", "history", "audit", "plan"),
)


def told(ran: Ran) -> list[dict[str, object]]:
    return [{key: row.get(key) for key in KEYS} for row in ran.rows]


@pytest.mark.parametrize("name", only_here(NAMES, "hanging", beyond="trust"))
def test_a_command_ends_in_time_and_takes_nothing_for_true(
    lab1: Lab,
    orphan: GroundTruth,
    live: GroundTruth,
    relay: Relay,
    tmp_path: Path,
    tried: Tried,
    name: str,
) -> None:
    """Where it says that it saw everything, it says what it says on a good line."""
    words = (*commands(orphan, live)[name], "-o", "json")
    relay.rewrite = counting = Broken(noise, NEVER, True, random.Random())
    whole = run(relay, tmp_path, *words, timeout=30)
    assert whole.status in (Exit.OK, Exit.FINDING), (whole.stdout, whole.stderr)
    for seed in range(fewer(100, 1)):
        chance = random.Random(f"{name} {seed}")
        fault, at = chance.choice(sorted(FAULTS)), chance.randrange(counting.seen)
        relay.rewrite = broken = Broken(FAULTS[fault], at, chance.random() < 0.5, chance)
        ran = run(relay, tmp_path, *words)
        tried("commands on a bad line", broken.hits > 0)  # it may have asked less this time
        case = (fault, at, ran.status, ran.stdout, ran.stderr)
        assert ran.seconds < TIMEOUT + LATE, case
        assert ran.status not in (Exit.INTERNAL, Exit.USAGE), case
        assert "Traceback" not in ran.stderr, case
        assert ran.stdout or said(ran.stderr), case
        if ran.status in (Exit.OK, Exit.FINDING):
            assert told(ran) == told(whole), case
        if ran.stdout:
            wrong = [r for r in ran.rows if r.get("producer_id") == live.producer_id]
            assert {r.get("verdict") for r in wrong} <= {None, "open", "unknown"}, case


@pytest.mark.parametrize("name", ["status", "history"])
def test_a_byte_at_a_time_is_as_good(
    lab1: Lab, orphan: GroundTruth, live: GroundTruth, relay: Relay, tmp_path: Path, name: str
) -> None:
    words = (*commands(orphan, live)[name], "-o", "json")
    whole = run(relay, tmp_path, *words, timeout=30)
    relay.piece = 1
    ran = run(relay, tmp_path, *words, timeout=30)
    assert (ran.status, told(ran)) == (whole.status, told(whole)), ran.stderr


def test_a_change_over_a_bad_line_happens_once_or_not_at_all_and_is_found_out(
    lab1: Lab, relay: Relay, tmp_path: Path, tried: Tried
) -> None:
    """What such a run left unsure, the next one settles: one marker each.

    Of the first two the marker's own answer does not come; of the others any may be damaged.
    """
    first, *orphans = break_(lab1, "orphan", count=1 + share(60, least=4))
    relay.rewrite = counting = Broken(noise, NEVER, True, random.Random())
    assert run(relay, tmp_path, *abort(first), "--execute", "--yes", timeout=30).status == Exit.OK
    for seed, truth in enumerate(orphans):
        chance, words = random.Random(seed), (*abort(truth), "--execute", "--yes")
        relay.rewrite = {}
        before = end(lab1, truth)
        fault, at, only = chance.choice(sorted(FAULTS)), chance.randrange(counting.seen), None
        if seed < len(UNANSWERED):
            fault, at, only = UNANSWERED[seed], 0, WRITE_TXN_MARKERS
        relay.rewrite = broken = Broken(FAULTS[fault], at, chance.random() < 0.5, chance, only)
        ran = run(relay, tmp_path, *words)
        assert only is None or broken.hits, "the marker's answer was not met"
        tried("changes on a bad line", broken.hits > 0)
        case = (fault, at, ran.status, ran.stdout, ran.stderr)
        assert ran.status not in (Exit.INTERNAL, Exit.USAGE, Exit.FINDING), case
        assert ran.status != Exit.OK or end(lab1, truth) == before + 1, case
        assert ran.status != Exit.REFUSED or end(lab1, truth) == before, case
        relay.rewrite = {}
        settled = run(relay, tmp_path, *words, timeout=30)
        assert settled.status == Exit.OK, (case, settled.stderr)
        assert end(lab1, truth) == before + 1, case
