"""Read a range of a partition as columns: `fetch.read` and the vectorised decoder, in step.

Rebuild, the audits and the Spark source all read like this. Memory is bounded by a few responses,
whatever the size of the range. An incomplete range is an error, never a partial result.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import TypeVar

from eoctl.kafka.ask import collect
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import fetch
from eoctl.kafka.read.chunks import Givers
from eoctl.kafka.read.fetch import READ_COMMITTED, READ_UNCOMMITTED, Chunk, Range
from recovery.errors import EoctlError, IncompleteError, RefusedError
from recovery.formats.batches import batch_epochs
from recovery.formats.columns import Batches, ColumnBatch, decode, decode_headers
from recovery.formats.reader import CorruptError
from recovery.shared.log_position import RecordEpochs

PARTITION_BYTES = 4 << 20

ReadProgress = Callable[[int, int], None]
"""Called with bytes and offsets more, after each response."""

Part = TypeVar("Part", ColumnBatch, Batches)


def read_columns(
    cluster: Cluster,
    offsets: Range,
    *,
    last_stable_offset: int | None = None,
    control: bool = False,
    check_crc: bool = True,
    max_rate: float | None = None,
    progress: ReadProgress | None = None,
    nearest: bool = False,
    givers: Givers | None = None,
    epochs: RecordEpochs | None = None,
) -> AsyncGenerator[ColumnBatch, None]:
    """Yield the records of these offsets, in ascending order, a few MiB at a time.

    last_stable_offset: transactional records at or above it are OPEN; None: the current one. Below
    it every outcome is final, wherever the marker is. control: yield markers too. max_rate: bytes
    per second and broker. nearest: see `fetch.read`; givers: notes the sources of the records.
    epochs: notes the leader epochs of each response's batches before their records are yielded.
    Raises IncompleteError if the range cannot be read to its end or is corrupt, RefusedError for
    messages of the old format.
    """

    def decoded(chunk: Chunk, stable: int) -> Iterator[ColumnBatch]:
        for columns in decode(
            chunk.records,
            chunk.aborted,
            last_stable_offset=stable,
            check_crc=check_crc,
            start=max(offsets.start, chunk.fetch_offset),
            end=offsets.end if chunk.aborted is None else min(stable, offsets.end),
        ):
            if not control and (markers := columns.is_control).any():
                columns = columns.select(~markers)
            yield columns

    return _read(
        cluster,
        offsets,
        decoded,
        last_stable_offset,
        max_rate,
        nearest=nearest,
        progress=progress,
        givers=givers,
        epochs=epochs,
    )


def read_headers(
    cluster: Cluster,
    offsets: Range,
    *,
    last_stable_offset: int | None = None,
    check_crc: bool = True,
    max_rate: float | None = None,
    nearest: bool = False,
) -> AsyncGenerator[Batches, None]:
    """Yield the headers of all batches that overlap these offsets, markers too, undecoded.

    The first batch may begin before them, the last end after them. Otherwise as `read_columns`.
    """

    def decoded(chunk: Chunk, stable: int) -> Iterator[Batches]:
        yield decode_headers(
            chunk.records, chunk.aborted, last_stable_offset=stable, check_crc=check_crc
        ).reaching(max(offsets.start, chunk.fetch_offset), offsets.end)

    return _read(cluster, offsets, decoded, last_stable_offset, max_rate, nearest=nearest)


async def _read(
    cluster: Cluster,
    range_: Range,
    decoded: Callable[[Chunk, int], Iterator[Part]],
    stable: int | None,
    max_rate: float | None,
    *,
    nearest: bool,
    progress: ReadProgress | None = None,
    givers: Givers | None = None,
    epochs: RecordEpochs | None = None,
) -> AsyncGenerator[Part, None]:
    """Read up to the last stable offset with the lists of aborted transactions, then without."""
    if stable is None:
        stable = await _last_stable_offset(cluster, range_)
    loop = asyncio.get_running_loop()
    passes = (
        (READ_COMMITTED, range_.start, min(stable, range_.end)),
        (READ_UNCOMMITTED, max(stable, range_.start), range_.end),
    )
    with ThreadPoolExecutor(1, "eoctl-decode") as thread:  # the connection is read meanwhile
        for isolation, start, end in passes:
            if start >= end:
                continue
            stream = fetch.read(
                cluster,
                [Range(range_.topic, range_.partition, start, end)],
                isolation=isolation,
                partition_bytes=PARTITION_BYTES,
                max_rate=max_rate,
                nearest=nearest,
            )
            position = start
            async with aclosing(stream):
                async for item in stream:
                    if givers is not None:
                        givers.add(item)
                    if not isinstance(item, Chunk):
                        if item.error is not None:
                            raise _not_read(item)
                        now, size = end, 0
                    else:
                        if epochs is not None:
                            epochs.add(batch_epochs(item.records))
                        parts = decoded(item, stable)
                        while True:
                            try:
                                part = await loop.run_in_executor(thread, next, parts, None)
                            except (CorruptError, RefusedError) as error:
                                raise _within(error, range_) from error
                            if part is None:
                                break
                            if len(part):
                                yield part
                        now, size = min(item.next_offset, end), len(item.records)
                    if progress is not None:
                        progress(size, now - position)
                    position = now


def _within(error: CorruptError | RefusedError, range_: Range) -> EoctlError:
    partition = f"{range_.topic}-{range_.partition}"
    where = f"{partition}, {error.where}" if error.where else partition
    return type(error)(error.what, where=where, remedy=error.remedy)


async def _last_stable_offset(cluster: Cluster, range_: Range) -> int:
    metadata = await cluster.metadata([range_.topic])
    topics = metadata.topics.values()
    partitions = [p for t in topics for p in t.partitions if p.partition == range_.partition]
    facts, missing = await collect.partition_offsets(cluster, topics, partitions)
    if not facts or facts[0].last_stable_offset is None:
        why = missing[0].detail if missing else "no such partition"
        raise IncompleteError(why, where=f"{range_.topic}-{range_.partition}")
    return facts[0].last_stable_offset


def _not_read(ended: fetch.Ended) -> IncompleteError:
    return IncompleteError(
        f"could not be read from offset {ended.position} on: {ended.detail} ({ended.error})",
        where=f"{ended.topic}-{ended.partition}",
    )
