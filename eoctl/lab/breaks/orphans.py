"""Transactions that no coordinator owns: orphans, in the four ways in which they come about.

Verification of transactional writes (KIP-890) is switched off for a moment on every broker:
`transaction.partition.verification.enable` is dynamic per broker. Produce up to version 11 then
takes a transactional batch from anybody.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from eoctl.kafka import messages
from eoctl.lab import admin
from eoctl.lab.admin import BROKER
from eoctl.lab.breaks.owned import HOLD, longest_timeout
from eoctl.lab.breaks.stage import Kind, Place, Stage, batch
from eoctl.lab.breaks.truth import GroundTruth, Ledger
from eoctl.lab.client import Client, refuse
from eoctl.lab.producer import Producer
from recovery.errors import UsageError

VERIFICATION = "transaction.partition.verification.enable"
VARIANTS = ("fresh", "marked", "late", "foreign")
ABORT = "abort it: no coordinator will ever end it"


async def make_orphan(stage: Stage) -> list[GroundTruth]:
    """`count` orphans of one variant. `foreign` also lists the live transactions it needs."""
    variant = stage.options.variant or "fresh"
    if variant not in VARIANTS:
        raise UsageError(
            f"{variant!r} is no sort of orphan", remedy=f"one of {', '.join(VARIANTS)}"
        )
    if variant in ("late", "foreign"):  # these need a partition where the id is at home
        places = await stage.places(per_trouble=2)
        pairs = list(zip(places[::2], places[1::2], strict=True))
    else:
        pairs = [(place, place) for place in await stage.places()]
    # makes `__transaction_state`: where there is none, no coordinator can say that it owns nothing
    await stage.client.until(lambda: stage.client.coordinator("lab"))
    truths = []
    async with _unverified(stage.client):
        for place, home in pairs:
            truths += await _MAKERS[variant](stage, place, home)
    return truths


@asynccontextmanager
async def _unverified(client: Client) -> AsyncIterator[None]:
    """Verification off on all brokers, and as it was afterwards."""
    brokers = list(client.cluster.brokers)
    for broker in brokers:
        await admin.set_config(client, BROKER, str(broker), {VERIFICATION: "false"})
    try:
        yield
    finally:
        for broker in brokers:
            await admin.set_config(client, BROKER, str(broker), {VERIFICATION: None})


async def _stray(
    stage: Stage,
    ledger: Ledger,
    producer: Producer,
    variant: str,
    transactional_id: str | None = None,
    repair: str = ABORT,
) -> GroundTruth:
    """Records before, the stray ones, records behind. transactional_id: if anybody knows it."""
    options = stage.options
    await ledger.plain(batch(options.records, "before", options.age_seconds))
    start = await ledger.stray(producer, batch(options.records, "stray", options.age_seconds))
    await ledger.plain(batch(options.records, "behind", options.age_seconds))
    return await stage.truth(
        ledger,
        transactional_id,
        variant=variant,
        verdict="orphan",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        start_offset=start,
        repair=repair,
    )


async def _unknown_producer(stage: Stage, place: Place) -> Producer:
    """A producer id from the broker that no transactional id has."""
    plain = await Producer.init(stage.client)
    return Producer(stage.client, plain.producer_id, plain.epoch, place.transactional_id)


async def _fresh(stage: Stage, place: Place, _: Place) -> list[GroundTruth]:
    producer = await _unknown_producer(stage, place)
    ledger = await Ledger.begin(stage.client, place.topic, place.partition)
    return [await _stray(stage, ledger, producer, "fresh")]


async def _marked(stage: Stage, place: Place, _: Place) -> list[GroundTruth]:
    """The same producer id has an earlier marker in this partition."""
    producer = await _unknown_producer(stage, place)
    ledger = await Ledger.begin(stage.client, place.topic, place.partition)
    await ledger.stray(producer, batch(stage.options.records, "earlier"))
    await _write_marker(stage.client, place, producer)
    await ledger.ended(producer.producer_id, commit=True)
    return [await _stray(stage, ledger, producer, "marked")]


async def _write_marker(client: Client, place: Place, producer: Producer) -> None:
    """A COMMIT marker as a coordinator of transaction version 1 writes it."""
    marker = messages.WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name=place.topic, partition_indexes=[place.partition])
    question = messages.WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transaction_result=True,
                topics=[topic],
                coordinator_epoch=0,
            )
        ]
    )
    broker = await client.leader(place.topic, place.partition)
    answer = await client.cluster.ask(broker, question, most=1)
    refuse(answer.markers[0].topics[0].partitions[0].error_code, "WriteTxnMarkers")


async def _late(stage: Stage, place: Place, home: Place) -> list[GroundTruth]:
    """The id committed elsewhere; then a write of that transaction arrives here."""
    producer = await Producer.init(stage.client, place.transactional_id)
    await producer.send(home.topic, home.partition, batch(stage.options.records, "in-time"))
    late = Producer(stage.client, producer.producer_id, producer.epoch, place.transactional_id)
    await producer.commit()
    ledger = await Ledger.begin(stage.client, place.topic, place.partition)
    return [await _stray(stage, ledger, late, "late", place.transactional_id)]


async def _foreign(stage: Stage, place: Place, home: Place) -> list[GroundTruth]:
    """The id has a transaction open, but not here."""
    timeout_ms = await longest_timeout(stage)
    producer = await Producer.init(stage.client, place.transactional_id, timeout_ms)
    at_home = await Ledger.begin(stage.client, home.topic, home.partition)
    start = await at_home.send(producer, batch(stage.options.records, "at-home"))
    stage.open_producers.append(producer)
    ledger = await Ledger.begin(stage.client, place.topic, place.partition)
    repair = "no marker while the id lives: wait until it ends, or fence it; then abort"
    stray = await _stray(stage, ledger, producer, "foreign", place.transactional_id, repair)
    live = await stage.truth(
        at_home,
        place.transactional_id,
        verdict="open",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        start_offset=start,
        repair="wait: it is alive, and only needed for the orphan beside it",
    )
    return [stray, live.model_copy(update={"kind": "open"})]


_MAKERS = {"fresh": _fresh, "marked": _marked, "late": _late, "foreign": _foreign}

KINDS = (
    Kind(
        "orphan",
        "a transaction that no coordinator owns (--kind fresh, marked, late or foreign)",
        make_orphan,
        takes=HOLD | {"variant", "age_seconds"},
        leaves_open=lambda options: options.hold and options.variant == "foreign",
    ),
)
