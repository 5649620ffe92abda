"""`producers --segment` and `producers --blocks`: a broker's own files instead of a cluster."""

import sys
from collections.abc import Sequence
from pathlib import Path

from eoctl.cli.emit import emit
from eoctl.cli.options import Output
from eoctl.operations.inspect import producer_blocks, segment_answer
from eoctl.render.columns.inspect import BLOCKS, PRODUCERS
from eoctl.render.sanitise import visible
from recovery.errors import UsageError
from recovery.inspect.cluster_rows import SegmentRow


def show_segments(output: Output, folders: Sequence[str], producer_ids: Sequence[int]) -> int:
    """The producers of partition folders, and in words what else their files tell."""
    answer = segment_answer.producers([Path(f) for f in folders], producer_ids)
    emit(answer, PRODUCERS, output)
    if output.output in ("table", "wide"):
        segments = answer.extra["segments"]
        for line in (line for s in segments for line in _summary(SegmentRow.read(s))):
            print(visible(line, spaces=False), file=sys.stderr)
    return answer.exit_status


def _summary(s: SegmentRow) -> list[str]:
    words = [
        f"{s.topic_partition}: log {s.log_start_offset} to {s.log_end_offset}",
        f"LSO {s.last_stable_offset} as far as files show",
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
