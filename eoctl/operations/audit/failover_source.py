"""What a plan needs of the cluster that a group leaves, from that cluster while it answers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eoctl.engine.mirror_logs import ClusterLog, MirrorLog
from eoctl.kafka.ask.log_dirs import NONE_DENIED, Denied, denied_topics
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.kafka.read.count import Cuts, count
from eoctl.operations.audit.mirror import EARLIEST, STABLE, log_settings
from eoctl.operations.audit.ranges import AuditOptions, Resolved, resolve
from eoctl.operations.inspect.lists import Scope, selected
from eoctl.operations.restart.adhoc import none_hidden, refuse_denied
from eoctl.operations.restart.origin import committed_in
from eoctl.operations.restart.restart_request import Origin
from eoctl.stores.offsets.store import StoreEntry
from recovery.audit.failover import Found, likely_names
from recovery.audit.mirror_table import FIELDS
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import TopicPartition
from recovery.restart.decision import Check
from recovery.restart.stored import StoredOffset
from recovery.selectors import Selector, parse_selector
from recovery.shared import log_position
from recovery.shared.log_position import LogPosition
from recovery.values import Value, replace

Commits = Mapping[TopicPartition, StoreEntry]


class Compared(Value):
    """How a topic and its mirror are compared. compacted: (source, mirror), None: hidden."""

    compacted: tuple[bool | None, bool | None]
    fields: tuple[str, ...]


class FailoverSource(Protocol):
    """The cluster that a group leaves. name: for sentences."""

    @property
    def name(self) -> str: ...
    @property
    def cluster_id(self) -> str | None: ...

    @property
    def mirrors(self) -> Mapping[str, str]:
        """Return the mirrors of topics that are known without looking for their names."""
        ...

    async def commits(
        self, group: str, selectors: Sequence[Selector], there: Collection[str]
    ) -> Commits:
        """Return what the group has committed; selectors: () = on every partition.

        there: the topics of the cluster that the group goes to.
        """
        ...

    async def compared(self, mirror: Cluster, topic: str, copy: str) -> Compared:
        """Return how to compare. Raises RefusedError if `copy` cannot be what was mirrored."""
        ...

    async def ranges(
        self, topic: str, commits: Mapping[TopicPartition, StoredOffset]
    ) -> dict[int, Resolved]:
        """Return what is known of the partitions. Raises RefusedError for a commit outside."""
        ...

    async def not_proven(
        self, commits: Mapping[TopicPartition, StoredOffset]
    ) -> dict[TopicPartition, str]:
        """Return why a commit may be of another log. Raises RefusedError for another log."""
        ...

    def log(
        self, mirror: ClusterLog, copy: Resolved, commit: StoredOffset, *, compacted: bool
    ) -> MirrorLog:
        """Return the source's log. compacted: the mirror may be."""
        ...

    def known_to(self, partition: TopicPartition) -> int | None:
        """Return the mirror offset up to which the source is known; None: all of it is."""
        ...

    async def completed(self, found: Found, source: Resolved, log: MirrorLog) -> Found:
        """Return a place with what else the source's cluster says of it."""
        ...

    def assumed(self) -> list[Check]:
        """Return what the plan assumes about the cluster that is left."""
        ...

    def origin(self, group: str, commits: Commits) -> Origin:
        """Return what the plan keeps of it."""
        ...


