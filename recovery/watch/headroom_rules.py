"""Warn before something ends: deadlines, two-phase ids, id expiry, epochs (rules of `check`).

They need every transactional id described. A coordinator's own clock is used if it was measured
(`Transactions.clocks`), else this host's, and the reason says which.
"""

from recovery.facts import TransactionFacts, Transactions
from recovery.inspect.two_phase import deadline, is_two_phase
from recovery.values import Reason
from recovery.watch.check_rows import Judgement, Unit
from recovery.watch.check_rules import (
    EXPIRATION_NOT_KNOWN,
    Observed,
    Thresholds,
    judgement,
    near_expiry,
)

SPENT = 0.75
"""The share of its timeout that a transaction must have used before its deadline is reported.

A healthy application ends its transactions long before that: with a timeout of 60 s and a commit
every second, it is never close to trouble, although its deadline is always within a minute.
"""
LAST_EPOCH = 32_767  # Short.MAX_VALUE: the coordinator then gives the id a new producer id


def headroom_rules(observed: Observed, limits: Thresholds) -> list[Judgement]:
    """Return what each enabled rule says."""
    rules = (
        (limits.deadline, _deadline),
        (limits.two_phase_age, _two_phase_age),
        (limits.id_expiry, _id_expiry),
        (limits.epochs_left, _epochs_left),
    )
    return [rule(observed, threshold) for threshold, rule in rules if threshold is not None]


def milliseconds_left(t: TransactionFacts, transactions: Transactions, now: int) -> int | None:
    """Return the ms until the coordinator aborts an open transaction, negative once overdue.

    now: epoch ms, our clock. None: it is not open, has no deadline (two-phase), or was not seen.
    """
    ends_at = deadline(t)
    return None if ends_at is None else ends_at - now - (transactions.ahead(t.coordinator) or 0)


def _described_at(observed: Observed) -> int:
    """Return the time at which the ids were described; everything else was queried later."""
    at = observed.transactions.described_at
    return observed.now if at is None else at


def _deadline(observed: Observed, threshold: float) -> Judgement:
    rows = []
    for t in observed.transactions.rows:
        left = milliseconds_left(t, observed.transactions, _described_at(observed))
        if left is not None and left <= (t.timeout_ms or 0) * (1 - SPENT):
            rows.append((left, t))
    left, first = min(rows, key=lambda row: row[0], default=(None, None))
    seconds = None if left is None else left / 1000
    reason = Reason("no-deadline-near")
    if first is not None:
        reason = Reason("aborted-then", _owner(observed, first))
    finding = seconds is not None and seconds <= threshold
    return _of_ids(observed, "deadline", threshold, seconds, "seconds", reason, finding=finding)


def _two_phase_age(observed: Observed, threshold: float) -> Judgement:
    transactions = observed.transactions
    rows = [
        (_described_at(observed) + (transactions.ahead(t.coordinator) or 0) - t.start_timestamp, t)
        for t in transactions.rows
        if t.state == "Ongoing" and is_two_phase(t) and t.start_timestamp
    ]
    age, oldest = max(rows, key=lambda row: row[0], default=(None, None))
    seconds = None if age is None else max(0.0, age / 1000)
    reason = Reason("no-two-phase")
    if oldest is not None:
        reason = Reason("only-its-system-ends-it", _owner(observed, oldest))
    finding, rule = seconds is not None and seconds >= threshold, "two_phase_age"
    return _of_ids(observed, rule, threshold, seconds, "seconds", reason, finding=finding)


def _id_expiry(observed: Observed, threshold: float) -> Judgement:
    """Judge all ids, needed or not (`producer_id_expiry` judges those that are needed)."""
    expiration = observed.expiration_ms
    rows = (
        near_expiry(observed.transactions.rows, expiration, observed.now, threshold)
        if expiration is not None
        else []
    )
    first = min(rows, key=lambda t: t.start_timestamp or 0, default=None)
    left = None
    if first is not None and expiration is not None:
        left = ((first.start_timestamp or 0) + expiration - observed.now) / 1000
    reason = Reason("no-id-expires") if expiration is not None else EXPIRATION_NOT_KNOWN
    if first is not None:
        reason = Reason("dropped-first", {"name": first.transactional_id, "ids": len(rows)})
    finding, unsure = bool(rows), expiration is None
    return _of_ids(
        observed, "id_expiry", threshold, left, "seconds", reason, finding=finding, unsure=unsure
    )


def _epochs_left(observed: Observed, threshold: float) -> Judgement:
    rows = [t for t in observed.transactions.rows if (t.producer_epoch or -1) >= 0 and not t.ghost]
    highest = max(rows, key=lambda t: t.producer_epoch or 0, default=None)
    left = None if highest is None else LAST_EPOCH - (highest.producer_epoch or 0)
    reason = Reason("no-id")
    if highest is not None:
        data = {"name": highest.transactional_id, "epoch": highest.producer_epoch}
        reason = Reason("highest-epoch", data)
    finding = left is not None and left <= threshold
    return _of_ids(observed, "epochs_left", threshold, left, "epochs", reason, finding=finding)


def _owner(observed: Observed, t: TransactionFacts) -> dict[str, str]:
    """Return an id, and by which clock its time is: the `coordinator`'s or this `host`'s."""
    measured = observed.transactions.ahead(t.coordinator) is not None
    return {"name": t.transactional_id, "clock": "coordinator" if measured else "host"}


def _of_ids(
    observed: Observed,
    rule: str,
    threshold: float,
    value: float | None,
    unit: Unit,
    reason: Reason,
    *,
    finding: bool,
    unsure: bool = False,
) -> Judgement:
    """Return what the rule says; if ids were not seen, only a finding is certain."""
    hidden = _not_seen(observed.transactions)
    unsure = unsure or bool(hidden)
    return judgement(rule, threshold, value, unit, reason, *hidden, finding=finding, unsure=unsure)


def _not_seen(transactions: Transactions) -> list[Reason]:
    unseen = sum(not c.seen for c in transactions.coordinators)
    if unseen:
        data = {"number": unseen, "total": len(transactions.coordinators)}
        return [Reason("coordinator-partitions-not-seen", data)]
    return [Reason("ids-not-seen")] if transactions.missing else []
