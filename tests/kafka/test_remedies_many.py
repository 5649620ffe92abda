"""Many fences planned on one joint look: each is held against a look at its id alone."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.lab import secure
from eoctl.lab.breaks import KINDS, break_
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from eoctl.operations.diagnose.judging import diagnose
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.remedy import fence, many_remedies
from eoctl.operations.remedy.remedy_plan import RemedyRequest
from eoctl.operations.session.session import with_cluster
from eoctl.render.verdicts.evidence_words import evidence_words
from eoctl.settings.context import Connect, Context, resolve
from recovery.change.plan import Plan
from recovery.diagnose.diagnosis import Judged
from recovery.errors import EoctlError, IncompleteError, RefusedError
from recovery.inspect.observation import Settings
from recovery.selectors import parse_selector
from tests.docs.pages import masked
from tests.kafka.conftest import MakeTopic
from tests.kafka.rights import rights

INTERVAL = 0.3
OF_THE_MOMENT = {"age_seconds", "apart_ms", "left_ms", "last_write"}
FENCED, REFUSED, INCOMPLETE = "fence", "RefusedError", "IncompleteError"


@pytest.fixture(scope="module")
def lab(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """Two brokers with ACLs, each the only home of half the ids; nothing is ended for its age."""
    settings = dict(KINDS["two-phase"].settings) | dict(KINDS["overdue"].settings)
    settings |= {"transaction.state.log.replication.factor": "1"}
    settings |= {"transaction.state.log.min.isr": "1"}
    made = start_lab(LabSpec(name="fences", brokers=2, secure=True, settings=settings))
    yield made
    made.down()


@dataclass
class Compared:
    """joint: what came of each id in one plan, of which `looked` stood on the joint look.

    alone: by itself. verdicts: of each id in `looked`, by the joint look and by one of its own.
    """

    looked: set[str]
    joint: dict[str, object]
    alone: dict[str, object]
    verdicts: dict[str, tuple[object, object]] = field(default_factory=dict)

    def kinds(self) -> dict[str, str]:
        return {name: str(found[0]) for name, found in self.joint.items()}  # type: ignore[index]


def plain(value: Any) -> Any:
    """A value without what moves with the clock."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in OF_THE_MOMENT}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return masked(value) if isinstance(value, str) else value


def outcome(found: Plan | EoctlError) -> object:
    """All that a plan says and stands on, or the error of an id that has none."""
    if isinstance(found, EoctlError):
        return type(found).__name__, masked(found.what), found.where, found.remedy
    steps = [plain(step.model_dump()) for step in found.steps]
    return FENCED, steps, plain(dict(found.observed)), found.summary, found.hits


def verdicts_of(judged: Sequence[Judged]) -> object:
    return [
        (
            *(j.about, v.name, v.rule, v.mixed, v.samples, v.remedy.action),
            [(e.code, plain(evidence_words(e)), plain(dict(e.data))) for e in v.evidence],
        )
        for j in judged
        if (v := j.verdict)
    ]


def compared(lab: Lab, names: Sequence[str], user: str = "operator") -> Compared:
    """Plan the fence of each id, together and alone."""
    properties = lab.client_properties(user=user)
    server = lab.record.bootstrap_servers("SCRAM")
    file = str(secure.client_file(lab.folder, user, "SCRAM"))
    assert properties["sasl.username"] == user
    context = resolve(Connect(bootstrap_server=server, command_config=file))
    settings = Settings()
    requests = [RemedyRequest("fence", transactional_id=name) for name in names]

    async def use(cluster: Cluster) -> Compared:
        looks = await many_remedies.looks_at(cluster, names, settings, INTERVAL)
        joint = await many_remedies.plan_each(cluster, context, requests, settings, INTERVAL)
        found = Compared(set(looks), {n: outcome(p) for n, p in joint.items()}, {})
        for request in requests:
            found.alone[request.transactional_id or ""] = await alone(cluster, context, request)
        for name, look in looks.items():
            scope = Scope(tuple(parse_selector(f"{t}:{p}") for t, p in look.partitions))
            own = await diagnose(cluster, scope, settings, pause=INTERVAL)
            found.verdicts[name] = verdicts_of(look.judged), verdicts_of(own.judged)
        return found

    async def alone(cluster: Cluster, context: Context, request: RemedyRequest) -> object:
        try:
            return outcome(await fence.plan(cluster, context, request, settings, INTERVAL))
        except (RefusedError, IncompleteError) as error:
            return outcome(error)

    return with_cluster(context, 120.0, use)


