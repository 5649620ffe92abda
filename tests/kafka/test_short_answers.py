"""Answers shorter than what was asked: a sentence and an exit status, never an error of our own.

A broker that is broken, or something that answers in its place, may leave out what was asked for.
Each list of each answer that a command gets from a real broker is emptied, or loses its last item,
on its way in; a list that may be null becomes null.
"""

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from eoctl.kafka.connection import wire
from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from eoctl.settings.context import state_dir
from recovery.errors import Exit
from tests.kafka.command import eoctl
from tests.share import only_here

ListPath = tuple[str, str]
"""Name of a request, and the path of a list in its answer."""
CHANGES = ("empty", "shorter", "null")
FAST = ("--sample-interval", "0.1s")


def lists(
    answer: Any, struct: Any, version: int, path: str = ""
) -> Iterator[tuple[str, Any, str, bool]]:
    """(path, holder, field, may be null) of each list of an answer that has an item."""
    for f in struct.untagged_fields(version):
        if f.is_array() and (found := getattr(answer, f.name)):
            yield f"{path}{f.name}", answer, f.name, f.nullable_for_version_q(version)
            if f.is_struct_array():
                for item in found:
                    yield from lists(item, f.array_of, version, f"{path}{f.name}.")


class Shortened:
    """Changes answers between the wire and whoever asked, and notes which lists there are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: dict[ListPath, bool] = {}
        self.changed: tuple[ListPath, str] | None = None
        self.hits = 0
        own = wire.Connection._exchange

        async def exchange(connection: wire.Connection, request: Any, deadline: Any) -> Any:
            answer = await own(connection, request, deadline)
            self._change(type(request).__name__.removesuffix("Request"), answer)
            return answer

        monkeypatch.setattr(wire.Connection, "_exchange", exchange)

    def _change(self, name: str, answer: Any) -> None:
        if (struct := getattr(answer, "_struct", None)) is None:
            return
        for path, holder, field, nullable in list(lists(answer, struct, answer.API_VERSION)):
            at = name, path
            self.seen[at] = nullable
            if self.changed is None or self.changed[0] != at:
                continue
            self.hits += 1
            change = self.changed[1]
            had = getattr(holder, field)
            setattr(holder, field, {"empty": [], "shorter": had[:-1], "null": None}[change])


@pytest.fixture(scope="module")
def orphan(lab1: Lab) -> GroundTruth:
    return break_(lab1, "orphan")[0]


@pytest.fixture(scope="module")
def group(lab1: Lab, orphan: GroundTruth) -> str:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    name = f"short-{uuid.uuid4().hex[:8]}"
    consumer = Consumer({**lab1.client_properties(), "group.id": name})
    at = [TopicPartition(orphan.topic, orphan.partition, 1)]
    until = time.monotonic() + 30
    while True:  # the first group of a cluster waits for __consumer_offsets
        try:
            consumer.commit(offsets=at, asynchronous=False)
            break
        except KafkaException:
            assert time.monotonic() < until
            time.sleep(0.2)
    consumer.close()
    return name


def commands(orphan: GroundTruth, group: str) -> Mapping[str, tuple[str, ...]]:
    partition = f"{orphan.topic}:{orphan.partition}"
    return {
        "status": ("status", *FAST),
        "lso": ("lso", orphan.topic, "--all"),
        "why": ("why", partition, *FAST),
        "hanging": ("txn", "hanging", *FAST),
        "txn list": ("txn", "list"),
        "describe": ("txn", "describe", orphan.transactional_id or "none"),
        "history": ("txn", "history", "--pid", str(orphan.producer_id)),
        "producers": ("producers", partition, "--resolve"),
        "offsets show": ("offsets", "show", "--group", group),
        "count": ("offsets", "count", partition, "0", "3"),
        "check": ("check", *FAST),
        "context test": ("context", "test"),
        "abort": (
            *("txn", "abort", partition, "--pid", str(orphan.producer_id)),
            *("--start-offset", str(orphan.start_offset), *FAST),
        ),
        "audit": ("audit", "duplicates", orphan.topic, "--by", "key"),
        "transactions": ("audit", "transactions", orphan.topic),
        "sequences": ("audit", "sequences", orphan.topic),
    }


NAMES = (
    *("status", "lso", "why", "hanging", "txn list", "describe", "history", "producers"),
    *("offsets show", "count", "check", "context test", "abort", "audit", "transactions"),
    "sequences",
)
HERE = ("lso", "history", "producers", "offsets show", "count", "audit")


@pytest.mark.parametrize("name", only_here(NAMES, *HERE))
def test_no_short_answer_is_an_error_of_our_own(
    lab1: Lab, orphan: GroundTruth, group: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    words = commands(orphan, group)[name]
    short = Shortened(monkeypatch)
    whole = eoctl(*words, "--timeout", "20s", lab=lab1)
    assert whole.status in (Exit.OK, Exit.FINDING, Exit.INCOMPLETE), whole.stderr
    assert short.seen
    wrong = {}
    for at, nullable in sorted(short.seen.items()):
        for change in CHANGES:
            if change == "null" and not nullable:
                continue  # refused where it is decoded: tests/unit/kafka/test_null_fields.py
            short.changed = at, change
            ran = eoctl(*words, "--timeout", "3s", lab=lab1)
            if ran.status == Exit.INTERNAL or "Traceback" in ran.stderr:
                reports = sorted(
                    (state_dir() / "reports").iterdir(), key=lambda p: p.stat().st_mtime
                )
                wrong[at, change] = reports[-1].read_text().splitlines()[-5:]
    assert short.hits
    assert wrong == {}


@pytest.mark.trust
def test_no_short_answer_makes_a_live_transaction_one_to_abort(
    lab1: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left out is not known; a transaction whose coordinator answers whole is open."""
    live = break_(lab1, "open")[0]
    words = ("txn", "hanging", "--all", *FAST, "-o", "json", "--timeout", "10s")
    short = Shortened(monkeypatch)

    def verdict() -> tuple[str | None, str | None]:
        ran = eoctl(*words, lab=lab1)
        assert ran.status != Exit.INTERNAL, ran.stderr
        topic_partition = live.topic, live.partition
        found = (
            [r for r in ran.rows if (r["topic"], r["partition"]) == topic_partition]
            if ran.stdout
            else []
        )
        return (found[0]["verdict"], found[0]["remedy"]["action"]) if found else (None, None)

    assert verdict() == ("open", "wait")
    right = {("open", "wait"), ("unknown", "none"), (None, None)}
    away = {("open", "restore-leader")}  # of replicas in sync that are left out
    wrong = {}
    for at, nullable in sorted(short.seen.items()):
        for change in CHANGES:
            if change != "null" or nullable:
                short.changed = at, change
                if (now := verdict()) not in right | (away if "isr" in at[1] else set()):
                    wrong[at, change] = now
    assert short.hits
    assert wrong == {}
