"""`txn history`: records of `__transaction_state` as rows, with the cause of each epoch bump."""

from collections.abc import Iterable
from typing import Literal

from recovery.facts import known
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.cluster_rows import HistoryRow
from recovery.inspect.history import StateRecord

Bump = Literal["end", "fence", "past-timeout"]

_PREPARED = {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}


def history_rows(records: Iterable[StateRecord]) -> list[HistoryRow]:
    """Return one row per record, by transactional id and offset."""
    rows: list[HistoryRow] = []
    before: StateRecord | None = None
    for record in sorted(records, key=lambda r: (r.transactional_id, r.offset)):
        same = before is not None and before.transactional_id == record.transactional_id
        rows.append(_row(record, before if same else None))
        before = record
    return rows


def epoch_bump(before: TransactionValue, now: TransactionValue) -> Bump | None:
    """Return why the epoch rose between two records of one id.

    end: transactions v2 (KIP-890) raise it at every end. fence: a producer was initialised again,
    which also aborts an open transaction of the older one. past-timeout: it was aborted after its
    timeout, by the coordinator's timeout, by a fence, or under v2 by EndTxn: all three write the
    very same record (seen on 4.3.1), so the cause is unknown.
    """
    if now.producer_id != before.producer_id or now.producer_epoch <= before.producer_epoch:
        return None
    if now.state is TransactionState.EMPTY:
        return "fence"
    if now.state in _PREPARED or now.state is TransactionState.PREPARE_EPOCH_FENCE:
        ran = now.last_update_ms - now.start_ms
        past = now.start_ms >= 0 and 0 < now.timeout_ms <= ran
        if now.state is TransactionState.PREPARE_ABORT and past:
            return "past-timeout"
        return "end" if now.client_transaction_version >= 2 else "fence"
    return "fence"


def _row(record: StateRecord, before: StateRecord | None) -> HistoryRow:
    value = record.value if isinstance(record.value, TransactionValue) else None
    earlier = before.value if before and isinstance(before.value, TransactionValue) else None

    return HistoryRow(
        transactional_id=record.transactional_id,
        offset=record.offset,
        coordinator_partition=record.partition,
        timestamp=record.timestamp,
        state=str(value.state) if value else None,
        producer_id=value.producer_id if value else None,
        producer_epoch=value.producer_epoch if value else None,
        epoch_bump=epoch_bump(earlier, value) if value and earlier else None,
        timeout_ms=value.timeout_ms if value else None,
        start_timestamp=known(value.start_ms) if value else None,
        client_transaction_version=value.client_transaction_version if value else None,
        previous_producer_id=known(value.previous_producer_id) if value else None,
        next_producer_id=known(value.next_producer_id) if value else None,
        partitions=[str(tp) for tp in value.partitions] if value else [],
        tombstone=record.value is None,
    )
