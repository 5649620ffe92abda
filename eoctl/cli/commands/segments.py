"""`producers --segment` and `producers --blocks`: a broker's own files instead of a cluster."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from eoctl.cli.commands.inspect import PRODUCERS, with_gaps
from eoctl.cli.emit import View, emit
from eoctl.cli.options import Output
from eoctl.operations.inspect import producer_blocks
from eoctl.operations.inspect import segments as operation
from eoctl.render.sanitise import visible
from eoctl.render.tables import Column
from eoctl.render.words import counted
from recovery.errors import UsageError
from recovery.rows.segments import ProducerBlockRow, SegmentRow


def _cells(row: ProducerBlockRow) -> Mapping[str, object]:
    return {
        "first": row.first_producer_id,
        "last": row.last_producer_id,
        "broker": row.broker,
        "broker_epoch": row.broker_epoch,
        "offset": row.offset,
        "source": row.source,
    }


BLOCKS = View(
    columns=(
        Column("first", "FIRST PID", "number"),
        Column("last", "LAST PID", "number"),
        Column("broker", "BROKER", "number"),
        Column("broker_epoch", "BROKER EPOCH", "number", wide_only=True),
        Column("offset", "OFFSET", "number", wide_only=True),
        Column("source", "SOURCE", "name"),
    ),
    cells=_cells,
    name_keys=("first_producer_id", "last_producer_id"),
    fields=tuple(ProducerBlockRow.model_fields),
    summary=lambda answer: with_gaps(
        f"{counted(len(answer.rows), 'block')} of producer ids handed out", answer
    ),
)


def show_segments(output: Output, folders: Sequence[str], producer_ids: Sequence[int]) -> int:
    """The producers of partition folders, and in words what else their files tell."""
    answer = operation.producers([Path(f) for f in folders], producer_ids)
    emit(answer, PRODUCERS, output)
    if output.output in ("table", "wide"):
        found = answer.extra["segments"]
        assert isinstance(found, list)
        for line in (line for s in found for line in _said(SegmentRow.model_validate(s))):
            print(visible(line, spaces=False), file=sys.stderr)
    return answer.exit_status


def _said(s: SegmentRow) -> list[str]:
    words = [
        f"{s.topic}:{s.partition}: log {s.log_start_offset} to {s.log_end_offset}",
        f"LSO {s.last_stable_offset} as far as files tell",
        f"HW {'not known' if s.high_watermark is None else s.high_watermark} by its checkpoint",
        "no snapshot" if s.snapshot_offset is None else f"snapshot of {s.snapshot_offset}",
        f"{s.aborted_transactions} aborted in the index",
        "cleanly shut down" if s.clean_shutdown else "its broker runs, or was killed",
    ]
    return [", ".join(words), *(f"note: {note}" for note in s.notes)]


def show_blocks(output: Output, folders: Sequence[str], zookeeper: str | None) -> int:
    """The producer id blocks of a metadata log folder or of ZooKeeper."""
    if zookeeper is not None and not folders:
        answer = producer_blocks.in_zookeeper(zookeeper)
    elif zookeeper is None and len(folders) == 1:
        answer = producer_blocks.in_folder(Path(folders[0]))
    else:
        raise UsageError(
            "give one place to look",
            where="--blocks",
            remedy="--segment METADATA_LOG_DIR/__cluster_metadata-0, or --zookeeper CONNECT",
        )
    emit(answer, BLOCKS, output)
    return answer.exit_status
