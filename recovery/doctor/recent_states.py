"""Judge what the newest part of `__transaction_state` shows, by how much of it was read."""

from collections.abc import Iterable, Mapping

from recovery.diagnose.contest import NAMED_WITHIN_MS, WINDOW_MS
from recovery.doctor.findings import Outage
from recovery.doctor.outages import BY_CLIENT, Sinks
from recovery.doctor.version_rules import BEGUN, STRICT, newest_versions
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.transaction_state import TransactionState
from recovery.inspect.log_part import LogPart, heads
from recovery.values import Value

_BY_HEAD = (*BY_CLIENT, TransactionState.COMPLETE_COMMIT)


class RecentStates:
    """The protocol that ids spoke since `versions_since`, epoch ms, and what sinks did.

    Nearly all records are read by their heads; decoded are aborts, and of each id the newest
    transaction's.
    """

    full = False

    def __init__(self, versions_since: int) -> None:
        self.versions: dict[str, int] = {}
        self.sinks = Sinks()
        self._since = versions_since

    def add(self, part: LogPart, partition: int) -> None:
        """Take the next part of a partition. Raises CorruptError."""
        begun = {}
        for row, head in (known := heads(part, _BY_HEAD)).items():
            name = bytes(part.data[head.begin : head.end]).decode("utf-8", "replace")
            if head.state in BY_CLIENT:
                self.sinks.acted(name, head.at)
            if head.state in BEGUN and head.at >= self._since:
                begun[name] = row
        others = {row for row in range(len(part.scan)) if row not in known}
        recent = []
        for row in sorted(others.union(begun.values())):
            for record in part.decoded(partition, [row]):
                if row in others:
                    self.sinks.take(record)
                if record.timestamp >= self._since:
                    recent.append(record)
        self.versions |= newest_versions(recent)


class Read(Value):
    """How much was read. now: epoch ms.

    partitions: how many there are. unread: those that were not read to their end. begin: epoch ms
    from which on all were read; None = as far back as asked.
    """

    now: int
    partitions: int
    unread: frozenset[int]
    begin: int | None


class Shown(Value):
    """What counts of the part of the log that was read.

    begin: as in Read. is_too_little: nothing was found, and less than a minute was read: that
    proves nothing.
    """

    begin: int | None
    is_too_little: bool
    versions: Mapping[str, int] = {}
    outages: tuple[Outage, ...] = ()


def versions_shown(versions: Mapping[str, int], read: Read) -> Shown:
    """Return the protocol that ids spoke in the last WINDOW_MS.

    Ids of partitions that were not read to the end are left out: their newest records are not
    known.
    """
    known = {
        name: version
        for name, version in versions.items()
        if coordinator_partition(name, read.partitions) not in read.unread
    }
    begin = read.begin
    if begin is not None and begin <= read.now - WINDOW_MS:
        begin = None
    found = any(version < STRICT for version in known.values())
    return Shown(begin, not found and _is_too_little(begin, read.now), versions=known)


def outages_shown(of_jobs: Iterable[Outage], read: Read) -> Shown:
    """Return those of the outages of jobs that count.

    An outage counts only where all partitions were read, since a sink's other ids, which may have
    been active meanwhile, are on any of them. A busy log is read for less than a timeout: how far
    back is said then, and none found is no finding, else each busy cluster would have an unknown.
    """
    found = tuple(
        outage
        for outage in of_jobs
        if not read.unread and (read.begin is None or outage.silent_from >= read.begin)
    )
    too_little = not found and _is_too_little(read.begin, read.now)
    return Shown(read.begin, too_little, outages=found)


def _is_too_little(begin: int | None, now: int) -> bool:
    return begin is not None and begin > now - NAMED_WITHIN_MS
