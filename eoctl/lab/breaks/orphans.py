"""Make transactions that no coordinator owns: orphans, in the four ways in which they arise.

Each has an id that a coordinator assigned, as real ones do: `__transaction_state` names its
producer id. A fifth, `nameless`, has a producer id that is in no log: nothing is known about it.

Verification of transactional writes (KIP-890) is switched off for a moment on every broker:
`transaction.partition.verification.enable` is dynamic per broker. Produce up to version 11 then
accepts a transactional batch from any client.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from eoctl.lab import admin
from eoctl.lab.admin import BROKER
from eoctl.lab.breaks.owned import HOLD, held, longest_timeout
from eoctl.lab.breaks.stage import BreakKind, BreakTarget, Stage, batch
from eoctl.lab.breaks.truth import GroundTruth, Ledger
from eoctl.lab.client import Client
from eoctl.lab.producer import Producer
from recovery.values import replace

VERIFICATION = "transaction.partition.verification.enable"
VARIANTS = ("fresh", "marked", "late", "foreign", "nameless")
ABORT = "abort it: no coordinator will ever end it"
RAISE_FIRST = (
    "raise its id's epoch first (that ends its application, which may begin to write here at any "
    "moment), then abort it"
)


async def make_orphan(stage: Stage) -> list[GroundTruth]:
    """Make `count` orphans of one variant. `foreign` also lists the live transactions it needs."""
    variant = stage.variant(*VARIANTS)
    if variant in ("late", "foreign"):  # these need a partition where the id is at home
        targets = await stage.targets(per_trouble=2)
        pairs = list(zip(targets[::2], targets[1::2], strict=True))
    else:
        pairs = [(target, target) for target in await stage.targets()]
    # creates `__transaction_state`: without it no coordinator can say that it owns nothing
    await stage.client.until(lambda: stage.client.coordinator("lab"))
    truths = []
    async with unverified(stage.client):
        for target, home in pairs:
            own = await _with_an_id_of_its_own(stage, target)
            truths += await _MAKERS[variant](stage, own, home)
    return truths


async def _with_an_id_of_its_own(stage: Stage, target: BreakTarget) -> BreakTarget:
    """Use another id if an earlier break used this partition's id, and so its producer id."""
    name, number = target.transactional_id, 1
    if stage.options.transactional_id is None:
        while await stage.client.until(partial(stage.client.transaction, name)) is not None:
            number += 1
            name = f"{target.transactional_id}.{number}"
    return replace(target, transactional_id=name)


@asynccontextmanager
async def unverified(client: Client) -> AsyncIterator[None]:
    """Switch verification off on all brokers, and restore it afterwards."""
    brokers = list(client.cluster.brokers)
    for broker in brokers:
        await admin.set_config(client, BROKER, str(broker), {VERIFICATION: "false"})
    try:
        yield
    finally:
        for broker in brokers:
            await admin.set_config(client, BROKER, str(broker), {VERIFICATION: None})


async def stray(
    stage: Stage,
    ledger: Ledger,
    producer: Producer,
    variant: str | None,
    *,
    raised: bool = False,
    verdict: str = "orphan",
    rule: str | None = None,
    repair: str = ABORT,
) -> GroundTruth:
    """Write records, the stray ones, more records. raised: the id then gets its next epoch."""
    options = stage.options
    await ledger.plain(batch(options.records, "before", options.age_seconds))
    start = await ledger.stray(producer, batch(options.records, "stray", options.age_seconds))
    await ledger.plain(batch(options.records, "behind", options.age_seconds))
    if raised:
        await Producer.init(stage.client, producer.transactional_id)
    return await stage.truth(
        ledger,
        None if variant == "nameless" else producer.transactional_id,
        producer,
        start,
        variant=variant,
        verdict=verdict,
        rule=rule,
        repair=repair,
    )


async def _fresh(stage: Stage, target: BreakTarget, _: BreakTarget) -> list[GroundTruth]:
    """Make an orphan whose id never had a transaction; its owner has been replaced since."""
    producer = await Producer.init(stage.client, target.transactional_id)
    ledger = await Ledger.begin(stage.client, target.topic, target.partition)
    return [await stray(stage, ledger, producer, "fresh", raised=True)]


