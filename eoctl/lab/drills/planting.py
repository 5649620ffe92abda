"""Plant transactions for drills: their owners live, died, or never existed.

Each is a break of eoctl.lab.breaks with a realistic name. Its ground truth becomes a case.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.host.processes import identify
from eoctl.lab import admin, breaks
from eoctl.lab.breaks.markers import TRANSACTION_STATE, TRY_AGAIN, stoppable_broker
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.client import Client
from eoctl.lab.drills.drill_state import Case, Role
from eoctl.lab.lab_tables import OwnerAnswer
from recovery.errors import UnverifiedError
from recovery.formats.coordinator import coordinator_partition
from recovery.values import replace

if TYPE_CHECKING:
    from eoctl.lab.cluster import Lab

APPLICATIONS = ("payments", "order-service", "etl", "invoicing", "shipping", "billing", "loyalty")
TOPICS = ("orders", "payments", "invoices", "shipments", "refunds", "bookings", "sessions")
LEAVES_SECONDS = (15, 40)
"""How long after the start of a drill a broker leaves: at least, and less than."""
NOBODY = "We know of no transaction of it that is open there: it was restarted since, and works."
DEAD = "That instance is gone: its host was replaced, and nothing will start it again."
WORKS = "It is alive and works. Please leave it alone."
ENDS = "It is alive, a large batch. It is nearly done: I let it commit now."


@dataclass(slots=True)
class Scene:
    """A drill that is being planted: where, its random numbers, and what exists so far.

    taken: names of topics that the cluster has. leaves: the broker that will leave.
    """

    lab: "Lab"
    rng: random.Random
    client: Client
    taken: set[str]
    cases: list[Case] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    leaves: int | None = None

    def topic(self) -> str:
        """Return a topic's name that the cluster does not have."""
        names = [t for t in TOPICS if t not in self.taken]
        name = self.rng.choice(names) if names else f"orders-{len(self.taken)}"
        self.taken.add(name)
        self.topics.append(name)
        return name

    def id(self) -> str:
        """Return a transactional id such as `payments-7-0` or `etl-3`, of one application."""
        used = {case.transactional_id for case in self.cases}
        while True:
            made = f"{self.rng.choice(APPLICATIONS)}-{self.rng.randrange(1, 9)}"
            made += self.rng.choice(("", "-0"))
            if made not in used:
                return made

    def number(self) -> int:
        """Return how many records a transaction writes."""
        return self.rng.randrange(3, 12)

    async def break_(self, kind: str, topic: str, **options: Any) -> list[GroundTruth]:
        """Make a break on this topic, with a random number of records."""
        return await breaks.make(self.lab, kind, topic=topic, records=self.number(), **options)

    def add(
        self,
        truth: GroundTruth,
        role: Role,
        answer: OwnerAnswer,
        words: str,
        *,
        ends: bool = False,
    ) -> None:
        """Add the case of what a break made."""
        self.cases.append(
            Case(
                role,
                str(truth.topic_partition),
                truth.topic,
                truth.partition,
                truth.transactional_id,
                truth.producer_id,
                truth.start_offset,
                answer,
                words,
                owner=None if truth.owner_pid is None else identify(truth.owner_pid),
                ends=ends,
            )
        )


Plant = Callable[[Scene], Awaitable[None]]


async def orphan(scene: Scene, variant: str = "fresh") -> None:
    """Plant a transaction that nobody owns."""
    age = scene.rng.randrange(12, 55) * 60.0
    partition = scene.rng.randrange(4)
    [truth] = await scene.break_(
        "orphan",
        scene.topic(),
        partition=partition,
        transactional_id=scene.id(),
        variant=variant,
        age_seconds=age,
    )
    scene.add(truth, "orphan", "unknown", NOBODY)


async def dead(scene: Scene, transactional_id: str | None = None) -> None:
    """Plant an owner that died within its timeout; readers wait for its transaction."""
    name = transactional_id or scene.id()
    options = {"partition": scene.rng.randrange(4), "transactional_id": name, "hold": False}
    [truth] = await scene.break_("open", scene.topic(), **options)
    scene.add(truth, "dead", "dead", DEAD)


async def alive(scene: Scene, transactional_id: str | None = None, words: str = WORKS) -> None:
    """Plant a working owner, with its transaction open."""
    name = transactional_id or scene.id()
    options = {"partition": scene.rng.randrange(4), "transactional_id": name}
    [truth] = await scene.break_("open", scene.topic(), **options)
    scene.add(truth, "alive", "alive", words)


async def overdue(scene: Scene) -> None:
    """Plant two past their timeout: one owner works on a long batch, the other is dead."""
    first, second = scene.id(), scene.id()
    [truth] = await scene.break_("open", scene.topic(), transactional_id=first, timeout_ms=1000)
    scene.add(truth, "alive", "alive", ENDS, ends=True)
    # returns once the coordinator's clock is past its timeout, and so past the first one's
    [truth] = await scene.break_("overdue", scene.topic(), transactional_id=second)
    scene.add(truth, "dead", "dead", DEAD)


async def not_flink(scene: Scene) -> None:
    """Plant an id that looks like Flink's but is not, its owner dead, next to one of Flink's."""
    name = scene.rng.choice(("payments", "billing", "loyalty"))
    await dead(scene, f"{name}-1-2")
    await alive(
        scene,
        "ledger-sink-0-7",
        "That is our Flink job. It restores from its checkpoint now and commits this itself.",
    )


