"""Ask once, when a screen opens, over a connection that is closed again."""

from collections.abc import Awaitable, Callable

from eoctl.host.clock import now_ms
from eoctl.kafka.ask.groups import CONSUMER_OFFSETS
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose.commit_history import NEWEST, commit_history
from eoctl.operations.session.session import Session
from eoctl.settings.context import Context
from recovery.answers import Answer
from recovery.errors import EoctlError
from recovery.inspect.commits.commit_rows import OffsetsHistoryRow, with_earlier
from recovery.inspect.commits.newest import newest_of
from recovery.row import ErrorRow
from recovery.times import rfc3339
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
    return answer if before is None or not before.rows else _widened(answer, before)


def home_was_read(answer: Answer) -> bool:
    """Return True if the group's partition of `__consumer_offsets` was read to its end."""
    unread = any(error.topic == CONSUMER_OFFSETS for error in answer.errors)
    return answer.extra.get("coordinator_partition") is not None and not unread


def _widened(answer: Answer, before: Answer) -> Answer:
    """Return an answer of the same log with the rows of an earlier one (`kept`: how many).

    What could not be read leaves the earlier rows as they were; another log begins again.
    """
    at = rfc3339(before.collected_at)
    if not answer.rows or not home_was_read(answer):
        none = ", for the log has no commit of the group now" if home_was_read(answer) else ""
        note = f"nothing new was read{none}: below are the commits of the look at {at}"
        extra = {**before.extra, "kept": len(before.rows)}
        notes = (*answer.notes, note)
        return replace(before, errors=answer.errors, extra=extra, notes=notes)
    now, then = (
        [row for row in a.rows if isinstance(row, OffsetsHistoryRow)] for a in (answer, before)
    )
    found = with_earlier(now, then) if answer.cluster_id == before.cluster_id else None
    if found is None:
        note = f"the look at {at} is left out: nothing proves that this is still the log it saw"
        return replace(answer, notes=(*answer.notes, note))
    rows = newest_of(found, NEWEST)
    offsets, mine = {r.record_offset for r in rows}, {r.record_offset for r in now}
    extra = {"kept": len(offsets - mine), "left_out": _left_out(answer) + len(mine - offsets)}
    return replace(answer, rows=rows, extra={**answer.extra, **extra})


def _left_out(answer: Answer) -> int:
    return int(answer.extra.get("left_out", 0))
