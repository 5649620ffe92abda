"""Byte copies as cluster links keep them: what is open in the mirror ends as the source decided.

The copies are made batch by batch: the same bytes, at the same offsets, with the source's producer
ids. The oracle is what a read_committed consumer gets from the source.
"""

import asyncio
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from eoctl.kafka.connection import messages
from eoctl.kafka.read.fetch import Range, read_all
from eoctl.lab.admin import create_topic, delete_topic
from eoctl.lab.breaks.orphans import unverified
from eoctl.lab.client import NOT_NOW, Client, NewRecord, refuse
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from recovery.facts import TopicPartition
from recovery.formats.batches import BatchHeader, batch_headers
from recovery.formats.records import ControlType, marker
from tests.docs.pages import follows
from tests.kafka.command import FAST, Ran, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.planting import as_published
from tests.kafka.reading import Reading
from tests.kafka.remedying import read_committed
from tests.kafka.test_failover import World
from tests.share import only_here

SKEW = ("--clock-skew", "100ms")
"""The two labs are on one host: their brokers have one clock."""
VERIFIED = NOT_NOW | {"INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE"}
"""Brokers take the new setting a moment later."""


async def copy(
    a: Client, b: Client, source: TopicPartition, mirror: TopicPartition, end: int
) -> None:
    """Copy a partition's batches from the mirror's end up to `end`, as they are."""
    _, _, start = await b.offsets(*mirror)
    chunks, _ = await read_all(a.cluster, [Range(*source, start, end)])
    async with unverified(b):
        for chunk in chunks[source]:
            for h in batch_headers(chunk.records):
                if start <= h.base_offset < end:
                    await b.until(partial(_place, b, mirror, h, chunk.records), VERIFIED)


async def _place(b: Client, mirror: TopicPartition, h: BatchHeader, buffer: bytes) -> None:
    broker = await b.leader(*mirror)
    if h.is_control:
        await _mark(b, broker, mirror, h, buffer)
        return
    data = messages.ProduceRequest.TopicProduceData
    # what a client sends begins at 0: the leader sets the offset, which no checksum covers
    sent = bytes(8) + buffer[h.position + 8 : h.position + h.size]
    part = data.PartitionProduceData(index=mirror.partition, records=sent)
    question = messages.ProduceRequest(
        transactional_id="link",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[data(name=mirror.topic, partition_data=[part])],
    )
    answer = await b.cluster.ask(broker, question, least=3, most=11)
    row = answer.responses[0].partition_responses[0]
    refuse(row.error_code, f"Produce to {mirror}")
    assert row.base_offset == h.base_offset


async def _mark(
    b: Client, broker: int, mirror: TopicPartition, h: BatchHeader, buffer: bytes
) -> None:
    end = marker(buffer, h)
    assert end is not None
    entry = messages.WriteTxnMarkersRequest.WritableTxnMarker
    topic = entry.WritableTxnMarkerTopic(name=mirror.topic, partition_indexes=[mirror.partition])
    made = entry(
        producer_id=h.producer_id,
        producer_epoch=h.producer_epoch,
        transaction_result=end.type is ControlType.COMMIT,
        topics=[topic],
        coordinator_epoch=end.coordinator_epoch or 0,
    )
    answer = await b.cluster.ask(broker, messages.WriteTxnMarkersRequest(markers=[made]), most=1)
    refuse(answer.markers[0].topics[0].partitions[0].error_code, "WriteTxnMarkers")