def assert_equal(found: Compared) -> None:
    for name, one in found.joint.items():
        assert one == found.alone[name], name
    for name, (joint, own) in found.verdicts.items():
        assert joint == own, name


def test_the_joint_look_says_of_each_id_what_a_look_at_it_alone_says(
    lab: Lab, topic: MakeTopic
) -> None:
    one, two, unread, hidden = (topic(lab, 3), topic(lab, 3), topic(lab), topic(lab))
    [orphan] = break_(lab, "orphan", hold=False)
    [owned] = break_(lab, "two-phase", hold=False)
    partition = orphan.topic, orphan.partition or 0
    late = {
        "late": [(one, 0)],
        "late-on-three": [(one, 0), (one, 2), (two, 1)],
        "late-beside-an-orphan": [partition],
        "etl-7-0": [(two, 0)],  # looks pre-committed
        "unread": [(unread, 0), (one, 1)],
        "hidden": [(hidden, 0), (one, 1)],
        "denied": [(one, 1)],
        "writes-on": [(two, 2)],
    }
    expected = {
        "late": FENCED,
        "late-on-three": FENCED,
        "late-beside-an-orphan": FENCED,
        "etl-7-0": REFUSED,
        "unread": INCOMPLETE,
        "hidden": REFUSED,
        "denied": INCOMPLETE,
        "writes-on": REFUSED,
        "within-limits": REFUSED,
        "idle": REFUSED,
        "never-there": REFUSED,
        owned.transactional_id or "": REFUSED,
        orphan.transactional_id or "": REFUSED,
    }
    asked = list(expected)

    async def scenario() -> None:
        async with Client.of(lab.client_properties()) as client:
            owners = {}
            for name, partitions in late.items():
                owners[name] = await Producer.init(client, name, 1_000)
                for at in partitions:
                    await owners[name].send(*at, [NewRecord(b"x")])
            live = await Producer.init(client, "within-limits", 600_000)
            await live.send(one, 0, [NewRecord(b"x")])
            idle = await Producer.init(client, "idle")
            await idle.send(one, 0, [NewRecord(b"x")])
            await idle.commit()
            await asyncio.sleep(1.2)  # past their timeout
            going_on = asyncio.create_task(write_on(owners["writes-on"]))
            try:
                found = await asyncio.to_thread(with_rights, unread, hidden)
            finally:
                going_on.cancel()
        assert found.kinds() == expected
        assert_equal(found)
        jointly = {"late", "late-on-three", "late-beside-an-orphan", "etl-7-0", "within-limits"}
        assert found.looked == jointly | {owned.transactional_id, "writes-on"}

    async def write_on(owner: Producer) -> None:
        while True:
            await owner.send(two, 2, [NewRecord(b"x")])
            await asyncio.sleep(0.02)

    def with_rights(unread: str, hidden: str) -> Compared:
        denied = [
            ("TOPIC", unread, "READ"),
            ("TOPIC", hidden, "DESCRIBE"),
            ("TRANSACTIONAL_ID", "denied", "DESCRIBE"),
        ]
        with rights(lab, "operator", *denied, deny=True):
            end = time.monotonic() + 20
            while True:  # until the brokers apply them
                found = compared(lab, asked)
                if found.kinds() == expected or time.monotonic() > end:
                    return found

    asyncio.run(scenario())


@pytest.mark.long
def test_a_coordinator_or_a_right_that_is_missing_sends_each_id_to_a_look_of_its_own(
    lab: Lab, topic: MakeTopic
) -> None:
    """The joint look proves nothing then, and each id is refused or planned as if alone."""
    where = topic(lab, 2)
    names = [f"{where}-{number}" for number in range(4)]

    async def begin() -> None:
        async with Client.of(lab.client_properties()) as client:
            for number, name in enumerate(names):
                owner = await Producer.init(client, name, 1_000)
                await owner.send(where, number % 2, [NewRecord(b"x")])
        await asyncio.sleep(1.2)

    asyncio.run(begin())
    whole = compared(lab, names)
    assert (whole.looked, set(whole.kinds().values())) == (set(names), {FENCED})
    without = compared(lab, names, "no-txn")
    assert_equal(without)
    assert (without.looked, set(without.kinds().values())) == (set(), {INCOMPLETE})
    lab.kill(2)
    try:
        down = compared(lab, names)
        assert_equal(down)
        assert (down.looked, set(down.kinds().values())) == (set(), {INCOMPLETE})
    finally:
        lab.start(2)
