"""Who forbids an outcome without proof, and which records are at stake where nobody does.

The log is bytes that kafka-python wrote; only the broker that would give them is left out.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read.chunks import ENOUGH, Chunk, Ended, Range
from eoctl.operations.remedy import stake
from recovery.diagnose.diagnosis import Judged
from recovery.facts import (
    CoordinatorFacts,
    PartitionFacts,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
    Transactions,
)
from recovery.inspect.observation import Sample
from recovery.remedy.repairs import undecided_refused
from recovery.values import replace
from tests.unit.check_facts import judged
from tests.unit.formats_build import COMMIT, Item, batch, marker
from tests.unit.said import said

AT = TopicPartition("t", 0)
PID, START = 7, 10
NOBODY = Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))

# -- who forbids it --------------------------------------------------------------------------------

SEEN = (CoordinatorFacts(0, 1, seen=True), CoordinatorFacts(1, 2, seen=True))


def wrote(sequence: int | None = 3, epoch: int = 4, producer_id: int = PID) -> ProducerFacts:
    return ProducerFacts(*AT, producer_id, epoch, sequence, 1_000, 0, START)


def owner(state: str, producer_id: int = PID) -> TransactionFacts:
    return TransactionFacts("orders", 1, producer_id, state, 5)


def sample(
    *owners: TransactionFacts,
    producers: Sequence[ProducerFacts] = (wrote(),),
    coordinators: Sequence[CoordinatorFacts] = SEEN,
    describe: bool = True,
) -> Sample:
    partition = PartitionFacts(
        *AT, leader=1, log_start_offset=0, last_stable_offset=START, high_watermark=40
    )
    transactions = Transactions(owners, tuple(coordinators))
    return Sample(partition, tuple(producers), transactions, 0, topic_describe=describe)


QUIET = sample()
HIDDEN = sample(coordinators=(*SEEN[:1], CoordinatorFacts(1, None, seen=False)))
OF_OTHERS = wrote(9, producer_id=8)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (QUIET, QUIET, None),
        (QUIET, None, None),
        (HIDDEN, QUIET, "not every coordinator was seen"),
        (QUIET, HIDDEN, "not every coordinator was seen"),
        (sample(owner("Ongoing")), QUIET, "orders is Ongoing with its producer id"),
        (QUIET, sample(owner("PrepareAbort")), "orders is PrepareAbort with its producer id"),
        (QUIET, sample(owner("Empty"), owner("Ongoing", 8)), None),
        (sample(describe=False), QUIET, "without DESCRIBE on t its owner does not show"),
        (QUIET, sample(describe=False), "without DESCRIBE on t its owner does not show"),
        (QUIET, sample(producers=[wrote(4)]), "its producer wrote between the looks"),
        (QUIET, sample(producers=[wrote(epoch=5)]), "its producer wrote between the looks"),
        (QUIET, sample(producers=[]), "its producer wrote between the looks"),
        (QUIET, sample(producers=[OF_OTHERS, wrote()]), None),
        (QUIET, sample(producers=[replace(wrote(), coordinator_epoch=1)]), None),
    ],
)
def test_nobody_decides_for_an_owner(first: Sample, second: Sample | None, why: str | None) -> None:
    one = replace(judged("orphan", PID, start=START), first=first, second=second)
    refused = undecided_refused(one)
    assert (refused is None) is (why is None)
    assert (why or "") in said(refused)


def test_the_first_producer_id_of_a_cluster_is_one_as_others_are() -> None:
    """Kafka counts them from 0."""
    one = replace(judged("orphan", 0, start=START), first=sample(owner("Ongoing", 0)))
    assert said(undecided_refused(one)) == "orders is Ongoing with its producer id"
    looks = [sample(producers=[wrote(n, producer_id=0)]) for n in (3, 4)]
    one = replace(judged("orphan", 0, start=START), first=looks[0], second=looks[1])
    assert said(undecided_refused(one)) == "its producer wrote between the looks"


# -- what is at stake ------------------------------------------------------------------------------


def data(
    offset: int,
    *keys: bytes | None,
    producer: int = PID,
    epoch: int = 4,
    transactional: bool = True,
) -> bytes:
    items = [Item(n, key=key) for n, key in enumerate(keys)]
    return batch(offset, items, producer=(producer, epoch, 0), transactional=transactional)


def at_stake(
    monkeypatch: pytest.MonkeyPatch,
    *records: bytes,
    above: int | None = None,
    log_start: int = 0,
    error: str | None = None,
    owners: Sequence[TransactionFacts] = (),
    pid: int = PID,
    start: int = START,
) -> tuple[Mapping[str, Any], Range, Sequence[str]]:
    """What is at stake in this log, what was read of it, and whom that concerns."""
    asked: list[Range] = []

    async def read_all(
        cluster: Cluster, ranges: Sequence[Range], **options: Any
    ) -> tuple[dict[TopicPartition, list[Chunk]], dict[TopicPartition, Ended]]:
        asked.extend(ranges)
        chunks = [Chunk(*AT, 0, 40, one, None, 40, START, 0) for one in records]
        return {AT: chunks}, {AT: Ended(*AT, 40, error)}

    monkeypatch.setattr(stake, "read_all", read_all)
    seen = sample(*owners)
    seen = replace(seen, partition=replace(seen.partition, log_start_offset=log_start))
    one: Judged = replace(judged("orphan", pid, start=start), first=seen)
    found = asyncio.run(stake.of(NOBODY, one, above))
    return found["at_stake"], asked[0], found["asked"]


def test_the_records_of_the_open_transaction_are_at_stake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those before its start, of others, or outside of transactions; nor any marker."""
    found, read, asked = at_stake(
        monkeypatch,
        data(7, b"before"),
        data(START, b"a", None, b"a") + data(13, b"other", producer=8),
        data(14, b"plain", transactional=False) + marker(15, PID, COMMIT, epoch=4),
        data(16, b"\x1b[m", b"b"),
    )
    assert found == {
        "records": 5,
        "first_offset": START,
        "last_offset": 17,
        "keys": [],  # no record's content is kept
        "whole": True,
    }
    assert read == Range(*AT, START, 40)
    assert asked == ["2 coordinator partitions: none owns it"]


