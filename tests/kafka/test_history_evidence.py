"""What the history is evidence of, on real brokers: logs made anew, grown, read before, and topics.

Each trouble is planted here; what is expected is what was done to the records, by the rule's name.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.orphans import unverified
from eoctl.lab.breaks.truth import STRAY_NOT_YET, GroundTruth
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from eoctl.operations.diagnose import histories
from recovery.diagnose.verdicts import Verdict
from recovery.formats.coordinator import coordinator_partition
from recovery.inspect import chains
from recovery.inspect.observation import Settings
from tests.kafka.command import eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.diagnosing import judged

STATE = "__transaction_state"
UNVERIFIED = {"transaction.partition.verification.enable": "false"}
BEFORE, AFTER = 5, 8  # partitions of __transaction_state


@contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """What is read is kept here, as on a host of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EOCTL_CACHE_DIR", str(folder))
        yield


def verdicts(lab: Lab, topics: set[str], host: Path) -> dict[tuple[str, int], Verdict]:
    """Judged once all coordinators have loaded."""
    deadline = time.monotonic() + 60
    with cache_in(host):
        while (found := judged(lab, *topics, sample_interval=0.3)).missing:
            assert time.monotonic() < deadline, found.missing
            time.sleep(0.5)
    return {j.about.topic_partition: j.verdict for j in found.judged}


def which(t: GroundTruth) -> tuple[str, ...]:
    """The words that name a transaction."""
    pid, start = str(t.producer_id), str(t.start_offset)
    return f"{t.topic}:{t.partition}", "--pid", pid, "--start-offset", start


def in_client(lab: Lab, work: Callable[[Client], Awaitable[object]]) -> None:
    async def run() -> None:
        async with Client.of(lab.client_properties()) as client:
            await work(client)

    asyncio.run(run())


@pytest.mark.long
def test_a_history_that_grew(
    start_lab: Callable[[LabSpec], Lab], topic: MakeTopic, tmp_path: Path
) -> None:
    """Lost COMMITs stay lost COMMITs: the decision counts in the former partition as well."""
    settings = {"transaction.state.log.num.partitions": str(BEFORE), **UNVERIFIED}
    lab = start_lab(LabSpec(name="histories", brokers=2, settings=settings))
    truths = [t for t in break_(lab, "marker-lost", count=4) if t.verdict == "marker-lost"]
    partitions = {(t.topic, t.partition): t.transactional_id or "" for t in truths}
    [twice] = break_(lab, "marker-twice")
    moves = {
        partition
        for partition, name in partitions.items()
        if coordinator_partition(name, BEFORE) != coordinator_partition(name, AFTER)
    }
    assert moves
    late = topic(lab)
    names = iter(f"late-{n}" for n in range(100))
    name = next(
        n for n in names if coordinator_partition(n, BEFORE) != coordinator_partition(n, AFTER)
    )

    async def stray(client: Client) -> None:
        producer = await Producer.init(client, name)
        await client.until(partial(producer.write, late, 0, [NewRecord(b"late")]))

    in_client(lab, stray)
    topics = {late, twice.topic, *(topic for topic, _ in partitions)}
    old_host = tmp_path / "old"
    seen = verdicts(lab, topics, old_host)
    assert {v.rule for partition, v in seen.items() if partition in partitions} == {
        "marker-not-written"
    }
    assert seen[late, 0].rule == "nobody-owns-it"
    assert seen[twice.topic, twice.partition].rule == "order-unclear"

    # partitions are added, and brokers count them when they start
    kafka = AdminClient(lab.client_properties())
    kafka.create_partitions([NewPartitions(STATE, AFTER)])[STATE].result(20)
    for broker in lab.broker_ids:
        lab.terminate(broker)
        lab.start(broker)
    in_client(lab, lambda client: client.until(partial(client.coordinator, name)))
    grown = verdicts(lab, topics, tmp_path / "new")
    assert {grown[partition].rule for partition in partitions} == {"marker-not-written"}
    assert {grown[partition].proven_outcome for partition in partitions} == {"commit"}
    assert (grown[late, 0].name, grown[late, 0].rule) == ("unknown", "history-moved")
    again = verdicts(lab, topics, old_host)
    assert {v.rule for partition, v in again.items() if partition in partitions} == {
        "marker-not-written"
    }

    refused = eoctl("txn", "abort", *which(truths[0]), "--execute", "--yes", lab=lab)
    assert refused.status == 4, refused.stdout
    lab.down()


