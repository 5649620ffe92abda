"""`producers --blocks`: show the producer ids a cluster has handed out, from files or ZooKeeper.

Reads only: with a lowered block a cluster would hand out old producer ids again.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from eoctl.host.clock import now_ms
from eoctl.operations.inspect.segment_answer import Findings
from eoctl.stores.segment_files import mapped, partition_of, property_in, segments_in
from recovery.answers import Answer, error_rows
from recovery.errors import UnreachableError, UsageError
from recovery.facts import Missing, known
from recovery.formats.batches import BatchHeader, batch_headers, crc_matches
from recovery.formats.producer_ids import (
    ZOOKEEPER_PATH,
    ProducerIdBlock,
    from_metadata_record,
    from_zookeeper,
)
from recovery.formats.reader import CorruptError
from recovery.formats.records import records
from recovery.inspect.cluster_rows import ProducerBlockRow

METADATA_SNAPSHOT = re.compile(r"([0-9]{20})-[0-9]{10}\.checkpoint")
ZOOKEEPER_SECONDS = 10.0


def in_folder(folder: Path) -> Answer:
    """Return the producer id blocks in a `__cluster_metadata-0` folder of a broker or controller.

    Uses the newest metadata snapshot and the log: what both lack was compacted away.
    """
    topic, partition = partition_of(folder)
    if topic != "__cluster_metadata":
        raise UsageError(
            "holds no producer id blocks",
            where=str(folder),
            remedy="give METADATA_LOG_DIR/__cluster_metadata-0",
        )
    findings = Findings(topic, partition)
    by_last: dict[int, ProducerBlockRow] = {}
    for path in [*_metadata_snapshots(folder), *segments_in(folder)]:
        try:
            for offset, block in _blocks_in(path):
                snapshot = path.suffix == ".checkpoint"
                row = _block_row(block, None if snapshot else offset, path.name)
                # the log shows more of a block than a snapshot does
                if not snapshot or block.last not in by_last:
                    by_last[block.last] = row
        except CorruptError as error:
            findings.broken(path, error)
            break
    return _blocks_answer(
        [by_last[last] for last in sorted(by_last)],
        property_in(folder.parent / "meta.properties", "cluster.id"),
        findings.missing,
    )


def _metadata_snapshots(folder: Path) -> list[Path]:
    names = sorted(p for p in folder.iterdir() if METADATA_SNAPSHOT.fullmatch(p.name))
    return names[-1:]


def _blocks_in(path: Path) -> Iterator[tuple[int, ProducerIdBlock]]:
    data = mapped(path)
    for header in batch_headers(data):
        if header.is_control:
            continue
        if not crc_matches(data, header):
            raise CorruptError("the CRC is wrong", where=f"offset {header.base_offset}")
        yield from _blocks_of(data, header)


def _blocks_of(data: memoryview, header: BatchHeader) -> Iterator[tuple[int, ProducerIdBlock]]:
    for record in records(data, header):
        block = from_metadata_record(record.value) if record.value else None
        # a cluster's first record says that no id was handed out
        if block is not None and block.last >= block.first:
            yield record.offset, block


def in_zookeeper(connect: str) -> Answer:
    """Return the block in ZooKeeper's /latest_producer_id_block. Raises UnreachableError.

    connect: HOST:PORT,...[/CHROOT] as in zookeeper.connect.
    """
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException, NoNodeError
    from kazoo.handlers.threading import KazooTimeoutError

    silent = logging.getLogger("eoctl.zookeeper")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    client = KazooClient(connect, timeout=ZOOKEEPER_SECONDS, read_only=True, logger=silent)
    try:
        client.start(timeout=ZOOKEEPER_SECONDS)
        data, _ = client.get(ZOOKEEPER_PATH)
        rows = [_block_row(from_zookeeper(data), None, ZOOKEEPER_PATH)]
    except NoNodeError:
        rows = []
    except (KazooTimeoutError, KazooException) as error:
        text = "no answer" if isinstance(error, KazooTimeoutError) else type(error).__name__
        raise UnreachableError(f"ZooKeeper: {text}", where=connect) from None
    finally:
        client.stop()
        client.close()
    return _blocks_answer(rows, None, [])


def _block_row(block: ProducerIdBlock, offset: int | None, source: str) -> ProducerBlockRow:
    return ProducerBlockRow(
        first_producer_id=block.first,
        last_producer_id=block.last,
        broker=known(block.broker),
        broker_epoch=known(block.broker_epoch),
        offset=offset,
        source=source,
    )


def _blocks_answer(
    rows: Sequence[ProducerBlockRow], cluster_id: str | None, missing: Sequence[Missing]
) -> Answer:
    return Answer("producers-blocks", cluster_id, now_ms(), rows, error_rows(missing))
