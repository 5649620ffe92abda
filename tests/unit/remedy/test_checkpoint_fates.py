"""What became of a checkpoint's transactions: the rule, as a table of cases."""

from collections.abc import Sequence

import pytest

from recovery.facts import TopicPartition, TransactionFacts
from recovery.formats.flink_checkpoint import Committable, FlinkCheckpoint, SinkWriter
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateRecord
from recovery.remedy.transaction_fates import (
    Claims,
    Quiet,
    Recorded,
    family,
    judge,
    later_commits,
    prefixes,
    quiet_for,
    recorded,
    refused,
    rest,
)
from recovery.values import replace

ONE = Committable("etl-0-7", 40, 3, 7, "to-kafka: Committer")
OUT = (TopicPartition("out", 0),)


def record(offset: int, state: str, epoch: int, *, v2: bool, pid: int = 40) -> StateRecord:
    value = TransactionValue(
        producer_id=pid,
        producer_epoch=epoch,
        timeout_ms=60_000,
        state=TransactionState(state),
        partitions=OUT if state in ("Ongoing", "PrepareCommit", "PrepareAbort") else (),
        last_update_ms=offset,
        start_ms=1,
        client_transaction_version=2 if v2 else 0,
    )
    return StateRecord("etl-0-7", 0, offset, 1000 + offset, value)


def records(*told: tuple[str, int, bool]) -> list[StateRecord]:
    return [record(n, state, epoch, v2=v2) for n, (state, epoch, v2) in enumerate(told)]


@pytest.mark.parametrize(
    ("told", "outcome", "by_timeout"),
    [
        pytest.param([("Ongoing", 3, True)], None, False, id="open"),
        pytest.param([("PrepareCommit", 3, False)], "commit", False, id="v1-commit"),
        pytest.param([("CompleteCommit", 3, False)], "commit", False, id="v1-compacted"),
        pytest.param([("PrepareAbort", 3, False)], "abort", False, id="v1-abort"),
        pytest.param([("PrepareCommit", 4, True)], "commit", False, id="v2-commit"),
        pytest.param([("CompleteCommit", 4, True)], "commit", False, id="v2-compacted"),
        pytest.param([("CompleteAbort", 4, True)], "abort", True, id="timeout"),
        # the end of the transaction before raised the epoch to this one's
        pytest.param([("CompleteCommit", 3, True)], None, False, id="the-one-before"),
        pytest.param([("CompleteAbort", 3, True)], None, False, id="the-one-before-aborted"),
        # of clients with transactions v1 an end at E + 1 may be that of a later transaction
        pytest.param([("CompleteCommit", 4, False)], None, False, id="v1-later-commit"),
        pytest.param([("CompleteAbort", 4, False)], None, False, id="v1-later-abort"),
        pytest.param([("CompleteAbort", 5, True)], None, False, id="the-one-after"),
        pytest.param(
            [
                ("CompleteAbort", 3, True),
                ("Ongoing", 3, True),
                ("PrepareCommit", 4, True),
                ("CompleteCommit", 4, True),
                ("Ongoing", 4, True),
                ("PrepareAbort", 5, True),
            ],
            "commit",
            False,
            id="between-others",
        ),
    ],
)
def test_what_the_coordinator_recorded(
    told: Sequence[tuple[str, int, bool]], outcome: str | None, by_timeout: bool
) -> None:
    found = recorded(records(*told), ONE)
    assert (found.outcome, found.by_timeout) == (outcome, by_timeout)


def test_another_id_or_producer_is_not_asked() -> None:
    other = record(0, "PrepareAbort", 4, v2=True, pid=41)
    assert recorded([other], ONE) == Recorded()
    assert recorded(records(("PrepareAbort", 4, True)), ONE._replace(transactional_id="x")) == (
        Recorded()
    )


def test_the_first_record_of_its_end_tells_when_and_where() -> None:
    told = records(("Ongoing", 3, True), ("PrepareAbort", 4, True), ("CompleteAbort", 4, True))
    assert recorded(told, ONE) == Recorded("abort", 1001, True, OUT)


@pytest.mark.parametrize(
    "other",
    [
        ("Ongoing", 4, True),  # of the transaction after it
        ("PrepareAbort", 4, False),
        ("PrepareAbort", 3, True),  # of the one before it
    ],
)
def test_partitions_of_the_transactions_beside_it_are_not_its_own(
    other: tuple[str, int, bool],
) -> None:
    assert recorded(records(other), ONE).partitions == ()
    assert recorded(records(("Ongoing", 3, True)), ONE).partitions == OUT


def described(state: str, epoch: int = 3, pid: int = 40, name: str = "etl-0-7") -> TransactionFacts:
    return TransactionFacts(name, 1, pid, state, epoch, 60_000, 1, OUT)


NOTHING = Recorded()
COMMIT, ABORT = Recorded("commit", 1), Recorded("abort", 1, True)


