"""`contested-id`: owners of one transactional id that fence each other, and restarts that do not.

The test counts itself how many transactions it ended by initialising the id again. An id stays
contested for ten minutes, so the storms are in a lab of their own, and so is what is healthy.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import Producer as Librdkafka

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import clocks
from eoctl.kafka.read.recent_log import Bounds
from eoctl.lab.breaks import break_
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from eoctl.operations.diagnose import recent_contests as newest
from recovery.diagnose.contest import LEAST, RETRIED_WITHIN_MS, WINDOW_MS, Contest
from recovery.facts import CoordinatorClock, Transactions
from tests.kafka.command import FAST, eoctl, said
from tests.kafka.conftest import MakeTopic
from tests.share import only_here

TURNS = 6
NAMED_SECONDS = 60.0


@pytest.fixture(scope="module")
def storms(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    return start_lab(LabSpec(name="storms"))


@pytest.fixture(scope="module")
def healthy(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    return start_lab(LabSpec(name="healthy"))


def librdkafka(lab: Lab, name: str, timeout_ms: int = 60_000) -> Librdkafka:
    settings = {"transactional.id": name, "transaction.timeout.ms": timeout_ms}
    return Librdkafka({**lab.client_properties(), **settings})


def test_two_owners_that_fence_each_other_are_named(storms: Lab, topic: MakeTopic) -> None:
    """Two librdkafka clients, one with another timeout, each starting again when it is fenced."""
    topic_name, name = topic(storms), "storm-librdkafka"
    for turn in range(TURNS):
        owner = librdkafka(storms, name, (60_000, 45_000)[turn % 2])
        owner.init_transactions(30)
        owner.begin_transaction()
        owner.produce(topic_name, b"x")
        owner.flush(30)
    ran = eoctl("txn", "history", name, "-o", "json", lab=storms)
    [contest] = ran.json["contests"]
    assert (contest["transactional_id"], contest["aborted"]) == (name, TURNS - 1)
    assert contest["causes"] == ["two-owners"]
    assert set(contest["timeouts_ms"]) == {60_000, 45_000}
    assert f"{name} is contested: " in ran.stderr

    why = eoctl("why", "--transactional-id", name, lab=storms)
    assert why.status == 1
    assert "two owners that fence each other" in why.stdout
    assert "--owner-is-gone" not in why.text, "a fence ends no contest"
    held = eoctl("why", f"{topic_name}:0", *FAST, lab=storms)
    assert held.status == 1
    assert f"{name} " in held.stdout
    assert "--owner-is-gone" not in held.text
    fence = eoctl("txn", "fence", "--owner-is-gone", name, lab=storms)
    assert f"{name} is contested: initialised {TURNS - 1} times" in " ".join(fence.text.split())
    owner.abort_transaction(30)
    why = eoctl("why", "--transactional-id", name, lab=storms)
    assert why.status == 1, "it holds nothing now, and is contested as before"
    assert "two owners that fence each other" in why.stderr


@pytest.mark.parametrize("version", [1, 2])
def test_one_that_restarts_may_be_two(storms: Lab, topic: MakeTopic, version: int) -> None:
    topic_name, name = topic(storms), f"storm-v{version}"
    asyncio.run(killed(storms, name, topic_name, version, times=TURNS))
    [contest] = eoctl("txn", "history", name, "-o", "json", lab=storms).json["contests"]
    assert contest["aborted"] == TURNS - 1
    assert contest["causes"] == ["two-owners", "restarts", "raises-its-own-epoch"]


def named(lab: Lab) -> dict[str, dict[str, Any]]:
    """The contests that `status` names, by id."""
    found = eoctl("status", *FAST, "-o", "json", lab=lab).json["contests"]
    return {c["transactional_id"]: c for c in found}


class Owner(threading.Thread):
    """A librdkafka client with a member in a group: it starts again whenever it is fenced."""

    def __init__(self, lab: Lab, topic: str, client_id: str) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self._client = {**lab.client_properties(), "client.id": client_id}
        self._topic = topic

    def run(self) -> None:
        group = {**self._client, "group.id": "sales", "session.timeout.ms": 10_000}
        member = Consumer(group)
        member.subscribe([self._topic])
        while not self.over.is_set():
            with suppress(KafkaException):
                owner = Librdkafka({**self._client, "transactional.id": "sales-7"})
                owner.init_transactions(30)
                while not self.over.is_set():
                    owner.begin_transaction()
                    owner.produce(self._topic, b"x")
                    owner.flush(10)
                    member.poll(1.0)
                    owner.commit_transaction(10)
        member.close()


@contextmanager
def owners(*threads: Owner) -> Iterator[None]:
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.over.set()
    for thread in threads:
        thread.join(60)


@pytest.mark.long
def test_a_storm_of_two_clients_is_named_within_a_minute_with_both(
    storms: Lab, topic: MakeTopic
) -> None:
    topic_name = topic(storms, partitions=2)
    begun = time.monotonic()
    with owners(Owner(storms, topic_name, "old-host"), Owner(storms, topic_name, "new-host")):
        while len(mine := named(storms).get("sales-7", {}).get("clients") or ()) < 2:
            assert time.monotonic() - begun < NAMED_SECONDS
            time.sleep(0.5)
        checked = eoctl("check", *FAST, "-o", "json", lab=storms)
        alone = eoctl("why", "--transactional-id", "sales-7", *FAST, lab=storms)
    assert all(client in alone.text for client in mine)
    assert [client.partition(" at ")[0] for client in mine] == ["new-host", "old-host"]
    assert all(client.partition(" at ")[2] for client in mine)
    assert checked.status == 1
    [rule] = [r for r in checked.rows if r["rule"] == "contested_ids"]
    assert rule["ok"] is False
    assert "sales-7" in rule["detail"]
    shown = eoctl("status", *FAST, lab=storms)
    assert shown.status == 1
    assert "contested-id" in shown.stdout
    assert "sales-7 is contested: initialised" in shown.text
    whole = eoctl("why", *FAST, lab=storms)
    assert whole.status == 1
    assert "sales-7 is contested: initialised" in whole.text


@pytest.mark.parametrize("variant", only_here(["owners", "restarts"], "owners"))
def test_the_break_is_named_as_often_as_it_fenced(
    storms: Lab, variant: str, tmp_path: Path
) -> None:
    [truth] = break_(storms, "fence-storm", variant=variant)
    found = named(storms)[str(truth.transactional_id)]
    assert found["aborted"] == truth.fences
    assert (found["causes"] == ["two-owners"]) == (variant == "owners")
    assert found["state"] == truth.coordinator_state
    assert found["producer_epoch"] == truth.current_producer_epoch

    samples = tmp_path / "check.prom"
    checked = eoctl("check", *FAST, "--textfile", str(samples), "-o", "json", lab=storms)
    [rule] = [r for r in checked.rows if r["rule"] == "contested_ids"]
    [line] = [t for t in samples.read_text().splitlines() if t.startswith("eoctl_contested_ids{")]
    assert float(line.split()[-1]) == rule["observed"] >= 1

    kept = tmp_path / "kept.eoctl"
    assert eoctl("bundle", "create", str(kept), *FAST, lab=storms).status == 0
    again = eoctl("status", "--from", str(kept), "-o", "json")
    assert str(truth.transactional_id) in {c["transactional_id"] for c in again.json["contests"]}
    checklist = eoctl("runbook", *FAST, lab=storms)
    assert f"`{truth.transactional_id}`: initialised" in checklist.stdout


@pytest.mark.long
def test_of_a_busy_log_the_newest_records_are_read_and_that_is_said(
    storms: Lab, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever commits much beside a storm does not hide it; what is not read is not healthy."""
    topic_name = topic(storms)
    monkeypatch.setattr(newest, "OF_CONTESTS", Bounds(100, 16 << 20))
    asyncio.run(busy(storms, topic_name, transactions=120))
    [truth] = break_(storms, "fence-storm", hold=False)
    found = eoctl("status", *FAST, "-o", "json", lab=storms)
    assert str(truth.transactional_id) in {c["transactional_id"] for c in found.json["contests"]}
    assert found.json["complete"]
    assert "contested ids: only the last" in found.text
    checked = eoctl("check", *FAST, "-o", "json", lab=storms)
    assert checked.json["complete"]

    monkeypatch.setattr(newest, "OF_CONTESTS", Bounds(100, 1))
    found = eoctl("status", *FAST, "-o", "json", lab=storms)
    assert not found.json["complete"]
    assert found.json["contests_unfinished"] > 0
    [error] = [e for e in found.json["errors"] if "contested" in e["detail"]]
    assert error["error"] == "NOT_READ"
    assert "not read to the end" in error["detail"]