async def elsewhere(scene: Scene) -> None:
    """Plant an orphan whose id has a live transaction open on another partition."""
    name = scene.id()
    stray, home = await scene.break_(
        "orphan", scene.topic(), variant="foreign", transactional_id=name
    )
    scene.add(stray, "orphan", "alive", ENDS, ends=True)
    scene.add(home, "alive", "alive", ENDS, ends=True)


async def lost_markers(scene: Scene) -> None:
    """Plant a lost COMMIT next to a lost ABORT, on partitions of one topic."""
    topic = scene.topic()
    for partition, outcome in ((1, "abort"), (0, "commit")):  # the first creates the topic
        truth = await _lost_marker(scene, topic, partition, outcome)
        words = "It went on with its next transactions. What became of that one we cannot say."
        scene.add(truth, f"lost-{outcome}", "unknown", words)  # type: ignore[arg-type]


async def _lost_marker(
    scene: Scene, topic: str, partition: int, outcome: str, tries: int = 3
) -> GroundTruth:
    """Lose a marker; try again if it is written after all, which leaves nothing held."""
    options = {"partition": partition, "outcome": outcome, "transactional_id": scene.id()}
    try:
        [truth] = await scene.break_("marker-lost", topic, **options)
    except UnverifiedError as error:
        if tries == 1 or error.remedy != TRY_AGAIN:
            raise
        return await _lost_marker(scene, topic, partition, outcome, tries - 1)
    return truth


async def zombies(scene: Scene) -> None:
    """Plant two ids with an old process: the newest is right in one, the zombie in the other."""
    name, other, topic = scene.id(), scene.id(), scene.topic()
    await scene.break_("open", topic, transactional_id=name, hold=False)
    [truth] = await scene.break_("open", topic, transactional_id=name)  # its next epoch
    words = (
        "The instance on the new host is the right one and writes. The old one woke up once more; "
        "it is killed by now."
    )
    scene.add(truth, "alive", "alive", words)
    await dead(scene, other)
    words = (
        "The newest one is the zombie: it took the id over. We have killed its process, and the "
        "right one waits to start."
    )
    scene.cases[-1] = replace(scene.cases[-1], words=words)


async def storm(scene: Scene) -> None:
    """Plant an id with two owners; the last transaction is of the right one, which lives."""
    options = {"partition": scene.rng.randrange(4), "transactional_id": scene.id()}
    [truth] = await scene.break_("fence-storm", scene.topic(), **options)
    words = (
        "You are right: it runs twice, the deployment of the old region was started again. We have "
        "stopped that one. The other one is right: I let it commit now."
    )
    scene.add(truth, "alive", "alive", words, ends=True)


async def checkpoint(scene: Scene) -> None:
    """Plant a dead Flink job: what its last checkpoint promises, and what it began later."""
    prefix = f"{scene.rng.choice(('ledger', 'fraud', 'basket'))}-sink"
    promised, later = await scene.break_("checkpoint", scene.topic(), transactional_id=prefix)
    words = (
        "The job is dead and its cluster is gone. If it ever comes back, then from this "
        "checkpoint: that I promise."
    )
    scene.add(promised, "promised", "dead", words)
    scene.add(later, "unpromised", "dead", words)


async def connect(scene: Scene) -> None:
    """Plant a dead source task of Kafka Connect, and a live one of the same worker group."""
    group = scene.rng.choice(
        [g for g in ("etl", "ingest", "cdc") if f"{g}-configs" not in scene.taken]
    )
    topic = scene.topic()
    [truth] = await scene.break_("connect", topic, group=group)
    made = [f"{group}-{name}" for name in ("configs", "offsets", "status")]
    scene.topics += made
    scene.taken.update(made)
    scene.groups.append(group)
    words = (
        "The host of that worker is gone for good, and no other is to run this connector: its "
        "task will not come back."
    )
    scene.add(truth, "dead", "dead", words)
    snapshot = "That worker runs, on a large snapshot in one transaction. Please leave it alone."
    await alive(scene, f"{group}-customers-0", snapshot)


def checkpoint_folder(lab: "Lab", case: Case) -> Path:
    """Return the folder in which the break keeps the checkpoints of a case's job."""
    return lab.folder / "checkpoints" / str(case.transactional_id).rsplit("-", 2)[0]


async def leaving(scene: Scene) -> None:
    """Plant a live transaction with a leaving coordinator, and an orphan; both stay readable."""
    client = scene.client
    victim = await stoppable_broker(client)
    stays = min(broker for broker in client.cluster.brokers if broker != victim)
    topic, name = scene.topic(), scene.id()
    await admin.create_topic(client, topic, replicas=[[stays], [stays]])
    await client.until(partial(client.coordinator, name))
    size = len(await client.partitions(TRANSACTION_STATE))
    home = coordinator_partition(name, size)
    await admin.set_replicas(client, TRANSACTION_STATE, home, [victim])
    [truth] = await scene.break_("open", topic, partition=0, transactional_id=name)
    scene.add(truth, "alive", "alive", WORKS)
    [truth] = await scene.break_(
        "orphan", topic, partition=1, transactional_id=scene.id(), age_seconds=1500.0
    )
    scene.add(truth, "orphan", "unknown", NOBODY)
    moved = Case("broker", f"broker {victim}", TRANSACTION_STATE, home, broker=victim)
    scene.cases.append(moved)
    scene.leaves = victim


async def mix(scene: Scene) -> None:
    """Plant all of these in random order; the broker leaves once they exist."""
    await lost_markers(scene)  # stops and starts a broker: before owners hold anything
    plants: list[Plant] = [partial(orphan, variant="marked"), overdue, not_flink, elsewhere]
    scene.rng.shuffle(plants)
    for plant in plants:
        await plant(scene)
    await leaving(scene)
