"""Jobs that pre-commit, as Flink's sinks do, and were away for longer than their timeout.

Such a job ends a transaction only after its checkpoint is complete. If it dies in between, it
commits when it comes back, unless the coordinator has aborted the transaction at its timeout.
"""

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence

from recovery.doctor.findings import (
    DoctorFacts,
    Finding,
    Outage,
    Sign,
    names_sign,
    setting_sign,
    unseen,
)
from recovery.doctor.id_rules import ids_unseen
from recovery.doctor.setting_names import MAX_TIMEOUT
from recovery.facts import grouped
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.growth.prefixes import prefix_of
from recovery.inspect.history import StateRecord
from recovery.inspect.rights import STATE_READ
from recovery.inspect.two_phase import PRECOMMITTED_NAMES, is_named_like

_ABORTS = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
_BY_CLIENT = (TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_COMMIT)


def timeout_too_short(facts: DoctorFacts) -> Iterator[Finding]:
    """Find jobs that came back after the coordinator had aborted what they may have prepared."""
    by_sink = grouped((prefix_of(o.transactional_id), o) for o in facts.outages)
    for _, mine in sorted(by_sink.items()):
        longest = max(mine, key=lambda o: (o.back - o.silent_from, o.transactional_id))
        signs = [
            Sign("outage", longest.as_dict()),
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
    mine = [r for r in records if precommitting([r.transactional_id])]
    by_sink = grouped((prefix_of(r.transactional_id), r) for r in mine)
    return [o for sink in by_sink.values() for o in _outages_of(sink)]


def _outages_of(records: Sequence[StateRecord]) -> Iterator[Outage]:
    """Yield those of one sink, each transaction once."""
    active = sorted(r.timestamp for r in records if _state(r) in _BY_CLIENT)
    seen: set[tuple[str, int]] = set()
    for r in records:
        value = r.value
        if not isinstance(value, TransactionValue) or value.state not in _ABORTS:
            continue
        key = (r.transactional_id, value.start_ms)
        if key in seen:  # the first of its records says when it was decided, not when it was over
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


def _state(record: StateRecord) -> TransactionState | None:
    return record.value.state if isinstance(record.value, TransactionValue) else None


def _timed_out(value: TransactionValue) -> bool:
    """Return True for an abort that was decided when the transaction was past its timeout."""
    lasted = value.last_update_ms - value.start_ms
    return value.start_ms >= 0 and lasted >= value.timeout_ms
