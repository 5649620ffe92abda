"""Make decided transactions without their markers: lost, or not written yet.

Both need a broker that only leads the data: that broker is stopped (or frozen) while the
coordinator, elsewhere, decides the transaction.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from eoctl.kafka.connection import messages
from eoctl.lab import admin
from eoctl.lab.breaks.owned import Begun, begin, longest_timeout
from eoctl.lab.breaks.stage import BreakKind, BreakTarget, Stage, batch
from eoctl.lab.breaks.truth import GroundTruth, Ledger
from eoctl.lab.client import Client, refuse
from eoctl.lab.producer import Producer
from recovery.errors import RefusedError, UnverifiedError, UsageError
from recovery.formats.coordinator import coordinator_partition

TRANSACTION_STATE = "__transaction_state"
REPAIR = {
    "commit": "never abort: write the COMMIT marker that was decided (resolve)",
    "abort": "write the ABORT marker that was decided (resolve)",
}
WAIT_FOR_NEXT = (
    "never abort or fence: its next transaction is open here; that one's commit saves both, "
    "its abort or timeout destroys committed records"
)


# A returning broker is admitted once its old session has ended (it tries for a minute).
SESSION_TIMEOUT = "broker.session.timeout.ms"
LONGEST_SESSION_MS = 30_000


@asynccontextmanager
async def stoppable(stage: Stage) -> AsyncIterator[int]:
    """Yield a broker that may be stopped and returns; the stage needs it only as a leader."""
    victim = await stoppable_broker(stage.client)
    settings = await admin.broker_settings(stage.client, victim, [SESSION_TIMEOUT])
    if int(settings[SESSION_TIMEOUT] or 0) > LONGEST_SESSION_MS:
        raise RefusedError(
            f"`{stage.kind}` restarts a broker, which would not come back: "
            f"{SESSION_TIMEOUT}={settings[SESSION_TIMEOUT]}",
            remedy="eoctl lab down, then eoctl lab up --brokers 2 without that --set",
        )
    async with stage.client.without(victim) as client:
        stage.client = client
        yield victim


async def make_marker_lost(stage: Stage) -> list[GroundTruth]:
    """Make transactions decided while their partition had no leader: their markers are lost.

    The broker that holds the only replica is stopped cleanly and started again.
    """
    later, outcome = stage.options.later, stage.options.outcome
    if later not in (None, "elsewhere", "open"):
        raise UsageError(f"{later!r} is nothing that can come later", remedy="elsewhere or open")
    if outcome not in REPAIR:
        raise UsageError(f"{outcome!r} is no outcome", remedy="commit or abort")
    async with stoppable(stage) as victim:
        client = stage.client
        # one more target each, for the id's next transaction
        per_trouble = 2 if later == "elsewhere" else 1
        targets = await stage.targets(replicas=[victim], per_trouble=per_trouble)
        timeout_ms = await longest_timeout(stage)
        begun = []
        for target in targets[::per_trouble]:
            ledger = await Ledger.begin(client, target.topic, target.partition)
            if client.transaction_version < 2:
                await _session_before(stage, target, ledger)
            producer = await Producer.init(client, target.transactional_id, timeout_ms)
            begun.append(await begin(stage, target, producer, ledger))
        await decide_while_stopped(stage, victim, begun)
        truths = []
        for number, b in enumerate(begun):
            if later == "elsewhere":
                other = targets[2 * number + 1]
                await b.producer.send(other.topic, other.partition, batch(1, "next-transaction"))
                await b.producer.commit()
            elif later == "open":
                await b.ledger.send(b.producer, batch(stage.options.records, "next-transaction"))
            truths.append(
                await b.truth(
                    stage,
                    "marker-lost",
                    WAIT_FOR_NEXT if later == "open" else REPAIR[outcome],
                    variant=later,
                    mixed=later == "open",
                    outcome=outcome,
                )
            )
        return truths


async def _session_before(stage: Stage, target: BreakTarget, ledger: Ledger) -> None:
    """Let the application commit here once before its restart.

    Under v1 this commit's marker shows that later decisions are about this topic, and not about an
    earlier one of that name.
    """
    producer = await Producer.init(stage.client, target.transactional_id)
    await ledger.send(producer, batch(stage.options.records, "session-before"))
    await producer.commit()
    await ledger.ended(producer.producer_id, commit=True)


async def make_marker_twice(stage: Stage) -> list[GroundTruth]:
    """Commit twice in one epoch (v1): the first marker is written twice, the second one is missing.

    A coordinator that got no answer writes a marker again. Here a client does so.
    """
    async with stoppable(stage) as victim:
        begun = []
        for target in await stage.targets(replicas=[victim]):
            timeout_ms = await longest_timeout(stage)
            producer = await Producer.init(
                stage.client, target.transactional_id, timeout_ms, version=1
            )
            ledger = await Ledger.begin(stage.client, target.topic, target.partition)
            await ledger.send(producer, batch(stage.options.records, "first"))
            await producer.commit()
            await ledger.ended(producer.producer_id, commit=True)
            rows = await stage.client.producers(target.topic, target.partition)
            epoch = rows[producer.producer_id].coordinator_epoch or 0
            await write_marker(stage.client, target, producer, commit=True, coordinator_epoch=epoch)
            await ledger.marked()
            begun.append(await begin(stage, target, producer, ledger))
        await decide_while_stopped(stage, victim, begun)
        return [
            await b.truth(
                stage,
                "unknown",
                "none is proven by counting: the marker that is there twice may be either one's; "
                "never abort, a COMMIT was decided",
                outcome="commit",
            )
            for b in begun
        ]


async def write_marker(
    client: Client, target: BreakTarget, producer: Producer, *, commit: bool, coordinator_epoch: int
) -> None:
    """Write a marker as a coordinator of transactions v1 does, with this coordinator epoch."""
    marker = messages.WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name=target.topic, partition_indexes=[target.partition])
    question = messages.WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transaction_result=commit,
                topics=[topic],
                coordinator_epoch=coordinator_epoch,
            )
        ]
    )
    broker = await client.leader(target.topic, target.partition)
    answer = await client.cluster.ask(broker, question, most=1)
    refuse(answer.markers[0].topics[0].partitions[0].error_code, "WriteTxnMarkers")


@asynccontextmanager
async def stopped(stage: Stage, victim: int) -> AsyncIterator[None]:
    """Stop the broker cleanly, and start it again at the end of the block."""
    lab, client = stage.lab, stage.client
    try:
        await asyncio.to_thread(lab.terminate, victim)
        client.cluster.forgive()
        yield
    finally:
        # a broker that missed the deadline would still stop, after `start` had seen it alive
        with suppress(UsageError):  # the broker has stopped, as it should
            await asyncio.to_thread(lab.kill, victim)
        await asyncio.to_thread(lab.start, victim)
    client.cluster.forgive()


async def decide_while_stopped(stage: Stage, victim: int, begun: list[Begun]) -> None:
    """Stop the broker, end the transactions, start it again: their markers were skipped."""
    async with stopped(stage, victim):
        for b in begun:
            await b.producer.end(commit=stage.options.outcome == "commit")
            await b.producer.completed()
    for b in begun:
        b.ledger.decided(b.producer_id)
        await _still_held(stage.client, b.ledger)


async def stoppable_broker(client: Client) -> int:
    """Return a broker that the quorum does not need: not its leader."""
    leader = await admin.quorum_leader(client)
    return max(broker for broker in client.cluster.brokers if broker != leader)


TRY_AGAIN = "try again"


async def _still_held(client: Client, ledger: Ledger) -> None:
    """Raise UnverifiedError if the marker was written after all."""
    _, stable, end = await client.until(lambda: client.offsets(ledger.topic, ledger.partition))
    if (stable, end) != (ledger.stable, ledger.end):
        raise UnverifiedError(
            f"LSO {stable} and end {end} where {ledger.stable} and {ledger.end} were expected: "
            "the marker was not lost",
            where=str(ledger.topic_partition),
            remedy=TRY_AGAIN,
        )


async def make_prepare_stuck(stage: Stage) -> list[GroundTruth]:
    """Make COMMITs decided while the broker that leads their partition is frozen.

    The id's own partition of __transaction_state is moved off that broker first: a frozen replica
    in its ISR would prevent the decision from being written.
    """
    lab = stage.lab
    victim = await stoppable_broker(stage.client)
    others = [broker for broker in stage.client.cluster.brokers if broker != victim]
    async with stage.client.without(victim) as client:
        stage.client = client
        begun = []
        for target in await stage.targets(replicas=[victim]):
            await client.until(partial(client.coordinator, target.transactional_id))
            size = len(await client.partitions(TRANSACTION_STATE))
            home = coordinator_partition(target.transactional_id, size)
            await admin.set_replicas(client, TRANSACTION_STATE, home, others)
            timeout_ms = await longest_timeout(stage)
            producer = await Producer.init(client, target.transactional_id, timeout_ms)
            begun.append(await begin(stage, target, producer))
        lab.freeze(victim)
        truths = []
        for b in begun:
            await b.producer.end(commit=True)
            await prepared(client, b.target.transactional_id)
            b.ledger.decided(b.producer_id)
            truths.append(
                await b.truth(
                    stage,
                    "prepare-stuck",
                    f"restore the leader: thaw broker {victim} (kill -CONT its process)",
                    outcome="commit",
                    frozen_broker=victim,
                )
            )
        return truths


async def prepared(client: Client, name: str) -> None:
    """Raise UnverifiedError unless the id is PrepareCommit."""
    transaction = await client.until(lambda: client.transaction(name))
    if transaction is None or transaction.state != "PrepareCommit":
        raise UnverifiedError(f"{name!r} is {transaction and transaction.state}, not PrepareCommit")


KINDS = (
    BreakKind(
        "marker-lost",
        "a decided COMMIT whose marker was skipped (--later elsewhere, open)",
        make_marker_lost,
        brokers=2,
        takes=frozenset({"later", "outcome"}),
    ),
    BreakKind(
        "marker-twice",
        "of two commits (v1) one marker is there twice, the other's was skipped",
        make_marker_twice,
        brokers=2,
    ),
    BreakKind(
        "prepare-stuck",
        "a decided COMMIT whose partition's broker is frozen",
        make_prepare_stuck,
        brokers=2,
        settings={SESSION_TIMEOUT: "600000"},
    ),
)
