"""Read commands ask a Source: a live cluster, or a bundle that was made of one.

Every operation asks a `Source` for facts and judges them itself, so the same code handles a bundle
and a cluster. The two sources are `eoctl.operations.diagnose.live` and
`eoctl.operations.inspect.offline`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from recovery.values import Value

if TYPE_CHECKING:  # `lso` and `txn list` need neither rules nor histories to start
    from eoctl.operations.inspect.lists import Scope, TxnFilter
    from recovery.diagnose.contest import Contests
    from recovery.diagnose.diagnosis import Diagnosis
    from recovery.diagnose.group_verdict import Unread
    from recovery.diagnose.waiting_records import Waiting
    from recovery.doctor.findings import DoctorFacts
    from recovery.facts import (
        Facts,
        GroupFacts,
        GroupTimes,
        Missing,
        PartitionFacts,
        TopicPartition,
        Transactions,
    )
    from recovery.inspect.cluster_rows import StripRow
    from recovery.inspect.history import StateLog
    from recovery.inspect.observation import Settings

Configs = Mapping[str, Mapping[str, str | None]]
"""Topic name or broker id, as text → settings in force."""

OnFirstLook = Callable[["Diagnosis"], None] | None


class StateLogs(Value):
    """Logs of `__transaction_state` with the requested records.

    partitions: how many that topic has; 0 = none is visible.
    """

    partitions: int
    logs: tuple[StateLog, ...]
    missing: tuple[Missing, ...] = ()


class Source(Protocol):
    """The questions of all read commands. What could not be seen is Missing, never left out."""

    @property
    def cluster_id(self) -> str | None: ...

    def now(self) -> int:
        """Return when the newest answer was given, epoch ms by our clock."""
        ...

    async def look(self, scope: Scope) -> Facts:
        """Return the offsets of the partitions in scope, and what holds the held ones."""
        ...

    async def producers(self, scope: Scope, producer_ids: Sequence[int], *, resolve: bool) -> Facts:
        """Return the producers in scope; resolve: with the ids that own their PIDs.

        Its partitions have their leaders, and no offsets.
        """
        ...

    async def transactions(self, filter_: TxnFilter, *, describe: bool) -> Transactions:
        """Return every coordinator's transactions that pass the filter."""
        ...

    async def find(self, ids: Sequence[str]) -> tuple[Transactions, int]:
        """Return the named transactional ids, and the number of `__transaction_state`'s partitions.

        With their coordinators' clocks; none of the coordinators was proven.
        """
        ...

    async def state_logs(
        self, ids: Sequence[str], producer_ids: Sequence[int], newest: int | None = None
    ) -> StateLogs:
        """Return what `__transaction_state` recorded of these ids and of all with these PIDs.

        newest: so many records of each id are enough; None = all.
        """
        ...

    async def diagnose(
        self, scope: Scope, settings: Settings, *, pause: float, on_first_look: OnFirstLook = None
    ) -> Diagnosis:
        """Judge every open transaction on the held partitions in scope.

        pause: seconds between two snapshots. on_first_look: called with the first one's verdicts,
        before the pause and the second one.
        """
        ...

    async def contests(self) -> Contests:
        """Return the transactional ids that are contested now, whoever holds what."""
        ...

    async def examined(
        self, named: Sequence[str], transactions: Transactions | None = None
    ) -> DoctorFacts:
        """Return what `doctor` judges. named: topics to examine besides those that ids write.

        transactions: every id described, if that was asked already.
        """
        ...

    async def groups(
        self, partitions: Sequence[TopicPartition] | None
    ) -> tuple[list[GroupFacts], list[Missing]]:
        """Return groups with members and offsets; only those with one on `partitions`, if given."""
        ...

    async def named_groups(self, names: Sequence[str]) -> tuple[list[GroupFacts], list[Missing]]:
        """Return these groups with members and all their offsets; Dead = does not exist."""
        ...

    async def group_again(self, group: str, pause: float) -> GroupFacts | None:
        """Return a group with its offsets after so many seconds; None: there is no second look."""
        ...

    async def unread(
        self, offsets: Mapping[TopicPartition, int], partitions: Sequence[PartitionFacts]
    ) -> Mapping[TopicPartition, Unread]:
        """Return what read_committed readers still get from these offsets on, up to the LSO.

        A partition whose log could not be read is left out.
        """
        ...

    async def group_times(
        self, groups: Sequence[str], since: int
    ) -> tuple[Mapping[str, GroupTimes], list[Missing]]:
        """Return when these groups last committed and changed their state, since an epoch ms.

        A group that could not be seen is not in the first part.
        """
        ...

    async def group_partition(self, group: str) -> TopicPartition | Missing | None:
        """Return the partition of `__consumer_offsets` that keeps this group; None without it."""
        ...

    async def waiting(self, p: PartitionFacts, producer_id: int | None) -> Waiting | None:
        """Return what waits between LSO and high watermark; None if it could not be read."""
        ...

    async def strip(self, p: PartitionFacts) -> list[StripRow] | None:
        """Return the log around the LSO, with who decided its markers; None if unreadable."""
        ...

    async def log_sizes(
        self, topics: Sequence[str]
    ) -> tuple[Mapping[TopicPartition, int], list[Missing]]:
        """Return the bytes of these topics' logs at their leaders; topics that do not exist have
        none."""
        ...

    async def topic_configs(self, topics: Sequence[str]) -> tuple[Configs, list[Missing]]:
        """Return cleanup.policy and retention.ms of these topics."""
        ...

    async def expirations(self) -> tuple[Configs, list[Missing]]:
        """Return when every broker lets transactional ids and groups' offsets expire."""
        ...
