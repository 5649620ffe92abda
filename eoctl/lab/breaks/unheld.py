"""Break transactional ids that hold no partition: nothing written, or all markers written.

Also the id that a foreign marker has fenced from its own partition: its coordinator stays in
Prepare* forever, and whether the partition is held depends on when that marker came.
"""

import asyncio
from functools import partial

from eoctl.kafka.connection.failures import WireError
from eoctl.lab import admin
from eoctl.lab.admin import TOPIC
from eoctl.lab.breaks.markers import TRANSACTION_STATE, prepared, stoppable, write_marker
from eoctl.lab.breaks.owned import HOLD, begin, held, longest_timeout
from eoctl.lab.breaks.stage import BreakKind, Stage, batch
from eoctl.lab.breaks.truth import GroundTruth, Ledger
from eoctl.lab.client import GROUP, Client
from eoctl.lab.producer import Producer
from recovery.errors import UnverifiedError, UsageError
from recovery.formats.coordinator import coordinator_partition
from recovery.plurals import counted
from recovery.values import replace

MIN_ISR = "min.insync.replicas"
STAYS_SECONDS = 1.0


async def make_holds_nothing(stage: Stage) -> list[GroundTruth]:
    """Make ids (v1) that are Ongoing and wrote nothing. added: a partition; offsets: a group."""
    variant, truths = stage.variant("added", "offsets"), []
    timeout_ms = await longest_timeout(stage)
    for target in await stage.targets():
        name, client = target.transactional_id, stage.client
        producer = await Producer.init(client, name, timeout_ms, version=1)
        ledger = await Ledger.begin(client, target.topic, target.partition)
        await ledger.plain(batch(stage.options.records, "before"))
        if variant == "added":
            await producer.add_partition(target.topic, target.partition)
        else:
            group = stage.options.group or f"{target.topic}-group"
            await client.until(partial(client.coordinator, group, GROUP))
            await producer.add_group(group)
        stage.open_producers.append(producer)
        truths.append(
            await stage.truth(
                ledger,
                name,
                producer,
                variant=variant,
                verdict="long",
                group=group if variant == "offsets" else None,
                repair="`long` once its age passes --long-after (read it with --long-after 5s); "
                "then fence it: nobody waits for it but its own next transaction",
            )
        )
    return truths


async def make_prepare_holds_nothing(stage: Stage) -> list[GroundTruth]:
    """Make COMMITs with all markers that cannot finish: the state log is below min ISR.

    Low min ISR also holds the markers back until the decision is written.
    """
    async with stoppable(stage) as victim:
        client = stage.client
        keeper = next(b for b in sorted(client.cluster.brokers) if b != victim)
        targets = await stage.targets(replicas=[keeper, victim], configs={MIN_ISR: "2"})
        begun = []
        for target in targets:
            name = target.transactional_id
            await client.until(partial(client.coordinator, name))
            size = len(await client.partitions(TRANSACTION_STATE))
            home = coordinator_partition(name, size)
            await admin.set_replicas(client, TRANSACTION_STATE, home, [keeper, victim])
            producer = await Producer.init(client, name, await longest_timeout(stage))
            begun.append(await begin(stage, target, producer))
        await admin.set_config(client, TOPIC, TRANSACTION_STATE, {MIN_ISR: "1"})
        await asyncio.to_thread(stage.lab.terminate, victim)
        client.cluster.forgive()
        for b in begun:
            await b.producer.end(commit=True)
            await prepared(client, b.target.transactional_id)
        # one broker leads both: it gets the two changes in this order
        await admin.set_config(client, TOPIC, TRANSACTION_STATE, {MIN_ISR: "2"})
        for topic in {target.topic for target in targets}:
            await admin.set_config(client, TOPIC, topic, {MIN_ISR: "1"})
        truths = []
        for b in begun:
            await _marked(client, b.ledger)
            await b.ledger.ended(b.producer_id, commit=True)
            truths.append(
                await stage.truth(
                    b.ledger,
                    b.target.transactional_id,
                    verdict="prepare-stuck",
                    rule="markers-all-written",
                    producer_id=b.producer_id,
                    producer_epoch=b.epoch,
                    outcome="commit",
                    stopped_broker=victim,
                    repair=f"bring __transaction_state back to its min ISR: start broker {victim} "
                    "(eoctl lab up); no marker, no restart",
                )
            )
        await asyncio.sleep(STAYS_SECONDS)
        for b in begun:
            await prepared(client, b.target.transactional_id)
        return truths


