"""`status`: one screen, the worst first."""

from collections.abc import Callable, Mapping

from eoctl.operations.diagnose.recent_contests import with_contests
from eoctl.operations.diagnose.verdict_rows import (
    contest_status,
    status_rows,
    unknown_as_missing,
)
from eoctl.operations.inspect.lists import Scope, TxnFilter
from eoctl.operations.inspect.source import Source
from eoctl.settings.context import Context
from recovery.answers import Answer, error_rows
from recovery.diagnose.diagnosis import Diagnosis, Judged
from recovery.facts import TopicPartition, Transactions
from recovery.inspect.growth.growth_rows import GrowthRow
from recovery.inspect.inspection import OPEN_STATES
from recovery.inspect.observation import Settings
from recovery.values import replace
from recovery.watch.check_rules import TRANSACTION_STATE
from recovery.watch.growth_rules import (
    INTERNAL_TOPICS,
    cleaner_held,
    large_topics,
    most_common_prefix,
)


async def status(
    source: Source,
    context: Context,
    settings: Settings,
    *,
    pause: float,
    on_first_look: Callable[[Answer], None] | None = None,
) -> Answer:
    """Return brokers, held partitions, and open transactions by verdict.

    on_first_look: called before the pause for a second snapshot, with the first one's verdicts.
    """

    def first_look(diagnosis: Diagnosis) -> None:
        if on_first_look is not None:
            on_first_look(_answer(context, diagnosis, diagnosis.transactions))

    diagnosis = await source.diagnose(Scope(), settings, pause=pause, on_first_look=first_look)
    answer = await status_of(source, context, diagnosis)
    growth = await growth_rows(source, diagnosis)
    rows = None if growth is None else [row.json_values() for row in growth]
    return replace(answer, extra={**answer.extra, "growth": rows})


async def growth_rows(source: Source, d: Diagnosis) -> list[GrowthRow] | None:
    """Return what grows and should not. None: nothing was found, and not all was seen.

    What is hidden is no error: nobody asked for it here. A healthy cluster is asked for nothing but
    the sizes of its internal topics.
    """
    held = sorted({j.about.topic for j in d.findings if isinstance(j, Judged)})
    settings, hidden = await source.topic_configs(held) if held else ({}, [])
    compacted = {t for t in held if "compact" in (settings.get(t, {}).get("cleanup.policy") or "")}
    sizes, unseen = await source.log_sizes(INTERNAL_TOPICS)
    rows = [*cleaner_held(d, compacted), *await _large(source, sizes)]
    return None if not rows and (hidden or unseen) else rows


async def _large(source: Source, sizes: Mapping[TopicPartition, int]) -> list[GrowthRow]:
    """Return the large internal topics; of `__transaction_state` with the prefix of most ids."""
    large = large_topics(sizes)
    if not any(row.topic == TRANSACTION_STATE for row in large):
        return large
    listed = await source.transactions(TxnFilter(), describe=False)
    prefix, ids = most_common_prefix(listed.rows)
    return [
        replace(row, prefix=prefix, transactional_ids=ids)
        if row.topic == TRANSACTION_STATE
        else row
        for row in large
    ]


async def status_of(source: Source, context: Context, diagnosis: Diagnosis) -> Answer:
    """Return the status of a completely judged cluster."""
    everywhere = await source.transactions(
        TxnFilter(states=tuple(sorted(OPEN_STATES))), describe=False
    )
    answer = await with_contests(source, _answer(context, diagnosis, everywhere))
    return replace(answer, rows=[*answer.rows, *contest_status(answer.extra["contests"] or ())])


def _answer(context: Context, diagnosis: Diagnosis, everywhere: Transactions) -> Answer:
    missing = [*diagnosis.missing, *(m for m in everywhere.missing if m not in diagnosis.missing)]
    return Answer(
        schema="status",
        cluster_id=diagnosis.cluster_id,
        collected_at=diagnosis.collected_at,
        rows=status_rows(diagnosis),
        errors=error_rows([*missing, *unknown_as_missing(diagnosis)]),
        extra={
            "context": context.title,
            "read_only": context.read_only,
            "protected": context.protected,
            "transaction_version": diagnosis.transaction_version,
            "brokers_up": diagnosis.brokers_up,
            "brokers_known": diagnosis.brokers_known,
            "scanned": diagnosis.scanned,
            "held_back": sum(bool(p.held) for p in diagnosis.partitions),
            "held_offsets": sum(p.held or 0 for p in diagnosis.partitions),
            "open_transactions": len(everywhere.rows),
            "verdicts": dict(diagnosis.counts),
            "contests": None,  # nobody has looked for them yet
        },
        judging=True,
        finding=bool(diagnosis.findings),
    )


def status_seen(context: Context, diagnosis: Diagnosis) -> Answer:
    """Return the status as far as a diagnosis alone knows it."""
    return _answer(context, diagnosis, diagnosis.transactions)