@dataclass
class Link(World):
    """Two clusters, and a mirror of two partitions that a link keeps. pid: of the source's id."""

    pid: int = -1
    start: int = -1

    @property
    def names(self) -> tuple[str, ...]:
        return "--map", f"{self.topic}={self.mirror}"

    def resolve(self, outcome: str, *words: str, source: str = "a", partition: int = 1) -> Ran:
        which = ("--pid", str(self.pid), "--start-offset", str(self.start), "--outcome", outcome)
        found = ("--from-cluster", source, "--from-topic", self.topic, "--link-is-stopped")
        where = f"{self.mirror}:{partition}"
        return self.eoctl("txn", "resolve", where, *which, *found, *SKEW, *FAST, *words)

    def audit(self, *words: str) -> Ran:
        named = words or ("--context", "a", *SKEW)
        ran = eoctl(
            *("audit", "mirror-transactions", self.topic, *self.names),
            *("--mirror-context", "b", "-o", "json", *named),
            env=self.env,
        )
        return as_published(ran, "audit-mirror-transactions")

    async def write(
        self,
        outcome: str | None,
        version: int,
        lacking: Mapping[int, int],
        *,
        equal: bool = False,
    ) -> None:
        """A committed transaction on both partitions, and one that ends so (None: it stays open).

        lacking: by partition, how many of the last batches the mirror does not get. equal: an id of
        the mirror's own cluster, which is idle, has the producer id too.
        """
        async with (
            Client.of(self.a.client_properties()) as a,
            Client.of(self.b.client_properties()) as b,
        ):
            await b.until(lambda: b.coordinator("any"))  # without one nobody says who owns nothing
            made = self._equal_owner(a, b, version) if equal else self._owner(a, version)
            owner = await made
            for number in range(2):
                for size in (3, 2):
                    for partition in range(2):
                        values = [b"%d-%d" % (number, n) for n in range(size)]
                        records = [NewRecord(value) for value in values]
                        at = await owner.send(self.topic, partition, records)
                        if number == 1 and size == 3:
                            self.start = at if partition == 1 else self.start
                if number == 0:
                    await owner.commit()
                    await asyncio.sleep(0.3)  # under v1 the time tells the two apart
                elif outcome is not None:
                    await owner.end(commit=outcome == "commit")
                    await owner.completed()
            for partition in range(2):
                source = TopicPartition(self.topic, partition)
                chunks, _ = await read_all(
                    a.cluster, [Range(*source, 0, (await a.offsets(*source))[2])]
                )
                heads = [h for c in chunks[source] for h in batch_headers(c.records)]
                left = heads[: max(0, len(heads) - lacking.get(partition, 0))]
                end = left[-1].last_offset + 1 if left else 0
                await copy(a, b, source, TopicPartition(self.mirror, partition), end)

    async def _owner(self, a: Client, version: int) -> Producer:
        """A producer whose id none of the mirror's cluster has by chance."""
        for number in range(40):
            owner = await Producer.init(a, f"{self.topic}-{number}", version=version)
            if owner.producer_id >= 1_000:
                self.pid = owner.producer_id
                return owner
        raise AssertionError("every id is small")

    async def _equal_owner(self, a: Client, b: Client, version: int) -> Producer:
        """Both clusters count from 0: the one that is behind gives out ids until both are equal."""
        owner = own = None
        for number in range(3_000):
            if owner is None or (own is not None and own.producer_id > owner.producer_id):
                made = await Producer.init(a, f"{self.topic}-{number}", version=version)
                owner = made if made.producer_id < 1_000 else owner
            else:
                own = await Producer.init(b, f"{self.topic}-{number}", version=version)
            if owner is not None and own is not None and owner.producer_id == own.producer_id:
                self.pid = owner.producer_id
                return owner
        raise AssertionError("no id is equal")


@pytest.fixture
def link(lab1: Lab, lab3: Lab, topic: MakeTopic, tmp_path: Path) -> Link:
    """The source has three brokers: their blocks of producer ids begin above the mirror's."""
    return Link(lab3, lab1, tmp_path, topic(lab3, 2), topic(lab1, 2))


def values(lab: Lab, topic: str, partition: int) -> list[bytes | None]:
    return read_committed(lab, topic, partition)


@pytest.mark.parametrize(
    ("outcome", "version", "lacking"),
    only_here([("abort", 2, 1), ("commit", 1, 2)], ("commit", 1, 2)),
)
def test_what_is_open_in_the_mirror_ends_as_the_source_decided(
    link: Link, outcome: str, version: int, lacking: int
) -> None:
    """Its marker did not come over in partition 1; with 2 lacking, its last batch neither."""
    asyncio.run(link.write(outcome, version, {1: lacking}))
    mirrored = values(link.b, link.mirror, 1)
    assert mirrored == [b"0-0", b"0-1", b"0-2", b"0-0", b"0-1"]
    wrong = "abort" if outcome == "commit" else "commit"
    refused = link.resolve(wrong)
    assert (refused.status, f"the source decided {outcome}" in refused.text) == (4, True)
    shown = link.resolve(outcome)
    assert shown.status == 0, shown.text
    assert "are the same in the source's log" in shown.text
    assert values(link.b, link.mirror, 1) == mirrored, "showing a plan changed something"
    before = link.audit()
    assert before.status == 1, before.text
    [opened] = before.json["open"]
    assert (opened["outcome"], opened["proven"]) == (outcome, True)
    cut = [[(p["partition"], p["missing_from"]) for p in row["partitions"]] for row in before.rows]
    assert cut == ([[(0, None), (1, link.start)]] if outcome == "commit" else [])
    # the command that it prints lacks what only the operator knows
    words = shlex.split(opened["command"])[1:]
    refused = eoctl(*words, *FAST, "--execute", "--yes", env=link.env)
    assert (refused.status, "--link-is-stopped" in refused.text) == (2, True)
    assert values(link.b, link.mirror, 1) == mirrored
    done = eoctl(*words, "--link-is-stopped", *FAST, "--execute", "--yes", env=link.env)
    assert done.status == 0, done.text
    if lacking == 1:
        assert values(link.b, link.mirror, 1) == values(link.a, link.topic, 1)
    else:
        assert "2 records of this transaction are in the source alone" in shown.text
        assert values(link.b, link.mirror, 1) == [*mirrored, b"1-0", b"1-1", b"1-2"]
    after = link.audit()
    assert after.json["open"] == []
    again = link.resolve(outcome, "--execute", "--yes")
    assert (again.status, "done already" in again.text) == (0, True)