def test_of_later_epochs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    log = (data(START, b"a", epoch=3), data(11, b"b", epoch=4), data(12, b"c", epoch=5))
    for above, offsets in ((None, (10, 12, 3)), (3, (11, 12, 2)), (4, (12, 12, 1))):
        found, *_ = at_stake(monkeypatch, *log, above=above)
        assert (found["first_offset"], found["last_offset"], found["records"]) == offsets


def test_what_is_left_of_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention took its beginning; and there may be more than is read."""
    found, read, asked = at_stake(
        monkeypatch, log_start=12, error=ENOUGH, owners=[owner("Ongoing"), owner("Empty", 8)]
    )
    assert read == Range(*AT, 12, 40)
    assert (found["records"], found["first_offset"], found["whole"]) == (0, None, False)
    assert asked == ["2 coordinator partitions: owned by orders"]


def test_it_begins_where_the_log_does(monkeypatch: pytest.MonkeyPatch) -> None:
    log = data(0, b"a", b"b", producer=0)
    found, read, asked = at_stake(monkeypatch, log, owners=[owner("Ongoing", 0)], pid=0, start=0)
    assert read == Range(*AT, 0, 40)
    assert (found["records"], found["first_offset"]) == (2, 0)
    assert asked == ["2 coordinator partitions: owned by orders"]


def test_what_either_outcome_costs() -> None:
    whole = {"records": 1, "first_offset": 4, "last_offset": 4, "whole": True}
    least = {"records": 2, "first_offset": 4, "last_offset": 9, "whole": False}
    nothing = {"records": 0, "first_offset": None, "last_offset": None, "whole": True}
    drops, delivers = stake.costs({"at_stake": whole}, "abort")
    assert drops.startswith("abort drops 1 record (offsets 4 to 4) ")
    assert delivers.startswith("the other outcome: commit delivers 1 record (offsets 4 to 4): ")
    delivers, drops = stake.costs({"at_stake": least}, "commit")
    assert delivers.startswith("commit delivers at least 2 records (offsets 4 to 9): ")
    assert drops.startswith("the other outcome: abort drops at least 2 records (offsets 4 to 9) ")
    assert stake.costs({"at_stake": nothing}, "abort")[0].startswith("abort drops 0 records for")
