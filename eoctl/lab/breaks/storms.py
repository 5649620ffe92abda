"""Make a fence storm: producers of one transactional id that end each other's transactions."""

from eoctl.lab.breaks.owned import Begun, held
from eoctl.lab.breaks.stage import BreakKind, BreakTarget, Stage, batch
from eoctl.lab.breaks.truth import GroundTruth, Ledger
from eoctl.lab.producer import Producer

TURNS = 8
TIMEOUTS_MS = (60_000, 45_000)
"""Of two owners: they run with two configurations."""


async def make_fence_storm(stage: Stage) -> list[GroundTruth]:
    """Initialise each id TURNS times, each time while the producer before has a transaction open.

    owners: two producers by turns, with timeouts of their own; restarts: one that dies each time.
    The last transaction stays open.
    """
    timeouts = TIMEOUTS_MS if stage.variant("owners", "restarts") == "owners" else TIMEOUTS_MS[:1]
    truths = []
    for target in await stage.targets():
        begun = await _storm(stage, target, timeouts)
        stage.open_producers.append(begun.producer)
        truths.append(
            await begun.truth(
                stage,
                "open",
                "none from here: ask which processes run with this id, and give each its own",
                variant=stage.variant("owners", "restarts"),
                fences=TURNS - 1,
            )
        )
    return truths


async def _storm(stage: Stage, target: BreakTarget, timeouts: tuple[int, ...]) -> Begun:
    """Return the last transaction, which nobody has ended yet."""
    ledger = await Ledger.begin(stage.client, target.topic, target.partition)
    name, producer, start = target.transactional_id, None, 0
    for turn in range(TURNS):
        before = producer
        producer = await Producer.init(stage.client, name, timeouts[turn % len(timeouts)])
        if before is not None:
            await ledger.ended(before.producer_id, commit=False)
        start = await ledger.send(producer, batch(stage.options.records, f"turn-{turn}"))
    assert producer is not None
    return Begun(target, ledger, producer, producer.producer_id, producer.epoch, start)


KINDS = (
    BreakKind(
        "fence-storm",
        "an id whose owners end each other's transactions (--kind owners, restarts)",
        make_fence_storm,
        takes=frozenset({"hold", "variant"}),
        leaves_open=held,
    ),
)
