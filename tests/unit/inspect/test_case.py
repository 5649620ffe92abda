"""A case (`recovery.diagnose.case`) whose facts are missing, or are of something else: by hand."""

from typing import Any

import pytest

from eoctl.render.verdicts.evidence_words import evidence_words
from eoctl.render.verdicts.remedy_words import remedy_words
from recovery.diagnose import remedies
from recovery.diagnose.case import Case, named_after, possible_groups
from recovery.diagnose.verdicts import Verdict, judge
from recovery.errors import RefusedError
from recovery.facts import (
    CoordinatorClock,
    CoordinatorFacts,
    GroupFacts,
    Missing,
    PartitionFacts,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
    Transactions,
)
from recovery.formats.reader import UnknownVersion
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.group_life import GroupLife
from recovery.inspect.history import Decision, History, StateRecord
from recovery.inspect.observation import OpenTransaction, Sample, Settings, StartBatch
from recovery.remedy.repairs import (
    commit_refused,
    end_request,
    named_and_visible,
    remedy_allowed,
)
from recovery.values import Reason, replace
from tests.unit.said import said

PID, EPOCH, P, Q = 4001, 7, TopicPartition("t", 0), TopicPartition("t", 1)
NOW = 2_000_000_000_000


def row(state: str = "Ongoing", **other: Any) -> TransactionFacts:
    plain = TransactionFacts("orders", 1, PID, state, EPOCH, 60_000, NOW - 1000, (P,))
    return replace(plain, **other)


def record(state: str = "Ongoing", name: str = "orders", **other: object) -> StateRecord:
    value = TransactionValue(
        PID, EPOCH, 60_000, TransactionState(state), (P,), NOW, NOW, client_transaction_version=2
    )._replace(**other)  # type: ignore[arg-type]  # fmt: skip
    return StateRecord(name, 0, 5, NOW, value)


def past(*latest: StateRecord, reason: str | None = None) -> History:
    return History(PID, ("orders",), (), latest, reason, 0)


def decided(
    outcome: str = "commit", epoch: int = EPOCH + 1, version: int = 2, **other: Any
) -> Decision:
    plain = Decision(
        "orders", outcome, PID, epoch, (P,), 0, 5, NOW, version, NOW - 1000, NOW
    )  # fmt: skip
    return replace(plain, **other)


def case(
    *rows: TransactionFacts,
    history: History | None = None,
    twice: bool = False,
    named: tuple[PartitionFacts, ...] = (),
) -> Case:
    led = PartitionFacts(*P, leader=1, last_stable_offset=0, high_watermark=3, log_start_offset=0)
    sample = Sample(led, (), Transactions(rows), NOW, topic_describe=True, named=named)
    about, start = OpenTransaction(*P, PID, 0), StartBatch(PID, EPOCH)
    return Case(about, start, sample, sample if twice else None, history, Settings())


def test_nobody_is_not_moved_not_two_phase_and_has_no_deadline() -> None:
    nobody = case(twice=True)
    assert not nobody.moved
    assert not case(row("CompleteCommit"), twice=True).moved
    assert not nobody.two_phase
    assert nobody.deadline is None
    assert nobody.prepared is None
    assert nobody.hidden_in_log is None


@pytest.mark.parametrize(
    ("other", "deadline"),
    [
        ({}, NOW + 59_000),
        ({"timeout_ms": None}, None),
        ({"start_timestamp": None}, None),
        ({"timeout_ms": 2**31 - 1}, None),
    ],
)
def test_the_deadline_needs_a_start_and_a_timeout(
    other: dict[str, Any], deadline: int | None
) -> None:
    assert case(row(**other)).deadline == deadline


@pytest.mark.parametrize(
    ("newest", "found"),
    [
        (record("PrepareCommit"), True),
        (record("PrepareAbort"), False),
        (record("PrepareCommit", name="billing"), False),
        (record("PrepareCommit", producer_epoch=EPOCH - 1), False),
        (replace(record(), value=UnknownVersion(9)), False),
        (replace(record(), value=None), False),
    ],
)
def test_only_the_record_of_this_very_decision_says_when_it_was_made(
    newest: StateRecord, found: bool
) -> None:
    c = case(row("PrepareCommit"), history=past(newest))
    assert (c.prepared is not None) is found


def test_what_its_log_says_is_open_here_and_its_coordinator_does_not() -> None:
    for rows, hidden in (((), True), ((row(partitions=(Q,)),), True), ((row(),), False)):
        assert (case(*rows, history=past(record())).hidden_in_log is not None) is hidden
    told_nothing = row(partitions=None)
    assert case(told_nothing, history=past(record())).hidden_in_log is not None
    elsewhere = past(record(partitions=(Q,)))
    assert case(row(partitions=(Q,)), history=elsewhere).hidden_in_log is None


@pytest.mark.parametrize(
    ("said", "shown", "hidden"),
    [
        (record(), None, True),
        # v2: a later epoch is a later transaction, of which nothing says that it holds this batch
        (record(producer_epoch=EPOCH + 1), None, False),
        (record(producer_epoch=EPOCH + 1, client_transaction_version=1), None, True),
        (record("PrepareCommit", producer_epoch=EPOCH + 1), None, True),
        # its coordinator shows a transaction that the log did not have yet, or has no more
        (record(producer_epoch=EPOCH - 1), row(partitions=(Q,)), False),
        (record(), row(producer_epoch=EPOCH + 1, partitions=(Q,)), False),
        (record(), row(partitions=(Q,)), True),
        (record(), row("CompleteCommit", partitions=()), False),
        (record(), row(ghost=True), True),
    ],
)
def test_the_epochs_tell_whether_the_log_speaks_of_this_transaction(
    said: StateRecord, shown: TransactionFacts | None, hidden: bool
) -> None:
    """An id that goes on between the listing and the reading of its log is not hidden."""
    c = case(*(() if shown is None else (shown,)), history=past(said))
    assert (c.hidden_in_log is not None) is hidden


def test_a_transaction_that_is_open_where_its_id_lived() -> None:
    assert case(history=past(record())).open_where_it_was
    assert not case(history=past(record("PrepareCommit"))).open_where_it_was
    assert not case(history=past()).open_where_it_was
    assert not case().open_where_it_was


def test_a_moved_id_hides_nothing_in_its_log() -> None:
    c = case(history=past(record()))
    assert c.hidden_in_log is not None
    assert case(history=replace(past(record()), moved="orders")).hidden_in_log is None


