"""Deliver a finished state into a database table: an upsert of its rows, or one transaction.

With a table for restart offsets everything is one transaction that compares and sets them, and the
previous state's rows are removed in it. Without such a table, some rows are written at a time. Rows
of another state are refused unless `replace` removes them; the plan says how many.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from typing import Any

from eoctl.engine.delivered import DeliveredState
from eoctl.operations.change.steps import Effect, die_here_in_tests
from eoctl.operations.state.delivery import DeliveryRequest
from eoctl.stores.offsets.sql import SqlOffsets
from eoctl.stores.offsets.store import StoredValues, Write
from eoctl.stores.state.marks import Marks, marks, sorted_marks
from eoctl.stores.state.state_table import SILENT_SECONDS, StateTable, refuse_others
from recovery import plurals
from recovery.change.plan import Step
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.restart.stored import StoredOffset, StoredPartition
from recovery.shared.store_tables import SqlStore
from recovery.state.changelogs.changelog import changelog_format


class IntoTable:
    """See `steps.Operation`: a step for each partition, or a single one with restart offsets."""

    def __init__(self, request: DeliveryRequest, state: DeliveredState) -> None:
        self._request, self._source = request, state
        self._columns = _columns(state)
        self._table = StateTable(request.store, self._columns)
        self._offsets: SqlStore | None = None
        if request.offsets is not None:
            self._offsets = SqlStore(kind="sql", url=request.store.url, table=request.offsets)
            self._offsets_store = SqlOffsets(self._offsets, None, SILENT_SECONDS)
        self._live_marks: Marks | None = None

    @property
    def name(self) -> str:
        return self._table.name

    @property
    def note(self) -> str:
        return ""

    async def cluster_id(self) -> str:
        """Return the id of the cluster that the state is from."""
        return self._source.manifest.cluster_id or ""

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        """Return the state, the table, and what the table of restart offsets holds."""
        await self._table.check()
        facts: dict[str, object] = {
            "state": self._source.facts,
            self.name: {"columns": self._columns},
        }
        if self._offsets is not None:
            before = await self._before()
            facts[self._offsets_store.name] = {
                str(partition): kept for partition, kept in before.items()
            }
        counted = await self._table.count(await self._live())
        others = sum(one.others for one in counted.values())
        if not self._replaces(steps):
            refuse_others(others, self.name)
        return facts | {self._others: others}

    @property
    def _others(self) -> str:
        """Return a subject of its own: a delivery in several transactions changes it on the way."""
        return f"{self.name}, rows of another state"

    def _replaces(self, steps: Sequence[Step]) -> bool:
        return self._request.replace or any(s.parameters.get("known") for s in steps)

    async def steps(self) -> list[Step]:
        await self._table.check()
        if self._offsets is not None:
            return [await self._replacing()]
        counted = await self._table.count(await self._live())
        then = ", and no others" if self._request.replace else ""
        return [
            Step(
                action="upsert",
                target=f"{self.name}, partition {p}",
                parameters={"wish": self._request.facts, "partition": p, "rows": part.digest.rows},
                does=f"{plurals.counted(part.digest.rows, 'row')} of partition {p}, some at a "
                f"time{then}{_going(counted[p].others)}",
                stands_on=("state", self.name),
            )
            for p, part in sorted(self._source.partitions.items())
        ]

    async def _replacing(self) -> Step:
        before, after = await self._before(), self._after()
        writes = []
        for topic_partition, offset in after.items():
            kept = before.get(topic_partition)
            if offset is None:
                if kept is not None:
                    raise RefusedError(
                        "the state has no restart offset for it, but one is stored",
                        where=f"{self._offsets_store.name}, {topic_partition}",
                    )
                continue
            if kept is not None and kept["offset"] > offset and not self._request.replace:
                raise RefusedError(
                    f"the stored offset {kept['offset']} is above the state's {offset}: an older "
                    "state would go over a newer one",
                    where=f"{self._offsets_store.name}, {topic_partition}",
                    remedy="--replace goes back to it",
                )
            at = StoredOffset(topic=topic_partition[0], partition=topic_partition[1], offset=offset)
            kept_after = self._offsets_store.kept(StoredPartition(input=at))
            writes.append([topic_partition[0], topic_partition[1], kept, dict(kept_after)])
        counted = (await self._table.count(await self._live())).values()
        own, others = sum(one.own for one in counted), sum(one.others for one in counted)
        # stored offsets alone do not say that the rows are an earlier state of this changelog
        stored = bool(writes) and all(kept is not None for _, _, kept, _ in writes)
        known = stored and (own > 0 or not others)
        count = self._source.count
        return Step(
            action="replace",
            target=self.name,
            parameters={
                "wish": self._request.facts,
                "rows": count,
                "known": known,
                "offsets": writes,
            },
            does=f"{plurals.counted(count, 'row')}, and no others, with "
            f"{plurals.counted(len(writes), 'restart offset')} in "
            f"{self._offsets_store.name}, all in one transaction{_going(others)}",
            stands_on=("state", self.name, self._offsets_store.name, self._others),
        )

    def _after(self) -> dict[TopicPartition, int | None]:
        """Return the offsets to restart at with the state: the cut's, or those in its records."""
        source = self._source
        coast = source.manifest.format == "coast"
        if coast != (self._request.input is not None):
            raise UsageError(
                "name the input topic of the attached offsets"
                if coast
                else f"a {source.manifest.format} state restarts at the cut of its changelog",
                where="--input",
            )
        topic = source.changelog if self._request.input is None else self._request.input
        return {
            TopicPartition(topic, p): part.seen.get("upstream") if coast else part.end
            for p, part in sorted(source.partitions.items())
        }

    async def _before(self) -> dict[TopicPartition, StoredValues]:
        """Return the stored rows for the partitions that matter."""
        partitions = self._after()
        contents = await self._offsets_store.read()
        return {
            e.topic_partition: dict(e.kept)
            for e in contents.entries
            if e.topic_partition in partitions
        }

    async def _live(self) -> Marks:
        if self._live_marks is None:
            self._live_marks = await asyncio.to_thread(self._marks)
        return self._live_marks

    def _marks(self) -> Marks:
        by_partition, names = {}, self._table.marked
        for p in self._source.partitions:
            groups = self._source.rows.columns(TopicPartition(self._source.changelog, p), names)
            columns = ((group.column(n).to_pylist() for n in names) for group in groups)
            by_partition[p] = sorted_marks(marks(zip(*c, strict=True)) for c in columns)
        return by_partition

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        """Write the step's rows; return how many, for the journal."""
        writes = 0

        def held() -> None:
            nonlocal writes
            writes += 1
            die_here_in_tests(f"deliver-write-{writes}")
            ensure_held()

        live, name = await self._live(), self._source.changelog
        if self._offsets is None:
            p = int(step.parameters["partition"])
            keep = live[p] if self._request.replace else None
            rows = self._source.rows.in_order(TopicPartition(name, p))
            await self._table.upsert(rows, p, keep, held)
            return {"rows": len(live[p])}
        await self._table.replace(
            lambda p: self._source.rows.in_order(TopicPartition(name, p)),
            live,
            (self._offsets, [Write(*write) for write in step.parameters["offsets"]]),
            held,
            replace=self._replaces([step]),
        )
        return {"rows": sum(len(marks_here) for marks_here in live.values())}

    async def verify(self, step: Step) -> Effect:
        """Read the table back, and compare its rows with the state's by digest."""
        if self._offsets is not None:
            before = await self._before()
            for write in starmap(Write, step.parameters["offsets"]):
                stored = before.get(write.topic_partition)
                if stored != write.after:
                    return Effect(False, stored, f"{write.topic_partition} is not stored so")
        live = await self._live()
        partitions = [step.parameters["partition"]] if self._offsets is None else [*live]
        saw: dict[str, Any] = {}
        for p in partitions:
            rows_there = await self._table.partition_rows(p)
            saw[str(p)] = {"rows": rows_there.digest.rows, "sha256_sum": rows_there.digest.hex}
            part = self._source.partitions[p]
            same = rows_there.marks.tolist() == live[p].tolist()
            if rows_there.digest != part.digest.digest() or not same:
                rows_words = plurals.counted(rows_there.digest.rows, "row")
                detail = f"partition {p} has {rows_words}, not the state's"
                return Effect(False, saw, detail)
        rows = sum(one["rows"] for one in saw.values())
        return Effect(True, saw, f"{self.name} holds the state's {plurals.counted(rows, 'row')}")


