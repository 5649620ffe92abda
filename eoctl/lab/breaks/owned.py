"""Make transactions that a coordinator owns: open, long, overdue, two-phase; zombies; offsets.

A coordinator gets no sign of life from an owner (KIP-98): a live owner and one that just died look
alike. `hold` adds the process, for the person at the lab.
"""

import asyncio
from functools import partial
from typing import Any

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import WireError
from eoctl.lab import admin
from eoctl.lab.breaks.stage import (
    UNSTABLE,
    BreakKind,
    BreakTarget,
    Options,
    Stage,
    batch,
    group_offsets,
)
from eoctl.lab.breaks.truth import GroundTruth, Ledger
from eoctl.lab.producer import Producer
from recovery.errors import UnverifiedError
from recovery.formats.coordinator import coordinator_partition
from recovery.times import format_duration
from recovery.values import Value

ABORT_CYCLE = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
TRANSACTION_STATE = "__transaction_state"
MAX_TIMEOUT = "transaction.max.timeout.ms"
CLOCK_AHEAD_MS = 3 * 3_600_000
FENCED = frozenset({"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"})


class Begun(Value):
    """An open transaction as its batches show it; the producer's own epoch may move on."""

    target: BreakTarget
    ledger: Ledger
    producer: Producer
    producer_id: int
    epoch: int
    start: int

    async def truth(self, stage: Stage, verdict: str, repair: str, **known: Any) -> GroundTruth:
        """Return the ground truth of this transaction."""
        return await stage.truth(
            self.ledger,
            self.target.transactional_id,
            verdict=verdict,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            start_offset=self.start,
            repair=repair,
            **known,
        )


async def begin(
    stage: Stage, target: BreakTarget, producer: Producer, ledger: Ledger | None = None
) -> Begun:
    """Write records, an open transaction, more records. ledger: holds the earlier records."""
    ledger = ledger or await Ledger.begin(stage.client, target.topic, target.partition)
    await ledger.plain(batch(stage.options.records, "before"))
    start = await ledger.send(producer, batch(stage.options.records, "in-transaction"))
    await ledger.plain(batch(stage.options.records, "behind"))
    stage.open_producers.append(producer)
    return Begun(target, ledger, producer, producer.producer_id, producer.epoch, start)


async def longest_timeout(stage: Stage) -> int:
    """Return --timeout-ms, else the longest that transaction.max.timeout.ms allows."""
    if stage.options.timeout_ms is not None:
        return stage.options.timeout_ms
    broker = stage.client.any_broker
    return int((await admin.broker_settings(stage.client, broker, [MAX_TIMEOUT]))[MAX_TIMEOUT] or 0)


async def _owned(
    stage: Stage, verdict: str, timeout_ms: int, repair: str, *, two_phase: bool = False
) -> list[GroundTruth]:
    truths = []
    for target in await stage.targets():
        name = target.transactional_id
        producer = await Producer.init(stage.client, name, timeout_ms, two_phase=two_phase)
        truths.append(await (await begin(stage, target, producer)).truth(stage, verdict, repair))
    return truths


async def make_open(stage: Stage) -> list[GroundTruth]:
    """Make a transaction within its timeout, with a live owner if `hold`."""
    return await _owned(
        stage,
        "open",
        await longest_timeout(stage),
        "wait: it ends with its owner (kill -TERM owner_pid commits it) or at its timeout",
    )


async def make_clock_ahead(stage: Stage) -> list[GroundTruth]:
    """Make transactions whose coordinator's clock is ahead of all others: its broker restarts.

    Other brokers lead their data. The ids' logs are moved to that broker, so that they stay there.
    """
    client, timeout_ms = stage.client, await longest_timeout(stage)
    ahead = min(client.cluster.brokers)
    others = [broker for broker in sorted(client.cluster.brokers) if broker != ahead]
    targets = await stage.targets(replicas=others[:1])
    for target in targets if others else ():
        await client.until(partial(client.coordinator, target.transactional_id))
        size = len(await client.partitions(TRANSACTION_STATE))
        home = coordinator_partition(target.transactional_id, size)
        await admin.set_replicas(client, TRANSACTION_STATE, home, [ahead])
    await asyncio.to_thread(stage.lab.set_clock, ahead, CLOCK_AHEAD_MS)
    client.cluster.forgive()
    truths = []
    for target in targets:
        begin_again = partial(Producer.init, client, target.transactional_id, timeout_ms)
        begun = await begin(stage, target, await client.until(begin_again))
        repair = (
            f"wait: the clock of broker {ahead}, its coordinator, is 3 h ahead, and by it the "
            "transaction is young"
        )
        truths.append(await begun.truth(stage, "open", repair, rule="within-limits"))
    return truths


async def make_long(stage: Stage) -> list[GroundTruth]:
    """Make an open transaction: the reader's --long-after decides whether it is long."""
    return await _owned(
        stage,
        "long",
        await longest_timeout(stage),
        "`long` once its age passes --long-after, which a lab need not wait for: read it with "
        "--long-after 5s; then fence it",
    )


async def make_overdue(stage: Stage) -> list[GroundTruth]:
    """Make one without an owner, past its timeout by the coordinator's clock, still Ongoing."""
    timeout_ms = stage.options.timeout_ms or 1000
    truths = await _owned(
        stage,
        "overdue",
        timeout_ms,
        "wait one abort cycle (here: very long), then fence it",
    )
    for truth in truths:
        await _past_timeout(stage, truth.transactional_id or "", timeout_ms)
    return truths