@pytest.mark.long
@pytest.mark.parametrize("measured", ["coordinators", "controller", "nothing"])
def test_a_clock_of_ours_that_is_wrong_hides_no_contest(
    storms: Lab, measured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ahead: all records are older than the window by it. The open transaction shows how far it is
    ahead, or the controller; if neither can be measured, nothing does."""
    [truth] = break_(storms, "fence-storm", hold=True)

    async def none_open(*_: object) -> tuple[Transactions, tuple[CoordinatorClock, ...]]:
        return Transactions(), ()

    async def not_known(*_: object) -> None:
        return None

    if measured != "coordinators":
        monkeypatch.setattr(clocks, "of_coordinators", none_open)
    if measured == "nothing":
        monkeypatch.setattr(clocks, "of_controller", not_known)

    async def seen(off: int) -> list[Contest]:
        async with Client.to(storms.bootstrap_servers) as client:
            found = await newest.recent_contests(client.cluster, lambda: now_ms() + off)
        return [c for c in found.contests if c.transactional_id == truth.transactional_id]

    off = WINDOW_MS + 60_000
    ahead = asyncio.run(seen(off))
    assert [c.aborted for c in ahead] == ([] if measured == "nothing" else [truth.fences])
    for right in (0, -off):
        [mine] = asyncio.run(seen(right))
        assert mine.aborted == truth.fences


def test_the_controllers_clock_is_measured(storms: Lab) -> None:
    """Brokers of a lab have this host's clock."""

    async def ahead(off: int) -> int | None:
        async with Client.to(storms.bootstrap_servers) as client:
            return await clocks.of_controller(client.cluster, lambda: now_ms() + off)

    assert asyncio.run(ahead(0)) == 0
    for off in (-90_000, 700_000):
        measured = asyncio.run(ahead(off))
        assert measured is not None
        assert abs(measured + off) < 2_000


async def busy(lab: Lab, topic_name: str, transactions: int) -> None:
    async with Client.to(lab.bootstrap_servers) as client:
        owner = await Producer.init(client, "busy")
        for _ in range(transactions):
            await owner.send(topic_name, 0, [NewRecord(b"k", b"v")])
            await owner.commit()


def test_what_is_healthy_is_none(healthy: Lab, topic: MakeTopic) -> None:
    """A rolling restart of 50 ids amid their transactions, Flink's producers, and its restore."""
    topic_name = topic(healthy)
    rolling = [f"rolling-{number}" for number in range(50)]
    lingering = [f"flink-{subtask}-{number}" for subtask in range(2) for number in range(10)]

    async def live() -> None:
        async with Client.to(healthy.bootstrap_servers) as client:
            await asyncio.gather(*(restarted(client, name, topic_name) for name in rolling))
            for _ in range(2 * TURNS):  # as Flink's, one for each transaction
                owner = await Producer.init(client, "one-each")
                await owner.send(topic_name, 0, [NewRecord(b"k", b"v")])
                await owner.commit()
            await asyncio.gather(*(restarted(client, name, topic_name) for name in lingering))

    asyncio.run(live())
    found = eoctl("status", *FAST, "-o", "json", lab=healthy)
    assert (found.status, found.json["contests"], said(found.stderr)) == (0, [], [])
    checked = eoctl("check", *FAST, "-o", "json", lab=healthy)
    assert checked.status == 0
    [rule] = [r for r in checked.rows if r["rule"] == "contested_ids"]
    assert (rule["observed"], rule["ok"], rule["detail"]) == (0, True, "none")
    assert eoctl("why", *FAST, lab=healthy).status == 0
    history = eoctl("txn", "history", *rolling, *lingering, "one-each", "-o", "json", lab=healthy)
    assert history.json["transactional_ids"] == len(rolling) + len(lingering) + 1
    assert history.json["contests"] == []


@pytest.mark.long
def test_clients_that_abort_and_start_again_later_are_none(healthy: Lab, topic: MakeTopic) -> None:
    """Each of both versions aborts its own transaction and exits, and runs again after a while."""
    topic_name, names = topic(healthy), {1: "aborts-v1", 2: "aborts-v2"}

    async def live() -> None:
        async with Client.to(healthy.bootstrap_servers) as client:
            for _ in range(LEAST + 2):
                for version, name in names.items():
                    owner = await Producer.init(client, name, version=version)
                    await owner.send(topic_name, 0, [NewRecord(b"k", b"v")])
                    await owner.abort()
                await asyncio.sleep(2 + RETRIED_WITHIN_MS / 1000)

    asyncio.run(live())
    history = eoctl("txn", "history", *names.values(), "-o", "json", lab=healthy)
    aborts = [r["transactional_id"] for r in history.rows if r["state"] == "CompleteAbort"]
    assert [aborts.count(name) for name in names.values()] == [LEAST + 2] * 2
    assert history.json["contests"] == []
    assert not set(named(healthy)) & set(names.values())


async def restarted(client: Client, name: str, topic_name: str) -> None:
    """An owner dies amid its transaction, twice; the third one works."""
    for _ in range(2):
        owner = await Producer.init(client, name)
        await owner.send(topic_name, 0, [NewRecord(b"k", b"v")])
    owner = await Producer.init(client, name)
    await owner.send(topic_name, 0, [NewRecord(b"k", b"v")])
    await owner.commit()


async def killed(lab: Lab, name: str, topic_name: str, version: int, times: int) -> None:
    """An owner that begins a transaction and dies, so many times."""
    async with Client.to(lab.bootstrap_servers) as client:
        for _ in range(times):
            owner = await Producer.init(client, name, version=version)
            await owner.send(topic_name, 0, [NewRecord(b"k", b"v")])
