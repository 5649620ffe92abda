"""Start a drill in a lab, ask an owner, grade it, end it."""

import asyncio
import random
import shutil
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from eoctl.host.clock import now_ms
from eoctl.host.processes import end as end_processes
from eoctl.kafka.connection.failures import WireError
from eoctl.lab import admin
from eoctl.lab.breaks import start_owner
from eoctl.lab.breaks.connect import group_folder
from eoctl.lab.client import Client
from eoctl.lab.drills import grading, work
from eoctl.lab.drills.catalogue import DRILLS, OWN, Drill
from eoctl.lab.drills.drill_state import FILE, Case, DrillState
from eoctl.lab.drills.planting import LEAVES_SECONDS, Scene, checkpoint_folder
from eoctl.lab.lab_tables import DrillAnswerRow, DrillGradeRow
from eoctl.lab.producer import Producer
from recovery.errors import RefusedError, UnverifiedError, UsageError
from recovery.quoting import quoted
from recovery.row import ErrorRow
from recovery.values import replace

if TYPE_CHECKING:
    from eoctl.lab.cluster import Lab

OWNERS_END_SECONDS = 10.0


def state_of(lab: "Lab") -> DrillState:
    """Return the drill that runs in a lab. Raises UsageError if there is none."""
    state = DrillState.load(lab.folder)
    if state is None:
        raise UsageError("no drill runs in this lab", remedy="start one: eoctl lab drill NAME")
    return state


def drill_named(name: str) -> Drill:
    """Return a drill. Raises UsageError for a name that is none, such as a mistyped file's."""
    if name not in DRILLS:
        raise UsageError(
            f"{quoted(name)} is no drill, and no file of a bundle",
            remedy=f"one of {', '.join(DRILLS)}",
        )
    return DRILLS[name]


def start(lab: "Lab", name: str, seed: int | None) -> DrillState:
    """Plant a drill. seed: for its names and numbers; None = any.

    Raises UsageError (no such drill, or one runs), RefusedError (the lab does not fit),
    UnverifiedError (a fault did not arise; what was planted is removed).
    """
    drill = drill_named(name)
    running = DrillState.load(lab.folder)
    if running is not None:
        raise UsageError(
            "a drill runs in this lab already", remedy="eoctl lab drill --grade, then --end"
        )
    chosen = random.SystemRandom().randrange(10_000) if seed is None else seed
    return asyncio.run(_start(lab, drill, chosen))


async def _start(lab: "Lab", drill: Drill, seed: int) -> DrillState:
    async with _client(lab) as client:
        await drill.conditions.check(client)
        before = set(await client.topics())
        rng = random.Random(seed)  # noqa: S311 - a drill is to be repeatable
        scene = Scene(lab, rng, client, set(before))
        try:
            for plant in drill.plants:
                await plant(scene)
        except BaseException as error:
            await _clean(lab, client, tuple(scene.cases), scene.topics, scene.groups)
            if isinstance(error, WireError):
                raise UnverifiedError(
                    f"the drill was not made: {error.detail}", remedy="try again"
                ) from error
            raise
    held = sorted({c.topic for c in scene.cases if c.producer_id is not None and c.topic})
    folders = [checkpoint_folder(lab, c) for c in scene.cases if c.role == "promised"]
    story = drill.story.format(
        topics=" and ".join(held),
        app_file=work.job_files(lab) / "sales-pricer.toml",
        checkpoint=next((path for folder in folders for path in folder.glob("chk-*")), None),
    )
    state = DrillState(
        drill.name,
        seed,
        now_ms(),
        story,
        tuple(scene.cases),
        tuple(scene.topics),
        tuple(scene.groups),
    )
    if scene.leaves is not None:
        after = rng.randrange(*LEAVES_SECONDS)
        spec = {"lab": lab.name, "leaves": scene.leaves, "after": after}
        process, _ = start_owner(lab, spec)
        last = replace(state.cases[-1], owner=process)  # ended with the drill
        state = replace(state, cases=(*state.cases[:-1], last))
    state.save(lab.folder)
    return state


def _client(lab: "Lab") -> Client:
    return Client.of(lab.client_properties())


def ask(lab: "Lab", transactional_id: str) -> DrillAnswerRow:
    """Ask an id's owner and return the answer; an owner that agrees ends its transaction now."""
    state = state_of(lab)
    state.ask(transactional_id, now_ms()).save(lab.folder)
    for case in state.cases:
        if case.transactional_id == transactional_id:
            if case.ends and case.owner is not None:
                case.owner.send(signal.SIGTERM)
            return DrillAnswerRow(
                transactional_id=transactional_id, answer=case.answer, words=case.words
            )
    return DrillAnswerRow(
        transactional_id=transactional_id,
        answer="unknown",
        words="Nobody on duty knows an application of that id.",
    )


def grade(lab: "Lab") -> tuple[DrillState, list[DrillGradeRow], list[ErrorRow]]:
    """Return the running drill, a row per case, and what could not be read."""
    state = state_of(lab)
    return (state, *grading.grade(lab, state))


def end(lab: "Lab") -> DrillState:
    """End a drill: its processes, transactions, topics and groups; of a bundle, its twin.

    Raises RefusedError.

    A broker that left must be back first: without it topics cannot be deleted.
    """
    state = state_of(lab)
    if state.drill == OWN.name:  # the lab is its twin
        lab.down()
        return state
    away = [b.broker for b in lab.status().brokers if b.state != "ready"]
    if away:
        raise RefusedError(
            f"broker {away[0]} is away", remedy="bring it back (`lab up`), or end all by `lab down`"
        )

    async def clean() -> None:
        async with _client(lab) as client:
            await _clean(lab, client, state.cases, state.topics, state.groups)

    asyncio.run(clean())
    (lab.folder / FILE).unlink()
    return state


async def _clean(
    lab: "Lab",
    client: Client,
    cases: tuple[Case, ...],
    topics: list[str] | tuple[str, ...],
    groups: list[str] | tuple[str, ...],
) -> None:
    """End the owners, then open transactions, then delete the topics and groups."""
    mine = [case.owner for case in cases if case.owner is not None]
    await asyncio.to_thread(end_processes, mine, OWNERS_END_SECONDS)
    brokers = sorted(client.cluster.brokers)
    for case in cases:
        if case.role == "broker" and case.topic is not None and case.partition is not None:
            await admin.set_replicas(client, case.topic, case.partition, brokers)
        if case.role == "promised":
            shutil.rmtree(checkpoint_folder(lab, case), ignore_errors=True)
        name = case.transactional_id
        if name is None:
            continue
        with suppress(WireError):
            transaction = await client.until(lambda name=name: client.transaction(name))  # type: ignore[misc]
            if transaction is not None and transaction.state == "Ongoing":
                await Producer.init(client, name)
    there = set(await client.topics())
    for topic in topics:
        if topic in there:
            await admin.delete_topic(client, topic)
    for group in groups:
        shutil.rmtree(group_folder(lab.folder, group), ignore_errors=True)
    if groups:
        await asyncio.to_thread(_delete_groups, lab, groups)
        shutil.rmtree(work.job_files(lab), ignore_errors=True)


def _delete_groups(lab: "Lab", groups: list[str] | tuple[str, ...]) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin_client = AdminClient({**lab.client_properties(), "log_level": 5})
    for done in admin_client.delete_consumer_groups(list(groups)).values():
        with suppress(KafkaException):  # the group has not committed yet
            done.result(20)
