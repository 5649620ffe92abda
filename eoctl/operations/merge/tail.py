"""Show a merge log at a glance, for the dashboard: what a replay would do, and newest entries."""

import asyncio
from pathlib import Path

from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.merge import planning as merge
from eoctl.operations.merge.read import read_log
from eoctl.operations.restart.restart_request import read_app_file
from recovery.answers import Answer
from recovery.errors import UsageError
from recovery.formats.reader import CorruptError
from recovery.merge.log import merge_format
from recovery.merge.log_rows import MergePlanRow

NEWEST = 20  # entries per partition


async def merge_tail(cluster: Cluster, path: Path) -> Answer:
    """Return the rows of `merge plan` for an application file, with the tip's last entries.

    extra: entries, a list of {partition, merge_offset, topic, input_partition, offset, error}, by
    offset; `merge verify`, which reads everything, reports holes. Raises EoctlError.
    """
    request = merge.of_app(read_app_file(path).app, str(path))
    if request.output is None:
        raise UsageError("names no output: how far it came is counted there", where=str(path))
    answer = await merge.plan(cluster, request)
    entries: list[dict[str, object]] = []
    for row in answer.rows:
        assert isinstance(row, MergePlanRow)
        entries += await asyncio.to_thread(_newest, cluster, request, row)
    return Answer(
        answer.schema,
        answer.cluster_id,
        answer.collected_at,
        answer.rows,
        answer.errors,
        extra={"entries": entries},
    )


def _newest(cluster: Cluster, request: merge.Merge, row: MergePlanRow) -> list[dict[str, object]]:
    decode = merge_format(request.format).decode
    partition = row.topic_partition
    rows: list[dict[str, object]] = []
    for messages in read_log(
        cluster.settings, partition, max(row.start, row.tip - NEWEST), row.tip
    ):
        for m in messages:
            position: dict[str, object] = {"partition": row.partition, "merge_offset": m.offset()}
            try:
                entry = decode(m.key(), m.value())
            except CorruptError as error:
                rows.append({**position, "error": error.what})
                continue
            rows.append(
                {
                    **position,
                    "topic": entry.topic,
                    "input_partition": entry.partition,
                    "offset": entry.offset,
                }
            )
    return rows
