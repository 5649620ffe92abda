"""A fence of an application that lives: nothing of it is committed after "fenced"."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import WireError
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from tests.kafka.command import environment, eoctl, unfinished
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import Scene
from tests.kafka.living import Living, java_client, librdkafka_client, said
from tests.kafka.remedying import read_committed
from tests.kafka.tools import kafka_tool
from tests.share import only_here

FAST = ("--sample-interval", "0.3s")
ACT = ("--execute", "--yes")
REFUSED = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE")
LONG_ENOUGH = 4.0
"""Seconds in which a client that may write on has begun and committed again many times."""

Start = Callable[[Lab, str, str, str], AbstractContextManager[Living]]


@pytest.fixture(scope="module", params=only_here([2, 1], 2), ids=["tv2", "tv1"])
def lab(
    lab1: Lab, start_lab: Callable[[LabSpec], Lab], request: pytest.FixtureRequest
) -> Iterator[Lab]:
    if request.param == 2:
        yield lab1
        return
    made = start_lab(LabSpec(name="living1", transaction_version=1))
    yield made
    made.down()


OLD_JAVA = partial(java_client, version="3.9.1")  # speaks v1, whatever the cluster's version


@pytest.mark.parametrize(
    "start",
    only_here([java_client, OLD_JAVA, librdkafka_client], java_client, librdkafka_client),
    ids=["java", "java-3.9", "librdkafka"],
)
def test_after_a_fence_that_is_held_nothing_of_a_living_owner_is_committed(
    lab: Lab, topic: MakeTopic, start: Start
) -> None:
    where = topic(lab)
    name = f"{where}-id"
    with start(lab, name, where, "owner-") as owner:
        words = ("txn", "fence", name, "--owner-is-gone", *FAST, "--execute", "--yes")
        refused = eoctl(*words, lab=lab)
        assert refused.status == 4, (refused.stdout, refused.stderr)
        first = r"FENCE on .*\n +WRITES +IT WROTE \d+ RECORDS? BETWEEN TWO LOOKS"
        assert re.search(first, refused.stderr), refused.stderr
        assert "--although-it-writes" in refused.text
        assert owner.running
        assert said(owner, "error") == 0, "a plan that was refused changed something"
        done = eoctl(*words, "--although-it-writes", "-o", "json", lab=lab)
        assert done.status == 0, (done.stdout, done.stderr)
        end = time.monotonic() + LONG_ENOUGH
        while owner.running and time.monotonic() < end:
            time.sleep(0.1)
        assert read_committed(lab, where, 0) == [], owner.events[-10:]


def in_client(lab: Lab, scenario: Callable[[Client], Awaitable[None]]) -> None:
    """Run a scenario of clients that go step by step."""

    async def main() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            await scenario(client)

    asyncio.run(main())


async def copied(scene: Scene, client: Client, version: int | None = None) -> Producer:
    """Return the living owner of 12 committed outputs, of which 8 are in the store."""
    owner = await Producer.init(client, f"{scene.group}-id", version=version)
    await owner.send(scene.output, 0, [NewRecord(b"%d" % n) for n in range(12)])
    await owner.commit()
    scene.pair(8, 8)
    return owner


async def fenced(scene: Scene) -> bool | None:
    """Return what a plan says of "fenced". What nothing proves is shown as ASSUMED."""
    ran = await asyncio.to_thread(scene.plan, "-o", "json")
    assert ran.status == 0, ran.stderr
    [row] = ran.rows
    [check] = [c for c in row["checks"] if c["name"] == "fenced"]
    shown = await asyncio.to_thread(scene, "show", scene.plan_file)
    assumed = "ASSUMED fenced: the old process is dead" in shown.text
    assert assumed == (check["held"] is None), shown.text
    held: bool | None = check["held"]
    return held


async def writes_on(scene: Scene, owner: Producer, value: bytes) -> None:
    """Prove that an owner lives: a reader gets what it commits."""
    await owner.send(scene.output, 0, [NewRecord(value)])
    await owner.commit()
    assert read_committed(scene.lab, scene.output, 0)[-1] == value


async def raise_own_epoch(client: Client, owner: Producer) -> None:
    """InitProducerId with its own producer id and epoch, as a client sends it after an error."""
    assert owner.transactional_id is not None
    answer = await client.cluster.ask(
        await client.coordinator(owner.transactional_id),
        messages.InitProducerIdRequest(
            transactional_id=owner.transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=owner.producer_id,
            producer_epoch=owner.epoch,
        ),
        least=3,
        most=4,
    )
    assert (answer.error_code, answer.producer_epoch) == (0, owner.epoch + 1)
    owner.epoch = answer.producer_epoch
    owner.sequences.clear()


def test_a_client_that_raised_its_own_epoch_is_not_called_fenced(
    lab: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """KIP-360: only after a fence by our journal, and only until somebody starts the id again."""

    async def scenario(client: Client) -> None:
        scene = await asyncio.to_thread(Scene.make, lab, topic, tmp_path, there=0)
        owner = await copied(scene, client, version=1)
        await owner.send(scene.output, 0, [NewRecord(b"aborted")])
        await owner.abort()
        for _ in range(4):  # further than any fence raises an id
            await raise_own_epoch(client, owner)
        assert await fenced(scene) is None
        await writes_on(scene, owner, b"12")
        await raise_own_epoch(client, owner)
        words = ("txn", "fence", f"{scene.group}-id", "--owner-is-gone", *FAST, *ACT)
        done = await asyncio.to_thread(partial(eoctl, *words, lab=lab))
        assert done.status == 0, (done.stdout, done.stderr)
        assert await fenced(scene) is True
        with pytest.raises(WireError) as refused:
            await owner.send(scene.output, 0, [NewRecord(b"too late")])
        assert refused.value.error in REFUSED
        again = await Producer.init(client, f"{scene.group}-id")
        assert await fenced(scene) is None
        await writes_on(scene, again, b"13")

    in_client(lab, scenario)


def test_a_client_whose_transaction_version_was_lowered_is_not_called_fenced(
    start_lab: Callable[[LabSpec], Lab], topic: MakeTopic, tmp_path: Path
) -> None:
    """Its last records bear the epoch before the id's present one, which it holds."""
    lab = start_lab(LabSpec(name="lowered", transaction_version=2))

    async def scenario(client: Client) -> None:
        scene = await asyncio.to_thread(Scene.make, lab, topic, tmp_path, there=0)
        owner = await copied(scene, client)
        lower = ("--bootstrap-server", lab.bootstrap_servers, "downgrade")
        feature = ("--feature", "transaction.version=1")
        tool = "org.apache.kafka.tools.FeatureCommand"
        lowered = await asyncio.to_thread(kafka_tool, lab, tool, *lower, *feature)
        assert lowered.returncode == 0, (lowered.stdout, lowered.stderr)
        owner.version = 1
        assert await fenced(scene) is None
        await writes_on(scene, owner, b"12")

    in_client(lab, scenario)
    lab.down()