@pytest.mark.parametrize(
    ("newest", "clean"),
    [
        (record(), True),
        (record(name="billing"), False),
        (record(producer_epoch=EPOCH + 1), False),
        (record(producer_id=PID + 1), False),
        (record(client_transaction_version=0), False),
        (replace(record(), value=UnknownVersion(9)), False),
        (replace(record(), value=None), False),
    ],
)
def test_compacted_only_its_own_v2_record_proves_that_nothing_lies_below(
    newest: StateRecord, clean: bool
) -> None:
    """Its transaction has an epoch to itself: no earlier one can share the batch's."""
    assert case(row(), history=past(newest, reason="history-compacted")).nothing_decided_below is (
        clean
    )
    both = past(newest, record(name="beside"), reason="history-compacted")
    assert case(row(), history=both).nothing_decided_below is clean
    nobody = case(history=past(newest, reason="history-compacted"))
    assert not nobody.nothing_decided_below
    assert case(row(), history=past()).nothing_decided_below
    assert not case(row()).nothing_decided_below


@pytest.mark.parametrize(
    ("facts", "leaderless"),
    [
        (PartitionFacts(*Q, leader=1), ()),
        (PartitionFacts(*Q, leader=None), ("t:1",)),
        (PartitionFacts(*Q, leader=1, error="TIMED_OUT"), ("t:1",)),
        (PartitionFacts("u", 1, leader=1), ("t:1",)),
    ],
)
def test_a_partition_without_a_leader_that_answers(
    facts: PartitionFacts, leaderless: tuple[str, ...]
) -> None:
    prepared = record("PrepareCommit", partitions=(P, Q))
    c = case(row("PrepareCommit"), history=past(prepared), named=(facts,))
    assert c.leaderless == leaderless


def test_all_partitions_without_a_leader_are_named() -> None:
    c = case(
        row("PrepareCommit"),
        history=past(record("PrepareCommit", partitions=(P, Q, TopicPartition("u", 9)))),
    )
    assert c.leaderless == ("t:1", "u:9")


def test_without_its_record_an_id_waits_for_what_its_coordinator_names() -> None:
    prepared = row("PrepareCommit", partitions=(P, Q))
    assert case(prepared, history=past()).leaderless == ("t:1",)
    assert case(row("PrepareCommit", partitions=None), history=past()).leaderless == ()
    assert case().leaderless == ()


def test_an_age_is_never_negative_and_may_be_nothing() -> None:
    for began, age in ((NOW, 0.0), (NOW - 1500, 1.5), (NOW + 1, None)):
        assert case(row(start_timestamp=began)).age[0] == age


def test_what_v1_decided_is_told_by_order_and_a_kept_beginning_is_no_proof() -> None:
    """One epoch of v1 is of many transactions: the record that began it says nothing of them."""
    for version, epoch, by_order in ((0, EPOCH, True), (2, EPOCH + 1, False)):
        lost = decided(version=version, epoch=epoch, begun=True)
        c = case(history=replace(past(), decisions=(lost,), reason="history-compacted"))
        c.__dict__["lost"] = (lost,)
        assert (c.lost_by_order, c.may_hide_earlier) == (by_order, by_order)


def test_below_an_open_transaction_lies_what_was_decided_and_lost() -> None:
    lost = decided(started=NOW - 9000)
    later = row(producer_epoch=EPOCH + 1)
    c = case(later, history=replace(past(), decisions=(lost,)))
    c.__dict__["lost"] = (lost,)
    assert not c.nothing_decided_below
    c.__dict__["lost"] = ()
    assert c.nothing_decided_below


def test_a_history_says_nothing_by_itself() -> None:
    assert not past().begun_by_end
    assert not past().lost_end
    assert (past().named_before, past().cached_until) == (0, 0)


def test_what_a_fence_expects_is_what_was_seen() -> None:
    for settings in (Settings(), Settings(two_phase_patterns=(".*",))):
        remedy = remedies.fence(replace(case(row()), settings=settings))
        assert (remedy.producer_id, remedy.producer_epoch) == (PID, EPOCH)


@pytest.mark.parametrize("missing", ["timeout_ms", "start_timestamp"])
def test_a_mixed_one_whose_deadline_is_not_known(missing: str) -> None:
    unknown: dict[str, Any] = {missing: None}
    assert remedies.wait_for_commit(case(row(**unknown))).deadline is None
    assert remedies.wait_for_commit(case(row())).deadline == NOW + 59_000
    assert remedies.wait_for_commit(case()).deadline is None


def test_a_mixed_one_says_what_its_commit_does_to_the_earlier_data() -> None:
    def told(outcome: str) -> tuple[str, str]:
        made = Decision("orders", outcome, PID, EPOCH + 1, (P,), 0, 5, NOW, 2, NOW - 9000, None)
        later = past(record(producer_epoch=EPOCH + 1))
        history = replace(later, decisions=(made,), markers_from=0)
        c = case(row(producer_epoch=EPOCH + 1), history=history)
        assert c.lost == (made,)
        remedy = remedies.wait_for_commit(c)
        return remedy_words(remedy.does), remedy_words(dict(remedy.refused)["resolve"])

    does, resolve = told("commit")
    assert "saves the earlier, committed data" in does
    assert "--owner-is-gone" in resolve
    does, resolve = told("abort")
    assert "its commit would deliver it" in does
    assert "--owner-is-gone" not in resolve
    assert "that is its owner's choice" in remedy_words(remedies.wait_for_commit(case(row())).does)


def test_only_a_leader_that_never_answered_leaves_it_to_the_coordinator() -> None:
    """Seen in one of two looks it may show what is open: then the partition was not seen."""
    c = case(row("PrepareCommit"), twice=True)
    about = replace(c.about, start_offset=None)
    silent = replace(c.first, partition=replace(c.first.partition, error="TIMED_OUT"))
    for first, second, unseen in (
        (silent, silent, True),
        (silent, c.first, False),
        (c.first, silent, False),
        (c.first, c.first, False),
    ):
        assert replace(c, about=about, first=first, second=second).decided_unseen is unseen


def test_late_is_what_either_clock_says() -> None:
    assert not case(row()).late
    ours = case(row(start_timestamp=NOW - 70_000))
    assert ours.late
    c = case(row(state="Ongoing", partitions=(Q,)))
    assert c.ongoing is None
    assert not c.late
    assert replace(c, first=replace(c.first, over_timeout=frozenset({"orders"}))).late
    assert replace(c, first=replace(c.first, over_long=frozenset({"orders"}))).late
    assert not replace(c, first=replace(c.first, over_long=frozenset({"billing"}))).late


def test_a_verdict_claims_nothing_by_itself() -> None:
    plain = Verdict(case().about, "open", "within-limits", (), remedies.let_it_run(case(row())))
    assert (plain.mixed, plain.offsets_pending, plain.fence_safe) == (False, False, False)
    assert plain.samples == 1


@pytest.mark.parametrize(("version", "proven"), [(2, "commit"), (0, None)])
def test_a_prepare_of_a_later_session_proves_nothing_of_the_batch(
    version: int, proven: str | None
) -> None:
    """v1: a commit with the batch's epoch + 1 is of whoever was started after its writer."""
    prepared = record("PrepareCommit", producer_epoch=EPOCH + 1)
    made = Decision("orders", "commit", PID, EPOCH + 1, (P,), 0, 5, NOW, version, NOW - 1000, None)
    history = replace(past(prepared), decisions=(made,), markers_from=0)
    c = case(row("PrepareCommit", producer_epoch=EPOCH + 1), history=history)
    assert c.lost == (made,)
    assert c.prepare_proves == proven