async def _marked(stage: Stage, target: BreakTarget, _: BreakTarget) -> list[GroundTruth]:
    """Make an orphan whose id committed in this partition before."""
    producer = await Producer.init(stage.client, target.transactional_id)
    ledger = await Ledger.begin(stage.client, target.topic, target.partition)
    await ledger.send(producer, batch(stage.options.records, "earlier"))
    await producer.commit()
    await ledger.ended(producer.producer_id, commit=True)
    return [await stray(stage, ledger, producer, "marked", raised=True)]


async def _nameless(stage: Stage, target: BreakTarget, _: BreakTarget) -> list[GroundTruth]:
    """Use an idempotent producer's id, which no transactional id ever had."""
    plain = await Producer.init(stage.client)
    nobody = Producer(stage.client, plain.producer_id, plain.epoch, target.transactional_id)
    ledger = await Ledger.begin(stage.client, target.topic, target.partition)
    repair = (
        "none is proven: no log of __transaction_state names this producer id, so what was decided "
        "about it, if anything, may be lost"
    )
    return [await stray(stage, ledger, nobody, "nameless", verdict="unknown", repair=repair)]


async def _late(stage: Stage, target: BreakTarget, home: BreakTarget) -> list[GroundTruth]:
    """Commit elsewhere; then let a write of that transaction arrive here."""
    producer = await Producer.init(stage.client, target.transactional_id)
    await producer.send(home.topic, home.partition, batch(stage.options.records, "in-time"))
    late = Producer(stage.client, producer.producer_id, producer.epoch, target.transactional_id)
    await producer.commit()
    ledger = await Ledger.begin(stage.client, target.topic, target.partition)
    return [await stray(stage, ledger, late, "late")]


async def _foreign(stage: Stage, target: BreakTarget, home: BreakTarget) -> list[GroundTruth]:
    """Make an orphan whose id has an open transaction, but not here."""
    timeout_ms = await longest_timeout(stage)
    producer = await Producer.init(stage.client, target.transactional_id, timeout_ms)
    at_home = await Ledger.begin(stage.client, home.topic, home.partition)
    start = await at_home.send(producer, batch(stage.options.records, "at-home"))
    stage.open_producers.append(producer)
    ledger = await Ledger.begin(stage.client, target.topic, target.partition)
    repair = "no marker while the id lives: wait until it ends, or fence it; then abort"
    orphan = await stray(stage, ledger, producer, "foreign", repair=repair)
    live = await stage.truth(
        at_home,
        target.transactional_id,
        producer,
        start,
        verdict="open",
        repair="wait: it is alive, and only needed for the orphan beside it",
    )
    return [orphan, replace(live, kind="open")]


async def make_idle_owner(stage: Stage) -> list[GroundTruth]:
    """Make orphans of idle ids whose owners are alive and may write there at any moment.

    They use transactions v1: their next transaction has the orphan's epoch.
    """
    truths = []
    targets = await stage.targets(per_trouble=2)
    for target, home in zip(targets[::2], targets[1::2], strict=True):
        own = await _with_an_id_of_its_own(stage, target)
        producer = await Producer.init(stage.client, own.transactional_id, version=1)
        await producer.send(home.topic, home.partition, batch(stage.options.records, "at-home"))
        await producer.commit()
        stage.open_producers.append(producer)
        late = Producer(stage.client, producer.producer_id, producer.epoch, own.transactional_id)
        ledger = await Ledger.begin(stage.client, target.topic, target.partition)
        async with unverified(stage.client):
            truths.append(await stray(stage, ledger, late, None, repair=RAISE_FIRST))
    return truths


_MAKERS = {
    "fresh": _fresh,
    "marked": _marked,
    "late": _late,
    "foreign": _foreign,
    "nameless": _nameless,
}

KINDS = (
    BreakKind(
        "orphan",
        "a transaction that no coordinator owns (--kind fresh, marked, late, foreign, nameless)",
        make_orphan,
        takes=HOLD | {"variant", "age_seconds"},
        leaves_open=lambda options: options.hold and options.variant == "foreign",
    ),
    BreakKind(
        "idle-owner",
        "an orphan whose id is at rest and whose owner lives",
        make_idle_owner,
        takes=frozenset({"hold"}),
        leaves_open=held,
    ),
)
