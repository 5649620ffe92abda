"""Break histories so that they mislead: a recreated log, moved homes, a recreated topic.

In each case a COMMIT was decided, and `__transaction_state` no longer shows it, or shows it under a
name that means something else by now.
"""

import asyncio

from eoctl.lab import admin
from eoctl.lab.breaks.markers import TRANSACTION_STATE, decide_while_stopped, stoppable
from eoctl.lab.breaks.orphans import stray, unverified
from eoctl.lab.breaks.owned import Begun, begin, held, longest_timeout
from eoctl.lab.breaks.stage import BreakKind, Stage, batch
from eoctl.lab.breaks.truth import GroundTruth, Ledger
from eoctl.lab.producer import Producer
from recovery.formats.coordinator import coordinator_partition

NOT_PROVEN = (
    "none is proven: a COMMIT was decided, but no log says so any more; ask those who run the "
    "application, never abort"
)


async def _lose_commits(stage: Stage, victim: int) -> list[Begun]:
    """Lose the victim's COMMIT markers, as `marker-lost` does."""
    begun = []
    for target in await stage.targets(replicas=[victim]):
        timeout_ms = await longest_timeout(stage)
        producer = await Producer.init(stage.client, target.transactional_id, timeout_ms)
        begun.append(await begin(stage, target, producer))
    await decide_while_stopped(stage, victim, begun)
    return begun


async def make_replaced_history(stage: Stage) -> list[GroundTruth]:
    """Lose COMMIT markers, then delete `__transaction_state`; Kafka recreates it, from offset 0."""
    async with stoppable(stage) as victim:
        begun = await _lose_commits(stage, victim)
        await admin.delete_topic(stage.client, TRANSACTION_STATE)
        await stage.client.until(lambda: stage.client.coordinator("lab"))
        return [
            await b.truth(stage, "unknown", NOT_PROVEN, rule="history-replaced", outcome="commit")
            for b in begun
        ]


async def make_grown_history(stage: Stage) -> list[GroundTruth]:
    """Lose COMMIT markers, then add partitions to `__transaction_state`, which moves ids' homes.

    Coordinators count the partitions when they start: every broker is restarted.
    """
    async with stoppable(stage) as victim:
        client, lab = stage.client, stage.lab
        begun = await _lose_commits(stage, victim)
        names = [b.target.transactional_id for b in begun]
        before = len(await client.partitions(TRANSACTION_STATE))
        after = before + 1
        while any(
            coordinator_partition(n, before) == coordinator_partition(n, after) for n in names
        ):
            after += 1
        await admin.add_partitions(client, TRANSACTION_STATE, after)
        for broker in sorted(client.cluster.brokers, reverse=True):
            await asyncio.to_thread(lab.terminate, broker)
            await asyncio.to_thread(lab.start, broker)
            client.cluster.forgive()
        return [
            await b.truth(
                stage,
                "marker-lost",
                "resolve: its COMMIT stands in the partition of __transaction_state where the id "
                "lived before; never abort",
                rule="marker-not-written",
                outcome="commit",
            )
            for b in begun
        ]


async def make_topic_made_anew(stage: Stage) -> list[GroundTruth]:
    """Let an id (v1) commit in a topic, recreate the topic, and write there with that epoch.

    open: its next transaction, with a live owner. orphan: a write that no coordinator knows of.
    """
    variant = stage.variant("open", "orphan")
    client = stage.client
    targets = await stage.targets()
    producers = []
    for target in targets:
        timeout_ms = await longest_timeout(stage)
        producer = await Producer.init(client, target.transactional_id, timeout_ms, version=1)
        await producer.send(target.topic, target.partition, batch(stage.options.records, "before"))
        await producer.commit()
        producer.sequences.clear()
        producers.append(producer)
    for topic in {target.topic for target in targets}:
        size = len(await client.partitions(topic))
        await admin.delete_topic(client, topic)
        await admin.create_topic(client, topic, size, min(3, len(client.cluster.brokers)))
    truths = []
    for target, producer in zip(targets, producers, strict=True):
        if variant == "open":
            begun = await begin(stage, target, producer)
            repair = "wait: it is alive; fence it only if its owner is gone"
            truths.append(await begun.truth(stage, "open", repair, variant=variant))
            continue
        ledger = await Ledger.begin(client, target.topic, target.partition)
        async with unverified(client):
            truths.append(
                await stray(
                    stage,
                    ledger,
                    producer,
                    variant,
                    raised=True,
                    verdict="unknown",
                    rule="topic-identity",
                    repair="none is proven: a decision names this topic, and that may be the one "
                    "before; nobody ever committed these records",
                )
            )
    return truths


KINDS = (
    BreakKind(
        "replaced-history",
        "a lost COMMIT, and __transaction_state was recreated since",
        make_replaced_history,
        brokers=2,
    ),
    BreakKind(
        "grown-history",
        "a lost COMMIT, and __transaction_state got partitions since",
        make_grown_history,
        brokers=2,
    ),
    BreakKind(
        "topic-made-anew",
        "an id (v1) goes on in a recreated topic (--kind open, orphan)",
        make_topic_made_anew,
        takes=frozenset({"variant", "hold", "timeout_ms"}),
        leaves_open=lambda options: held(options) and options.variant != "orphan",
    ),
)