def test_without_the_batch_nothing_is_said_of_its_topic() -> None:
    assert not replace(case(history=past(record())), start=None).topic_unclear
    assert not case().topic_unclear


def seen(c: Case, **other: Any) -> Case:
    """The same, with something else in each look."""
    first = replace(c.first, **other)
    return replace(c, first=first, second=first if c.second else None)


# --- what is missing -----------------------------------------------------------------------------


def test_a_row_without_an_epoch_may_be_open_here_and_is_no_owner() -> None:
    for state in ("Ongoing", "PrepareCommit"):
        c = case(row(state, producer_epoch=None))
        assert c.undescribed
        assert c.ongoing is None
        assert c.preparing is None
    assert not case(row()).undescribed


@pytest.mark.parametrize(("epoch", "fits"), [(EPOCH - 1, False), (EPOCH, True), (EPOCH + 1, True)])
def test_an_id_of_an_earlier_epoch_has_nothing_to_do_with_the_batch(epoch: int, fits: bool) -> None:
    assert (case(row(producer_epoch=epoch)).ongoing is not None) is fits
    unseen = replace(case(row(producer_epoch=0)), start=None)
    assert unseen.ongoing is not None


def test_a_partition_whose_start_is_known_was_answered_for() -> None:
    silent = PartitionFacts(*P, error="LEADER_NOT_AVAILABLE")
    c = seen(case(row("PrepareCommit"), twice=True), partition=silent)
    assert not c.decided_unseen
    assert replace(c, about=OpenTransaction(*P, None, None)).decided_unseen is False
    unknown_start = replace(c, about=OpenTransaction(*P, PID, None))
    assert unknown_start.decided_unseen
    assert not replace(unknown_start, first=case(row("PrepareCommit")).first).decided_unseen


def test_groups_are_an_owners_or_nobodys() -> None:
    groups = (*(GroupFacts(g, "Stable", members=(("c", "h"),)) for g in ("orders", "billing")),)
    assert seen(case(), groups=groups).life == GroupLife()
    assert seen(case(row()), groups=groups).life == GroupLife(groups[:1])
    gone = (replace(groups[0], members=()),)
    assert seen(case(row()), groups=gone).life == GroupLife()


def test_without_the_batch_its_offset_or_the_past_nothing_is_known_of_decisions() -> None:
    history = replace(past(), decisions=(decided(source="forgotten"),))
    whole = case(history=history)
    assert whole.lost == history.decisions
    assert whole.cache_decides
    for c in (
        case(),
        replace(whole, start=None),
        replace(whole, about=OpenTransaction(*P, PID, None)),
    ):
        assert c.lost is None
        assert not c.cache_decides
        assert not c.topic_unclear
    first = replace(past(), decisions=(decided(epoch=EPOCH, version=0, offset=0),))
    assert not case(history=first).cache_decides, "the log has it, at its very beginning"


def test_a_decision_on_what_is_open_came_after_the_look_unless_its_coordinator_lost_it() -> None:
    for source, known in (("log", 0), ("cache", 0), ("forgotten", 1)):
        history = replace(past(), decisions=(decided(source=source),))
        assert len(case(row(), history=history).lost or ()) == known


def test_a_v1_decision_without_any_marker_may_be_about_an_earlier_topic() -> None:
    made = replace(past(), decisions=(decided(epoch=EPOCH, version=0),), markers_from=0)
    assert case(history=made).topic_unclear


# --- clocks --------------------------------------------------------------------------------------


def clocked(c: Case, ahead: int | None, late: bool | None, **other: Any) -> Case:
    """The coordinator's clock measured (or not), and what its filter said of the timeout."""
    rows = replace(
        c.first.transactions, clocks=() if ahead is None else (CoordinatorClock(1, ahead),)
    )
    over = None if late is None else frozenset({"orders"} if late else ())
    return seen(c, transactions=rows, over_timeout=over, **other)


@pytest.mark.parametrize(
    ("ran", "late", "ahead", "left"),
    [
        (59_000, None, None, 1000),
        (59_000, False, None, 1000),
        (60_000, False, None, 0),
        (61_000, True, None, -1000),
        (61_000, False, None, None),  # the filter contradicts our clock
        (59_000, True, None, None),
        (59_000, True, 0, 1000),  # its clock was measured
    ],
)
def test_the_deadline_by_a_clock_that_the_filter_contradicts_is_not_known(
    ran: int, late: bool | None, ahead: int | None, left: int | None
) -> None:
    c = clocked(case(row(start_timestamp=NOW - ran)), ahead, late)
    assert c.ahead == ahead
    assert c.deadline_in == left


def test_the_clock_of_what_is_here_is_its_coordinators() -> None:
    for state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
        assert clocked(case(row(state)), 500, None).ahead == 500
        assert clocked(case(row(state, coordinator=2)), 500, None).ahead is None
    assert clocked(case(elsewhere()), 500, None).ahead is None


def test_only_a_late_ones_abort_cycle_is_of_interest() -> None:
    cycles = {"abort_cycles": ((1, 10_000), (2, 20_000))}
    assert clocked(case(row()), None, True, **cycles).abort_cycle == 10_000
    assert clocked(case(row()), None, False, **cycles).abort_cycle is None
    assert clocked(case(), None, True, **cycles).abort_cycle is None


@pytest.mark.parametrize(
    ("past_by", "ahead", "missed"),
    [(19_999, 0, None), (20_000, 0, 2), (35_000, 0, 3), (35_000, None, None)],
)
def test_missed_cycles_are_proven_by_its_own_clock_only(
    past_by: int, ahead: int | None, missed: int | None
) -> None:
    late = case(row(start_timestamp=NOW - 60_000 - past_by))
    assert clocked(late, ahead, True, abort_cycles=((1, 10_000),)).cycles_missed == missed
    assert clocked(late, ahead, True).cycles_missed is None
    never = case(row(timeout_ms=2**31 - 1))
    assert clocked(never, ahead, True, abort_cycles=((1, 10_000),)).cycles_missed is None
    assert clocked(case(), ahead, True, abort_cycles=((1, 10_000),)).cycles_missed is None


def test_one_millisecond_past_a_limit_is_past_where_no_skew_is_allowed() -> None:
    c = case(row(start_timestamp=NOW - 60_001))
    assert replace(c, settings=Settings(clock_skew=0)).past_timeout is True
    assert c.past_timeout is None


