"""A command's answer: rows, what could not be seen, and the exit status that follows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recovery.errors import Exit
from recovery.facts import Missing
from recovery.row import ErrorRow, Row
from recovery.values import Value


class Answer(Value):
    """One answer of one command about one cluster.

    schema: the command's words joined by `-`, without prefix and version. collected_at: epoch
    ms, our clock. extra: more fields of the envelope. judging: a finding changes the exit
    status (`status`, `txn hanging`, ...); lists and shown plans never do. finding_first: a
    finding beats an incomplete answer (`check`). notes: sentences for people, on stderr.
    """

    schema: str
    cluster_id: str | None
    collected_at: int
    rows: Sequence[Row]
    errors: Sequence[ErrorRow] = ()
    extra: Mapping[str, Any] = {}
    judging: bool = False
    finding: bool = False
    finding_first: bool = False
    notes: Sequence[str] = ()

    @property
    def complete(self) -> bool:
        return not self.errors

    @property
    def exit_status(self) -> Exit:
        finding = self.judging and self.finding
        return status_of(self.complete, finding, self.finding_first)


def status_of(complete: bool, finding: bool, finding_first: bool = False) -> Exit:
    """Return the exit status of an answer. finding_first: a finding beats an incomplete answer."""
    if not complete and not (finding and finding_first):
        return Exit.INCOMPLETE
    return Exit.FINDING if finding else Exit.OK


def error_rows(missing: Iterable[Missing]) -> list[ErrorRow]:
    """Return the facts that are missing, as rows."""
    return [ErrorRow.of(m) for m in missing]


SEVERITY = (
    Exit.OK,
    Exit.FINDING,
    Exit.REFUSED,
    Exit.INCOMPLETE,
    Exit.UNREACHABLE,
    Exit.UNVERIFIED,
)


def worst(statuses: Iterable[Exit]) -> Exit:
    """Several at once: 6 > 5 > 3 > 4 > 1 > 0; anything else wins over all."""
    given = list(statuses)
    for status in given:
        if status not in SEVERITY:
            return status
    return max(given, key=SEVERITY.index, default=Exit.OK)
