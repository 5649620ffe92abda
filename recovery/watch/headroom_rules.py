"""Warn before something ends: deadlines, two-phase ids, id expiry, epochs (rules of `check`).

They need every transactional id described. A coordinator's own clock is used if it was measured
(`Transactions.clocks`), else this host's, and `detail` says which.
"""

from recovery.facts import TransactionFacts, Transactions
from recovery.inspect.two_phase import deadline, is_two_phase
from recovery.plurals import counted
from recovery.quoting import quoted
from recovery.watch.check_rows import CheckRow, Unit
from recovery.watch.check_rules import Observed, Thresholds, check_row, near_expiry

SPENT = 0.75
"""The share of its timeout that a transaction must have used before its deadline is reported.

A healthy application ends its transactions long before that: with a timeout of 60 s and a commit
every second, it is never close to trouble, although its deadline is always within a minute.
"""
LAST_EPOCH = 32_767  # Short.MAX_VALUE: the coordinator then gives the id a new producer id


def headroom_rows(observed: Observed, limits: Thresholds) -> list[CheckRow]:
    """Return a row for each enabled rule."""
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


def _deadline(observed: Observed, threshold: float) -> CheckRow:
    rows = []
    for t in observed.transactions.rows:
        left = milliseconds_left(t, observed.transactions, _described_at(observed))
        if left is not None and left <= (t.timeout_ms or 0) * (1 - SPENT):
            rows.append((left, t))
    left, first = min(rows, key=lambda row: row[0], default=(None, None))
    seconds = None if left is None else left / 1000
    detail = "no transaction has used three quarters of its timeout"
    if first is not None:
        name, clock = quoted(first.transactional_id), _clock(observed, first)
        detail = f"its coordinator aborts the transaction of {name} then{clock}"
    finding = seconds is not None and seconds <= threshold
    return _row(observed, "deadline", threshold, seconds, "seconds", detail, finding=finding)


def _two_phase_age(observed: Observed, threshold: float) -> CheckRow:
    transactions = observed.transactions
    rows = [
        (_described_at(observed) + (transactions.ahead(t.coordinator) or 0) - t.start_timestamp, t)
        for t in transactions.rows
        if t.state == "Ongoing" and is_two_phase(t) and t.start_timestamp
    ]
    age, oldest = max(rows, key=lambda row: row[0], default=(None, None))
    seconds = None if age is None else max(0.0, age / 1000)
    detail = "no two-phase transaction is open"
    if oldest is not None:
        name, clock = quoted(oldest.transactional_id), _clock(observed, oldest)
        detail = f"only its own system ends the transaction of {name}{clock}"
    finding = seconds is not None and seconds >= threshold
    return _row(observed, "two_phase_age", threshold, seconds, "seconds", detail, finding=finding)


def _id_expiry(observed: Observed, threshold: float) -> CheckRow:
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
    if expiration is None:
        detail = "transactional.id.expiration.ms is not known"
    elif first is None:
        detail = "no transactional id expires so soon"
    else:
        detail = (
            f"{quoted(first.transactional_id)} may be dropped first, of {counted(len(rows), 'id')}"
        )
    finding, unsure = bool(rows), expiration is None
    return _row(
        observed, "id_expiry", threshold, left, "seconds", detail, finding=finding, unsure=unsure
    )


def _epochs_left(observed: Observed, threshold: float) -> CheckRow:
    rows = [t for t in observed.transactions.rows if (t.producer_epoch or -1) >= 0 and not t.ghost]
    highest = max(rows, key=lambda t: t.producer_epoch or 0, default=None)
    left = None if highest is None else LAST_EPOCH - (highest.producer_epoch or 0)
    detail = "there is no transactional id"
    if highest is not None:
        detail = (
            f"{quoted(highest.transactional_id)} has epoch {highest.producer_epoch}; "
            "its coordinator gives it a new producer id after the last one"
        )
    finding = left is not None and left <= threshold
    return _row(observed, "epochs_left", threshold, left, "epochs", detail, finding=finding)


def _clock(observed: Observed, t: TransactionFacts) -> str:
    measured = observed.transactions.ahead(t.coordinator) is not None
    return ", by its coordinator's clock" if measured else ", by this host's clock"


def _row(
    observed: Observed,
    rule: str,
    threshold: float,
    value: float | None,
    unit: Unit,
    detail: str,
    *,
    finding: bool,
    unsure: bool = False,
) -> CheckRow:
    """Return the rule's row; if ids were not seen, only a finding is certain."""
    hidden = _not_seen(observed.transactions)
    if hidden:
        detail += f"; {hidden}"
    unsure = unsure or hidden is not None
    return check_row(rule, threshold, value, unit, detail, finding=finding, unsure=unsure)


def _not_seen(transactions: Transactions) -> str | None:
    unseen = [c for c in transactions.coordinators if not c.seen]
    if unseen:
        total = len(transactions.coordinators)
        return f"{len(unseen)} of {counted(total, 'coordinator partition')} not seen"
    return "not all transactional ids were seen" if transactions.missing else None
