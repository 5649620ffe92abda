"""A cluster looked at and judged: the value that `status`, `why`, `txn hanging` and `check` show.

It holds the facts as well as the verdicts, so that a bundle can be judged again offline.
"""

from collections import Counter
from dataclasses import dataclass, field

from recovery.diagnose.id_verdicts import IdVerdict
from recovery.diagnose.verdicts import FINDINGS, Verdict
from recovery.facts import Missing, PartitionFacts, Transactions
from recovery.inspect.history import History, StateRecord
from recovery.inspect.id_facts import IdFacts
from recovery.inspect.observation import OpenTransaction, Sample, Settings, StartBatch

MARKS = {"unknown": "?", "open": "", "prepare": "", "long": "!", "two-phase": "!"}
ORDER = (
    "orphan",
    "marker-lost",
    "coordinator-fenced",
    "prepare-stuck",
    "overdue",
    "long",
    "two-phase",
    "unknown",
    "prepare",
    "open",
)


@dataclass(frozen=True, slots=True)
class Judged:
    """One open transaction, what was seen of it, and the verdict that follows from it."""

    about: OpenTransaction
    start: StartBatch | None
    first: Sample
    second: Sample | None
    history: History | None
    verdict: Verdict

    @property
    def newest(self) -> Sample:
        return self.second or self.first

    @property
    def partition(self) -> PartitionFacts:
        return self.newest.partition


@dataclass(frozen=True, slots=True)
class JudgedId:
    """One transactional id that is not at rest and holds no partition, and the verdict on it.

    record: its newest record in `__transaction_state`; None = not needed, or not read.
    """

    first: IdFacts
    second: IdFacts | None
    record: StateRecord | None
    verdict: IdVerdict

    @property
    def name(self) -> str:
        return self.verdict.about.transactional_id


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A look at a cluster: partitions scanned, and a verdict on each open transaction.

    ids: those that hold no partition; judged only where the whole cluster was asked for.
    partitions: those that are held or could not be seen. pause: seconds between the two looks,
    None when one was enough. described: (transactional ids Ongoing or Prepare*, cluster-wide).
    notes: sentences for people about what was asked.
    """

    cluster_id: str | None
    collected_at: int
    scanned: int
    transaction_version: int
    brokers_up: int
    brokers_known: int
    partitions: tuple[PartitionFacts, ...]
    judged: tuple[Judged, ...]
    transactions: Transactions
    missing: tuple[Missing, ...]
    pause: float | None = None
    settings: Settings = field(default_factory=Settings)
    notes: tuple[str, ...] = ()
    ids: tuple[JudgedId, ...] = ()

    @property
    def everything(self) -> tuple[Judged | JudgedId, ...]:
        """All verdicts: on what holds a partition, and on ids that hold none."""
        return (*self.judged, *self.ids)

    @property
    def findings(self) -> tuple[Judged | JudgedId, ...]:
        """Return the verdicts for which a judging command ends with exit status 1."""
        return tuple(j for j in self.everything if j.verdict.name in FINDINGS)

    @property
    def unknown(self) -> tuple[Judged | JudgedId, ...]:
        """Return what could not be judged: exit status 3."""
        return tuple(j for j in self.everything if j.verdict.name == "unknown")

    @property
    def counts(self) -> Counter[str]:
        """Verdicts by name; a transaction on several partitions counts once per partition."""
        return Counter(j.verdict.name for j in self.everything)


def mark(verdict: str) -> str | None:
    """`!!` act, `!` look, `?` cannot tell, None nothing to do."""
    return MARKS.get(verdict, "!!") or None
