"""The parts of a runbook: judged transactions, the section of each, and command lines."""

from collections.abc import Sequence

from eoctl.render.explain import whom_to_ask
from eoctl.render.sanitise import visible
from eoctl.render.shell import command
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.diagnose.why_rows import WhyRow
from recovery.times import rfc3339
from recovery.values import Value

MARKERS = ("resolve", "write-prepared-marker")
SAFE = (*MARKERS, "restore-leader", "restart-coordinator", "abort")
"""Remedies that destroy nothing that was decided, whoever lives: nobody need be asked first."""

MOVING = ("open", "prepare")
"""Verdicts on what ends by itself: there is nothing to do."""


class Item(Value):
    """One judged transaction of a partition, or an id that holds none. first: it is at the LSO."""

    row: WhyRow
    h: TxnHangingRow
    first: bool

    @property
    def section(self) -> str:
        """Return the item's section: safe, ask, leave; look: something must be checked first.

        escalate: it is stuck, and nothing that eoctl offers is safe now.
        """
        if self.h.verdict == "unknown":
            return "look" if whom_to_ask(self.h) is None else "ask"
        left = None if self.h.ends is None else self.h.ends.otherwise
        if self.h.verdict == "coordinator-fenced" and left is not None and "rule" in left.data:
            return "ask" if left.code == "ask-owner" else "look"
        if self.h.remedy.action in SAFE and not self.waits_for_id:
            return "safe"
        asks = self.h.mixed or self.h.verdict in ("overdue", "long", "two-phase")
        if asks:
            return "ask"
        return "leave" if self.h.verdict in MOVING else "escalate"

    @property
    def waits_for_id(self) -> bool:
        """Return True if the end of its id's transaction elsewhere must come first."""
        return self.h.ends is not None and self.h.ends.otherwise.code == "wait-for-id"

    @property
    def rank(self) -> int:
        """Return the item's rank: first what delivers committed records, last what drops any."""
        if self.h.remedy.action in MARKERS:
            return 0 if self.h.proven_outcome == "commit" else 2
        return 3 if self.h.remedy.action == "abort" else 1

    @property
    def dropped(self) -> int:
        """Return how many records are lost if the transaction is aborted.

        At least this many, unless `is_counted`.
        """
        return self.row.waiting.mine if self.first and self.row.waiting else 0

    @property
    def is_counted(self) -> bool:
        """Return True if all records of the transaction that wait here were counted."""
        waiting = self.row.waiting
        return self.first and waiting is not None and not waiting.at_least

    @property
    def title(self) -> str:
        """Return the item's title as Markdown."""
        h = self.h
        name = f"**{code(h.where)}** {'mixed ' if h.mixed else ''}{h.verdict} ({h.rule})"
        if h.producer_id is not None:
            name += f", pid {h.producer_id}"
        return name + (f", id {code(h.transactional_id)}" if h.transactional_id else "")


def code(text: str) -> str:
    """Return a name from the cluster as code, without Markdown or control characters."""
    shown = visible(text)
    quote = "``" if "`" in shown else "`"
    blank = " " if "`" in shown else ""
    return f"{quote}{blank}{shown}{blank}{quote}"


class Commands(Value):
    """Command lines for one cluster. connection: the options that name it."""

    connection: Sequence[str]
    cluster_id: str | None

    def __call__(self, *words: str) -> str | None:
        """Return a command line; None if no shell could be given it."""
        return command(["eoctl", *self.connection, *words])

    def remedy(self, *words: str, end: Sequence[str] = ()) -> str | None:
        """Return a remedy's command line: it names the cluster, so it can hit no other one."""
        named = ["--cluster-id", self.cluster_id] if self.cluster_id else []
        return self("txn", *words, *named, *end)


def stamp(ms: int | None) -> str:
    """Return a time as `2026-11-23 01:02Z`."""
    text = rfc3339(ms)
    return "not known" if text is None else f"{text[:10]} {text[11:16]}Z"


def block(text: str | None) -> list[str]:
    """Return a command as a block of code within a list; nothing for None."""
    return [] if text is None else ["", "  ```", f"  {text}", "  ```", ""]


def by_id(items: Sequence[Item]) -> dict[str, list[Item]]:
    """Return the items by transactional id, or by producer id if they have none."""
    grouped: dict[str, list[Item]] = {}
    for i in items:
        grouped.setdefault(i.h.transactional_id or f"pid {i.h.producer_id}", []).append(i)
    return grouped
