"""Jobs that were away for longer than their timeout, by records of `__transaction_state`."""

from recovery.doctor.findings import DoctorFacts, Finding, judged
from recovery.doctor.outages import outages
from recovery.doctor.rules import RULES
from recovery.facts import TopicPartition, Transactions
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateRecord
from recovery.values import replace
from tests.unit.doctor_facts import HIDDEN_IDS, NOW, healthy, txn

MINUTE = 60_000
TIMEOUT = 15 * MINUTE
EMPTY, ONGOING, ABORT, DONE, COMMIT = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.PREPARE_COMMIT,
)
START = NOW - 600 * MINUTE


def record(
    name: str, minute: float, state: TransactionState, began: float = -1, offset: int = 0
) -> StateRecord:
    """A record written so many minutes after START, of a transaction that began at `began`."""
    at = START + round(minute * MINUTE)
    start = START + round(began * MINUTE) if began >= 0 else -1
    written = (TopicPartition("orders", 0),) if state in (ONGOING, ABORT) else ()
    value = TransactionValue(7, 0, TIMEOUT, state, written, at, start)
    return StateRecord(name, 3, offset, at, value)


def away(name: str = "sink-0-7", back: str = "sink-0-8") -> list[StateRecord]:
    """A job that dies at minute 2 with a transaction of minute 0, and is back at minute 45."""
    return [
        record(name, 0, ONGOING, 0),
        record("sink-1-7", 2, ONGOING, 1),
        record("other-0-1", 20, ONGOING, 19),
        record(name, 15.1, ABORT, 0),
        record(name, 15.2, DONE, 0),
        record(back, 45, EMPTY),
        record(back, 46, ONGOING, 46),
    ]


def found(*records: StateRecord, **more: object) -> list[Finding]:
    facts = healthy(outages=tuple(outages(records)), **more)
    return [f for rule, f in judged(facts, RULES) if rule.name == "timeout-too-short"]


def test_a_job_that_comes_back_after_its_timeout_is_found_with_its_times() -> None:
    [one] = found(*away())
    assert (one.kind, one.name, one.state) == ("transactional-id", "sink-0-7", "finding")
    data = one.signs[0].data
    minutes = {
        name: (data[name] - START) / MINUTE
        for name in ("started", "aborted", "silent_from", "back")
    }
    assert minutes == {"started": 0, "aborted": 15.1, "silent_from": 2, "back": 45}
    assert data["timeout_ms"] == TIMEOUT
    assert one.signs[1].data == {"names": ["sink-0-7"], "number": 1}
    assert one.signs[2].data["setting"] == "transaction.max.timeout.ms"


def test_compaction_may_have_left_only_the_complete_record() -> None:
    left = [r for r in away() if r.value.state is not ABORT]  # type: ignore[union-attr]
    assert len(found(*left)) == 1


def test_a_sink_that_went_on_meanwhile_was_not_away() -> None:
    """Two jobs may share a prefix: Flink's default, for example."""
    others = [record("sink-2-9", minute, COMMIT, minute) for minute in range(3, 45, 5)]
    assert found(*sorted([*away(), *others], key=lambda r: r.timestamp)) == []


def test_markers_that_come_late_are_no_timeout() -> None:
    """The abort was decided at once; a partition without a leader kept the id from completing."""
    late = [
        record("sink-0-7", 0, ONGOING, 0),
        record("sink-0-7", 0.1, ABORT, 0),
        record("sink-0-7", 20, DONE, 0),
        record("sink-0-8", 45, EMPTY),
    ]
    assert found(*late) == []


def test_all_ids_of_a_sink_are_one_finding() -> None:
    more = [record("sink-1-7", 16.1, ABORT, 1)]
    [one] = found(*away(), *more)
    assert one.signs[1].data == {"names": ["sink-0-7", "sink-1-7"], "number": 2}


def test_a_job_that_never_comes_back_loses_nothing_more() -> None:
    assert found(*[r for r in away() if r.transactional_id != "sink-0-8"]) == []


def test_an_abort_before_the_timeout_is_its_owners() -> None:
    """Flink aborts what it finds open when it restores."""
    records = [record("sink-0-7", 0, ONGOING, 0), record("sink-0-7", 14.9, ABORT, 0)]
    assert found(*records, record("sink-0-7", 15, EMPTY)) == []


def test_other_ids_do_not_pre_commit() -> None:
    """Their application does the work again from the last committed offsets."""
    for name in ("app-1", "app-6b1d2c3d-0000-4000-8000-abcdefabcdef-1", "0_1"):
        assert found(*away(name, name)) == []


def test_hidden_ids_and_a_hidden_log_are_unknown() -> None:
    [one] = found(transactions=Transactions(missing=(HIDDEN_IDS,)))
    assert (one.state, one.lacks) == ("unknown", "transactional ids: DESCRIBE")
    denied = replace(
        HIDDEN_IDS,
        scope="topic",
        error="TOPIC_AUTHORIZATION_FAILED",
        topic="__transaction_state",
    )
    [one] = found(missing_outages=(denied,))
    assert (one.state, one.lacks) == ("unknown", "__transaction_state: READ")


def test_only_named_ids_count_for_a_name() -> None:
    from recovery.doctor.narrowing import narrowed

    facts: DoctorFacts = healthy(
        outages=tuple(outages(away())), transactions=Transactions((txn("sink-0-7"), txn("x")))
    )
    assert len(narrowed(facts, ["sink-0-7"]).outages) == 1
    assert narrowed(facts, ["x"]).outages == ()
