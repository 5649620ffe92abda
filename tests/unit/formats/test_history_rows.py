"""Rows of `txn history`: why an epoch rose, on records as Kafka writes them.

Expected: transactions v2 (KIP-890) write Prepare* with the epoch raised by one; v1 raises it only
when a producer is initialised again (KIP-98, KIP-360) or its transaction timed out.
"""

import pytest

from recovery.facts import TopicPartition
from recovery.formats.reader import UnknownVersion
from recovery.formats.transaction_state import TransactionState as S
from recovery.formats.transaction_state import TransactionValue
from recovery.inspect.history import StateRecord
from recovery.inspect.history_rows import history_rows

BEGIN = 1_700_000_000_000
TIMEOUT = 60_000


def value(
    state: S, epoch: int, *, version: int = 0, pid: int = 7, after: int = 1000, start: int = BEGIN
) -> TransactionValue:
    """A state. after: ms since the transaction began."""
    opened = state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
    return TransactionValue(
        producer_id=pid,
        producer_epoch=epoch,
        timeout_ms=TIMEOUT,
        state=state,
        partitions=(TopicPartition("t", 0), TopicPartition("t", 10)) if opened else (),
        last_update_ms=BEGIN + after,
        start_ms=-1 if state is S.EMPTY else start,
        client_transaction_version=version,
    )


def bumps(*values: TransactionValue | UnknownVersion | None) -> list[str | None]:
    records = [StateRecord("id", 3, n, BEGIN + n, v) for n, v in enumerate(values)]
    return [row.epoch_bump for row in history_rows(records)]


@pytest.mark.parametrize("outcome", ["COMMIT", "ABORT"])
def test_v2_raises_it_at_every_end(outcome: str) -> None:
    prepare, complete = S[f"PREPARE_{outcome}"], S[f"COMPLETE_{outcome}"]
    assert bumps(
        value(S.EMPTY, 0, version=2),
        value(S.ONGOING, 0, version=2),
        value(prepare, 1, version=2),
        value(complete, 1, version=2),
        value(S.ONGOING, 1, version=2),
        value(prepare, 2, version=2),
        value(complete, 2, version=2),
    ) == [None, None, "end", None, None, "end", None]


@pytest.mark.parametrize("version", [0, 1])
def test_v1_keeps_it(version: int) -> None:
    assert (
        bumps(
            value(S.EMPTY, 4, version=version),
            value(S.ONGOING, 4, version=version),
            value(S.PREPARE_COMMIT, 4, version=version),
            value(S.COMPLETE_COMMIT, 4, version=version),
        )
        == [None] * 4
    )


@pytest.mark.parametrize("version", [0, 2])
def test_a_producer_initialised_again(version: int) -> None:
    assert bumps(value(S.COMPLETE_COMMIT, 4, version=version), value(S.EMPTY, 5, version=version))[
        1
    ] == ("fence")


def test_initialised_again_while_one_was_open_v1() -> None:
    assert bumps(
        value(S.ONGOING, 4),
        value(S.PREPARE_ABORT, 5),
        value(S.COMPLETE_ABORT, 5),
        value(S.EMPTY, 6),
    ) == [None, "fence", None, "fence"]


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(
    ("after", "past"), [(TIMEOUT - 1, False), (TIMEOUT, True), (TIMEOUT + 9_000, True)]
)
def test_aborted_past_its_timeout_may_be_a_fence_as_well(
    version: int, after: int, past: bool
) -> None:
    """lastUpdate of a Prepare* record is when it was prepared. A fence writes the same record."""
    got = bumps(
        value(S.ONGOING, 4, version=version),
        value(S.PREPARE_ABORT, 5, version=version, after=after),
    )[1]
    assert got == ("past-timeout" if past else "end" if version == 2 else "fence")


def test_a_late_commit_is_its_owners() -> None:
    assert bumps(
        value(S.ONGOING, 4, version=2), value(S.PREPARE_COMMIT, 5, version=2, after=10 * TIMEOUT)
    ) == [None, "end"]


def test_another_producer_id_says_nothing_about_epochs() -> None:
    assert bumps(value(S.COMPLETE_COMMIT, 4), value(S.EMPTY, 9, pid=8)) == [None, None]


@pytest.mark.parametrize("gap", [None, UnknownVersion(5)])
def test_after_what_cannot_be_told_nothing_is(gap: UnknownVersion | None) -> None:
    assert bumps(value(S.ONGOING, 4), gap, value(S.EMPTY, 5)) == [None, None, None]


def test_each_id_by_itself_in_offset_order() -> None:
    records = [
        StateRecord("b", 1, 5, BEGIN, value(S.EMPTY, 9)),
        StateRecord("a", 1, 12, BEGIN, value(S.EMPTY, 3)),
        StateRecord("a", 1, 7, BEGIN, value(S.EMPTY, 2)),
        StateRecord("a", 1, 14, BEGIN, None),
    ]
    rows = history_rows(records)
    assert [(r.transactional_id, r.offset, r.epoch_bump, r.tombstone) for r in rows] == [
        ("a", 7, None, False),
        ("a", 12, "fence", False),
        ("a", 14, None, True),
        ("b", 5, None, False),
    ]
    assert (rows[2].state, rows[2].producer_id, rows[2].timeout_ms) == (None, None, None)


def test_what_is_not_there_is_null_and_not_minus_one() -> None:
    [row] = history_rows([StateRecord("a", 1, 7, BEGIN, value(S.EMPTY, 2))])
    assert row.start_timestamp is row.previous_producer_id is row.next_producer_id is None
    assert row.state == "Empty"
    [row] = history_rows([StateRecord("a", 1, 7, BEGIN, value(S.ONGOING, 2))])
    assert (row.start_timestamp, row.partitions) == (BEGIN, ["t:0", "t:10"])
    [row] = history_rows([StateRecord("a", 1, 7, BEGIN, UnknownVersion(9))])
    assert (row.state, row.tombstone) == (None, False)
