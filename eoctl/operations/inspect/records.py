"""Show the records of one open transaction, and the first that wait for it to end.

Their content goes only to whoever asked: into no bundle, report, recording, plan or journal.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read.fetch import ENOUGH, Ended, Range, read
from eoctl.operations.inspect.beside import Beside, found_beside
from eoctl.operations.inspect.lists import Scope, selected
from eoctl.operations.inspect.record_forms import (
    Format,
    Forms,
    header_rows,
    in_base64,
    own_topic,
)
from eoctl.settings.context import Context
from eoctl.stores.schema_registry import registry_of
from recovery.answers import Answer, error_rows
from recovery.diagnose.held_records import Batch, HeldRecords
from recovery.diagnose.why_rows import WhyRow
from recovery.errors import RefusedError, UsageError
from recovery.facts import HasPartition, Missing, PartitionFacts
from recovery.formats.batches import NO_PRODUCER_ID
from recovery.formats.reader import CorruptError
from recovery.formats.records import Record, records
from recovery.inspect.cluster_rows import BesideRangeRow, RecordRow
from recovery.selectors import parse_selector
from recovery.values import Value, replace

CHUNK_BYTES = 1 << 20
CHUNKS = 64  # read at most, if undecided transactions leave open what waits
MOST = 5  # records of each kind, if nothing else is requested


class Request(HasPartition, Value):
    """Which transaction, and what is shown. most: records of each kind. beside: an output."""

    topic: str
    partition: int
    producer_id: int
    start_offset: int
    most: int = MOST
    keys_only: bool = False
    headers: bool = False
    beside: Beside | None = None


def permit(context: Context) -> None:
    """Raise RefusedError in a context that shows no records."""
    if not context.show_records:
        raise RefusedError(
            "show_records = false in this context: keys and values are not shown",
            where=context.title,
            remedy="ask whoever set it, or look from a context that may show them",
        )


def forms_of(context: Context, format_: Format = "auto") -> Forms:
    """Return how this context's records are decoded. Raises UsageError."""
    return Forms(format_, registry_of(context.properties))


async def of_transaction(
    cluster: Cluster, context: Context, request: Request, forms: Forms
) -> Answer:
    """Return the records of the transaction, then the first that wait, each by offset.

    Raises UsageError if no transaction of that producer begins at that offset, RefusedError in a
    context that shows no records.
    """
    permit(context)
    where = request.topic_partition
    scope = Scope((parse_selector(str(where)),))
    metadata, partitions, missing = await selected(cluster, scope)
    facts, more = await collect.partition_offsets(cluster, metadata.topics.values(), partitions)
    missing += more
    rows: Sequence[RecordRow] = ()
    extra: Mapping[str, Any] = {}
    ranges: Sequence[BesideRangeRow] = ()
    if facts and facts[0].error is None and facts[0].high_watermark is not None:
        await _refuse_later_start(cluster, partitions, request)
        found, more = await _read(cluster, facts[0], request)
        missing += more
        contents, more = _decompressed(found, request.most)
        missing += [replace(m, topic=where.topic, partition=where.partition) for m in more]
        rows = await asyncio.to_thread(_rows, request, contents, forms)
        if request.beside is not None:
            mine = [record for which, record, _ in contents if which == "held"]
            answers, ranges, more = await found_beside(cluster, request.beside, mine)
            rows = [replace(row, beside=answers.get(row.offset)) for row in rows]
            missing += more
        extra = _extra(facts[0], found)
    return Answer(
        "txn-records",
        cluster.cluster_id,
        now_ms(),
        rows,
        error_rows(dict.fromkeys(missing)),
        extra={
            "producer_id": request.producer_id,
            "start_offset": request.start_offset,
            **{name: extra.get(name) for name in EXTRA},
            "beside": [r.json_values() for r in ranges] if request.beside is not None else None,
        },
    )


async def of_stories(cluster: Cluster, context: Context, answer: Answer, most: int) -> Answer:
    """Return the answer of `why` with the records of each partition's transaction.

    Raises RefusedError in a context that shows no records.
    """
    forms = forms_of(context)
    rows, errors = [], list(answer.errors)
    for row in answer.rows:
        assert isinstance(row, WhyRow)
        held = row.held_by
        if row.topic is None or row.partition is None or held is None:
            rows.append(row)
            continue
        if held.producer_id is None or held.start_offset is None:
            unknown = Missing(
                "partition",
                "NO_START_OFFSET",
                "its records are not shown: where the transaction begins is not known",
                topic=row.topic,
                partition=row.partition,
            )
            errors += error_rows([unknown])
            rows.append(row)
            continue
        request = Request(row.topic, row.partition, held.producer_id, held.start_offset, most)
        try:
            mine = await of_transaction(cluster, context, request, forms)
        except UsageError as error:  # it has ended since
            moved = Missing("partition", "MOVED_ON", error.sentence, None, *request.topic_partition)
            errors += error_rows([moved])
            rows.append(row)
            continue
        errors += [e for e in mine.errors if e not in errors]
        shown = [r for r in mine.rows if isinstance(r, RecordRow)]
        rows.append(replace(row, records=shown))
    return replace(answer, rows=rows, errors=errors)


