"""What `doctor` keeps of the newest part of `__transaction_state`, which it reads once."""

from collections.abc import Iterable
from typing import Any

from eoctl.kafka.read.recent_log import Tail
from eoctl.render.words import spoken_age
from recovery.diagnose.contest import NAMED_WITHIN_MS, WINDOW_MS
from recovery.doctor.findings import NOT_READ, Outage
from recovery.doctor.outages import BY_CLIENT, Sinks
from recovery.doctor.version_rules import BEGUN, STRICT, newest_versions
from recovery.facts import Missing
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.transaction_state import TransactionState
from recovery.inspect.log_part import LogPart, heads

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


def versions_seen(recent: Tail[RecentStates], now: int) -> dict[str, Any]:
    """Return the protocol that ids spoke in the last WINDOW_MS, as fields of DoctorFacts.

    now: epoch ms. Ids of partitions that were not read to the end are left out: their newest
    records are not known.
    """
    unread = {*recent.ends, *recent.failed}
    versions = {
        name: version
        for name, version in recent.sink.versions.items()
        if coordinator_partition(name, recent.tails.partitions) not in unread
    }
    begin = recent.read_from
    if begin is not None and begin <= now - WINDOW_MS:
        begin = None
    found = any(version < STRICT for version in versions.values())
    result = "which protocol ids there speak is not seen"
    few = [] if found else _too_few(recent, begin, now - NAMED_WITHIN_MS, now, result)
    return {
        "client_versions": versions,
        "versions_from": None if few else begin,
        "missing_versions": (*_not_read(recent, result), *few),
    }


def outages_seen(
    recent: Tail[RecentStates],
    of_jobs: Iterable[Outage],
    now: int,
) -> dict[str, Any]:
    """Return those of the outages of jobs that count, as fields of DoctorFacts. now: epoch ms.

    An outage counts only where all partitions were read, since a sink's other ids, which may have
    been active meanwhile, are on any of them. A busy log is read for less than a timeout: how far
    back is said then, and none found is no finding, else each busy cluster would have an unknown.
    """
    begin, unread = recent.read_from, {*recent.ends, *recent.failed}
    found = [
        outage
        for outage in of_jobs
        if not unread and (begin is None or outage.silent_from >= begin)
    ]
    result = "which jobs there were away for longer than their timeout is not seen"
    few = [] if found else _too_few(recent, begin, now - NAMED_WITHIN_MS, now, result)
    return {
        "outages": tuple(found),
        "outages_from": None if few else begin,
        "missing_outages": (*_not_read(recent, result), *few),
    }


def _not_read(recent: Tail[RecentStates], result: str) -> list[Missing]:
    return [*recent.not_read(result), *recent.not_reached(result, partly=True)]


def _too_few(
    recent: Tail[RecentStates], begin: int | None, latest: int, now: int, result: str
) -> list[Missing]:
    """Return a `Missing` if all partitions were read only from later than `latest`, epoch ms.

    begin: from when; None: as far back as asked.
    """
    if begin is None or begin <= latest:
        return []
    topic, span = recent.tails.topic, spoken_age(max(0, now - begin) / 1000)
    text = (
        f"only the last {span} of {topic} were read, since it has more records than are read in "
        f"one look, so {result}"
    )
    return [Missing("topic", NOT_READ, text, topic=topic)]
