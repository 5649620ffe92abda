"""`status`: one screen, the worst first."""

from eoctl.operations.diagnose.verdict_rows import status_rows, unknown_as_missing
from eoctl.operations.inspect.lists import Scope, TxnFilter
from eoctl.operations.inspect.source import Source
from eoctl.settings.context import Context
from recovery.inspect.inspection import OPEN_STATES
from recovery.inspect.observation import Settings
from recovery.rows.answers import Answer, error_rows


async def status(
    source: Source, context: Context, settings: Settings, *, sample_interval: float
) -> Answer:
    """Brokers, partitions held back, open transactions by verdict."""
    found = await source.diagnose(Scope(), settings, sample_interval=sample_interval)
    everywhere = await source.transactions(
        TxnFilter(states=tuple(sorted(OPEN_STATES))), describe=False
    )
    missing = [*found.missing, *(m for m in everywhere.missing if m not in found.missing)]
    return Answer(
        schema="status",
        cluster_id=found.cluster_id,
        collected_at=found.collected_at,
        rows=status_rows(found),
        errors=error_rows([*missing, *unknown_as_missing(found)]),
        extra={
            "context": context.title,
            "read_only": context.read_only,
            "protected": context.protected,
            "transaction_version": found.transaction_version,
            "brokers_up": found.brokers_up,
            "brokers_known": found.brokers_known,
            "scanned": found.scanned,
            "held_back": sum(bool(p.held) for p in found.partitions),
            "held_offsets": sum(p.held or 0 for p in found.partitions),
            "open_transactions": len(everywhere.rows),
            "verdicts": dict(found.counts),
        },
        judging=True,
        finding=bool(found.findings),
    )
