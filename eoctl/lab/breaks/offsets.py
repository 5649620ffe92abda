"""Break `__consumer_offsets`: a lost COMMIT of a group's offsets, and ownerless offsets."""

from functools import partial

from eoctl.lab import admin
from eoctl.lab.breaks.markers import REPAIR, decide_while_stopped, stoppable
from eoctl.lab.breaks.orphans import ABORT, unverified
from eoctl.lab.breaks.owned import Begun, longest_timeout
from eoctl.lab.breaks.stage import BreakKind, BreakTarget, Stage, batch, group_offsets
from eoctl.lab.breaks.truth import STRAY_NOT_YET, GroundTruth, Ledger
from eoctl.lab.client import GROUP
from eoctl.lab.producer import Producer
from recovery.formats.coordinator import coordinator_partition

OFFSETS = "__consumer_offsets"
COMMITTED, PENDING = 2, 5


async def _group_of(stage: Stage, target: BreakTarget, number: int) -> tuple[str, int]:
    """Return a group's name and its partition of `__consumer_offsets`."""
    group = stage.options.group or f"{target.topic}-group"
    if stage.options.count > 1:
        group = f"{group}.{number}"
    await stage.client.until(lambda: stage.client.coordinator(group, GROUP))
    return group, coordinator_partition(group, len(await stage.client.partitions(OFFSETS)))


async def _committed_once(stage: Stage, target: BreakTarget, group: str) -> Producer:
    """Write an input; return a producer that has committed the group's offset COMMITTED of it."""
    await stage.client.plain(target.topic, target.partition, batch(10, "input"))
    timeout_ms = await longest_timeout(stage)
    producer = await Producer.init(stage.client, target.transactional_id, timeout_ms)
    await producer.send_offsets(group, {target.topic_partition: COMMITTED})
    await producer.commit()
    return producer


async def make_offsets_marker_lost(stage: Stage) -> list[GroundTruth]:
    """Commit group offsets in transactions decided while their partition had no leader."""
    async with stoppable(stage) as victim:
        transactions: list[tuple[str, Begun]] = []
        for number, target in enumerate(await stage.targets()):
            group, home = await _group_of(stage, target, number)
            await admin.set_replicas(stage.client, OFFSETS, home, [victim])
            producer = await _committed_once(stage, target, group)
            ledger = await Ledger.begin(stage.client, OFFSETS, home)
            await producer.send_offsets(group, {target.topic_partition: PENDING})
            start = await ledger.written_for(producer.producer_id)
            transactions.append(
                (
                    group,
                    Begun(target, ledger, producer, producer.producer_id, producer.epoch, start),
                )
            )
        await decide_while_stopped(stage, victim, [begun for _, begun in transactions])
        return [
            await b.truth(
                stage,
                "marker-lost",
                REPAIR["commit"],
                outcome="commit",
                **group_offsets(group, b.target, COMMITTED, PENDING),
            )
            for group, b in transactions
        ]


async def make_offsets_orphan(stage: Stage) -> list[GroundTruth]:
    """Commit offsets in transactions that no coordinator knows of; their ids have moved on."""
    truths = []
    for number, target in enumerate(await stage.targets()):
        group, home = await _group_of(stage, target, number)
        producer = await _committed_once(stage, target, group)
        ledger = await Ledger.begin(stage.client, OFFSETS, home)
        pending = {target.topic_partition: PENDING}
        async with unverified(stage.client):
            await stage.client.until(
                partial(producer.write_offsets, group, pending),
                also=STRAY_NOT_YET,
            )
        start = await ledger.written_for(producer.producer_id)
        await Producer.init(stage.client, target.transactional_id)
        truth = await stage.truth(
            ledger,
            target.transactional_id,
            producer,
            start,
            verdict="orphan",
            **group_offsets(group, target, COMMITTED, PENDING),
            repair=f"{ABORT}; the group then stands at committed_offset",
        )
        truths.append(truth)
    return truths


KINDS = (
    BreakKind(
        "offsets-marker-lost",
        "a decided COMMIT of a group's offsets whose marker was skipped",
        make_offsets_marker_lost,
        brokers=2,
        takes=frozenset({"group"}),
    ),
    BreakKind(
        "offsets-orphan",
        "a group's offset commit in a transaction that no coordinator owns",
        make_offsets_orphan,
        takes=frozenset({"group"}),
    ),
)
