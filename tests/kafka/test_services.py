"""Brokers that do not answer all of Kafka's requests, as some services: an Apache broker behind a
relay that takes requests out of its answer to ApiVersions (docs/compatibility.md)."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.kafka.command import FAST, Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.relay import (
    DESCRIBE_PRODUCERS,
    LIST_TRANSACTIONS,
    METADATA,
    WRITE_TXN_MARKERS,
    Relay,
    relayed,
)

API_VERSIONS, DESCRIBE_TRANSACTIONS = 18, 65
HIDDEN = {
    "no markers": {WRITE_TXN_MARKERS},
    "no producers": {WRITE_TXN_MARKERS, DESCRIBE_PRODUCERS},
    "no lists": {LIST_TRANSACTIONS},
    "no descriptions": {DESCRIBE_TRANSACTIONS},
    "nothing of transactions": {
        WRITE_TXN_MARKERS,
        DESCRIBE_PRODUCERS,
        DESCRIBE_TRANSACTIONS,
        LIST_TRANSACTIONS,
    },
}
"""As Redpanda (and MSK with IAM before Kafka 3.8) and WarpStream; then what no service is known
to do."""


def without(keys: set[int]) -> Callable[[bytes], bytes]:
    """What takes requests out of an answer to ApiVersions 3: an array of seven bytes an entry."""

    def rewrite(frame: bytes) -> bytes:
        count = frame[10] - 1  # a varint; there are fewer than 127
        entries = [frame[11 + 7 * n : 18 + 7 * n] for n in range(count)]
        kept = [entry for entry in entries if struct.unpack_from(">h", entry)[0] not in keys]
        body = frame[4:10] + bytes([len(kept) + 1]) + b"".join(kept) + frame[11 + 7 * count :]
        return struct.pack(">i", len(body)) + body

    return rewrite


Asked = Callable[..., Ran]


@pytest.fixture(scope="module")
def lab1(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    """One of its own: what other tests leave in the shared one may be unknown."""
    return start_lab(LabSpec(name="services"))


@pytest.fixture
def relay(lab1: Lab) -> Iterator[Relay]:
    with relayed(lab1) as found:
        yield found


@pytest.fixture
def ask(relay: Relay, lab1: Lab, tmp_path: Path) -> Callable[[str], Asked]:
    """ask(NAME)(WORDS): eoctl against brokers that hide what HIDDEN names so."""

    def of(name: str) -> Asked:
        relay.rewrite = {(b, API_VERSIONS): without(HIDDEN[name]) for b in lab1.broker_ids}
        env = environment(EOCTL_CONFIG=relay.config(tmp_path))
        return lambda *words: eoctl(*words, "--context", "relayed", "-o", "json", env=env)

    return of


@pytest.mark.parametrize("name", HIDDEN)
def test_no_list_looks_healthy(
    name: str, ask: Callable[[str], Asked], lab1: Lab, topic: MakeTopic
) -> None:
    """What cannot be judged is `unknown` and named; a partition that is held stays in the list."""
    asked, named, hidden = ask(name), topic(lab1), HIDDEN[name]
    break_(lab1, "orphan", topic=named, partition=0, hold=False)
    [row] = asked("lso", named).rows
    assert row["held"] > 0
    listed = asked("txn", "list")
    shown = not hidden & {LIST_TRANSACTIONS, DESCRIBE_TRANSACTIONS}
    assert listed.json["complete"] is shown
    judged = shown and DESCRIBE_PRODUCERS not in hidden
    for words in (("why", named), ("txn", "hanging", named), ("status",), ("check",)):
        ran = asked(*words, *FAST)
        assert (ran.status, ran.json["complete"]) == ((1, True) if judged else (3, False)), words
        assert judged or "does not answer " in str(ran.json["errors"])
    [verdict] = asked("txn", "hanging", named, *FAST).rows
    assert verdict["verdict"] == ("orphan" if judged else "unknown")
    allowed = {r["check"]: r["sees"] for r in asked("context", "test").rows}
    for command, possible in (
        ("status, txn hanging", judged),
        ("txn list, txn describe", shown),
        ("txn abort, txn resolve", not hidden),
    ):
        assert (allowed[command] is False) is not possible, command


def hiding(topic: bytes) -> Callable[[bytes], bytes]:
    """What makes a topic unknown in an answer to Metadata 10 to 13, of one broker's partitions."""
    partition = 2 + 4 + 4 + 4 + (1 + 4) + (1 + 4) + 1 + 1  # replicas, in sync, offline, tags

    def rewrite(frame: bytes) -> bytes:
        name = frame.find(bytes([len(topic) + 1]) + topic)
        if name < 0:
            return frame
        array = name + 1 + len(topic) + 16 + 1  # after its id, and whether it is internal
        end = array + 1 + partition * (frame[array] - 1)
        body = frame[4 : name - 2] + struct.pack(">h", 3) + frame[name:array] + b"\1" + frame[end:]
        return struct.pack(">i", len(body)) + body

    return rewrite


def test_transactions_that_are_kept_elsewhere_are_a_gap_of_every_answer(
    ask: Callable[[str], Asked], relay: Relay, lab1: Lab, topic: MakeTopic
) -> None:
    """As Redpanda, which has no __transaction_state and lists transactions."""
    asked, named = ask("no markers"), topic(lab1)
    break_(lab1, "orphan", topic=named, partition=0, hold=False)
    hide = {(b, METADATA): hiding(b"__transaction_state") for b in lab1.broker_ids}
    relay.rewrite = {**relay.rewrite, **hide}
    commands = (("txn", "list"), ("txn", "describe", "x"), ("status",), ("doctor",))
    for words in (*commands, ("txn", "hanging", named, *FAST)):
        ran = asked(*words)
        assert (ran.status, ran.json["complete"]) == (3, False), words
        assert "__transaction_state is not visible, and brokers list" in str(ran.json["errors"])
    [verdict] = ran.rows
    assert verdict["verdict"] == "unknown"
    seen = {r["check"]: r for r in asked("context", "test").rows}
    assert seen["transactional ids: DESCRIBE"]["sees"] is None
    assert "brokers list transactions" in seen["transactional ids: DESCRIBE"]["detail"]


def test_a_marker_that_no_broker_takes_is_refused_before_anything_changes(
    ask: Callable[[str], Asked], relay: Relay, lab1: Lab, topic: MakeTopic
) -> None:
    asked, named = ask("no markers"), topic(lab1)
    [orphan] = break_(lab1, "orphan", topic=named, partition=0, hold=False)
    which = ("--pid", str(orphan.producer_id), "--start-offset", str(orphan.start_offset))
    ran = asked("txn", "abort", f"{named}:0", *which, *FAST, "--execute", "--yes")
    assert ran.status == 4
    assert "the broker does not answer WriteTxnMarkers" in ran.text
    assert relay.changing == []
    [row] = [r for r in asked("context", "test").rows if r["check"] == "requests"]
    assert (row["sees"], row["cannot_say"]) == (False, ["remedies abort and resolve"])
