"""Fill a partition with everything: plain, idempotent, committed, aborted, open, control records,
and holes left by compaction. Each offset's truth is known before eoctl reads it."""

import asyncio

from eoctl.kafka.connection.failures import WireError
from eoctl.lab import admin
from eoctl.lab.admin import BROKER, TOPIC
from eoctl.lab.breaks.owned import HOLD, held, longest_timeout
from eoctl.lab.breaks.stage import BreakKind, BreakTarget, Stage, batch
from eoctl.lab.breaks.truth import GroundTruth, Ledger
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.producer import Producer

# Roll a segment at the next write a second later; compact whatever exists.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.001",
}
CLEANER_PAUSE = "log.cleaner.backoff.ms"  # 15 s by default


async def make_mixed(stage: Stage) -> list[GroundTruth]:
    """Write, compact, verify the remaining records, write each kind again, leave one open."""
    client, truths = stage.client, []
    brokers = list(client.cluster.brokers)
    targets = await stage.targets(configs=COMPACTED)
    written = [await _write_what_compaction_thins(stage, target) for target in targets]
    await asyncio.sleep(1.1)
    for ledger in written:
        await ledger.plain(batch(1, "rolls-the-segment"))
    try:
        for broker in brokers:
            await admin.set_config(client, BROKER, str(broker), {CLEANER_PAUSE: "100"})
        for ledger in written:
            await _compacted(client, ledger)
    finally:
        for broker in brokers:
            await admin.set_config(client, BROKER, str(broker), {CLEANER_PAUSE: None})
    for topic in {target.topic for target in targets}:  # later records must stay
        await admin.set_config(client, TOPIC, topic, dict.fromkeys(COMPACTED))
    for target, ledger in zip(targets, written, strict=True):
        producer, start = await _write_what_stays(stage, target, ledger)
        truths.append(
            await stage.truth(
                ledger,
                target.transactional_id,
                producer,
                start,
                verdict="open",
                repair="wait: it ends with its owner or at its timeout",
            )
        )
    return truths


async def _write_what_compaction_thins(stage: Stage, target: BreakTarget) -> Ledger:
    """Write every second key again later, so that its first version vanishes like aborted ones."""
    client, count = stage.client, 2 * max(1, stage.options.records)
    ledger = await Ledger.begin(client, target.topic, target.partition)
    idempotent = await Producer.init(client)
    transactional = await Producer.init(client, f"{target.transactional_id}.ended")
    again: list[NewRecord] = []
    for name in ("plain", "idempotent", "committed", "aborted"):
        records = batch(count, f"early-{name}")
        if name == "plain":
            first = await ledger.plain(records)
        elif name == "idempotent":
            first = await ledger.send(idempotent, records)
        else:
            owner = transactional.producer_id
            first = await ledger.send(transactional, records)
            await (transactional.commit() if name == "committed" else transactional.abort())
            await ledger.ended(owner, commit=name == "committed")
        if name == "aborted":
            ledger.vanish(range(first, first + count))
        else:
            again += records[::2]
            ledger.vanish(range(first, first + count, 2))
    await ledger.plain(again)
    return ledger


async def _compacted(client: Client, ledger: Ledger) -> None:
    """Wait until exactly the expected offsets are left (read raw, not by eoctl)."""
    expected = {offset for offset, content in ledger.content.items() if content != "missing"}

    async def attempt() -> None:
        left = await client.read(ledger.topic, ledger.partition)
        offsets = {offset for offset in left if offset in ledger.content}
        if offsets != expected:
            raise WireError(
                "NOT_YET",
                f"{ledger.topic_partition} was not compacted as expected: "
                f"{sorted(offsets - expected)} should have gone, "
                f"{sorted(expected - offsets)} should have stayed",
            )

    await client.until(attempt, also=frozenset({"NOT_YET"}))


async def _write_what_stays(
    stage: Stage, target: BreakTarget, ledger: Ledger
) -> tuple[Producer, int]:
    """Write each kind of record into the part that is not compacted, and an open transaction."""
    client, count = stage.client, stage.options.records
    idempotent = await Producer.init(client)
    transactional = await Producer.init(client, f"{target.transactional_id}.ended")
    await ledger.plain(batch(count, "late-plain"))
    await ledger.send(idempotent, batch(count, "late-idempotent"))
    for commit in (True, False):
        owner = transactional.producer_id
        await ledger.send(transactional, batch(count, f"late-{commit}"))
        await (transactional.commit() if commit else transactional.abort())
        await ledger.ended(owner, commit=commit)
    producer = await Producer.init(client, target.transactional_id, await longest_timeout(stage))
    start = await ledger.send(producer, batch(count, "late-open"))
    await ledger.plain(batch(count, "behind"))
    stage.open_producers.append(producer)
    return producer, start


KINDS = (
    BreakKind(
        "mixed",
        "one partition with every kind of record, compacted holes and an open transaction",
        make_mixed,
        takes=HOLD,
        leaves_open=held,
    ),
)