@pytest.mark.parametrize(
    ("past_by", "stuck", "long_ago"),
    [
        (60_000 + 5000, None, False),
        (60_000 + 5001, None, True),
        (60_000 + 5001, False, False),  # its coordinator's clock sees it run for less
        (60_000 + 5001, True, True),
        (-5000, True, False),
        (-5001, True, True),  # our clock makes no sense
        (-5001, None, False),
    ],
)
def test_decided_long_ago_by_the_record_beyond_the_skew(
    past_by: int, stuck: bool | None, long_ago: bool
) -> None:
    made = replace(record("PrepareCommit"), timestamp=NOW - past_by)
    over = None if stuck is None else frozenset({"orders"} if stuck else ())
    c = seen(case(row("PrepareCommit"), history=past(made)), over_stuck=over)
    assert c.prepared_long_ago is long_ago
    assert not seen(case(history=past(made)), over_stuck=over).prepared_long_ago
    assert case(history=past(made)).prepared is None


# --- what was decided ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decisions", "other", "outcome"),
    [
        ((decided(),), {}, "commit"),
        ((decided(), decided(epoch=EPOCH + 2)), {}, None),
        ((), {}, None),
        ((decided("abort"),), {}, None),
        ((decided(),), {"reason": "history-compacted"}, None),
        ((replace(decided(), begun=True),), {"reason": "history-compacted"}, "commit"),
    ],
)
def test_a_prepare_proves_the_outcome_as_the_only_decision(
    decisions: tuple[Decision, ...], other: dict[str, Any], outcome: str | None
) -> None:
    history = replace(past(), decisions=decisions, **other)
    now = row("PrepareCommit", producer_epoch=EPOCH + 1, start_timestamp=NOW - 1000)
    c = case(now, history=history)
    c.__dict__["lost"] = decisions  # those made until the look, that one among them
    assert c.prepare_proves == outcome
    assert case(history=history).prepare_proves is None
    assert replace(c, start=None).prepare_proves is None


def test_lost_decisions_agree_if_there_are_some_and_the_first_is_on_the_batch() -> None:
    def agree(*decisions: Decision) -> bool:
        return case(history=replace(past(), decisions=decisions)).lost_agree

    assert not agree()
    assert agree(decided())
    assert not agree(decided(epoch=EPOCH + 3))
    assert not agree(decided(), decided("abort", EPOCH + 2))
    c = case(history=replace(past(), decisions=(decided(),)))
    assert not replace(c, start=None).lost_agree


def test_what_its_producer_wrote_beyond_a_lost_decision() -> None:
    lost = replace(past(), decisions=(decided(),))

    def wrote(epoch: int, history: History = lost) -> bool:
        last = ProducerFacts(*P, PID, epoch, 0, NOW, 0, 0)
        return seen(case(history=history), producers=(last,)).written_beyond

    assert not wrote(EPOCH)
    assert wrote(EPOCH + 1)
    assert not wrote(EPOCH + 1, past())
    v1 = replace(
        past(), decisions=(decided(epoch=EPOCH, version=0),), markers_from=0, named_since=0
    )
    assert not wrote(EPOCH, v1)
    assert wrote(EPOCH + 1, v1)
    assert not case(history=lost).written_beyond


def test_an_id_is_seen_by_its_row_or_with_all_coordinators() -> None:
    lost = replace(past(), decisions=(decided(),))
    coordinators = (CoordinatorFacts(0, 1, True), CoordinatorFacts(1, 1, False))

    def seen_by(*rows: TransactionFacts, moving: bool = True) -> bool:
        listed = Transactions(rows, coordinators[: 2 if moving else 1])
        return seen(case(history=lost), transactions=listed).deciders_seen

    ended = row("CompleteCommit")
    assert seen_by(moving=False)
    assert not seen_by()
    assert seen_by(ended)
    assert not seen_by(replace(ended, transactional_id="billing"))
    assert not seen_by(replace(ended, error="NOT_COORDINATOR"))
    c = seen(case(history=lost, twice=True), transactions=Transactions((), coordinators[:1]))
    moved = Transactions((), coordinators)
    assert c.deciders_seen
    assert not replace(c, second=replace(c.first, transactions=moved)).deciders_seen


@pytest.mark.parametrize(
    ("marked", "reached", "replaced"),
    [(None, 3, False), (3, 3, False), (4, 3, True), (4, None, False)],
)
def test_a_marker_of_a_coordinator_that_the_log_has_not_reached(
    marked: int | None, reached: int | None, replaced: bool
) -> None:
    history = replace(past(), leader_epoch=reached)
    last = ProducerFacts(*P, PID, EPOCH, 0, NOW, marked, 0)
    c = seen(case(history=history), producers=(last,))
    assert (c.replaced is not None) is replaced
    assert replace(c, about=OpenTransaction(*P, None, None)).replaced is None


# --- what a fence ends ---------------------------------------------------------------------------


def test_a_fence_ends_what_its_ongoing_record_names_if_all_of_it_is_visible() -> None:
    made = record(partitions=(Q, P)).value
    assert named_and_visible(row(partitions=(P, Q)), made) == (P, Q)
    for visible, told in (
        ((P,), "on 2 partitions, of which 1 can"),
        ((), "2 partitions, of which 0 can"),
    ):
        with pytest.raises(RefusedError, match=told) as refused:
            named_and_visible(row(partitions=visible), made)
        assert refused.value.remedy == "grant DESCRIBE on t"
    for unseen in (None, ()):
        with pytest.raises(RefusedError, match="on 0 partitions, of which 0 can be seen"):
            named_and_visible(row(partitions=unseen), record(partitions=()).value)


@pytest.mark.parametrize(
    "newest",
    [
        None,
        UnknownVersion(9),
        record("PrepareCommit").value,
        record(producer_id=PID + 1).value,
        record(producer_epoch=EPOCH + 1).value,
    ],
)
def test_a_record_of_something_else_names_no_partitions_of_a_fence(
    newest: TransactionValue | UnknownVersion | None,
) -> None:
    with pytest.raises(RefusedError, match="not about this open transaction"):
        named_and_visible(row(), newest)


# --- what was not answered, and what to do about it ----------------------------------------------

DENIED, LATE = "TOPIC_AUTHORIZATION_FAILED", "REQUEST_TIMED_OUT"
OPEN_HERE = ProducerFacts(*P, PID, EPOCH, 0, NOW, 0, 0)


def verdict(c: Case) -> Verdict:
    """Judge a case whose leader shows the transaction open, unless the samples say otherwise."""
    found = judge(c.about, c.start, c.first, c.second, c.history, c.settings)
    assert found is not None
    return found


def opened(*rows: TransactionFacts, history: History | None = None, twice: bool = True) -> Case:
    """As `case`, with its producer, and the only coordinator seen."""
    c = seen(case(*rows, history=history, twice=twice), producers=(OPEN_HERE,))
    return seen(c, transactions=Transactions(rows, (CoordinatorFacts(0, 1, True),)))


EARLIER = decided(epoch=EPOCH, version=0, started=NOW - 9000)
"""Of v1, an earlier transaction of the id, in the same epoch."""


