"""Of which decision a source's marker is: only where no other reading is possible."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.diagnose.source_decision import decision_of
from recovery.facts import TopicPartition
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import Marker, StateLog, StateRecord
from recovery.values import replace
from tests.share import share

PID, HERE = 7, TopicPartition("t", 0)
S = TransactionState
SKEW = 50
Step = tuple[TransactionState, int, int]  # state, epoch, time


def log(*steps: Step, version: int, first: int = 0) -> StateLog:
    records = []
    for number, (state, epoch, time) in enumerate(steps):
        named = (HERE,) if state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT) else ()
        value = TransactionValue(
            PID, epoch, 60_000, state, named, time, time, client_transaction_version=version
        )
        records.append(StateRecord("app", 3, first + number, time, value, 0))
    return StateLog(3, tuple(records), first, leader_epoch=5)


def mark(offset: int, outcome: str, epoch: int, time: int, data: int | None) -> Marker:
    return Marker(offset, outcome, epoch, 0, time, data is not None, data_epoch=data)


def found(
    end: Marker, before: Marker | None, *logs: StateLog, newest: int = 0, skew: int = SKEW
) -> int | None:
    decision = decision_of(end, before, newest, logs, PID, HERE, skew)
    return None if decision is None else decision.offset


def v1(outcome: str, time: int, epoch: int = 3, begun: int | None = None) -> list[Step]:
    begun = time - 9 if begun is None else begun
    prepare = S.PREPARE_COMMIT if outcome == "commit" else S.PREPARE_ABORT
    complete = S.COMPLETE_COMMIT if outcome == "commit" else S.COMPLETE_ABORT
    return [(S.ONGOING, epoch, begun), (prepare, epoch, time), (complete, epoch, time + 10)]


BEGUN: Step = (S.EMPTY, 3, 0)
FIRST = mark(5, "abort", 3, 105, 3)
"""The marker of the abort at 100, before the data."""


def test_v1_the_decision_in_whose_time_alone_the_marker_was_written() -> None:
    one = log(BEGUN, *v1("abort", 100), *v1("commit", 1_000), *v1("abort", 2_000), version=0)
    assert found(mark(20, "commit", 3, 1_005, 3), FIRST, one) == 5
    assert found(mark(20, "commit", 3, 1_005, 3), FIRST, one, newest=1_051) is None
    # compaction took what was before
    rest = replace(one, records=one.records[1:], whole_from=1)
    assert found(mark(20, "commit", 3, 1_005, 3), FIRST, rest) == 5


def test_v1_an_abort_by_hand_of_what_was_committed_is_no_decision() -> None:
    """The id aborted once in this epoch; later the marker of a COMMIT was lost, and somebody ran
    kafka-transactions --abort: an equal epoch and outcome are no decision."""
    lost = log(BEGUN, *v1("abort", 100), *v1("commit", 1_000), version=0)
    for time in (1_005, 5_000, 140):
        assert found(mark(20, "abort", 3, time, 3), FIRST, lost) is None
    # and another transaction of the epoch was aborted over it
    over = log(BEGUN, *v1("abort", 100), *v1("commit", 1_000), *v1("abort", 2_000), version=0)
    assert found(mark(20, "abort", 3, 2_005, 3), FIRST, over) is None
    # two decisions of the same outcome: whichever it is of, these records were committed
    same = log(BEGUN, *v1("abort", 100), *v1("commit", 1_000), *v1("commit", 2_000), version=0)
    assert found(mark(20, "commit", 3, 2_005, 3), FIRST, same) is not None


def test_v1_needs_a_marker_before_that_is_certain() -> None:
    """It shows that the decisions are of this log, and not of a deleted topic of that name."""
    one = log(BEGUN, *v1("abort", 100), *v1("commit", 1_000), version=0)
    end = mark(20, "commit", 3, 1_005, 3)
    assert found(end, None, one) is None
    assert found(end, replace(FIRST, timestamp=500), one) is None
    assert found(end, replace(FIRST, outcome="commit"), one) is None
    assert found(end, replace(FIRST, data=False, data_epoch=None), one) is None
    assert found(end, None, log(BEGUN, *v1("commit", 1_000), version=0)) is None
    # decisions after that marker may not have been loaded
    assert found(end, FIRST, replace(one, cuts={"app": 4})) is None
    # data of the next transaction may be there before the marker
    next_begun = log(BEGUN, *v1("abort", 100), *v1("commit", 1_000), *v1("abort", 1_059), version=0)
    assert found(end, FIRST, next_begun) is None
    near = log(BEGUN, *v1("abort", 100), *v1("commit", 130), version=0)
    assert found(mark(20, "commit", 3, 135, 3), FIRST, near) is None
    assert found(mark(20, "commit", 3, 135, 3), FIRST, near, skew=0) == 5


def v2(outcome: str, epoch: int, time: int, begun: int | None = None) -> list[Step]:
    steps = v1(outcome, time, epoch, begun)
    return [(s, epoch + (s is not S.ONGOING), t) for s, _, t in steps]


V2 = ((S.EMPTY, 0, 0), *v2("abort", 0, 100), *v2("commit", 1, 130), *v2("abort", 2, 160))
BEFORE = mark(5, "abort", 1, 105, 0)


@pytest.mark.parametrize("before", [BEFORE, None])
def test_v2_the_epoch_alone(before: Marker | None) -> None:
    whole = log(*V2, version=2)
    assert found(mark(20, "commit", 2, 9_999, 1), before, whole) == 5
    assert found(mark(20, "abort", 2, 135, 1), before, whole) is None  # by hand
    assert found(mark(20, "commit", 1, 135, 1), before, whole) is None
    # an abort two epochs above is of a later transaction, or of Kafka 4.0.0: not certain
    assert found(mark(20, "abort", 3, 165, 1), before, whole) is None
    # what began the epoch is compacted away: a decision of v1 in it may be too
    short = replace(whole, records=whole.records[4:], whole_from=4)
    assert found(mark(20, "commit", 2, 135, 1), before, short) is None
    # the decision itself is compacted away
    gone = replace(whole, records=whole.records[6:], whole_from=6)
    assert found(mark(20, "commit", 2, 135, 1), before, gone) is None


def test_v2_a_marker_is_of_no_decision_that_was_made_after_it() -> None:
    """The source lost __transaction_state: its producer ids and epochs began at 0 again."""
    aborts = [step for n in range(5) for step in v2("abort", n, 999_110 + 100 * n)]
    again = log((S.EMPTY, 0, 999_100), *aborts, version=2)
    assert found(mark(20, "abort", 4, 999_415, 3), None, again) == 11
    assert found(mark(20, "abort", 4, 999_410 - SKEW, 3), None, again) == 11
    assert found(mark(20, "abort", 4, 999_409 - SKEW, 3), None, again) is None
    assert found(mark(20, "abort", 4, 10, 3), None, again) is None


def test_v2_the_decision_of_an_end_that_the_log_lost_may_be_another() -> None:
    end = mark(20, "commit", 2, 135, 1)
    assert found(end, BEFORE, replace(log(*V2, version=2), cut_epoch=0)) is None
    twice = replace(log(*V2, version=2), partition=4)
    assert found(end, BEFORE, log(*V2, version=2), twice) is None
    assert found(end, BEFORE, replace(log(*V2, version=2), error="NOT_SEEN")) is None


def test_an_epoch_in_which_a_producer_went_from_v1_to_v2() -> None:
    """A COMMIT of v1 whose marker was lost, under an ABORT of v2."""
    lost = log(BEGUN, *v1("commit", 500), version=0)
    after = log(*v2("abort", 3, 900), version=2, first=len(lost.records))
    mixed = replace(lost, records=(*lost.records, *after.records))
    assert found(mark(20, "abort", 4, 905, 3), None, mixed) is None


@pytest.mark.parametrize("version", [1, 2])
@given(seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=share(400))
def test_no_reading_of_a_log_gives_another_outcome_than_was_decided(
    version: int, seed: int
) -> None:
    """Markers are lost, and written by hand at any other time than that of a decision; brokers'
    clocks differ within the skew."""
    rng = random.Random(seed)
    steps: list[Step] = [BEGUN]
    markers: list[tuple[Marker, list[tuple[int, str]]]] = []
    data: list[tuple[int, str]] = []  # epoch and outcome of what is open in the log
    epoch, now = 3, 0

    def end(outcome: str, time: int) -> None:
        of = data[-1][0] if data else None
        markers.append((mark(len(markers), outcome, epoch + version - 1, time, of), list(data)))
        data.clear()

    for _ in range(rng.randrange(2, 7)):
        outcome, by_hand = (rng.choice(["commit", "abort"]) for _ in range(2))
        now += rng.choice([20, 100, 400])
        begun = now
        data.append((epoch, outcome))
        if rng.random() < 0.2:  # by hand, while it is open
            end(by_hand, now := now + 120)
            now += rng.choice([120, 400])
        v = v1(outcome, now, epoch, begun) if version == 1 else v2(outcome, epoch, now, begun)
        steps += v
        if rng.random() < 0.7:
            end(outcome, now + rng.randrange(11) + rng.randrange(-SKEW // 2, SKEW // 2))
        elif rng.random() < 0.5:  # lost, and then by hand
            end(by_hand, now := now + 120)
            now += 120
        epoch += version - 1
    state = log(*steps, version=0 if version == 1 else 2)
    before = None
    for one, of in markers:
        # data of several epochs proves nothing before this is asked
        if len({e for e, _ in of}) == 1 and found(one, before, state) is not None:
            assert {outcome for _, outcome in of} == {one.outcome}
        before = one
