"""Count what grows for the dashboard: when its screen opens, and not in the rounds that repeat."""

import asyncio

from eoctl.operations.dashboard.once import asked_once, without_rows
from eoctl.operations.dashboard.snapshot import Counted, Round
from eoctl.operations.diagnose.live import Live
from eoctl.operations.diagnose.status_answer import growth_rows
from eoctl.operations.inspect.growth import count_ids, count_producers
from eoctl.operations.inspect.lists import Scope, TxnFilter
from eoctl.operations.inspect.source import Source
from eoctl.settings.context import Context
from recovery.answers import Answer
from recovery.inspect.observation import Settings
from recovery.values import replace

TOP = 1000
"""Rows of a kind, the most first: a dashboard that records writes each of them."""


async def counted(
    context: Context, seconds: float, pause: float, settings: Settings, what: Counted
) -> Round:
    """Return what a summary counts.

    seconds: for the requests; pause: between the two looks that give the rate. A cluster that does
    not answer is an error of the answer.
    """
    answer = await asked_once(
        context,
        seconds + 2 * pause,
        lambda cluster: of(Live(cluster), settings, pause, what),
        without_rows(what, internal_topics=[]),
    )
    return Round({"growth": answer})


async def of(source: Source, settings: Settings, pause: float, what: Counted) -> Answer:
    """Return the answer of the command, with `growth` of `status` beside the ids.

    pause: 0 = one look, which gives no rate.
    """
    between = pause or None
    if what == "producers-summary":
        scope = Scope((), internal=True)
        return await count_producers(source, scope, resolve=True, pause=between, top=TOP)
    answer, diagnosis = await asyncio.gather(
        count_ids(source, TxnFilter(), pause=between, top=TOP),
        source.diagnose(Scope(), settings, pause=pause),
    )
    rows = await growth_rows(source, diagnosis)
    growth = None if rows is None else [row.json_values() for row in rows]
    return replace(answer, extra={**answer.extra, "growth": growth})
