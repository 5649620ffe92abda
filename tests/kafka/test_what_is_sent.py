"""What the remedies send, and to whom, counted on the wire between eoctl and the brokers.

One marker to one leader; nothing at all when what was planned is over; an answer that got lost.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from eoctl.lab import admin
from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import STRAY_NOT_YET, GroundTruth
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from tests.kafka.command import FAST, Ran, environment, eoctl, unfinished
from tests.kafka.relay import END_TXN, INIT_PRODUCER_ID, METADATA, WRITE_TXN_MARKERS, Relay, relayed
from tests.kafka.remedying import abort
from tests.kafka.tools import kafka_tool

# where an answer has its error code: EndTxn v5 behind length, correlation id, tags and throttle
# time; WriteTxnMarkers before the empty tags of partition, topic, marker and answer
END_ERROR, MARKER_ERROR = 4 + 4 + 1 + 4, -6
NOT_LEADER_OR_FOLLOWER, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, NOT_ENOUGH_REPLICAS = (
    6,
    15,
    16,
    19,
)
ACT = ("--execute", "--yes")


@pytest.fixture
def relay(lab3: Lab) -> Iterator[Relay]:
    with relayed(lab3) as found:
        yield found


def through(relay: Relay, folder: Path, *words: str) -> Ran:
    """Run eoctl with every broker behind the relay."""
    env = environment(EOCTL_CONFIG=relay.config(folder))
    return eoctl(*words, "--context", "relayed", env=env)


def test_one_marker_goes_to_one_partitions_leader(lab3: Lab, relay: Relay, tmp_path: Path) -> None:
    """Three orphans on a topic that all brokers lead: one is aborted, one request is sent."""
    orphans = break_(lab3, "orphan", count=3, hold=False)
    for orphan in orphans:
        relay.requests.clear()
        done = through(relay, tmp_path, *abort(orphan), *ACT)
        assert done.status == 0, done.stderr
        assert relay.changing == [(orphan.leader, WRITE_TXN_MARKERS)]
        [frame] = [f for _, key, f in relay.requests if key == WRITE_TXN_MARKERS]
        assert frame.count(orphan.topic.encode()) == 1
    assert len({orphan.leader for orphan in orphans}) > 1, "one leader would prove little"


def test_a_fence_ends_the_transaction_once_then_raises_the_id(
    lab3: Lab, relay: Relay, tmp_path: Path
) -> None:
    [live] = break_(lab3, "open", hold=False)
    described = eoctl("txn", "describe", live.transactional_id or "", "-o", "json", lab=lab3)
    coordinator = described.rows[0]["coordinator"]
    gone = (*FAST, "--owner-is-gone")
    done = through(relay, tmp_path, "txn", "fence", live.transactional_id or "", *gone, *ACT)
    assert done.status == 0, done.stderr
    # an owner may be answered the epoch after its own, whoever raised the id to it
    raises = [(coordinator, INIT_PRODUCER_ID)] * 2
    assert relay.changing == [(coordinator, END_TXN), *raises]


def test_looking_and_planning_send_nothing_that_changes(
    lab3: Lab, relay: Relay, tmp_path: Path
) -> None:
    [orphan] = break_(lab3, "orphan", hold=False)
    [live] = break_(lab3, "open", hold=False)
    plan = str(tmp_path / "plan.json")
    for words, status in (
        (("why", orphan.topic, *FAST), 1),
        (("status", *FAST), 1),
        (("txn", "hanging", orphan.topic, *FAST, "--plan", plan), 1),
        (("txn", "apply", plan), 0),
        (abort(orphan), 0),
        (("txn", "fence", live.transactional_id or "", *FAST, "--owner-is-gone"), 0),
        ((*abort(live), *ACT), 4),
        (("bundle", "create", str(tmp_path / "b"), *FAST), 0),
    ):
        ran = through(relay, tmp_path, *words)
        assert ran.status == status, (words, ran.stderr)
    assert relay.requests
    assert relay.changing == []


def test_a_server_that_dies_once_it_accepted_us_leaves_the_others(
    lab3: Lab, relay: Relay, tmp_path: Path
) -> None:
    relay.lose = frozenset({METADATA})
    first = relay.addresses[0]
    both = f"{first},{lab3.bootstrap_servers}"
    ran = eoctl("--bootstrap-server", both, "txn", "list", env=environment())
    assert (ran.status, relay.sent(METADATA).total()) == (0, 1), ran.stderr
    # one sentence, without what other tests left in the journal
    env = environment(EOCTL_STATE_DIR=str(tmp_path))
    alone = eoctl("--bootstrap-server", first, "txn", "list", env=env)
    assert (alone.status, alone.stderr.count("\n")) == (5, 1), alone.stderr


@pytest.mark.parametrize("another", [False, True], ids=["ended", "another-began"])
def test_a_plan_of_what_is_over_sends_nothing(
    lab3: Lab, relay: Relay, tmp_path: Path, another: bool
) -> None:
    """Between plan and execute Kafka's own tool ends it; then the producer begins another."""
    [orphan] = break_(lab3, "orphan", hold=False)
    plan = str(tmp_path / "plan.json")
    assert through(relay, tmp_path, "txn", "hanging", orphan.topic, *FAST, "--plan", plan).status
    kafka_tool(
        lab3,
        "org.apache.kafka.tools.TransactionsCommand",
        *("--bootstrap-server", lab3.bootstrap_servers, "abort", "--topic", orphan.topic),
        *("--partition", str(orphan.partition), "--start-offset", str(orphan.start_offset)),
    )
    start = asyncio.run(_begin_another(lab3, orphan)) if another else None
    late = through(relay, tmp_path, "txn", "apply", plan, *ACT, "-o", "json")
    assert late.status == 4, late.stderr
    assert [s["status"] for s in late.rows[0]["steps"]] == ["refused"]
    assert relay.changing == []
    rows = eoctl("producers", orphan.topic, "-o", "json", lab=lab3).rows
    assert {r["current_txn_start_offset"] for r in rows} == {start}