def told(v: Verdict) -> str:
    """The reason of an `unknown`."""
    return next(evidence_words(e) for e in v.evidence if e.code == v.rule)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("partition", "answer", "then"),
    [
        ({"error": LATE}, f": broker 1 answered ListOffsets with {LATE}", "wait until"),
        ({"error": LATE, "leader": None}, f": ListOffsets with {LATE}", "wait until"),
        ({"error": DENIED}, f" ListOffsets with {DENIED}", "grant DESCRIBE on topic t"),
        ({"high_watermark": None}, "did not give its offsets", "wait until"),
        ({"last_stable_offset": None}, "did not give its offsets", "wait until"),
    ],
)
def test_a_partition_that_one_look_did_not_see(
    partition: dict[str, Any], answer: str, then: str, number: int
) -> None:
    """Whichever look lacks it, and whether or not an error says why."""
    c = opened(row())
    hole = replace(c.first, partition=replace(c.first.partition, **partition))
    v = verdict(replace(c, first=hole) if number == 0 else replace(c, second=hole))
    assert (v.name, v.rule) == ("unknown", "partition-not-seen")
    assert told(v).endswith(answer)
    assert remedy_words(v.remedy.does).startswith(then)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("why", "answer", "then"),
    [
        (
            Missing("partition", DENIED, "", broker=3),
            f": broker 3 answered DescribeProducers with {DENIED}",
            "grant READ on topic t",
        ),
        (
            Missing("partition", LATE, ""),
            f"were not seen: DescribeProducers with {LATE}",
            "wait until the partition's leader answers",
        ),
        (None, "were not seen", "wait until the partition's leader answers"),
    ],
)
def test_producers_that_one_look_did_not_see(
    why: Missing | None, answer: str, then: str, number: int
) -> None:
    c = opened(row())
    hole = replace(c.first, producers=None, producers_missing=why)
    v = verdict(replace(c, first=hole) if number == 0 else replace(c, second=hole))
    assert (v.name, v.rule) == ("unknown", "producers-not-seen")
    assert told(v).endswith(answer)
    assert remedy_words(v.remedy.does).startswith(then)


@pytest.mark.parametrize(
    ("start", "why", "answer", "then"),
    [
        (None, None, "was not read", "ask again; if it stays so"),
        (
            None,
            Missing("partition", DENIED, "no READ", broker=3),
            f"was not read: broker 3 answered Fetch with {DENIED} (no READ)",
            "grant READ on topic t",
        ),
        (
            None,
            Missing("partition", "OFFSET_OUT_OF_RANGE", "it begins at 9"),
            "was not read: Fetch with OFFSET_OUT_OF_RANGE (it begins at 9)",
            "ask again; if it stays so",
        ),
        (
            StartBatch(PID + 1, EPOCH),
            Missing("partition", LATE, "so"),
            f"is not producer id {PID}'s (so)",
            "ask again; if it stays so",
        ),
        (StartBatch(PID + 1, EPOCH), None, f"is not producer id {PID}'s", "ask again; if it"),
    ],
)
def test_a_start_batch_that_was_not_read(
    start: StartBatch | None, why: Missing | None, answer: str, then: str
) -> None:
    for at in (0, 7):
        c = replace(opened(row()), start=start)
        of_this = at == 0 or why is None
        c = seen(c, unread=() if why is None else ((at, why),))
        v = verdict(c)
        assert (v.name, v.rule) == ("unknown", "start-batch-not-read")
        assert told(v).endswith(answer) is of_this, "the answer about another batch is none"
        assert not of_this or remedy_words(v.remedy.does).startswith(then)


def test_why_a_batch_was_not_read_in_the_first_look_counts_too() -> None:
    c = replace(opened(row()), start=None)
    why = Missing("partition", LATE, "so")
    hole = replace(c.first, unread=((0, why),))
    for one in (replace(c, first=hole), replace(c, second=hole)):
        assert told(verdict(one)).endswith(f"was not read: Fetch with {LATE} (so)")


@pytest.mark.parametrize(
    "about",
    [OpenTransaction(*P, None, None), OpenTransaction(*P, PID, None), "vanished", "begun again"],
)
def test_a_partition_that_is_held_by_nothing_that_its_leader_names(
    about: OpenTransaction | str,
) -> None:
    c = opened(row())
    if isinstance(about, OpenTransaction):
        c = replace(c, about=about)
    else:  # no row in the second look, and the LSO where it was
        assert c.second is not None
        later = replace(OPEN_HERE, current_txn_start_offset=2)
        now = () if about == "vanished" else (later,)
        c = replace(c, second=replace(c.second, producers=now))
    for looked in (c,) if isinstance(about, str) else (c, replace(c, second=None)):
        v = verdict(looked)
        assert (v.rule, remedy_words(v.remedy.does)) == (
            "no-open-transaction",
            "ask again: a marker may not have reached all replicas yet",
        )


@pytest.mark.parametrize(
    ("late", "rule", "then"),
    [
        (None, "history-not-read", "ask again; wait until the partitions"),
        (LATE, "history-not-read", "ask again; wait until the partitions"),
        (DENIED, "history-not-read", "grant READ on __transaction_state"),
    ],
)
def test_a_history_that_was_not_read(late: str | None, rule: str, then: str) -> None:
    """Without its error nothing is said of a reason."""
    lost = None if late is None else replace(past(reason="history-not-read"), log_error=late)
    v = verdict(opened(history=lost))
    assert v.rule == rule
    assert ("(" in told(v)) is (late is not None)
    assert late is None or f"({late})" in told(v)
    assert remedy_words(v.remedy.does).startswith(then)


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        (None, ""),
        (past(reason="history-compacted"), " (history-compacted)"),
        (replace(past(), decisions=(EARLIER,), markers_from=0), ""),
    ],
)
@pytest.mark.parametrize(
    "late", [{"over_timeout": frozenset({"orders"})}, {"over_long": frozenset({"orders"})}]
)
def test_past_a_limit_while_decided_data_may_lie_below(
    history: History | None, reason: str, late: dict[str, Any]
) -> None:
    limits: dict[str, Any] = {"over_timeout": frozenset(), "over_long": frozenset()}
    c = seen(opened(row(), history=history), **limits | late)
    v = verdict(c)
    assert v.rule == "earlier-decision-not-excluded"
    assert told(v).endswith("lies under it is not known" + reason)
    assert not v.fence_safe
    in_time = verdict(seen(opened(row(), history=history), **limits))
    assert (in_time.rule, in_time.fence_safe) == ("within-limits", False)


@pytest.mark.parametrize("limit", ["over_timeout", "over_long"])
def test_one_clock_that_is_not_known_makes_the_other_limit_unknown_too(limit: str) -> None:
    c = opened(row(start_timestamp=None), history=past())
    known: dict[str, Any] = {"over_timeout": frozenset(), "over_long": frozenset()}
    assert verdict(seen(c, **known)).rule == "within-limits"
    assert verdict(seen(c, **known | {limit: None})).rule == "clock-not-seen"