def test_yes_does_not_end_what_an_owner_wrote_after_its_fence_was_planned(
    lab: Lab, topic: MakeTopic
) -> None:
    """The run that planned it was killed before anything was sent; its owner was silent then."""
    where, before = topic(lab), unfinished("txn")

    async def scenario(client: Client) -> None:
        owner = await Producer.init(client, f"{where}-id", 600_000)
        await owner.send(where, 0, [NewRecord(b"1")])
        words = ("txn", "fence", f"{where}-id", "--owner-is-gone", *FAST, *ACT)
        killed = await asyncio.to_thread(
            partial(eoctl, *words, lab=lab, env=environment(EOCTL_TEST_KILL_AT="begun"))
        )
        assert killed.status < 0
        assert unfinished("txn") - before
        await owner.send(where, 0, [NewRecord(b"2")])
        refused = await asyncio.to_thread(partial(eoctl, *words, lab=lab))
        assert refused.status == 4, (refused.stdout, refused.stderr)
        assert "its owner has written since the plan was made" in refused.text
        await owner.commit()
        assert read_committed(lab, where, 0) == [b"1", b"2"]
        assert unfinished("txn") == before, "nothing was sent: it is closed"

    in_client(lab, scenario)


@pytest.mark.parametrize(
    "killed_at", only_here(["step-1-started", "fence-ended", "id-raised"], "fence-ended")
)
def test_who_starts_the_id_while_its_fence_is_cut_off_is_left_alone(
    lab: Lab, topic: MakeTopic, killed_at: str
) -> None:
    """The owner was gone, as the operator said; a new process of the application is not."""
    where = topic(lab)
    words = ("txn", "fence", f"{where}-id", "--owner-is-gone", *FAST, *ACT)

    async def scenario(client: Client) -> None:
        dead = await Producer.init(client, f"{where}-id", 600_000)
        await dead.send(where, 0, [NewRecord(b"lost")])
        killing = environment(EOCTL_TEST_KILL_AT=killed_at)
        killed = await asyncio.to_thread(partial(eoctl, *words, lab=lab, env=killing))
        assert killed.status < 0, killed.stderr
        newcomer = await Producer.init(client, f"{where}-id", 600_000)
        again = await asyncio.to_thread(partial(eoctl, *words, lab=lab))
        at = f"producer id {newcomer.producer_id} epoch {newcomer.epoch}"
        if newcomer.epoch >= dead.epoch + 3:  # the newcomer's own raise shut the dead one out
            assert again.status == 0, (again.stdout, again.stderr)
        else:
            assert again.status == 6, (again.stdout, again.stderr)
            entry = again.text[again.text.index("journal entry ") :].split()[2]
            shown = await asyncio.to_thread(eoctl, "journal", "show", entry)
            assert f"{at} holds it now, untouched" in " ".join(shown.text.split()), shown.text
        await newcomer.send(where, 0, [NewRecord(b"new")])
        await newcomer.commit()
        assert read_committed(lab, where, 0) == [b"new"]

    in_client(lab, scenario)


