"""Cuts: the offsets up to which a state is built, decided once for all changelogs' partitions.

A cut is resolved once and then passed on as numbers; the same cut gives the same result later.
Below the cut a record counts by its transaction's final outcome, wherever the marker is; `judge`
finds the transactions that the cut divides.
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from recovery.documents import Document
from recovery.errors import UsageError
from recovery.facts import TopicPartition
from recovery.shared.log_position import LogPosition
from recovery.values import Value

SCHEMA = "eoctl.cut/v1"


class CutPartition(Document):
    """Offsets [start, end) of a partition. The other values are those when the cut was made; the
    high watermark was read once all ends were known. leader_epoch: of the leader; record_epoch: of
    the record before end, None = unknown."""

    partition: int
    start: int
    end: int
    last_stable_offset: int
    high_watermark: int
    leader_epoch: int | None
    record_epoch: int | None = None
    timestamp_before: int | None = None
    timestamp_after: int | None = None

    @property
    def position(self) -> LogPosition:
        """Return where a later run goes on. A cut from eoctl 0.2.0 has only the leader's epoch."""
        if self.record_epoch is None:
            return LogPosition(self.end, self.leader_epoch, "leader")
        return LogPosition(self.end, self.record_epoch)


class CutTopic(Document):
    """A changelog and its partitions, by number."""

    topic: str
    topic_id: str | None
    partitions: tuple[CutPartition, ...]


