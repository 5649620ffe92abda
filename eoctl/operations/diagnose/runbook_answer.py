"""`runbook`: collect all open transactions of a cluster, with what a note on next steps needs."""

import time

from eoctl.operations.diagnose.status_answer import status_of, status_seen
from eoctl.operations.diagnose.why_answer import id_row, id_row_seen, in_time, rows_until
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.inspect.source import Source
from eoctl.settings.context import Context
from recovery.answers import Answer, error_rows
from recovery.diagnose.diagnosis import ORDER, Diagnosis
from recovery.facts import Missing, PartitionFacts
from recovery.inspect.observation import Settings
from recovery.times import not_done_within
from recovery.values import replace

OF_JUDGING = 0.7
"""Of the time; where judging takes longer, the page is made of its first look."""
MOST_LISTED = 100
"""Partitions that are listed one by one, the worst first: each is read to count what waits."""


TO_WRITE_SECONDS = 2.0
"""Kept of the time for the ids that hold nothing, and for writing the page."""


async def runbook(
    source: Source,
    context: Context,
    settings: Settings,
    *,
    pause: float,
    seconds: float | None = None,
) -> Answer:
    """Return the stories of what is held, and of ids that hold nothing; the rest is in `status`.

    seconds: in total. A partition whose story does not fit in has a row with what the diagnosis
    knows, and is among the errors. extra: also `left_out`, how many held partitions have no row.
    """
    begun = time.monotonic()
    until = None if seconds is None else begun + seconds - TO_WRITE_SECONDS
    looked: list[Diagnosis] = []
    found = await in_time(
        source.diagnose(Scope(), settings, pause=pause, on_first_look=looked.append),
        None if seconds is None else begun + seconds * OF_JUDGING,
    )
    if found is None and not looked:
        raise not_done_within(seconds, "nothing was judged")
    d = found if found is not None else _once(looked[-1])
    answer = await in_time(status_of(source, context, d), until)
    answer = answer or status_seen(context, d)
    held = _worst_first(d)
    rows, missing, cut = await rows_until(source, context, d, held[:MOST_LISTED], until)
    for j in d.ids:
        row = await in_time(id_row(source, context, d, j), until)
        rows.append(row or id_row_seen(context, d, j))
    return replace(
        answer,
        schema="runbook",
        rows=rows,
        errors=[*answer.errors, *error_rows(cut)],
        extra={**answer.extra, "left_out": max(0, len(held) - MOST_LISTED)},
        notes=[*d.notes, *(f"not seen: {m.detail}" for m in missing if m not in d.missing)],
    )


def _worst_first(d: Diagnosis) -> list[PartitionFacts]:
    severity = {j.about.topic_partition: ORDER.index(j.verdict.name) for j in reversed(d.judged)}
    return sorted(
        (p for p in d.partitions if p.held),
        key=lambda p: severity.get(p.topic_partition, len(ORDER)),
    )


def _once(d: Diagnosis) -> Diagnosis:
    """Return a diagnosis of one snapshot that says so."""
    detail = "no time was left for the second look; give more with --timeout"
    return replace(d, missing=(*d.missing, Missing("cluster", "NO_TIME", detail)))