@dataclass
class LiveSource:
    """A cluster that answers, asked by its context. hidden: the topics that it does not show."""

    name: str
    cluster: Cluster
    reading: AuditOptions
    hidden: Denied = NONE_DENIED

    @property
    def cluster_id(self) -> str | None:
        return self.cluster.cluster_id

    @property
    def mirrors(self) -> Mapping[str, str]:
        return {}

    async def commits(
        self, group: str, selectors: Sequence[Selector], there: Collection[str]
    ) -> Commits:
        """See FailoverSource. Raises RefusedError for a group with members or pending commits,
        IncompleteError if it may have commits on topics that are hidden."""
        wanted: set[TopicPartition] | None = None
        if selectors:
            _, chosen, missing = await selected(self.cluster, Scope(tuple(selectors)))
            if missing:
                raise IncompleteError(missing[0].detail, where=missing[0].topic)
            wanted = {p.topic_partition for p in chosen}
        else:
            self.hidden = await denied_topics(self.cluster, likely_names(there))
            refuse_denied(self.hidden, f"group {group} in {self.name}")
        topics = None if wanted is None else sorted({topic for topic, _ in wanted})
        contents = await committed_in(self.cluster, self.name, group, topics)
        return {
            e.topic_partition: e
            for e in contents.entries
            if wanted is None or e.topic_partition in wanted
        }

    async def compared(self, mirror: Cluster, topic: str, copy: str) -> Compared:
        """See FailoverSource."""
        compacted, stamped = await log_settings(self.cluster, mirror, topic, copy)
        return Compared(compacted, tuple(f for f in FIELDS if not (stamped and f == "timestamp")))

    async def ranges(
        self, topic: str, commits: Mapping[TopicPartition, StoredOffset]
    ) -> dict[int, Resolved]:
        """See FailoverSource."""
        ranges = await stable_ranges(self.cluster, topic, [p for _, p in commits])
        for partition, stored in commits.items():
            _refuse_outside(ranges[partition.partition], stored.offset)
        return ranges

    async def not_proven(
        self, commits: Mapping[TopicPartition, StoredOffset]
    ) -> dict[TopicPartition, str]:
        """See FailoverSource."""
        places = {p: LogPosition(s.offset, s.leader_epoch, "commit") for p, s in commits.items()}
        remedy = "what the group has read is no longer in the log: restart by time, --to-datetime"
        standings = await positions.standings(self.cluster, places)
        for partition, standing in standings.items():
            log_position.refuse_diverged(partition, places[partition], standing, remedy)
        return {p: s.because for p, s in standings.items() if s.held is None}

    def log(
        self, mirror: ClusterLog, copy: Resolved, commit: StoredOffset, *, compacted: bool
    ) -> MirrorLog:
        """See FailoverSource."""
        return replace(mirror, cluster=self.cluster)

    def known_to(self, partition: TopicPartition) -> int | None:
        """See FailoverSource."""
        return None

    async def completed(self, found: Found, source: Resolved, log: MirrorLog) -> Found:
        """Add how many records the mirror has still to copy that the group has read, or that it has
        copied before."""
        place = found.place
        start = source.start if place.next_source is None else place.next_source
        end = max(found.offset, place.reach)
        if start >= end:
            return found
        cuts = Cuts(
            *source.topic_partition,
            (start, end),
            source.log_start_offset,
            source.last_stable_offset,
        )
        counts, missing = await count(self.cluster, [cuts], self.reading)
        if missing:
            raise IncompleteError(missing[0].detail, where=str(source.topic_partition))
        return replace(found, returning=counts[source.topic_partition][0].data)

    def assumed(self) -> list[Check]:
        """See FailoverSource."""
        text = "the mirror is not killed before it has copied on: what it copies again comes again"
        return [Check("mirror", None, text), *none_hidden(self.hidden, "A")]

    def origin(self, group: str, commits: Commits) -> Origin:
        """See FailoverSource."""
        kept = {str(partition): entry.kept for partition, entry in sorted(commits.items())}
        return Origin(self.name, self.cluster_id, group, kept)


async def stable_ranges(
    cluster: Cluster, topic: str, partitions: Sequence[int]
) -> dict[int, Resolved]:
    """Return all of these partitions up to their last stable offsets. Raises IncompleteError."""
    numbers = ",".join(map(str, sorted(partitions)))
    selector = parse_selector(f"{topic}:{numbers}")
    ranges, missing = await resolve(cluster, [selector], EARLIEST, STABLE)
    if missing:
        at = missing[0]
        where = at.topic if at.partition is None else f"{at.topic}:{at.partition}"
        raise IncompleteError(
            at.detail, where=where, remedy="leave it out with --topic, or name it with --map"
        )
    return {r.partition: r for r in ranges}


def _refuse_outside(source: Resolved, offset: int) -> None:
    """Refuse a commit whose neighbours cannot be compared: they are deleted or undecided."""
    where = str(source.topic_partition)
    if offset < source.log_start_offset:
        raise RefusedError(
            f"the group is at {offset}, but the log there begins at {source.log_start_offset}: "
            "what it has not read is deleted",
            where=where,
            remedy="the mirror may still have it: restart by time, --to-datetime",
        )
    if offset > source.last_stable_offset:
        raise RefusedError(
            f"the group is at {offset}, above the last stable offset {source.last_stable_offset}: "
            "what it has read may still be aborted",
            where=where,
            remedy="open transactions there must end first: see `eoctl why`",
        )
