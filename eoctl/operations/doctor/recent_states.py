"""What `doctor` keeps of the newest part of `__transaction_state`, which it reads once."""

from recovery.doctor.outages import BY_CLIENT, Sinks
from recovery.doctor.version_rules import BEGUN, newest_versions
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