async def _past_timeout(stage: Stage, name: str, timeout_ms: int) -> None:
    """Wait until ListTransactions' duration filter (on the coordinator's clock) lists the id."""

    async def attempt() -> None:
        question = messages.ListTransactionsRequest(
            state_filters=["Ongoing"], producer_id_filters=[], duration_filter=timeout_ms
        )
        broker = await stage.client.coordinator(name)
        answer = await stage.client.cluster.ask(broker, question, least=1, most=1)
        if name not in {row.transactional_id for row in answer.transaction_states}:
            raise WireError(
                "NOT_YET",
                f"{name!r} is not past its timeout of {format_duration(timeout_ms / 1000)}",
            )

    await asyncio.sleep(timeout_ms / 1000)
    await stage.client.until(attempt, also=frozenset({"NOT_YET"}))


async def make_two_phase(stage: Stage) -> list[GroundTruth]:
    """Make a prepared transaction of a two-phase participant (KIP-939): it never times out."""
    return await _owned(
        stage,
        "two-phase",
        60_000,
        "none from here: commit or abort belongs to the system that prepared it",
        two_phase=True,
    )


async def make_zombie(stage: Stage) -> list[GroundTruth]:
    """Make an old producer, fenced by a second one of its id; its next write is refused."""
    truths = []
    for target in await stage.targets():
        name = target.transactional_id
        zombie = await Producer.init(stage.client, name)
        ledger = await Ledger.begin(stage.client, target.topic, target.partition)
        await ledger.plain(batch(stage.options.records, "before"))
        start = await ledger.send(zombie, batch(stage.options.records, "of-the-zombie"))
        await Producer.init(stage.client, name)
        await ledger.ended(zombie.producer_id, commit=False)
        try:
            await zombie.send(target.topic, target.partition, batch(1, "too-late"))
        except WireError as error:
            if error.error not in FENCED:
                raise
            refused = error.error
        else:
            raise UnverifiedError("the zombie's write was accepted", where=target.topic)
        truths.append(
            await stage.truth(
                ledger,
                name,
                zombie,
                start,
                refused=refused,
                repair="end the old process: nothing of it is left in Kafka, its records "
                "were aborted when current_producer_epoch was handed out",
            )
        )
    return truths


async def make_offsets_pending(stage: Stage) -> list[GroundTruth]:
    """Leave the newest offset commit of groups in an open transaction on `__consumer_offsets`."""
    client, pending = stage.client, []
    timeout_ms = await longest_timeout(stage)
    for number, target in enumerate(await stage.targets()):
        source = target.topic_partition
        group = stage.options.group or f"{target.topic}-group"
        if stage.options.count > 1:
            group = f"{group}.{number}"
        await client.plain(*source, batch(10, "input"))
        producer = await Producer.init(client, target.transactional_id, timeout_ms)
        await producer.send_offsets(group, {source: 2})
        transaction = await client.transaction(target.transactional_id)
        assert transaction is not None
        assert transaction.partitions is not None
        await producer.commit()
        pending.append((target, producer, group, transaction.partitions[0]))
    # One partition of __consumer_offsets serves many groups: one ledger each, reported at the end.
    ledgers = {home: await Ledger.begin(client, *home) for *_, home in pending}
    starts = []
    for target, producer, group, home in pending:
        await producer.send_offsets(group, {target.topic_partition: 5})
        starts.append(await ledgers[home].written_for(producer.producer_id))
        stage.open_producers.append(producer)
    return [
        await stage.truth(
            ledgers[home],
            target.transactional_id,
            producer,
            start,
            verdict="open",
            **group_offsets(group, target, committed=2, pending=5),
            repair="wait, or fence the id: the group then stands at committed_offset",
        )
        for (target, producer, group, home), start in zip(pending, starts, strict=True)
    ]


def held(options: Options) -> bool:
    """Return True unless the options refuse a process that owns the open transaction."""
    return options.hold


HOLD = frozenset({"hold", "timeout_ms"})

KINDS = (
    BreakKind(
        "open", "a live transaction within its timeout", make_open, takes=HOLD, leaves_open=held
    ),
    BreakKind(
        "long",
        "a live transaction within its timeout; long by the reader's --long-after",
        make_long,
        takes=HOLD,
        leaves_open=held,
    ),
    BreakKind(
        "clock-ahead",
        "a live transaction whose coordinator's clock is 3 h ahead (needs a JDK)",
        make_clock_ahead,
        takes=HOLD,
        leaves_open=held,
    ),
    BreakKind(
        "overdue",
        "past its timeout, owner gone, still owned by its coordinator",
        make_overdue,
        settings={ABORT_CYCLE: "3600000"},
        takes=frozenset({"timeout_ms"}),
    ),
    BreakKind(
        "two-phase",
        "a transaction that another system will decide (KIP-939)",
        make_two_phase,
        settings={
            "transaction.two.phase.commit.enable": "true",
            UNSTABLE: "true",
        },
        takes=frozenset({"hold"}),
        leaves_open=held,
    ),
    BreakKind("zombie", "a producer fenced by a second one of its id", make_zombie),
    BreakKind(
        "offsets-pending",
        "a group's offset commit inside an open transaction",
        make_offsets_pending,
        takes=HOLD | {"group"},
        leaves_open=held,
    ),
)