async def _marked(client: Client, ledger: Ledger) -> None:
    """Wait until no partition is held."""

    async def attempt() -> None:
        _, stable, end = await client.offsets(ledger.topic, ledger.partition)
        if (stable, end) != (ledger.end + 1, ledger.end + 1):
            raise WireError("NOT_YET", f"{ledger.topic_partition} has no marker yet")

    await client.until(attempt, also=frozenset({"NOT_YET", "LEADER_NOT_AVAILABLE"}))


async def make_coordinator_fenced(stage: Stage) -> list[GroundTruth]:
    """Make COMMITs whose coordinator a marker of a later coordinator epoch has fenced.

    held: that marker came before the transaction. contradicted: it ended this one, with ABORT.
    """
    variant, truths = stage.variant("held", "contradicted"), []
    client, options = stage.client, stage.options
    if options.ahead < 1:
        raise UsageError("ahead is at least 1")
    timeout_ms = await longest_timeout(stage)
    for target in await stage.targets():
        name = target.transactional_id
        producer = await Producer.init(client, name, timeout_ms)
        parts = await client.partitions(TRANSACTION_STATE)
        home = parts[coordinator_partition(name, len(parts))]
        epoch = (home.leader_epoch or 0) + options.ahead
        ledger = await Ledger.begin(client, target.topic, target.partition)
        if variant == "held":
            await write_marker(client, target, producer, commit=False, coordinator_epoch=epoch)
            await ledger.marked()
        b = await begin(stage, target, producer, ledger)
        stage.open_producers.clear()  # nothing can end them
        if variant == "contradicted":
            await write_marker(client, target, producer, commit=False, coordinator_epoch=epoch)
            await ledger.ended(b.producer_id, commit=False)
        await producer.end(commit=True)
        await asyncio.sleep(STAYS_SECONDS)
        await prepared(client, name)
        if variant == "held":
            ledger.decided(b.producer_id)
        _, stable, end = await client.offsets(target.topic, target.partition)
        if (stable, end) != (ledger.stable, ledger.end):
            raise UnverifiedError("the coordinator's own marker came", where=target.topic)
        truth = await b.truth(
            stage,
            "coordinator-fenced",
            f"move the leader of __transaction_state-{home.partition} "
            + counted(options.ahead, "time")
            if options.ahead < 10
            else "write the COMMIT marker that was decided (resolve); its id stays stuck"
            if variant == "held"
            else "none for the data: another's ABORT ended it; give the application another id",
            rule="coordinator-fenced",
            variant=variant,
            outcome="commit",
        )
        truths.append(truth if variant == "held" else replace(truth, start_offset=None))
    return truths


KINDS = (
    BreakKind(
        "holds-nothing",
        "an Ongoing id (v1) that wrote nothing (--kind added, offsets)",
        make_holds_nothing,
        takes=HOLD | {"variant", "group"},
        leaves_open=held,
    ),
    BreakKind(
        "prepare-holds-nothing",
        "a decided COMMIT, all markers written, its coordinator cannot finish",
        make_prepare_holds_nothing,
        brokers=3,
    ),
    BreakKind(
        "coordinator-fenced",
        "a decided COMMIT kept from its partition by a foreign marker (--kind held, contradicted)",
        make_coordinator_fenced,
        takes=frozenset({"variant", "ahead"}),
    ),
)