def test_a_producer_id_that_no_log_names_is_judged_by_none(lab1: Lab, tmp_path: Path) -> None:
    """One that a coordinator gave, beside it, is an orphan."""
    [nameless] = break_(lab1, "orphan", variant="nameless")
    [known] = break_(lab1, "orphan", variant="marked")
    seen = verdicts(lab1, {nameless.topic, known.topic}, tmp_path)
    rules = {partition: (v.name, v.rule, v.remedy.action) for partition, v in seen.items()}
    assert rules == {
        (nameless.topic, nameless.partition): ("unknown", "history-replaced", "none"),
        (known.topic, known.partition): ("orphan", "nobody-owns-it", "abort"),
    }
    refused = eoctl("txn", "abort", *which(nameless), "--execute", "--yes", lab=lab1)
    assert refused.status == 3, refused.stdout


def test_a_topic_made_anew_is_not_the_one_that_decisions_name(lab1: Lab, tmp_path: Path) -> None:
    """v1: a healthy transaction stays open, without a fence; a write of nobody is not resolved."""
    [alive] = break_(lab1, "topic-made-anew", hold=False)
    [orphan] = break_(lab1, "topic-made-anew", variant="orphan", hold=False)
    seen = verdicts(lab1, {alive.topic, orphan.topic}, tmp_path)
    live, stray = seen[alive.topic, alive.partition], seen[orphan.topic, orphan.partition]
    assert (live.name, live.rule, live.fence_safe) == ("open", "within-limits", False)
    assert [e.data for e in live.evidence if e.code == "earlier-unclear"] == [
        {"reason": "topic-identity"}
    ]
    assert (stray.name, stray.rule) == ("unknown", "topic-identity")
    assert stray.remedy.action == "none"
    for words in (("abort",), ("resolve", "--outcome", "commit")):
        act = eoctl("txn", words[0], *which(orphan), *words[1:], "--execute", "--yes", lab=lab1)
        assert act.status == 3, act.stdout  # unknown
    fenced = eoctl("txn", "fence", alive.transactional_id or "", "--execute", "--yes", lab=lab1)
    assert fenced.status == 4, fenced.stdout
    assert verdicts(lab1, {alive.topic, orphan.topic}, tmp_path).keys() == seen.keys()


@pytest.mark.long
def test_what_was_left_out_for_others_is_read_where_something_is_to_be_done(
    lab1: Lab, topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many ids a part of each one's records is loaded. v1 has one epoch for all of these."""
    monkeypatch.setattr(chains, "MOST_RECORDS", 90)
    monkeypatch.setattr(chains, "LEAST_RECORDS", 10)
    monkeypatch.setattr(histories, "ALONE", 1)
    where, commits = topic(lab1), 20

    async def work(client: Client) -> None:
        producers = [
            await Producer.init(client, f"{where}-{name}", 600_000, version=1)
            for name in ("stray", "open", "too")
        ]
        for producer in producers:
            for _ in range(commits):
                await producer.send(where, 0, [NewRecord(b"x")])
                await producer.commit()
        stray, *others = producers
        for producer in others:
            await producer.send(where, 0, [NewRecord(b"waits")])
        async with unverified(client):
            records = [NewRecord(b"waits")]
            await client.until(lambda: stray.write(where, 0, records), also=STRAY_NOT_YET)

    in_client(lab1, work)
    time.sleep(0.5)
    with cache_in(tmp_path):
        found = judged(lab1, where, settings=Settings(long_after=100)).judged
    assert [j.verdict.name for j in found] == ["long", "long", "orphan"]
    assert all(j.history is not None and len(j.history.decisions) == commits for j in found)
