"""`runbook`: all that is open in a cluster, with what is needed to write down what to do now."""

import time

from eoctl.operations.diagnose.status import status_of
from eoctl.operations.diagnose.why import id_row, rows_until
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.inspect.source import Source
from eoctl.settings.context import Context
from recovery.diagnose.diagnosis import ORDER, Diagnosis
from recovery.facts import PartitionFacts
from recovery.inspect.observation import Settings
from recovery.rows.answers import Answer, error_rows

MOST_TOLD = 100
"""Partitions that are told one by one, the worst first: each is read to count what waits."""


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
    """Return the stories of what is held, and of ids that hold nothing; the rest is `status`'s.

    seconds: for all of it. A partition whose story does not fit in has a row of what the diagnosis
    knows, and is among the errors. extra: also `left_out`, how many held partitions are not among
    the rows.
    """
    until = None if seconds is None else time.monotonic() + seconds - TO_WRITE_SECONDS
    d = await source.diagnose(Scope(), settings, pause=pause)
    answer = await status_of(source, context, d)
    held = _worst_first(d)
    rows, missing, cut = await rows_until(source, context, d, held[:MOST_TOLD], until)
    rows += [await id_row(source, context, d, j) for j in d.ids]
    return answer.but(
        schema="runbook",
        rows=rows,
        errors=[*answer.errors, *error_rows(cut)],
        extra={**answer.extra, "left_out": max(0, len(held) - MOST_TOLD)},
        notes=[*d.notes, *(f"not seen: {m.detail}" for m in missing if m not in d.missing)],
    )


def _worst_first(d: Diagnosis) -> list[PartitionFacts]:
    severity = {j.about.topic_partition: ORDER.index(j.verdict.name) for j in reversed(d.judged)}
    return sorted(
        (p for p in d.partitions if p.held),
        key=lambda p: severity.get((p.topic, p.partition), len(ORDER)),
    )
