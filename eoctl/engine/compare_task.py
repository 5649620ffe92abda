"""Compare two finished states, some keys of a partition at a time, on either engine."""

from typing import TYPE_CHECKING

from eoctl.stores.state.finished_rows import StateRows, parts_of
from recovery.facts import HasPartition
from recovery.state.changelogs.changelog import changelog_format
from recovery.state.compare import Compared, CompareFound
from recovery.state.manifest import Manifest
from recovery.values import Value

if TYPE_CHECKING:
    import pyarrow as pa


class CompareTask(HasPartition, Value):
    """The keys of a partition with a hash of `part` modulo `parts`; parts 0: its digests agree, and
    the files are compared with their manifests alone."""

    topic: str
    partition: int
    part: int = 0
    parts: int = 0


def compare_tasks(a: Manifest, b: Manifest) -> list[CompareTask]:
    """Return the tasks for all partitions of both states, in the order of the answer."""
    mine, theirs = a.by_partition(), b.by_partition()
    tasks = []
    for partition in sorted(mine.keys() | theirs.keys()):
        digests = [s[partition].digest if partition in s else None for s in (mine, theirs)]
        if digests[0] == digests[1]:
            tasks.append(CompareTask(*partition))
            continue
        parts = parts_of(max(d.rows for d in digests if d is not None))
        tasks += [CompareTask(*partition, part, parts) for part in range(parts)]
    return tasks


def compared(
    left: StateRows, right: StateRows, task: CompareTask, most: int, *, timestamps: bool
) -> CompareFound:
    """Return what differs. most: differences that are kept, the first ones.

    Raises RefusedError for files that are not those of their manifest.
    """
    result, partition = Compared(most), task.topic_partition
    if task.parts:
        form = changelog_format(left.manifest.format, left.manifest.options)
        mine, theirs = (_rows(side, task) for side in (left, right))
        result.add(form, mine, theirs, timestamps=timestamps)
        return result.result()
    # a digest is the manifest's word; it holds for these files only while they exist
    for side in (left, right):
        side.check(partition)
    return result.result()


def _rows(side: StateRows, task: CompareTask) -> "pa.Table":
    import pyarrow as pa

    from recovery.formats.columns import rows_schema

    if task.topic_partition not in side.manifest.by_partition():
        return pa.Table.from_batches([], schema=rows_schema())
    return side.rows(task.topic_partition, task.part, task.parts)