def test_what_nobody_owns_is_not_fenced() -> None:
    v = verdict(opened(history=past()))
    assert (v.rule, v.owner, v.fence_safe, v.samples) == ("nobody-owns-it", None, False, 2)
    assert verdict(opened(row(), history=past())).fence_safe


@pytest.mark.parametrize(
    ("denied", "answer", "then"),
    [
        ((), "lists it so", "ask again, until its coordinator shows it"),
        (
            (Missing("transaction", DENIED, "", broker=2, id="orders"),),
            f"lists it so: broker 2 answered DescribeTransactions with {DENIED}",
            "grant DESCRIBE on that transactional id",
        ),
        (
            (Missing("transaction", DENIED, "", id="billing"),),
            "lists it so",
            "ask again, until its coordinator shows it",
        ),
    ],
)
def test_an_id_that_its_log_shows_open_and_no_coordinator_lists(
    denied: tuple[Missing, ...], answer: str, then: str
) -> None:
    v = verdict(seen(opened(history=past(record())), denied=denied))
    assert v.rule == "log-says-open"
    assert told(v).startswith("__transaction_state says that orders is open with")
    assert told(v).endswith(answer)
    assert remedy_words(v.remedy.does).startswith(then)


@pytest.mark.parametrize("rows", [(row(),), (), (row("PrepareCommit"),)])
def test_only_a_remedy_that_waits_for_an_owner_waits_for_brokers(
    rows: tuple[TransactionFacts, ...],
) -> None:
    """An orphan's marker goes to its leader, and what is decided has a remedy of its own."""
    few = (CoordinatorFacts(0, 1, True, in_sync=1, least=2, away=(2,)),)
    c = opened(
        *rows, history=past(*(record("PrepareCommit") for r in rows if r.state != "Ongoing"))
    )
    v = verdict(seen(c, transactions=Transactions(rows, few)))
    assert (v.short_log is not None) is (v.rule == "within-limits")
    assert (v.remedy.action == "restore-leader") is (v.rule == "within-limits")


# --- whose it is, and where ----------------------------------------------------------------------


def elsewhere(**other: Any) -> TransactionFacts:
    """The id, open on the other partition alone."""
    return row(partitions=(Q,), **other)


def test_a_coordinator_hides_only_topics_that_it_does_not_name() -> None:
    """Without DESCRIBE on the topic an id that names the partition is described all the same."""
    for described, rows, hidden in (
        (False, (row(),), False),
        (False, (elsewhere(),), True),
        (True, (elsewhere(),), False),
        (True, (row(partitions=None),), True),
    ):
        assert bool(seen(case(*rows), topic_describe=described).undescribed) is hidden


@pytest.mark.parametrize(
    ("start", "epoch", "owns"),
    [
        (StartBatch(PID, EPOCH), EPOCH, True),
        (StartBatch(PID, EPOCH), EPOCH + 1, False),
        (StartBatch(PID, EPOCH, deleted=True), EPOCH + 1, True),
        (None, EPOCH, False),
    ],
)
def test_an_owner_is_ongoing_in_the_batchs_epoch_where_a_batch_is_left(
    start: StartBatch | None, epoch: int, owns: bool
) -> None:
    c = replace(case(row(producer_epoch=epoch)), start=start)
    assert (c.owner is not None) is owns
    assert c.ongoing is not None


def test_an_id_is_elsewhere_that_one_of_the_looks_showed_elsewhere() -> None:
    there = elsewhere()
    c = case(there, twice=True)
    gone = replace(c.first, transactions=Transactions())
    for first, second in ((c.first, gone), (gone, c.first), (c.first, c.first)):
        assert replace(c, first=first, second=second).elsewhere == (there,)
    assert case(row(), twice=True).elsewhere == ()
    unknown = row(partitions=None)
    assert case(unknown).elsewhere == (unknown,)


def test_that_no_id_names_a_partition_is_known_from_all_coordinators_or_by_a_decision() -> None:
    lost = replace(past(), decisions=(decided(),))
    for rows, all_seen, history, unnamed in (
        ((), True, None, True),
        ((), False, None, False),
        ((), False, past(), False),
        ((), False, lost, True),
        ((row(),), True, None, False),
        ((elsewhere(),), True, None, True),
    ):
        listed = Transactions(rows, (CoordinatorFacts(0, 1, all_seen),))
        assert seen(case(*rows, history=history), transactions=listed).is_unnamed is unnamed


def test_an_owner_moved_that_wrote_or_took_a_partition_between_the_looks() -> None:
    now = row(partitions=(P, Q))
    billing = row(transactional_id="billing", producer_id=PID + 1)
    for before, moved in (
        ((billing, now), False),
        ((billing, row()), True),
        ((billing,), False),  # the first look did not list it
    ):
        c = case(billing, now, twice=True)
        assert replace(c, first=replace(c.first, transactions=Transactions(before))).moved is moved
    c = opened(row())
    wrote = replace(OPEN_HERE, last_sequence=1)
    assert not c.moved
    assert c.second is not None
    assert replace(c, second=replace(c.second, producers=(wrote,))).moved
    assert replace(c, second=replace(c.second, producers=())).still_writing
    marked = replace(OPEN_HERE, coordinator_epoch=1)
    assert not replace(c, second=replace(c.second, producers=(marked,))).still_writing


def test_late_is_only_what_is_ongoing_here_or_elsewhere() -> None:
    over = {"over_timeout": frozenset({"orders"})}
    assert seen(case(elsewhere()), **over).late
    assert not seen(case(), **over).late
    for state in ("PrepareCommit", "PrepareAbort"):
        assert not seen(case(elsewhere(state=state)), **over).late
    hour: dict[str, Any] = {"timeout_ms": 3_600_000}
    assert case(row(start_timestamp=NOW - 15 * 60_000 - 5001, **hour)).late
    assert not case(row(start_timestamp=NOW - 15 * 60_000 - 5000, **hour)).late


@pytest.mark.parametrize(
    ("facts", "unled"),
    [
        ({"leader": 1}, ()),
        ({"leader": None}, ("t:0",)),
        ({"leader": 1, "error": "TIMED_OUT"}, ("t:0",)),
    ],
)
def test_which_of_its_partitions_cannot_take_a_marker(
    facts: dict[str, Any], unled: tuple[str, ...]
) -> None:
    other = PartitionFacts(*Q, leader=None)
    named = (PartitionFacts(*P, **facts), other)
    assert case(row(), named=named).unled == unled
    assert case(named=named).unled == ()
    assert case(row(partitions=None), named=named).unled == ()
    assert case(elsewhere(), named=named).unled == ("t:1",)