async def _read(
    cluster: Cluster, p: PartitionFacts, request: Request
) -> tuple[HeldRecords, list[Missing]]:
    """Read from the transaction's start until enough is known. Raises UsageError without one."""
    start, high = request.start_offset, p.high_watermark or 0
    is_deleted = start < (p.log_start_offset or 0)
    low = max(start, p.log_start_offset or 0)
    found = HeldRecords(request.producer_id, low, high, request.most)
    if low >= high:
        if not is_deleted:
            raise _no_such(request, None)
        return found, []
    missing: list[Missing] = []
    here = Range(p.topic, p.partition, low, high)
    reading = read(cluster, [here], partition_bytes=CHUNK_BYTES, most_chunks=CHUNKS)
    async with aclosing(reading) as items:
        async for item in items:
            if isinstance(item, Ended):
                if item.error not in (None, ENOUGH):
                    missing.append(
                        Missing("partition", item.error, item.detail, p.leader, *p.topic_partition)
                    )
                continue
            found.add(item.records)
            if found.enough or not (is_deleted or found.own):
                break
    if not is_deleted and found.first_read is not None:
        first = found.own[0].header.base_offset if found.own else None
        if first != start:
            raise _no_such(request, first)
    return found, missing


async def _refuse_later_start(
    cluster: Cluster, partitions: Sequence[PartitionMetadata], request: Request
) -> None:
    """Raise UsageError if the producer's open transaction begins earlier: a batch does not tell."""
    by_partition, _ = await collect.producers(cluster, partitions)
    for producer in by_partition.get(request.topic_partition, ()):
        start = producer.current_txn_start_offset
        mine = producer.producer_id == request.producer_id
        if mine and start is not None and start < request.start_offset:
            raise _no_such(request, start)


def _no_such(request: Request, first: int | None) -> UsageError:
    also = "" if first is None else f"; it has one at {first}"
    return UsageError(
        f"no transaction of producer id {request.producer_id} begins at offset "
        f"{request.start_offset}{also}",
        where=str(request.topic_partition),
        remedy=f"`eoctl producers {request.topic_partition}` shows where open ones begin",
    )


EXTRA = (
    "log_start_offset",
    "last_stable_offset",
    "high_watermark",
    "read_to",
    "held_records",
    "waiting_records",
    "aborted_records",
    "other_open_records",
    "ended",
)


def _extra(p: PartitionFacts, found: HeldRecords) -> dict[str, Any]:
    """Return what the envelope says of all records up to `read_to`, shown or not."""
    ended = found.ended
    return {
        "log_start_offset": p.log_start_offset,
        "last_stable_offset": p.last_stable_offset,
        "high_watermark": p.high_watermark,
        "read_to": found.next_offset,
        "held_records": found.records(found.own),
        "waiting_records": found.records(found.waiting),
        "aborted_records": found.of_others("aborted"),
        "other_open_records": found.of_others("open"),
        "ended": None if ended is None else ended._asdict(),
    }


Which = Literal["held", "waiting"]
Content = tuple[Which, Record, int | None]
"""What a record is, the record, and its producer id."""


def _decompressed(found: HeldRecords, most: int) -> tuple[list[Content], list[Missing]]:
    """Return the first records of each kind, and the batches that could not be opened."""
    contents: list[Content] = []
    missing: list[Missing] = []
    kinds: tuple[tuple[Which, list[Batch]], ...] = (
        ("held", found.own),
        ("waiting", found.waiting),
    )
    for which, batches in kinds:
        left = most
        for batch in batches:
            try:
                mine = list(_first(batch, found, left))
            except CorruptError as error:
                missing.append(Missing("partition", "NOT_OPENED", error.sentence))
                continue
            pid = batch.header.producer_id
            contents += [(which, r, None if pid == NO_PRODUCER_ID else pid) for r in mine]
            left -= len(mine)
            if left <= 0:
                break
    return contents, missing


def _first(batch: Batch, found: HeldRecords, most: int) -> Iterator[Record]:
    """Yield the first records of a batch that are still in the log. Raises CorruptError."""
    for record in records(batch.buffer, batch.header):
        if most <= 0:
            return
        if record.offset >= found.low:
            most -= 1
            yield record


def _rows(request: Request, contents: Sequence[Content], forms: Forms) -> list[RecordRow]:
    """Decode the records. May ask the schema registry: call it in a thread."""
    return [_row(request, which, record, pid, forms) for which, record, pid in contents]


def _row(
    request: Request, which: Which, record: Record, producer_id: int | None, forms: Forms
) -> RecordRow:
    commit = own_topic(request.topic, record)
    key, value = commit or (forms.of(record.key), None)
    if value is None or request.keys_only:
        value = forms.of(None if request.keys_only else record.value)
    problems = (("key", key.problem), ("value", value.problem))
    return RecordRow(
        topic=request.topic,
        partition=request.partition,
        which=which,
        offset=record.offset,
        timestamp=record.timestamp,
        producer_id=producer_id,
        key=in_base64(record.key),
        key_decoded=key.content,
        key_format=key.format,
        value=None if request.keys_only else in_base64(record.value),
        value_decoded=value.content,
        value_format=value.format,
        value_bytes=None if record.value is None else len(record.value),
        headers=header_rows(record) if request.headers else None,
        problem="; ".join(f"{name}: {text}" for name, text in problems if text) or None,
    )