def _going(others: int) -> str:
    if not others:
        return ""
    return f"; {plurals.counted(others, 'row of another state goes', 'rows of another state go')}"


def _columns(state: DeliveredState) -> dict[str, str]:
    """Return the state's columns and their types. Raises IncompleteError without an SQL type."""
    import pyarrow as pa

    form = changelog_format(state.manifest.format, _options(state))
    columns = {
        "partition": "int64",
        "offset": "int64",
        "timestamp": "int64",
        "key": "binary",
        "value": "binary",
    }
    for column in form.extra:
        kind = next(
            (
                name
                for name, test in (
                    ("int64", pa.types.is_integer),
                    ("binary", pa.types.is_large_binary),
                    ("binary", pa.types.is_binary),
                    ("string", pa.types.is_large_string),
                    ("string", pa.types.is_string),
                )
                if test(column.type)
            ),
            None,
        )
        if kind is None:
            raise IncompleteError(
                f"the column {column.name} is of type {column.type}, which no table takes",
                where=state.manifest.format,
            )
        columns[column.name] = kind
    return columns


def _options(state: DeliveredState) -> dict[str, Any]:
    options = dict(state.manifest.options)
    if state.changelog in state.manifest.retention_ms:
        options["retention_ms"] = state.manifest.retention_ms[state.changelog]
    return options