@pytest.mark.parametrize(
    ("past_by", "late"), [(-5001, False), (-5000, None), (5000, None), (5001, True)]
)
def test_a_limit_by_our_clock_is_passed_beyond_the_skew(past_by: int, late: bool | None) -> None:
    assert case(row(start_timestamp=NOW - 60_000 - past_by)).past_timeout is late
    ran = row(start_timestamp=NOW - 15 * 60_000 - past_by)
    assert case(ran).past_long is late


def test_a_limit_that_is_not_known_is_not_passed() -> None:
    over = {"over_timeout": frozenset({"orders"})}
    assert seen(case(row()), **over).past_timeout is True
    assert seen(case(row(timeout_ms=None)), **over).past_timeout is None
    assert seen(case(), **over).past_timeout is None
    assert case(row(start_timestamp=None)).past_long is None


@pytest.mark.parametrize(
    ("epoch", "version", "outcome"),
    [(EPOCH, 0, "commit"), (EPOCH + 1, 2, "commit"), (EPOCH + 2, 2, None)],
)
def test_a_prepare_is_about_the_batch_in_its_epoch_or_the_next(
    epoch: int, version: int, outcome: str | None
) -> None:
    c = case(row("PrepareCommit", producer_epoch=epoch), history=past())
    c.__dict__["lost"] = (decided(epoch=EPOCH + bool(version), version=version),)
    assert c.prepare_proves == outcome


@pytest.mark.parametrize(
    ("reason", "replaced"),
    [(None, True), ("history-compacted", True), ("history-not-read", False)],
)
def test_a_log_that_was_not_read_is_not_called_replaced(reason: str | None, replaced: bool) -> None:
    """A marker above its leader epoch says of a log that was read that it is new."""
    history = replace(past(reason=reason), leader_epoch=3)
    c = seen(case(history=history), producers=(replace(OPEN_HERE, coordinator_epoch=4),))
    assert (c.replaced is not None) is replaced
    gone = replace(past(reason="history-replaced"), detail="it is another log")
    assert case(history=gone).replaced == {"detail": "it is another log"}
    assert case(history=replace(gone, detail=None)).replaced is None


def test_what_is_decided_in_the_look_counts_and_what_came_after_it_does_not() -> None:
    own, later = decided(), decided(epoch=EPOCH + 2, started=NOW)
    history = replace(past(), decisions=(own, later))
    preparing = row("PrepareCommit", producer_epoch=EPOCH + 1)
    assert case(preparing, history=history).lost == (own,)
    assert case(row(), history=history).lost == ()
    assert case(history=history).lost == (own, later)
    another = row("PrepareCommit", transactional_id="billing", producer_epoch=EPOCH + 1)
    assert case(another, history=history).lost == (own, later)


@pytest.mark.parametrize(
    ("other", "lost_it"),
    [({}, True), ({"start_timestamp": NOW}, False), ({"transactional_id": "billing"}, False)],
)
def test_a_coordinator_that_lost_the_decision_on_what_it_shows_open(
    other: dict[str, Any], lost_it: bool
) -> None:
    history = replace(past(), decisions=(decided(source="forgotten"),))
    assert case(row(**other), history=history).coordinator_lost_it is lost_it
    assert not case(history=history).coordinator_lost_it
    assert not case(row(), history=past()).coordinator_lost_it
    another = decided(epoch=EPOCH + 2, started=NOW - 5, source="forgotten")
    both = replace(history, decisions=(*history.decisions, another))
    assert case(row(**other), history=both).coordinator_lost_it is lost_it


def test_without_its_start_batch_what_the_log_says_is_open_is_hidden() -> None:
    c = replace(case(history=past(record(producer_epoch=EPOCH + 1))), start=None)
    assert c.hidden_in_log is not None


def test_an_age_is_of_the_id_that_is_here_or_of_the_last_write() -> None:
    last = replace(OPEN_HERE, last_timestamp=NOW - 2500)
    for rows, producers, age in (
        ((row(),), (last,), (1.0, "coordinator")),
        ((row("PrepareCommit"),), (last,), (1.0, "coordinator")),
        ((row(start_timestamp=None),), (last,), (None, None)),
        ((elsewhere(),), (last,), (2.5, "producer")),
        ((), (last,), (2.5, "producer")),
        ((), (), (None, None)),
    ):
        assert seen(case(*rows), producers=producers).age == age
    nobody = replace(case(), about=OpenTransaction(*P, None, None))
    assert nobody.age == (None, None)


@pytest.mark.parametrize(
    ("ids", "anew"),
    [(("a", "a"), False), (("a", "b"), True), (("a", None), False), ((None, None), False)],
)
def test_two_topic_ids_are_two_logs_and_one_that_is_hidden_is_none(
    ids: tuple[str | None, str | None], anew: bool
) -> None:
    c = case(twice=True)
    first, second = (
        replace(c.first, partition=replace(c.first.partition, topic_id=i)) for i in ids
    )
    assert replace(c, first=first, second=second).made_anew is anew


def test_what_the_partitions_own_look_says_of_its_leader_counts() -> None:
    prepared = row("PrepareCommit"), past(record("PrepareCommit"))
    stale = PartitionFacts(*P, leader=None)
    assert case(prepared[0], history=prepared[1], named=(stale,)).leaderless == ()


@pytest.mark.parametrize(
    ("transactional_id", "group", "named"),
    [
        ("app", "app", True),
        ("app-0_1", "app", True),
        ("app-6b1d-1", "app-6b1d", True),
        ("application-1", "app", False),
        ("app", "app-1", False),
        ("-1", "", False),
        ("connect-cluster-c", "c", True),
        ("connect-cluster-c", "connect", True),
        ("c", "connect-cluster-c", False),
    ],
)
def test_an_id_is_named_after_a_group_word_by_word(
    transactional_id: str, group: str, named: bool
) -> None:
    assert named_after(transactional_id, group) is named
    if named:
        assert group in possible_groups(transactional_id)


def test_who_a_remedy_is_about() -> None:
    live, endless = case(row()), case(row(timeout_ms=2**31 - 1))
    assert remedies.let_it_run(live).transactional_id == "orders"
    assert remedies.let_it_run(live).producer_epoch == EPOCH
    assert remedies.leave_to_its_system(endless).transactional_id == "orders"
    assert remedies.wait_for_commit(live).transactional_id == "orders"
    assert remedies.wait_for_commit(case()).transactional_id is None


@pytest.mark.parametrize(("timeout", "told"), [(60_000, ""), (2**31 - 1, " with --owner-is-gone")])
def test_an_id_that_is_open_elsewhere_is_fenced_first(timeout: int, told: str) -> None:
    remedy = remedies.wait_for_namesake(case(elsewhere(timeout_ms=timeout)))
    assert f"or fence it first{told}; then abort this one" in remedy_words(remedy.does)
    assert (remedy.transactional_id, remedy.producer_id, remedy.producer_epoch) == (
        "orders",
        PID,
        EPOCH,
    )


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_coordinator_that_lost_a_decision_says_what_its_timeout_then_does(outcome: str) -> None:
    history = replace(past(), decisions=(decided(outcome, source="forgotten"),))
    does = remedy_words(remedies.wait_for_commit(case(row(), history=history)).does)
    assert does.startswith("the coordinator of orders has lost that decision")
    assert ("--owner-is-gone" in does) is (outcome == "commit")
    assert does.endswith("its timeout aborts it, as was decided") is (outcome == "abort")