@follows("docs/failover.md", "Byte copies")
def test_the_page_of_byte_copies(it: Reading, link: Link) -> None:
    asyncio.run(link.write("commit", 2, {1: 1}))
    it.contexts({"dc1": link.a, "dc2": link.b})
    it.names |= {"orders:3": f"{link.mirror}:1", "3012": str(link.pid), "977": str(link.start)}
    acts = ("--from-topic", link.topic, *FAST, "--execute", "--yes")  # of v2: no --clock-skew
    done = it.run("txn resolve", 0, None, *acts)
    assert "are the same in the source's log" in done.text
    assert values(link.b, link.mirror, 1) == values(link.a, link.topic, 1)


def test_nothing_else_proves_an_outcome(link: Link) -> None:
    """Open in the source too; then decided there, by a topic that was made again."""
    asyncio.run(link.write(None, 2, {}))
    refused = link.resolve("commit", "--execute", "--yes")
    assert (refused.status, "open in the source too" in refused.text) == (3, True)
    unknown = link.audit()
    assert unknown.status == 3
    assert "open in the source too" in unknown.text
    same = link.resolve("commit", source="b")
    assert (same.status, "is the cluster that the marker is for" in same.text) == (2, True)
    bare = link.eoctl(
        "txn", "resolve", f"{link.mirror}:1", "--from-topic", "t", "--outcome", "abort"
    )
    assert bare.status == 2

    async def made_again() -> None:
        """The very batches, and an outcome that its coordinator decided at that epoch, by hand."""
        source, mirror = TopicPartition(link.topic, 1), TopicPartition(link.mirror, 1)
        async with (
            Client.of(link.a.client_properties()) as a,
            Client.of(link.b.client_properties()) as b,
        ):
            await delete_topic(a, link.topic)
            await create_topic(a, link.topic, 2)
            end = (await b.offsets(*mirror))[2]
            await copy(b, a, mirror, source, end)
            chunks, _ = await read_all(b.cluster, [Range(*mirror, 0, end)])
            [first] = [
                (h, c.records)
                for c in chunks[mirror]
                for h in batch_headers(c.records)
                if h.is_control
            ]
            await a.until(lambda: _marked(a, source, *first), VERIFIED)

    asyncio.run(made_again())
    refused = link.resolve("commit", "--execute", "--yes")
    assert refused.status == 3, refused.text
    assert "no coordinator decided the source's marker" in refused.text
    assert values(link.b, link.mirror, 1) == [b"0-0", b"0-1", b"0-2", b"0-0", b"0-1"]
    found = link.audit()
    assert found.json["open"] == []
    assert "no coordinator decided the source's marker" in found.text


async def _marked(a: Client, where: TopicPartition, h: BatchHeader, buffer: bytes) -> None:
    await _mark(a, await a.leader(*where), where, h, buffer)


def test_an_equal_producer_id_of_the_mirrors_own_cluster(link: Link) -> None:
    """It is idle, and knows nothing of the records: it is shut out before the marker."""
    asyncio.run(link.write("commit", 1, {1: 1}, equal=True))
    done = link.resolve("commit", "--execute", "--yes")
    assert done.status == 0, done.text
    assert "has the source's producer id by chance" in done.text
    assert values(link.b, link.mirror, 1) == values(link.a, link.topic, 1)


