"""`runbook`: all that is open in a cluster, with what is needed to write down what to do now."""

from eoctl.operations.diagnose.status import status_of
from eoctl.operations.diagnose.why import id_row, rows_of
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.inspect.source import Source
from eoctl.settings.context import Context
from recovery.diagnose.diagnosis import ORDER, Diagnosis
from recovery.facts import PartitionFacts
from recovery.inspect.observation import Settings
from recovery.rows.answers import Answer

MOST_TOLD = 100
"""Partitions that are told one by one, the worst first: each is read to count what waits."""


async def runbook(source: Source, context: Context, settings: Settings, *, pause: float) -> Answer:
    """Return the stories of what is held, and of ids that hold nothing; the rest is `status`'s.

    extra: also `left_out`, how many held partitions are not among the rows.
    """
    d = await source.diagnose(Scope(), settings, pause=pause)
    answer = await status_of(source, context, d)
    held = _worst_first(d)
    rows, missing = await rows_of(source, context, d, held[:MOST_TOLD])
    rows += [await id_row(source, context, d, j) for j in d.ids]
    return answer.but(
        schema="runbook",
        rows=rows,
        extra={**answer.extra, "left_out": max(0, len(held) - MOST_TOLD)},
        notes=[*d.notes, *(f"not seen: {m.detail}" for m in missing if m not in d.missing)],
    )


def _worst_first(d: Diagnosis) -> list[PartitionFacts]:
    severity = {j.about.topic_partition: ORDER.index(j.verdict.name) for j in reversed(d.judged)}
    return sorted(
        (p for p in d.partitions if p.held),
        key=lambda p: severity.get((p.topic, p.partition), len(ORDER)),
    )