@pytest.mark.parametrize(
    ("now", "past", "markers", "read", "fate", "rule"),
    [
        (described("Ongoing"), NOTHING, [None], True, "open", "ongoing"),
        (described("Ongoing"), NOTHING, [], False, "open", "ongoing"),
        (described("Ongoing", 4), NOTHING, [], True, "unknown", "no-record"),
        (described("Ongoing", 4), NOTHING, ["commit"], True, "committed", "markers"),
        (described("PrepareCommit", 4), COMMIT, [None], True, "committed", "decided"),
        (described("CompleteCommit", 4), COMMIT, [], False, "committed", "decided"),
        (described("CompleteAbort", 4), ABORT, ["abort"], True, "lost", "past-timeout"),
        (described("CompleteAbort", 4), NOTHING, ["abort", None], True, "lost", "aborted"),
        (described("Empty", 5), NOTHING, ["commit", "abort"], True, "unknown", "witnesses-differ"),
        (described("Empty", 5), COMMIT, ["abort"], True, "unknown", "witnesses-differ"),
        (described("Empty", 5), NOTHING, [], False, "unknown", "not-seen"),
        (None, NOTHING, [], True, "unknown", "id-expired"),
        (None, NOTHING, ["abort"], True, "lost", "aborted"),
    ],
)
def test_fates(
    now: TransactionFacts | None,
    past: Recorded,
    markers: list[str | None],
    read: bool,
    fate: str,
    rule: str,
) -> None:
    found = judge(ONE, now, past, markers, history_read=read, logs_read=read)
    assert (found.fate, found.rule) == (fate, rule)


def content(naming: str, *, writers: bool = True) -> FlinkCheckpoint:
    told = (SinkWriter("etl", naming, 0, "", ()),) if writers else ()
    return FlinkCheckpoint(6, 7, (ONE,), told, (), ())


def test_the_sinks_ids_are_those_of_its_prefix() -> None:
    rows = [
        described("Ongoing", name=name, epoch=0)
        for name in ("etl-0-8", "etl-1-8", "etl-x-0-8", "etl-0", "other-0-8")
    ]
    for found in (content("POOLING"), content("POOLING", writers=False)):
        assert prefixes(found) == ("etl",)
        assert [t.transactional_id for t in family(rows, found)] == ["etl-0-8", "etl-1-8"]


def test_the_rest_is_what_is_open_and_not_promised() -> None:
    rows = [described("Ongoing"), described("Ongoing", 4), described("CompleteCommit", 9)]
    assert rest(rows, content("POOLING")) == [rows[1]]


def test_a_later_checkpoint_is_proven_by_numbered_ids_alone() -> None:
    rows = [described("CompleteCommit", name=f"etl-1-{n}") for n in (6, 7, 9)]
    rows.append(described("Ongoing", name="etl-1-11"))
    assert later_commits(rows, content("INCREMENTING")) == (9,)
    assert later_commits(rows, content("POOLING")) == ()


DEAD, NEWEST, BOTH = (
    Claims(job_is_dead=True),
    Claims(is_newest=True),
    Claims(is_newest=True, job_is_dead=True),
)
LONG, SHORT, UNKNOWN = Quiet(20_000, 10_000), Quiet(19_999, 10_000), Quiet(99_999, None)


@pytest.mark.parametrize(
    ("naming", "savepoint", "folder", "kafka", "quiet", "claims", "words"),
    [
        ("INCREMENTING", False, (), (), LONG, Claims(), None),
        ("INCREMENTING", False, (), (), SHORT, DEAD, None),
        ("INCREMENTING", False, (), (), UNKNOWN, DEAD, None),
        ("POOLING", False, (), (), LONG, NEWEST, None),
        ("INCREMENTING", True, (), (), LONG, NEWEST, None),
        ("INCREMENTING", False, (8, 9), (), LONG, BOTH, "checkpoint 9 lies beside it"),
        ("INCREMENTING", False, (), (8,), LONG, BOTH, "transactions of checkpoint 8"),
        ("POOLING", False, (), (), LONG, DEAD, "no number of a checkpoint"),
        (None, False, (), (), LONG, DEAD, "no number of a checkpoint"),
        ("INCREMENTING", True, (), (), LONG, DEAD, "it is a savepoint"),
        ("INCREMENTING", False, (), (), SHORT, NEWEST, "the job may live"),
        ("INCREMENTING", False, (), (), UNKNOWN, NEWEST, "nothing began after it"),
    ],
)
def test_what_is_refused(
    naming: str | None,
    savepoint: bool,
    folder: tuple[int, ...],
    kafka: tuple[int, ...],
    quiet: Quiet,
    claims: Claims,
    words: str | None,
) -> None:
    found = refused(
        content(naming or "", writers=naming is not None),
        is_savepoint=savepoint,
        newer_in_folder=folder,
        newer_in_kafka=kafka,
        quiet=quiet,
        claims=claims,
    )
    assert (found is None) if words is None else (found is not None and words in found[0])


def test_the_rhythm_is_how_far_apart_transactions_began() -> None:
    promised = [replace(described("Ongoing"), start_timestamp=n) for n in (1_000, 1_100)]
    others = [replace(described("Ongoing", 9), start_timestamp=n) for n in (11_000, 11_300)]
    assert quiet_for(promised, others, 31_300, {1: 0}) == Quiet(20_000, 10_300)
    assert quiet_for(promised, others, 31_300, {}) == Quiet(20_000, None)
    assert quiet_for(promised, others, 31_300, {1: -5_000}) == Quiet(15_000, 10_300)
    assert quiet_for(promised, [], 31_300, {1: 0}) == Quiet(30_200, None)