# --- what a verdict allows -----------------------------------------------------------------------


def owned(**other: Any) -> Verdict:
    """Past --long-after, with nothing that speaks against a fence or a commit."""
    v = verdict(opened(row(), history=past()))
    return replace(v, **{"name": "long", "rule": "past-long"} | other)


FEW = CoordinatorFacts(0, 1, True, in_sync=1, least=2)
REPORT, ALIVE = Reason("no-rule"), Reason("worked-on", {"name": "orders"})
AWAY = remedies.start_brokers_first(FEW, ("t:1",), remedies.nothing(REPORT))
BACK = "its end cannot be written before __transaction_state:0 is back"


def test_its_coordinators_log_comes_back_before_its_partitions() -> None:
    assert AWAY.partitions == ("__transaction_state:0", "t:1")
    assert "until enough replicas of __transaction_state:0 are in sync" in said(AWAY.does)


@pytest.mark.parametrize(
    ("other", "plain", "stopped", "gone"),
    [
        ({}, None, None, None),
        ({"name": "overdue"}, None, None, None),
        ({"name": "open"}, "it is within its limits", None, None),
        ({"name": "orphan"}, *["fence does not fit this verdict"] * 3),
        ({"owner": None}, *["no id is Ongoing with this producer id"] * 3),
        ({"owner": row("PrepareCommit")}, *["no id is Ongoing with this producer id"] * 3),
        ({"fence_safe": False}, *["whether decided data lies under its transaction"] * 3),
        ({"gate": ALIVE}, *["on between the two looks"] * 2, None),
        ({"short_log": FEW, "remedy": AWAY}, *[BACK] * 3),
        ({"unled": ("t:1",), "remedy": AWAY}, *[BACK] * 3),
    ],
)
def test_whom_a_fence_may_end(
    other: dict[str, Any], plain: str | None, stopped: str | None, gone: str | None
) -> None:
    """Who is gone for good is ended past any gate, never past decided data or missing brokers."""
    v = owned(**other)
    for how, expected in (
        ({}, plain),
        ({"is_stopped": True}, stopped),
        ({"owner_is_gone": True}, gone),
    ):
        why = remedy_allowed(v, "fence", **how)
        assert (why is None) is (expected is None)
        assert (expected or "") in said(why)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({}, None),
        ({"name": "open"}, None),
        ({"name": "overdue"}, None),
        ({"name": "marker-lost"}, "marker-lost cannot be committed with it"),
        ({"owner": None}, "there is nothing to commit"),
        ({"owner": row("PrepareCommit")}, "there is nothing to commit"),
        ({"owner": row(timeout_ms=2**31 - 1)}, "only its own system knows the outcome"),
        ({"mixed": True, "name": "marker-lost", "proven_outcome": "commit"}, None),
        (
            {"mixed": True, "name": "marker-lost", "proven_outcome": "abort"},
            "a commit would deliver what was aborted",
        ),
        ({"fence_safe": False}, "whether decided data lies under its transaction is not known"),
        ({"short_log": FEW, "remedy": AWAY}, BACK),
        ({"unled": ("t:1",), "remedy": AWAY}, BACK),
    ],
)
def test_what_may_be_committed_in_a_dead_owners_stead(
    other: dict[str, Any], why: str | None
) -> None:
    refused = commit_refused(owned(**other))
    assert (refused is None) is (why is None)
    assert (why or "") in said(refused)
    instead = remedy_allowed(owned(**other), "resolve", owner_is_gone=True)
    assert (instead is None) is (why is None and bool(other.get("mixed")))
    if not other.get("mixed"):
        assert "--owner-is-gone does not apply" in said(instead)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({}, None),
        ({"rule": "history-moved"}, None),
        ({"rule": "history-not-read"}, "another look may still show its outcome"),
        ({"owner": row()}, "orders is Ongoing with its producer id"),
        ({"samples": 1}, "it was looked at only once"),
    ],
)
def test_what_is_ended_without_proof(other: dict[str, Any], why: str | None) -> None:
    unknown: dict[str, Any] = {"name": "unknown", "rule": "order-unclear", "owner": None}
    v = owned(**unknown | {"remedy": remedies.nothing(REPORT)} | other)
    refused = remedy_allowed(v, "resolve", without_proof=True)
    assert (refused is None) is (why is None)
    assert (why or "") in said(refused)
    assert remedy_allowed(v, "resolve") is not None
    for action in ("abort", "fence"):
        assert remedy_allowed(v, action, without_proof=True) is not None


@pytest.mark.parametrize(
    "known", [{"state": "Empty"}, {"producer_epoch": None}, {"timeout_ms": None}]
)
def test_only_what_is_described_as_ongoing_is_ended(known: dict[str, Any]) -> None:
    for version, request in ((0, 3), (1, 3), (2, 5), (3, 5)):
        assert end_request(row(), version).version == request
    with pytest.raises(ValueError, match="orders is"):
        end_request(row(**known), 2)


def test_a_refusal_names_the_verdict_what_forbids_it_and_what_to_do_instead() -> None:
    v = owned(remedy=remedies.fence(case(row())))
    for action, why in (
        ("abort", "its owner may still commit: you would drop its records here and keep them"),
        ("resolve", "resolve does not fit this verdict"),
    ):
        text = said(remedy_allowed(v, action))
        assert text.startswith(f"t:0 producer id {PID} is long (past-long): {why}")
        assert "; the remedy is fence: aborts the open transaction of orders" in text
    mixed = owned(mixed=True, name="marker-lost", remedy=remedies.nothing(REPORT))
    text = said(remedy_allowed(mixed, "abort"))
    assert text.startswith(f"t:0 producer id {PID} is marker-lost, mixed (past-long): ")
    assert text.endswith("; no safe remedy: report it")


def test_a_moved_id_matters_only_where_no_id_names_the_partition_and_nothing_is_decided() -> None:
    """Its coordinator does not know its records; another id, or its decision, is still known."""

    def rule(*rows: TransactionFacts, latest: StateRecord, lost: tuple[Decision, ...] = ()) -> str:
        history = replace(past(latest), decisions=lost, moved="orders")
        return verdict(opened(*rows, history=history)).rule

    ended = record("CompleteCommit")
    assert rule(latest=ended) == "history-moved"
    assert rule(latest=record()) == "history-moved"
    assert rule(row(), latest=record()) == "within-limits"
    assert rule(latest=ended, lost=(decided(),)) == "marker-not-written"
    assert rule(latest=record(), lost=(decided(),)) == "history-moved"
