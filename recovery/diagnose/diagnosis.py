"""Define the diagnosis of a cluster, which `status`, `why`, `txn hanging` and `check` show.

It keeps the facts next to the verdicts, so that a bundle can be judged again offline.
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
    """One open transaction, what was seen of it, and the resulting verdict."""

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

    @property
    def only_id(self) -> str | None:
        """Return the one id that the history names for this producer id.

        None: none, several, or no history was read.
        """
        ids = self.history.transactional_ids if self.history else ()
        return ids[0] if len(ids) == 1 else None


@dataclass(frozen=True, slots=True)
class JudgedId:
    """One transactional id that is not at rest and holds no partition, and its verdict.

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
    """The diagnosis of a cluster: the partitions scanned, and a verdict on each open transaction.

    ids: those that hold no partition; judged only if the scope is the complete cluster.
    partitions: those that are held or could not be seen. pause: seconds between the two samples,
    None if one was enough. transactions: the ids in Ongoing or Prepare*, cluster-wide.
    notes: sentences for people about the scope.
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
        """Return all verdicts: on transactions that hold a partition, and on ids that hold none."""
        return (*self.judged, *self.ids)

    @property
    def findings(self) -> tuple[Judged | JudgedId, ...]:
        """Return the verdicts for which a judging command ends with exit status 1."""
        return tuple(j for j in self.everything if j.verdict.name in FINDINGS)

    @property
    def unknown(self) -> tuple[Judged | JudgedId, ...]:
        """Return what could not be judged, for which the exit status is 3."""
        return tuple(j for j in self.everything if j.verdict.name == "unknown")

    @property
    def counts(self) -> Counter[str]:
        """Count verdicts by name; a transaction on several partitions counts once per partition."""
        return Counter(j.verdict.name for j in self.everything)


def mark(verdict: str) -> str | None:
    """Return `!!` (act), `!` (look), `?` (unknown) or None (nothing to do)."""
    return MARKS.get(verdict, "!!") or None
