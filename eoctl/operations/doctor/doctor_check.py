"""Doctor's rules as rows of `check`, and when `exporter` asks them."""

import time
from collections.abc import Awaitable, Callable, Sequence

from eoctl.operations.doctor.doctor_answer import (
    accepted_as_notes,
    bounds_reached,
    running,
    unknown_as_missing,
)
from eoctl.operations.inspect.source import Source
from eoctl.render.watch_words import check_row
from eoctl.settings.context import Context
from recovery.doctor.accepting import split_findings
from recovery.doctor.as_checks import as_checks, unseen_checks
from recovery.doctor.findings import judged
from recovery.doctor.rules import WITHOUT_APP
from recovery.doctor.versions import VersionRange
from recovery.errors import EoctlError
from recovery.facts import Missing, Transactions
from recovery.values import Value
from recovery.watch.check_rows import CheckRow

SELDOM = 3600.0
"""Seconds between two times that `exporter` asks the rules: settings change seldom."""
SOON = 15.0
"""Seconds until they are asked again where one is unknown; twice as many after each time."""


class Doctor(Value):
    """`--doctor`. broker_version: what somebody says that the brokers run."""

    broker_version: VersionRange | None = None


class DoctorRows(Value):
    """The rules' rows. missing: what was not seen, and unknown findings; accepted: as notes.

    notes: what was not read of the newest records.
    """

    rows: tuple[CheckRow, ...] = ()
    missing: tuple[Missing, ...] = ()
    accepted: tuple[Missing, ...] = ()
    notes: tuple[str, ...] = ()


async def doctor_rows(
    source: Source, context: Context, doctor: Doctor, transactions: Transactions | None = None
) -> DoctorRows:
    """Judge the settings of the complete cluster.

    transactions: every id described, if they were read already.
    """
    facts = running(await source.examined((), transactions), doctor.broker_version)
    found, accepted = split_findings(judged(facts, WITHOUT_APP), context.accept_findings)
    return DoctorRows(
        rows=tuple(map(check_row, as_checks(found, WITHOUT_APP, accepted))),
        missing=(*facts.missing, *unknown_as_missing(found)),
        accepted=tuple(accepted_as_notes(accepted)),
        notes=tuple(bounds_reached(facts)),
    )


class LastRows:
    """The rows of doctor's rules, kept until they are asked again. trouble: why some are unknown.

    clock: seconds, which never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.rows: Sequence[CheckRow] = ()
        self.trouble: list[str] = []
        self._clock = clock
        self._next = clock()
        self._wait = SOON

    async def renew(self, ask: Callable[[], Awaitable[DoctorRows]]) -> None:
        """Ask the rules if that is due. If it fails, all are unknown until it is due again."""
        if self._clock() < self._next:
            return
        try:
            asked = await ask()
        except EoctlError as error:
            unseen = unseen_checks(WITHOUT_APP, error.sentence)
            asked = DoctorRows(rows=tuple(map(check_row, unseen)))
            self.trouble = [error.sentence]
        else:
            self.trouble = sorted({m.detail for m in asked.missing})[:1]
        self.rows = asked.rows
        if all(row.ok is not None for row in asked.rows):
            self._next, self._wait = self._clock() + SELDOM, SOON
        else:
            self._next, self._wait = self._clock() + self._wait, min(2 * self._wait, SELDOM)
