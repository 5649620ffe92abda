"""What `state deliver` finds when it reads back what it wrote: not only its own rows count."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eoctl.engine import topic_delivery
from eoctl.engine.topic_delivery import TopicDelivery
from eoctl.kafka.read.chunks import Range
from eoctl.operations.change.steps import Effect
from eoctl.operations.state.into_table import IntoTable
from eoctl.operations.state.into_topic import IntoTopic
from eoctl.stores.state.marks import sorted_marks
from eoctl.stores.state.state_table import TableRows
from recovery.change.plan import Step
from recovery.facts import PartitionFacts
from recovery.shared.digest import Digest
from recovery.state.manifest import ManifestDigest

ROWS = Digest.of(3, f"{7:064x}")
PART = SimpleNamespace(digest=ManifestDigest.of(ROWS))
STEP = Step(
    action="deliver",
    target="t:0",
    parameters={"partition": 0, "rows": 3, "topic_id": "id"},
    does="",
    stands_on=(),
)


class There(TopicDelivery):
    """All rows are committed."""

    def __init__(self, seen: PartitionFacts) -> None:
        self._seen = seen

    async def last_committed(self) -> Any:
        return {}

    async def facts(self) -> dict[int, PartitionFacts]:
        return {0: self._seen}

    def rows_of(self, *given: Any) -> int | None:
        return 3

    async def digest(self, facts: PartitionFacts) -> Digest:
        return ROWS


class Topic(IntoTopic):
    """A topic that holds all rows of the state and their digest, seen at these offsets."""

    def __init__(self, stable: int, high: int) -> None:
        self._cluster: Any = SimpleNamespace(forgive=lambda: None)
        self._topic = "t"
        self._source: Any = SimpleNamespace(partitions={0: PART})
        self.there = There(PartitionFacts("t", 0, "id", 1, 0, (1,), 0, stable, high))


@pytest.mark.parametrize(("stable", "high", "done"), [(5, 5, True), (5, 6, False)])
def test_a_transaction_that_is_open_in_the_topic(stable: int, high: int, done: bool) -> None:
    """Somebody else's: whether its records will be there is not known."""
    seen = asyncio.run(Topic(stable, high).verify(STEP))
    assert seen.done is done
    assert done or seen.detail == "a transaction is open in t:0"


def test_records_that_went_from_the_start_of_a_partition_are_no_longer_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody deletes some of what was read back; the end of the log stays."""
    asked = []

    async def read_columns(_: object, r: Range) -> AsyncIterator[Any]:
        asked.append((r.start, r.end))
        return
        yield

    monkeypatch.setattr(topic_delivery, "read_columns", read_columns)
    there: Any = TopicDelivery(*(SimpleNamespace(),) * 3, "t")  # type: ignore[arg-type]
    for start in (0, 0, 2):
        asyncio.run(there.digest(PartitionFacts("t", 0, "id", 1, 0, (1,), start, 5, 5)))
    assert asked == [(0, 5), (2, 5)]


@dataclass
class Table(IntoTable):
    """A table whose rows have the state's digest and these marks (offset, key, further keys)."""

    there: Any

    def __post_init__(self) -> None:
        self._offsets = None
        self._source: Any = SimpleNamespace(partitions={0: PART})
        self._table: Any = SimpleNamespace(partition_rows=self._partition_rows, name="table s")

    async def _partition_rows(self, partition: int) -> TableRows:
        return TableRows(ROWS, self.there)

    async def _live(self) -> Any:
        return {0: marked(1, 2, 3)}


def marked(*numbers: int) -> Any:
    return sorted_marks([np.array([b"%016d" % n for n in numbers], "S16")])


@pytest.mark.parametrize(("there", "done"), [((1, 2, 3), True), ((1, 2, 4), False)])
def test_the_marks_of_rows_are_compared_beside_the_digest(
    tmp_path: Path, there: tuple[int, ...], done: bool
) -> None:
    """The digest is of key, time and value; offsets and further key columns stand in the marks."""
    step = STEP.model_copy(update={"action": "upsert"})
    seen: Effect = asyncio.run(Table(marked(*there)).verify(step))
    assert seen.done is done
