"""`state compare`: compare a state with another, its live changelog, a dump or Spark's state.

Checks files against their manifest, then compares digests: rows are decoded only if these differ.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from eoctl.engine.compare_task import compare_tasks, compared
from eoctl.host.clock import now_ms
from eoctl.operations.state import spark_state
from eoctl.operations.state.delivery import named
from eoctl.operations.state.live_state import live_state
from eoctl.operations.state.rebuild_answer import NOT_COMPLETE, RebuildProgress, not_complete
from eoctl.operations.state.spark_compare import OnSpark
from eoctl.operations.state.spark_state import SparkChoice, Spread
from eoctl.settings.context import Context
from eoctl.settings.folders import local_path
from eoctl.stores import private
from eoctl.stores.state import folder as state_folder
from eoctl.stores.state.finished_rows import Dump, StateRows, parts_of, read_dump
from recovery.answers import Answer
from recovery.errors import RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.row import ErrorRow
from recovery.state.changelogs.changelog import ChangelogFormat, changelog_format
from recovery.state.compare import Compared, CompareFound, EntryDifference, Side
from recovery.state.manifest import Manifest
from recovery.state.state_jobs import NamedState
from recovery.state.state_rows import StateCompareRow, StateSparkStore, StateValue
from recovery.times import format_duration
from recovery.values import Value, replace

if TYPE_CHECKING:
    import pyarrow as pa

LIVE = "live"
ONCE = "only states in which a key has one value can be compared with a checkpoint's"


class Comparison(Value):
    """The request of `state compare`. a: a state's folder, address or manifest; b: one, too, or a
    dump, or `live`, or spark:DIR, a checkpoint.

    at: the cut of `live`, None: that of a. most: entries that are shown. key_serde, value_serde:
    for a's bytes, against a checkpoint. on: None: in this process. scratch: the folder or address
    within which `live` is rebuilt, None: a temporary folder.
    """

    a: str
    b: str
    at: str | None = None
    most: int = 20
    timestamps: bool = True
    key_serde: str = "string"
    value_serde: str = "string"
    spark: SparkChoice = msgspec.field(default_factory=SparkChoice)
    on: OnSpark | None = None
    scratch: str | None = None


def compare(
    context: Callable[[], Context],
    comparison: Comparison,
    timeout: float | None,
    progress: RebuildProgress | None = None,
) -> Answer:
    """Compare two states. context: called only for `live`. Raises UsageError, RefusedError."""
    left, mine = _opened(comparison.a)
    if comparison.b == LIVE:
        place = comparison.at, comparison.scratch
        with live_state(
            context(), left.manifest, *place, comparison.on, timeout, progress
        ) as folder:
            right, theirs = _opened(folder)
            return _states(left, right, comparison, (mine, theirs))
    if comparison.at is not None:
        raise UsageError("only the live changelog is cut", where="--at")
    if comparison.scratch is not None:
        raise UsageError("only the live changelog is rebuilt", where="--scratch")
    if spark_state.is_checkpoint(comparison.b):
        spark_state.check_comparable(left)  # before Spark starts
        with spark_state.read(comparison.b, comparison.spark, timeout) as state:
            return against_checkpoint(left, comparison, state)
    if comparison.b.endswith((".jsonl", ".ndjson")):
        if comparison.on is not None:
            raise UsageError("a dump is compared in this process", where="--engine spark")
        return _dumped(left, read_dump(local_path(comparison.b)), comparison)
    right, theirs = _opened(comparison.b)
    return _states(left, right, comparison, (mine, theirs))


def _opened(given: str) -> tuple[StateRows, NamedState]:
    """Return a state, and how executors find the same one."""
    storage, manifest, content = state_folder.read_bytes(given)
    return StateRows(storage, manifest), named(given, hashlib.sha256(content).hexdigest())


def _states(
    left: StateRows, right: StateRows, comparison: Comparison, both: tuple[NamedState, NamedState]
) -> Answer:
    """Compare two states. both: the same ones, for executors."""
    first, second = left.manifest, right.manifest
    if first.format != second.format or first.retention_ms != second.retention_ms:
        raise RefusedError(
            f"one state is {_kind(first)}, the other {_kind(second)}: their entries mean different "
            "things"
        )
    tasks, most = compare_tasks(first, second), comparison.most
    timestamps, on = comparison.timestamps, comparison.on
    found: Iterator[CompareFound]
    if on is None:
        found = (compared(left, right, one, most, timestamps=timestamps) for one in tasks)
    else:
        found = on.found(*both, most, timestamps=timestamps)
    rows: list[StateCompareRow] = []
    shown: list[StateCompareRow] = []
    told = zip(tasks, found, strict=True)
    for partition, of_partition in groupby(told, key=lambda pair: pair[0].topic_partition):
        whole = Compared(most - len(shown))
        for _, one in of_partition:
            whole.join(one)
        sizes = _size(first, partition), _size(second, partition)
        rows.append(_row(partition, *sizes, whole))
        shown += [_entry(partition, f) for f in whole.found]
    errors = [*_unproven(first, comparison.a), *_unproven(second, comparison.b)]
    same_cut = first.cut.topics == second.cut.topics
    return _answer(comparison, first, rows, shown, errors, same_cut=same_cut)


def _size(manifest: Manifest, partition: TopicPartition) -> int:
    known = manifest.by_partition().get(partition)
    return 0 if known is None else known.digest.rows


def _unproven(manifest: Manifest, side: str) -> list[ErrorRow]:
    """Return why the compared entries may not be the complete state."""
    errors = [replace(row, detail=f"{side}: {row.detail}") for row in not_complete(manifest)]
    if not errors and not manifest.complete:
        why = f"{side}: its manifest says that it is not complete"
        errors.append(ErrorRow(scope="state", error=NOT_COMPLETE, detail=why))
    return errors


def _kind(manifest: Manifest) -> str:
    retention = sorted(set(manifest.retention_ms.values()))
    kept = " and ".join(format_duration(each / 1000) for each in retention)
    return manifest.format + (f" kept {kept}" if retention else "")


def _dumped(left: StateRows, dump: Dump, comparison: Comparison) -> Answer:
    """Compare with a dump, which has no digest; without partitions, all are one."""
    import pyarrow as pa

    manifest = left.manifest
    form = changelog_format(manifest.format, manifest.options)
    timestamps = comparison.timestamps and dump.timestamps
    rows: list[StateCompareRow] = []
    shown: list[StateCompareRow] = []
    by_partition = manifest.by_partition()
    if dump.partitions:
        strange = [
            partition
            for partition in dump.rows
            if partition not in by_partition
            and not any(partition == (None, p) for _, p in by_partition)
        ]
        if strange:
            raise UsageError(f"the state has no partition {strange[0]}", where=comparison.b)
        if len(manifest.cut.topics) > 1 and any(topic is None for topic, _ in dump.rows):
            raise UsageError(
                "the state has several topics, the dump names none", where=comparison.b
            )
        for partition, p in by_partition.items():
            compared = Compared(comparison.most - len(shown))
            mine = left.rows(partition, 0, 1)
            theirs = dump.of(partition)
            other = _none() if theirs is None else theirs
            _add(compared, form, mine, other, timestamps, comparison.b)
            rows.append(_row(partition, p.digest.rows, len(other), compared))
            shown += [_entry(partition, f) for f in compared.found]
    else:
        compared = Compared(comparison.most)
        mine = pa.concat_tables([left.rows(partition, 0, 1) for partition in by_partition])
        other = pa.concat_tables([_none(), *dump.rows.values()])
        _add(compared, form, mine, other, timestamps, comparison.b)
        rows.append(_row(None, len(mine), len(other), compared))
        shown = [_entry(None, f) for f in compared.found]
    errors = _unproven(manifest, comparison.a)
    return _answer(comparison, manifest, rows, shown, errors, same_cut=None)


def against_checkpoint(
    left: StateRows, comparison: Comparison, state: spark_state.CheckpointState
) -> Answer:
    """Compare a state with a Spark checkpoint's: as texts, without partitions and timestamps.

    Raises RefusedError for a state with windows or versions, UsageError for what a serde cannot
    read and for a key with several values.
    """
    spark_state.check_comparable(left)
    keys = spark_state.text_by(comparison.key_serde, "--key-serde")
    values = spark_state.text_by(comparison.value_serde, "--value-serde")
    compared = Compared(comparison.most)
    parts = parts_of(max(left.manifest.digest.rows, state.entries))
    with private.temporary("compare") as folder:
        mine, theirs = Spread(folder / "a", parts), Spread(folder / "b", parts)
        spark_state.spread_state(left, keys, values, mine)
        spark_state.spread_checkpoint(state, keys, values, theirs)
        form = changelog_format("plain", {})
        for part in range(parts):
            _add(compared, form, mine.part(part), theirs.part(part), False, comparison.b, ONCE)
    return _answer(
        comparison,
        left.manifest,
        [_row(None, mine.rows, theirs.rows, compared)],
        [_entry(None, f) for f in compared.found],
        _unproven(left.manifest, comparison.a),
        same_cut=None,
        spark=state.store,
    )


def _add(
    compared: Compared,
    form: ChangelogFormat,
    mine: "pa.Table",
    other: "pa.Table",
    timestamps: bool,
    where: str,
    remedy: str = "name each line's partition",
) -> None:
    try:
        compared.add(form, mine, other, timestamps=timestamps)
    except ValueError as error:
        raise UsageError(str(error), where=where, remedy=remedy) from None


def _none() -> "pa.Table":
    import pyarrow as pa

    from recovery.formats.columns import rows_schema

    return pa.Table.from_batches([], schema=rows_schema())


def _row(
    topic_partition: TopicPartition | None, rows_a: int, rows_b: int, compared: Compared
) -> StateCompareRow:
    return StateCompareRow(
        topic=topic_partition[0] if topic_partition else None,
        partition=topic_partition[1] if topic_partition else None,
        difference=None if compared.equal else "different",
        rows_a=rows_a,
        rows_b=rows_b,
        only_a=compared.only_a,
        only_b=compared.only_b,
        different=compared.different,
    )


def _entry(topic_partition: TopicPartition | None, difference: EntryDifference) -> StateCompareRow:
    return StateCompareRow(
        topic=topic_partition[0] if topic_partition else None,
        partition=topic_partition[1] if topic_partition else None,
        difference=difference.kind,  # type: ignore[arg-type]
        key=base64.b64encode(difference.key).decode(),
        key_text=text(difference.key),
        a=_value(difference.a),
        b=_value(difference.b),
    )


def _value(side: Side | None) -> StateValue | None:
    if side is None:
        return None
    content = side.value
    return StateValue(
        timestamp=side.timestamp,
        value=None if content is None else base64.b64encode(content).decode(),
        value_text=None if content is None else text(content),
    )


def text(content: bytes) -> str | None:
    """Return bytes as text; None if they are not readable text."""
    try:
        decoded = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return decoded if decoded.isprintable() else None


def _answer(
    comparison: Comparison,
    manifest: Manifest,
    rows: list[StateCompareRow],
    shown: list[StateCompareRow],
    errors: list[ErrorRow],
    *,
    same_cut: bool | None,
    spark: StateSparkStore | None = None,
) -> Answer:
    different = any(row.difference is not None for row in rows)
    return Answer(
        schema="state-compare",
        cluster_id=manifest.cluster_id,
        collected_at=now_ms(),
        rows=[*rows, *shown],
        errors=errors,
        extra={
            "a": comparison.a,
            "b": comparison.b,
            "equal": not different,
            "same_cut": same_cut,
            "shown": len(shown),
            "engine": "local" if comparison.on is None else "spark",
            **({} if spark is None else {"spark": spark.json_values()}),
        },
        judging=True,
        finding=different,
    )