class CutTransaction(Document):
    """A transaction that a cut needs, divides, or leaves open above it.

    outcome: committed, aborted or open. marker: its offset in this partition, null where none was
    seen. why: for one that is divided, how.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    outcome: Literal["committed", "aborted", "open"]
    first_offset: int | None = None
    last_offset: int | None = None
    marker: int | None = None
    why: str | None = None


class Cut(Document):
    """One cut. at: lso, hw or an instant. transactions: those with data below the end and no marker
    there (it follows or is missing). split: those counted in one place and not in another.
    consistent: true if there are none of these; null = unknown."""

    schema_: Literal["eoctl.cut/v1"] = Field(default="eoctl.cut/v1", alias="schema")
    cluster_id: str | None
    created_at: str
    at: str
    instant: int | None = None
    topics: tuple[CutTopic, ...]
    transactions: tuple[CutTransaction, ...] = ()
    split: tuple[CutTransaction, ...] = ()
    open: tuple[CutTransaction, ...] = ()
    consistent: bool | None = None

    def by_partition(self) -> dict[TopicPartition, CutPartition]:
        """Return the cut of each partition."""
        return {TopicPartition(t.topic, p.partition): p for t in self.topics for p in t.partitions}


def dump(cut: Cut) -> str:
    """Return the content of a cut file."""
    return json.dumps(cut.model_dump(mode="json", by_alias=True), indent=1) + "\n"


def load(text: str, where: str) -> Cut:
    """Return the cut in a cut file or in a manifest. Raises UsageError."""
    try:
        content = json.loads(text)
        if isinstance(content, dict) and content.get("schema") == "eoctl.manifest/v1":
            content = content.get("cut")
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise UsageError("neither a cut file nor a manifest", where=where)
        return Cut.model_validate(content)
    except (ValueError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"not a cut file: {reason}", where=where) from None


class Behind(Value):
    """The first data and the first marker that a producer wrote at or above a partition's end.

    Each is (offset, epoch), None if there is none up to the high watermark that was seen.
    open_from: where a transaction without a marker begins above the end.
    """

    data: tuple[int, int] | None
    marker: tuple[int, int] | None
    open_from: int | None = None


class CutJudgement(NamedTuple):
    """The transactions of a cut; for the fields see Cut."""

    transactions: tuple[CutTransaction, ...]
    split: tuple[CutTransaction, ...]
    open: tuple[CutTransaction, ...]
    consistent: bool | None


def judge(
    below: Mapping[TopicPartition, Mapping[str, Mapping[str, Any]]],
    behind: Mapping[TopicPartition, Mapping[int, Behind]],
    *,
    epoch_per_transaction: bool,
    atomic: bool,
) -> CutJudgement:
    """Return which transactions a cut divides.

    below: by partition, each producer's last transaction below the end (see
    `recovery.audit.range_counts`). behind: by partition and producer, what follows the end.
    epoch_per_transaction: transactions v2 (KIP-890), where equal epochs mean one transaction; under
    v1 they may not. atomic: False if several partitions have records outside transactions, since
    nothing shows which of those belong together.
    """
    needed = []
    split = []
    opened = []
    unknown = False
    for topic_partition, producers in below.items():
        for name, last in producers.items():
            known = behind.get(topic_partition, {}).get(int(name))
            if last.get("last_offset") is None or not _unmarked(last):
                continue
            follows = known or Behind(None, None)
            last_one = CutTransaction(
                topic=topic_partition[0],
                partition=topic_partition[1],
                producer_id=int(name),
                producer_epoch=last["epoch"],
                outcome=last["outcome"],
                last_offset=last["last_offset"],
                marker=follows.marker[0] if follows.marker else None,
            )
            needed.append(last_one)
            if follows.data and (follows.marker is None or follows.data[0] < follows.marker[0]):
                why = f"it goes on at offset {follows.data[0]}, at or above the end"
                split.append(last_one.model_copy(update={"why": why}))
    for topic_partition, producers_behind in behind.items():
        for producer, follows in producers_behind.items():
            if follows.data is None:
                continue
            offset, epoch = follows.data
            transaction = partial(
                CutTransaction,
                topic=topic_partition[0],
                partition=topic_partition[1],
                producer_id=producer,
                producer_epoch=epoch,
            )
            if follows.open_from is not None:
                opened.append(transaction(outcome="open", first_offset=follows.open_from))
            for other, producers in below.items():
                last_there = producers.get(str(producer))
                if (
                    other == topic_partition
                    or last_there is None
                    or last_there.get("epoch") is None
                ):
                    continue
                if last_there["epoch"] < epoch:
                    continue
                same, aborted = last_there["epoch"] == epoch, last_there["outcome"] == "aborted"
                if same and epoch_per_transaction and aborted:
                    continue  # counted nowhere
                if aborted or (same and not epoch_per_transaction):
                    # An aborted transaction hides the one before it; under v1 an equal epoch may
                    # mean an earlier transaction.
                    unknown = True
                    continue
                split.append(
                    transaction(
                        outcome="committed",
                        first_offset=offset,
                        marker=follows.marker[0] if follows.marker else None,
                        why=f"above the end here, counted in {other[0]}-{other[1]}",
                    )
                )
    consistent = False if split else None if unknown or not atomic else True
    return CutJudgement(tuple(needed), tuple(split), tuple(opened), consistent)


def _unmarked(last: Mapping[str, Any]) -> bool:
    """Return True if no marker follows the last data of a producer."""
    return last["marker"] is None or last["marker"] < last["last_offset"]


def differences(
    cut: Cut, now: Iterable[tuple[TopicPartition, str | None, int | None, int | None]]
) -> list[str]:
    """Return sentences on changes that give the offsets of a cut another meaning now.

    now: partition, topic id, log start and leader epoch, read again. A risen leader epoch is no
    change as long as the log below was not cut off, which the reader has checked.
    """
    cut_partitions = cut.by_partition()
    ids = {t.topic: t.topic_id for t in cut.topics}
    texts = []
    present = set()
    for topic_partition, topic_id, log_start, epoch in now:
        p = cut_partitions.get(topic_partition)
        if p is None:
            continue
        present.add(topic_partition)
        name = f"{topic_partition[0]}-{topic_partition[1]}"
        if topic_id != ids[topic_partition[0]]:
            texts.append(f"{name}: the topic was deleted and created again")
        elif log_start is None:
            texts.append(f"{name}: its log start could not be read again")
        elif log_start > p.start and p.end > p.start:
            texts.append(f"{name}: its log start moved from {p.start} to {log_start}")
        elif p.leader_epoch is not None and epoch is not None and epoch < p.leader_epoch:
            texts.append(f"{name}: its leader epoch went back from {p.leader_epoch} to {epoch}")
    texts += [f"{t}-{p}: no longer exists" for t, p in sorted(cut_partitions.keys() - present)]
    return texts


def ranges(start: int, end: int, most: int) -> Sequence[tuple[int, int]]:
    """Return [start, end) in equal parts of at most `most` offsets."""
    count = max(1, -(-(end - start) // most))
    edges = [start + (end - start) * i // count for i in range(count + 1)]
    return list(itertools.pairwise(edges))