def test_a_fence_goes_on_after_its_own_raise(lab: Lab, topic: MakeTopic) -> None:
    """It was killed after its first raise: nobody else has initialised the id."""
    where = topic(lab)
    words = ("txn", "fence", f"{where}-id", "--owner-is-gone", *FAST, *ACT)

    async def scenario(client: Client) -> None:
        dead = await Producer.init(client, f"{where}-id", 600_000)
        await dead.send(where, 0, [NewRecord(b"lost")])
        killing = environment(EOCTL_TEST_KILL_AT="id-raised")
        killed = await asyncio.to_thread(partial(eoctl, *words, lab=lab, env=killing))
        assert killed.status < 0, killed.stderr
        again = await asyncio.to_thread(partial(eoctl, *words, lab=lab))
        assert again.status == 0, (again.stdout, again.stderr)
        with pytest.raises(WireError) as refused:
            await dead.commit()
        assert refused.value.error in REFUSED

    in_client(lab, scenario)


def test_yes_does_not_shut_out_an_owner_that_works_between_two_looks_at_an_idle_id(
    lab: Lab, topic: MakeTopic
) -> None:
    """Each look finds it between two transactions."""
    where = topic(lab)

    async def scenario(client: Client) -> None:
        owner = await Producer.init(client, f"{where}-id", 600_000)
        await owner.send(where, 0, [NewRecord(b"0")])
        await owner.commit()
        words = ("txn", "fence", f"{where}-id", "--owner-is-gone", "--sample-interval", "2s", *ACT)
        running = asyncio.create_task(asyncio.to_thread(partial(eoctl, *words, lab=lab)))
        written = [b"0"]
        while not running.done():
            written.append(b"%d" % len(written))
            await owner.send(where, 0, [NewRecord(written[-1])])
            await owner.commit()
            await asyncio.sleep(0.6)
        refused = running.result()
        assert refused.status == 4, (refused.stdout, refused.stderr)
        await owner.send(where, 0, [NewRecord(b"last")])
        await owner.commit()
        assert read_committed(lab, where, 0) == [*written, b"last"]
        # the second: by chance it was found with one open, which ended meanwhile
        reasons = ("IT WENT ON BETWEEN TWO LOOKS", "the newest record of __transaction_state")
        assert any(reason in refused.text for reason in reasons), refused.text

    in_client(lab, scenario)