def test_a_transaction_of_the_replicator_is_its_own_coordinators(link: Link) -> None:
    """It is open in the mirror, and the source has other batches there."""

    async def replicate() -> None:
        async with Client.of(link.b.client_properties()) as b:
            own = await Producer.init(b, f"{link.mirror}-replicator")
            link.pid = own.producer_id
            link.start = await own.send(link.mirror, 1, [NewRecord(b"x")])
            refused = await asyncio.to_thread(link.resolve, "commit", "--execute", "--yes")
            assert refused.status == 4, refused.text
            assert "its coordinator here decides it" in refused.text
            ran = await asyncio.to_thread(link.audit)
            assert ran.json["open"] == []
            await own.commit()

    asyncio.run(replicate())


@follows("docs/failover.md", "Without A")
def test_when_the_source_is_gone_its_bundle_names_what_is_cut(it: Reading, link: Link) -> None:
    """All of partition 0 came over, and nothing of the second transaction in partition 1."""
    asyncio.run(link.write("commit", 2, {1: 3}))
    bundle = link.folder / "a.bundle"
    ran = eoctl("bundle", "create", str(bundle), "--history", "--context", "a", env=link.env)
    assert ran.status in (0, 3), ran.text
    it.contexts({"a": link.a, "b": link.b, "dc2": link.b})
    it.names["orders"] = link.topic
    found = it.next("audit mirror-tr", None, *link.names, "-o", "json")
    assert found.status in (1, 3), found.text
    [row] = found.rows
    assert (row["producer_id"], len(row["partitions"])) == (link.pid, 1)
    assert row["partitions"][0]["missing_from"] is None
    [absent] = row["absent"]
    assert (absent["partition"], absent["from_offset"]) == (1, link.start)
    assert found.json["open"] == []
    assert found.json["decisions_until"] is not None
    # the link's last words: the data without its marker
    asyncio.run(_rest(link))
    [row] = link.audit("--from", str(bundle)).rows
    assert [p["missing_from"] for p in row["partitions"]] == [None, link.start]
    [opened] = link.audit("--from", str(bundle)).json["open"]
    assert (opened["outcome"], opened["proven"]) == ("commit", False)
    assert (opened["same_batches"], opened["marker_offset"]) == (None, None)
    refused = link.resolve("commit", source=str(bundle))
    assert (refused.status, "a bundle has no log to compare" in refused.text) == (2, True)
    done = eoctl(*shlex.split(opened["command"])[1:], *FAST, "--execute", "--yes", env=link.env)
    assert done.status == 0, done.text
    assert values(link.b, link.mirror, 1) == values(link.a, link.topic, 1)
    ended = link.audit("--from", str(bundle), "--clock-skew", "1ms")
    assert (ended.status, ended.rows) == (3, [])
    assert "as `txn resolve` writes it" in ended.text


async def _rest(link: Link) -> None:
    source, mirror = TopicPartition(link.topic, 1), TopicPartition(link.mirror, 1)
    async with (
        Client.of(link.a.client_properties()) as a,
        Client.of(link.b.client_properties()) as b,
    ):
        await copy(a, b, source, mirror, (await a.offsets(*source))[2] - 1)


def test_copies_that_do_not_keep_producer_ids_are_unknown(link: Link) -> None:
    """As MirrorMaker makes them; and without a bundle, or with that of another cluster."""
    asyncio.run(link.write("commit", 2, {0: 9, 1: 9}))

    async def mirror() -> None:
        async with Client.of(link.b.client_properties()) as b:
            for partition in range(2):
                await b.plain(link.mirror, partition, [NewRecord(b"0-0")])

    asyncio.run(mirror())
    bundle, other = link.folder / "a.bundle", link.folder / "b.bundle"
    for path, context in ((bundle, "a"), (other, "b")):
        ran = eoctl("bundle", "create", str(path), "--history", "--context", context, env=link.env)
        assert ran.status in (0, 3), ran.text
    unknown = link.audit("--from", str(bundle))
    assert (unknown.status, unknown.rows) == (3, [])
    assert "nothing in the mirror bears their producer ids" in unknown.text
    words = ("audit", "mirror-transactions", link.topic, *link.names, "--mirror-context", "b")
    own = eoctl(*words, "--from", str(other), env=link.env)
    assert (own.status, "of the mirror's own cluster" in own.text) == (2, True)
    gone = eoctl(*words, "--bootstrap-server", "127.0.0.1:1", env=link.env)
    assert (gone.status, "is unknown without the source's decisions" in gone.text) == (5, True)
