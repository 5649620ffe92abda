"""Jobs that pre-commit, as Flink's sinks do, and were away for longer than their timeout.

Such a job ends a transaction only after its checkpoint is complete. If it dies in between, it
commits when it comes back, unless the coordinator has aborted the transaction at its timeout.
"""

from bisect import bisect
from collections.abc import Iterable, Iterator

from recovery.doctor.findings import DoctorFacts, Finding, Outage, names_sign, setting_sign, unseen
from recovery.doctor.id_rules import ids_unseen
from recovery.doctor.setting_names import MAX_TIMEOUT
from recovery.facts import grouped
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.growth.prefixes import prefix_of
from recovery.inspect.history import StateRecord
from recovery.inspect.rights import STATE_READ
from recovery.inspect.two_phase import PRECOMMITTED_NAMES, is_named_like
from recovery.values import Reason

_ABORTS = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
BY_CLIENT = (TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_COMMIT)


def timeout_too_short(facts: DoctorFacts) -> Iterator[Finding]:
    """Find jobs that came back after the coordinator had aborted what they may have prepared."""
    by_sink = grouped((prefix_of(o.transactional_id), o) for o in facts.outages)
    for _, mine in sorted(by_sink.items()):
        longest = max(mine, key=lambda o: (o.back - o.silent_from, o.transactional_id))
        signs = [
            Reason("outage", longest.as_dict()),
            names_sign("timed-out-ids", {o.transactional_id for o in mine}),
        ]
        if (least := facts.least(MAX_TIMEOUT)) is not None:
            signs.append(setting_sign(MAX_TIMEOUT, *least))
        yield Finding("transactional-id", longest.transactional_id, tuple(signs))
    yield from ids_unseen(facts)
    yield from unseen(facts.missing_outages, STATE_READ, "transactional-id")


def precommitting(names: Iterable[str]) -> list[str]:
    """Return the ids that are named as Flink's sinks form it: a guess."""
    return [name for name in names if is_named_like(name, PRECOMMITTED_NAMES)]


def outages(records: Iterable[StateRecord]) -> list[Outage]:
    """Return the transactions that ran into their timeout and whose sink was active later.

    records: in offset order within a partition; those of other ids do not count.
    """
    sinks = Sinks()
    for record in records:
        sinks.take(record)
    return sinks.outages


class Sinks:
    """What is kept of the records of ids that may pre-commit: when they acted, and aborts."""

    def __init__(self) -> None:
        self._of_ids: dict[str, _Sink | None] = {}
        self._sinks: dict[str, _Sink] = {}

    def acted(self, name: str, at: int) -> None:
        """Note that the client of an id did something. at: epoch ms."""
        if (sink := self._of(name)) is not None:
            sink.active.append(at)

    def take(self, record: StateRecord) -> None:
        """Note what a record says; nothing if its id does not count."""
        state = record.value.state if isinstance(record.value, TransactionValue) else None
        if state in BY_CLIENT:
            self.acted(record.transactional_id, record.timestamp)
        elif state in _ABORTS and (sink := self._of(record.transactional_id)) is not None:
            sink.aborts.append(record)

    @property
    def outages(self) -> list[Outage]:
        """Return the transactions that ran into their timeout and whose sink was active later."""
        return [o for sink in self._sinks.values() for o in sink.outages()]

    def _of(self, name: str) -> "_Sink | None":
        if name not in self._of_ids:
            fits = precommitting([name])
            self._of_ids[name] = self._sinks.setdefault(prefix_of(name), _Sink()) if fits else None
        return self._of_ids[name]


class _Sink:
    """One sink: when its ids acted, epoch ms, and the records of their aborts."""

    def __init__(self) -> None:
        self.active: list[int] = []
        self.aborts: list[StateRecord] = []

    def outages(self) -> Iterator[Outage]:
        """Yield the transactions that timed out before the sink was active again, each once."""
        active = sorted(self.active)
        seen: set[tuple[str, int]] = set()
        for r in self.aborts:
            value = r.value
            if not isinstance(value, TransactionValue):
                continue
            key = (r.transactional_id, value.start_ms)
            if key in seen:  # the first of its records says when it was decided, not when it ended
                continue
            seen.add(key)
            later = bisect(active, r.timestamp)
            silent_from = active[later - 1] if later else value.start_ms
            if (
                _timed_out(value)
                and later < len(active)
                and active[later] - silent_from >= value.timeout_ms
            ):
                yield Outage(
                    r.transactional_id,
                    value.start_ms,
                    value.timeout_ms,
                    value.last_update_ms,
                    silent_from,
                    active[later],
                )


def _timed_out(value: TransactionValue) -> bool:
    """Return True for an abort that was decided when the transaction was past its timeout."""
    lasted = value.last_update_ms - value.start_ms
    return value.start_ms >= 0 and lasted >= value.timeout_ms
