"""Ask once, when a screen opens, over a connection that is closed again."""

from collections.abc import Awaitable, Callable

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose.commit_history import commit_history
from eoctl.operations.session.session import Session
from eoctl.settings.context import Context
from recovery.answers import Answer
from recovery.errors import EoctlError
from recovery.inspect.commits.commit_rows import OffsetsHistoryRow, with_earlier
from recovery.row import ErrorRow
from recovery.values import replace

Ask = Callable[[Cluster], Awaitable[Answer]]


async def asked_once(context: Context, seconds: float, ask: Ask, refused: Answer) -> Answer:
    """Return what the cluster answers within so many seconds; `refused` with the reason if none."""
    session = Session(context, seconds)
    try:
        return await session.ask(ask)
    except EoctlError as error:
        return unanswered(refused, error.sentence)
    finally:
        session.close()


def without_rows(schema: str, **extra: object) -> Answer:
    """Return an answer of this moment without rows."""
    return Answer(schema, None, now_ms(), [], extra=extra)


def unanswered(refused: Answer, detail: str) -> Answer:
    """Return an answer without rows that says why."""
    row = ErrorRow(scope=refused.schema, error="REFUSED", detail=detail)
    return replace(refused, collected_at=now_ms(), errors=[row])


async def commits_of(
    context: Context | None, seconds: float, group: str, before: Answer | None = None
) -> Answer:
    """Return every commit of a group that the cluster still has, and those of an earlier look.

    context: None for a bundle. before: the answer to that look; None = there was none.
    """
    refused = without_rows("offsets-history", group=group)
    if context is None:
        answer = unanswered(
            refused, "a bundle has no records of __consumer_offsets; ask its cluster"
        )
    else:
        answer = await asked_once(context, seconds, lambda c: commit_history(c, group), refused)
    return answer if before is None else _widened(answer, before)


def _widened(answer: Answer, before: Answer) -> Answer:
    """Return an answer of the same cluster with the rows of an earlier one (`kept`: how many)."""
    if answer.errors or answer.cluster_id != before.cluster_id:
        return answer
    now, then = (
        [row for row in a.rows if isinstance(row, OffsetsHistoryRow)] for a in (answer, before)
    )
    rows = with_earlier(now, then)
    return replace(answer, rows=rows, extra={**answer.extra, "kept": len(rows) - len(now)})
