"""Each rule of the verdict table, by its name, on a real broker.

One lab holds all that one broker can hold at once; it is judged as a whole, so that each place
is also judged beside all the others.
"""

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from eoctl.lab.admin import delete_topic
from eoctl.lab.breaks import break_
from eoctl.lab.breaks.orphans import unverified
from eoctl.lab.breaks.stage import batch
from eoctl.lab.breaks.truth import STRAY_NOT_YET, GroundTruth
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from recovery.diagnosis import Judged
from recovery.observation import Settings
from recovery.verdicts import judge
from tests.kafka.command import eoctl
from tests.kafka.diagnosing import judged
from tests.kafka.test_history_evidence import verdicts

EVERYTHING = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    "transaction.two.phase.commit.enable": "true",
    "unstable.api.versions.enable": "true",
}


@pytest.fixture(scope="module")
def lab(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    found = start_lab(LabSpec(name="rules", settings=EVERYTHING))
    yield found
    found.down()


# a broker that still verifies asks the coordinator, which knows another epoch of the id
NOT_YET = STRAY_NOT_YET | {"INVALID_PRODUCER_EPOCH"}


def stray_as(lab: Lab, truth: GroundTruth, epoch: int, sequence: int = 0) -> Producer:
    """A producer that no coordinator is asked about, with the truth's producer id."""
    assert truth.producer_id is not None
    client = Client.to(lab.bootstrap_servers)
    producer = Producer(client, truth.producer_id, epoch, truth.transactional_id)
    producer.sequences[truth.topic, truth.partition] = sequence
    return producer


async def write_stray(producer: Producer, topic: str, partition: int) -> None:
    async with producer.client as client, unverified(client):
        await client.until(
            lambda: producer.write(topic, partition, batch(1, "stray")), also=NOT_YET
        )


def later_transaction(lab: Lab) -> GroundTruth:
    """An orphan, and its id's next transaction open on the same partition."""
    (truth,) = break_(lab, "orphan", hold=False)

    async def go_on() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            producer = await Producer.init(client, truth.transactional_id, 900_000)
            await producer.send(truth.topic, truth.partition, batch(1, "next"))

    asyncio.run(go_on())
    return truth


def owner_odd(lab: Lab) -> GroundTruth:
    """A batch of a later epoch than the one with which its id is open here."""
    (truth,) = break_(lab, "holds-nothing", hold=False)
    assert truth.producer_epoch is not None
    asyncio.run(write_stray(stray_as(lab, truth, truth.producer_epoch + 5), truth.topic, 0))
    return truth


def start_deleted(lab: Lab) -> GroundTruth:
    """An open transaction whose first batch was deleted (DeleteRecords)."""
    (truth,) = break_(lab, "open", hold=False)
    assert truth.start_offset is not None
    place = TopicPartition(truth.topic, truth.partition, truth.start_offset + 3)
    admin = AdminClient(lab.client_properties())
    admin.delete_records([place])[place].result(20)
    return truth


def test_what_one_broker_can_hold(lab: Lab) -> None:
    foreign, home = break_(lab, "orphan", variant="foreign", hold=False)
    expected = {
        "nobody-owns-it": break_(lab, "orphan")[0],
        "stray-of-a-live-id": foreign,
        "within-limits": home,
        "past-timeout": break_(lab, "overdue")[0],
        "two-phase": break_(lab, "two-phase", hold=False)[0],
        "later-transaction": later_transaction(lab),
        "owner-odd": owner_odd(lab),
        "start-batch-not-read": start_deleted(lab),
        "history-replaced": break_(lab, "orphan", variant="nameless")[0],
        "topic-identity": break_(lab, "topic-made-anew", variant="orphan")[0],
    }
    (anew,) = break_(lab, "topic-made-anew", hold=False)
    found = {j.about.topic_partition: j for j in judged(lab, sample_interval=0.5).judged}
    rules = {rule: found[t.topic, t.partition].verdict.rule for rule, t in expected.items()}
    assert rules == {rule: rule for rule in expected}
    assert found[anew.topic, anew.partition].verdict.name == "open"

    # what cannot be judged is no refusal: exit status 3, and what would settle it
    for truth, status, said in (
        (expected["later-transaction"], 3, "how the batch's own ended is not known"),
        (anew, 4, "whether decided data lies under its transaction is not known"),
    ):
        fence = ("txn", "fence", truth.transactional_id or "", "--owner-is-gone")
        ran = eoctl(*fence, "--sample-interval", "0.3s", lab=lab)
        assert (ran.status, said in ran.stderr) == (status, True), ran.stderr

    # what the same looks at the orphan say when one of them had not been taken
    orphan = found[expected["nobody-owns-it"].topic, 0]
    assert orphan.second is not None
    assert rule_of(orphan, second=None) == "one-sample"
    assert rule_of(orphan, history=None) == "history-not-read"


def rule_of(j: Judged, **other: object) -> str | None:
    """The rule by which this is judged with something else than was seen."""
    seen = {"second": j.second, "history": j.history} | other
    verdict = judge(j.about, j.start, j.first, seen["second"], seen["history"], Settings())  # type: ignore[arg-type]
    return verdict.rule if verdict else None


def test_past_long(lab: Lab) -> None:
    (truth,) = break_(lab, "long", hold=False)
    time.sleep(0.3)
    (seen,) = judged(
        lab, truth.topic, settings=Settings(long_after=100), sample_interval=0.3
    ).judged
    assert (seen.verdict.name, seen.verdict.rule) == ("long", "past-long")


def test_still_writing(lab: Lab) -> None:
    """Its producer writes between the looks: somebody lives, whatever the coordinators say."""
    (truth,) = break_(lab, "orphan")
    ended = threading.Event()

    def keep_writing() -> None:
        sequence = 3
        while not ended.is_set():
            asyncio.run(write_more(sequence))
            sequence += 1

    async def write_more(sequence: int) -> None:
        producer = stray_as(lab, truth, truth.producer_epoch or 0, sequence)
        async with producer.client:
            await producer.write(truth.topic, truth.partition, batch(1, "more"))

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        (seen,) = judged(lab, truth.topic, sample_interval=1.5).judged
    finally:
        ended.set()
        writer.join()
    assert (seen.verdict.name, seen.verdict.rule) == ("unknown", "still-writing")
    assert seen.verdict.remedy.action == "none"


def test_a_groups_offsets_of_nobody(lab: Lab) -> None:
    (truth,) = break_(lab, "offsets-orphan")
    found = judged(lab, "__consumer_offsets", sample_interval=0.3).judged
    (verdict,) = [j.verdict for j in found if j.about.producer_id == truth.producer_id]
    assert (verdict.name, verdict.rule, verdict.offsets_pending) == (
        "orphan",
        "nobody-owns-it",
        True,
    )


@contextmanager
def denied(lab: Lab, kind: ResourceType, name: str, operation: AclOperation) -> Iterator[None]:
    """The user `viewer` is denied this while the block runs."""
    what = (kind, name, ResourcePatternType.LITERAL, "User:viewer", "*", operation)
    rule = (*what, AclPermissionType.DENY)
    admin = AdminClient(lab.client_properties())
    (made,) = admin.create_acls([AclBinding(*rule)]).values()
    made.result(20)
    try:
        yield
    finally:
        (gone,) = admin.delete_acls([AclBindingFilter(*rule)]).values()
        gone.result(20)


@pytest.mark.parametrize(
    ("kind", "operation", "rule"),
    [
        (ResourceType.TOPIC, AclOperation.READ, "history-not-read"),
        (ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE, "log-says-open"),
    ],
)
def test_what_a_denied_user_cannot_know(
    secure_lab: Lab, kind: ResourceType, operation: AclOperation, rule: str
) -> None:
    """A DENY hides the id or the log without an error; no orphan is made of that."""
    orphan, live = break_(secure_lab, "orphan", variant="foreign", hold=False)
    about = orphan if kind is ResourceType.TOPIC else live
    name = "__transaction_state" if kind is ResourceType.TOPIC else live.transactional_id or ""
    with denied(secure_lab, kind, name, operation):
        found = judged(
            secure_lab,
            about.topic,
            properties=secure_lab.client_properties(user="viewer"),
            sample_interval=0.3,
        ).judged
    (seen,) = [j for j in found if j.about.partition == about.partition]
    assert (seen.verdict.name, seen.verdict.rule) == ("unknown", rule)
    assert seen.verdict.remedy.action == "none"


@pytest.fixture(scope="module")
def pair(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    """Two brokers that let a restarted one in again soon."""
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    found = start_lab(LabSpec(name="rulepair", brokers=2, settings=settings))
    yield found
    found.down()


def test_what_was_decided_and_has_no_marker(pair: Lab) -> None:
    """A lost ABORT, a lost COMMIT of group offsets, one under the id's next transaction."""
    (aborted,) = break_(pair, "marker-lost", outcome="abort")
    (offsets,) = break_(pair, "offsets-marker-lost")
    (mixed,) = break_(pair, "marker-lost", later="open")
    found = (
        *judged(pair, sample_interval=0.5).judged,
        *judged(pair, "__consumer_offsets", sample_interval=0.5).judged,
    )
    seen = {j.about.topic_partition: j for j in found if j.about.topic != "__transaction_state"}

    def told(truth: GroundTruth) -> tuple[object, ...]:
        verdict = seen[truth.topic, truth.partition].verdict
        return verdict.name, verdict.rule, verdict.mixed, verdict.proven_outcome

    assert told(aborted) == ("marker-lost", "marker-not-written", False, "abort")
    assert told(offsets) == ("marker-lost", "marker-not-written", False, "commit")
    assert told(mixed) == ("marker-lost", "earlier-marker-lost", True, "commit")
    assert rule_of(seen[aborted.topic, 0], second=None) == "lost-seen-once"


def other_clusters(cache: Path) -> None:
    """Make of a cache what one of another cluster with the same id would be: other topic ids."""
    for path in cache.rglob("topics.json"):
        seen = json.loads(path.read_text())
        seen["topics"] = {
            name: {f"x{topic_id[1:]}": row for topic_id, row in ids.items()}
            for name, ids in seen["topics"].items()
        }
        path.write_text(json.dumps(seen))


def test_a_log_made_anew_and_who_has_read_the_one_before(pair: Lab, tmp_path: Path) -> None:
    """Who has decides by its cache and says so; who has not, or has another cluster's, cannot."""
    (lost,) = break_(pair, "marker-lost")

    def told(host: str) -> set[tuple[object, ...]]:
        return {
            (v.rule, v.proven_outcome, "cache" in {e.code for e in v.evidence})
            for v in verdicts(pair, {lost.topic}, tmp_path / host).values()
        }

    assert told("reader") == {("marker-not-written", "commit", False)}
    shutil.copytree(tmp_path / "reader", tmp_path / "stranger")
    other_clusters(tmp_path / "stranger")

    async def made_anew() -> None:
        async with Client.to(pair.bootstrap_servers) as client:
            await delete_topic(client, "__transaction_state")
            await client.until(lambda: client.coordinator("anybody"))

    asyncio.run(made_anew())
    for host in ("newcomer", "stranger"):
        assert told(host) == {("history-replaced", None, False)}, host
    for _ in range(2):
        assert told("reader") == {("marker-not-written", "commit", True)}