async def _begin_another(lab: Lab, orphan: GroundTruth) -> int:
    """A new transaction of the same producer id on that partition; its first offset."""
    async with Client.to(lab.bootstrap_servers) as client:
        now = (await client.producers(orphan.topic, orphan.partition))[orphan.producer_id or 0]
        assert now.current_txn_start_offset is None
        for broker in lab.broker_ids:
            setting = {"transaction.partition.verification.enable": "false"}
            await admin.set_config(client, admin.BROKER, str(broker), setting)
        producer = Producer(client, now.producer_id, now.producer_epoch, "nobody")
        if now.producer_epoch == orphan.producer_epoch:
            producer.sequences[orphan.topic_partition] = (now.last_sequence or 0) + 1
        offset = await client.until(
            lambda: producer.write(orphan.topic, orphan.partition, [NewRecord(b"another")]),
            also=STRAY_NOT_YET,
        )
        for broker in lab.broker_ids:
            await admin.set_config(client, admin.BROKER, str(broker), dict.fromkeys(setting))
        return offset


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("orphan", None),
        ("open", None),
        ("orphan", (MARKER_ERROR, NOT_LEADER_OR_FOLLOWER)),
        ("orphan", (MARKER_ERROR, NOT_ENOUGH_REPLICAS)),
        ("open", (END_ERROR, NOT_COORDINATOR)),
        ("open", (END_ERROR, COORDINATOR_NOT_AVAILABLE)),
    ],
    ids=lambda v: v if isinstance(v, str) else "lost" if v is None else str(v[1]),
)
def test_an_answer_that_is_lost_on_the_way(
    lab3: Lab, relay: Relay, tmp_path: Path, kind: str, answer: tuple[int, int] | None
) -> None:
    """The broker did it and nobody was told: seen done; the next run finds it so and sends none.

    A fence goes on with raising the id, since its transaction is seen to be over.

    Nor is it "refused" when a broker, deposed after its append, says that it is no leader.
    """
    [t] = break_(lab3, kind, hold=False)
    fence = ("txn", "fence", t.transactional_id or "", *FAST, "--owner-is-gone")
    words = abort(t) if kind == "orphan" else fence
    key = WRITE_TXN_MARKERS if kind == "orphan" else END_TXN
    before = unfinished("txn")
    if answer is None:
        relay.lose = frozenset({key})
    else:
        relay.alter = {key: answer}
    first = through(relay, tmp_path, *words, *ACT)
    assert first.status == 0, first.stderr
    assert relay.sent(key).total() == 1, "sent once, never again on a guess"
    relay.lose, relay.alter = frozenset(), {}
    relay.requests.clear()
    again = through(relay, tmp_path, *words, *ACT)
    assert again.status == 0, again.stderr
    assert "done already" in again.stdout
    assert relay.changing == []
    assert unfinished("txn") == before  # of other tests
