"""Facts as `check` sees them, put together by hand: what each test expects follows from these."""

from collections.abc import Mapping
from typing import Any

from recovery.diagnose.diagnosis import Diagnosis, Judged
from recovery.diagnose.remedies import nothing
from recovery.diagnose.verdicts import Verdict
from recovery.facts import (
    CoordinatorFacts,
    GroupFacts,
    GroupTimes,
    Missing,
    PartitionFacts,
    TransactionFacts,
    Transactions,
)
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import History, StateRecord
from recovery.inspect.observation import OpenTransaction, Sample
from recovery.values import Reason
from recovery.watch.check_rules import Observed

NOW = 1_700_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR


def partition(name: str, held: int | None, number: int = 0) -> PartitionFacts:
    """A partition held by so many offsets; None = not seen."""
    if held is None:
        return PartitionFacts(name, number, error="LEADER_NOT_AVAILABLE")
    return PartitionFacts(
        name,
        number,
        leader=1,
        log_start_offset=0,
        last_stable_offset=100,
        high_watermark=100 + held,
    )


def judged(
    verdict: Any,
    pid: int,
    *,
    topic: str = "t",
    number: int = 0,
    start: int = 100,
    age: float | None = 60.0,
    history: History | None = None,
) -> Judged:
    """An open transaction with this verdict. age: seconds, by the coordinator's clock."""
    about = OpenTransaction(topic, number, pid, start)
    sample = Sample(partition(topic, 10, number), (), Transactions(), NOW, topic_describe=True)
    said = Verdict(
        about,
        verdict,
        "rule",
        (),
        nothing(Reason("no-rule")),
        age_seconds=age,
        age_clock=None if age is None else "coordinator",
    )
    return Judged(about, None, sample, None, history, said)


def closed(name: str, last_update: int, pid: int = 7) -> History:
    """A history whose id committed last at `last_update` (ms)."""
    value = TransactionValue(
        producer_id=pid,
        producer_epoch=1,
        timeout_ms=60_000,
        state=TransactionState.COMPLETE_COMMIT,
        partitions=(),
        last_update_ms=last_update,
        start_ms=last_update - 1000,
        previous_producer_id=-1,
        next_producer_id=-1,
        next_producer_epoch=-1,
        client_transaction_version=2,
    )
    return History(pid, (name,), (), (StateRecord(name, 0, 5, last_update, value),), None, 0, None)


def observed(
    *transactions: Judged,
    partitions: tuple[PartitionFacts, ...] = (),
    rows: tuple[TransactionFacts, ...] = (),
    coordinators: tuple[CoordinatorFacts, ...] = (),
    missing: tuple[Missing, ...] = (),
    groups: tuple[GroupFacts, ...] | None = None,
    groups_missing: tuple[Missing, ...] = (),
    expiration: int | None = 7 * DAY,
    retention: int | None = 7 * DAY,
    times: Mapping[str, GroupTimes] | None = None,
) -> Observed:
    found = Diagnosis(
        cluster_id="c",
        collected_at=NOW,
        scanned=10,
        transaction_version=2,
        brokers_up=1,
        brokers_known=1,
        partitions=partitions,
        judged=transactions,
        transactions=Transactions(),
        missing=(),
    )
    return Observed(
        diagnosis=found,
        transactions=Transactions(rows, coordinators, missing),
        groups=groups,
        groups_missing=groups_missing,
        expiration_ms=expiration,
        expiration_missing=(),
        now=NOW,
        offsets_retention_ms=retention,
        group_times=times or {},
    )
