"""One case for each rule on transactional ids that hold no partition, and what must never be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eoctl.render.verdicts.evidence_words import evidence_words
from eoctl.render.verdicts.remedy_words import remedy_words
from recovery.diagnose import id_verdicts
from recovery.diagnose.id_verdicts import LOOK_AGAIN, RULES, IdCase, IdVerdict
from recovery.diagnose.verdicts import FINDINGS
from recovery.facts import (
    CoordinatorFacts,
    GroupFacts,
    Missing,
    PartitionFacts,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
)
from recovery.formats.reader import UnknownVersion
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateRecord
from recovery.inspect.id_facts import IdFacts, NamedPartition, refusing, reload_is_safe
from recovery.inspect.observation import Settings
from recovery.values import replace
from tests.unit.said import all_said

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
NOW, START = 2_000_000_000_000, 1_999_999_900_000
PID, EPOCH = 4001, 8


def row(state: str = "PrepareCommit", *, partitions: object = (P, Q), **known: Any):  # type: ignore[no-untyped-def]
    plain = TransactionFacts(
        "orders",
        1,
        PID,
        state,
        EPOCH,
        60_000,
        START,
        partitions,  # type: ignore[arg-type]
    )
    return replace(plain, **known)


def named(
    tp: TopicPartition,
    *,
    epoch: int = EPOCH,
    coordinator: int | None = 5,
    start: int | None = None,
    seen: bool = True,
    error: str | None = None,
    refusal: str | None = None,
    ended_by: tuple[str, int] | None = None,
) -> NamedPartition:
    producer = ProducerFacts(*tp, PID, epoch, 0, START, coordinator, start) if seen else None
    return NamedPartition(PartitionFacts(*tp, error=error), seen, producer, ended_by, refusal)


def look(state: str = "PrepareCommit", **known: object) -> IdFacts:
    """An id decided long ago, each of its two partitions with its marker, its log in order."""
    facts = IdFacts(
        row(state),
        NOW,
        7,
        coordinator_epoch=5,
        in_sync=3,
        min_in_sync=2,
        named=(named(P), named(Q)),
        over_timeout=False,
        over_long=False,
        decided_long_ago=True,
    )
    return replace(facts, **known)  # type: ignore[arg-type]


def record(state: str = "PrepareCommit", version: int = 2, **known: Any) -> StateRecord:
    value = TransactionValue(
        PID, EPOCH, 60_000, TransactionState(state), (P, Q), START + 50, START,
        client_transaction_version=version,
    )._replace(**known)  # fmt: skip
    return StateRecord("orders", 7, 30, START + 50, value)


def judge_id(*args: Any) -> IdVerdict:
    return all_said(id_verdicts.judge_id(*args))


def twice(seen: IdFacts, kept: StateRecord | None = None, **second: object) -> IdVerdict:
    return judge_id(seen, replace(seen, **second), kept)  # type: ignore[arg-type]


CASES: dict[str, tuple[Callable[[], IdVerdict], str, str, str]] = {
    "not described": (
        lambda: judge_id(look(row=row(partitions=None, error="NOT_COORDINATOR"))),
        "unknown", "id-not-described", "none",
    ),
    "refused once": (
        lambda: judge_id(look(named=(named(P, coordinator=6), named(Q))), None, record()),
        "unknown", "refused-seen-once", "none",
    ),
    "refused, 1 above, open, v2": (
        lambda: twice(
            look(named=(named(P, coordinator=6, epoch=7, start=3),), row=row(partitions=(P,))),
            record(partitions=(P,)),
        ),
        "coordinator-fenced", "coordinator-fenced", "restart-coordinator",
    ),
    "refused, 1 above, but Q has its marker, v2: KAFKA-19999": (
        lambda: twice(
            look(named=(named(P, coordinator=6, epoch=7, start=3), named(Q))), record()
        ),
        "coordinator-fenced", "coordinator-fenced", "write-prepared-marker",
    ),
    "refused, 1 above, Q has no leader, v1": (
        lambda: twice(
            look(
                named=(
                    named(P, coordinator=6, start=3),
                    named(Q, seen=False, error="LEADER_NOT_AVAILABLE"),
                )
            ),
            record(version=0),
        ),
        "coordinator-fenced", "coordinator-fenced", "restore-leader",
    ),
    "past its timeout, a partition was not seen": (
        lambda: twice(
            look(
                "Ongoing",
                over_timeout=True,
                named=(named(P), named(Q, seen=False, error="TOPIC_AUTHORIZATION_FAILED")),
            ),
            record("Ongoing"),
        ),
        "unknown", "holds-not-known", "none",
    ),
    "refused, 1 above, Q has its marker, v1": (
        lambda: twice(look(named=(named(P, coordinator=6, start=3), named(Q))), record(version=0)),
        "coordinator-fenced", "coordinator-fenced", "restart-coordinator",
    ),
    "refused, 11 above, nothing open": (
        lambda: twice(look(named=(named(P, coordinator=16), named(Q))), record(version=0)),
        "coordinator-fenced", "coordinator-fenced", "none",
    ),
    "refused by a producer epoch": (
        lambda: twice(look(named=(named(P, epoch=9), named(Q))), record(version=0)),
        "coordinator-fenced", "producer-epoch-above", "none",
    ),
    "refused by its own epoch, with which somebody wrote, v2": (
        lambda: twice(look(named=(named(P, start=3), named(Q))), record()),
        "coordinator-fenced", "producer-epoch-above", "none",
    ),
    "the same epoch under v1 is its own transaction's": (
        lambda: twice(look(named=(named(P, start=3), named(Q))), record(version=0)),
        "unknown", "markers-on-their-way", "none",
    ),
    "a producer epoch above, decided lately: it completed meanwhile and wrote again": (
        lambda: judge_id(look(named=(named(P, epoch=9), named(Q)), decided_long_ago=False)),
        "prepare", "markers-being-written", "wait",
    ),
    "a coordinator epoch above, decided lately": (
        lambda: judge_id(
            look(named=(named(P, coordinator=6), named(Q)), decided_long_ago=False)
        ),
        "unknown", "refused-seen-once", "none",
    ),
    "young": (
        lambda: judge_id(look(decided_long_ago=False)),
        "prepare", "markers-being-written", "wait",
    ),
    "since when is not known": (
        lambda: judge_id(look(decided_long_ago=None)),
        "unknown", "prepare-age-not-known", "none",
    ),
    "its record says something else": (
        lambda: judge_id(look(), None, record(producer_epoch=6)),
        "unknown", "prepare-record-not-read", "none",
    ),
    "a partition's producers are hidden": (
        lambda: twice(look(named=(named(P), named(Q, seen=False))), record()),
        "unknown", "named-not-seen", "none",
    ),
    "all written, once": (
        lambda: judge_id(look(), None, record()),
        "unknown", "written-seen-once", "none",
    ),
    "all written, v2: KAFKA-19999": (
        lambda: twice(look(), record()),
        "prepare-stuck", "markers-all-written", "none",
    ),
    "all written, its log below min ISR": (
        lambda: twice(look(in_sync=1), record()),
        "prepare-stuck", "markers-all-written", "restore-leader",
    ),
    "all written, one partition deleted": (
        lambda: twice(
            look(named=(named(P), named(Q, seen=False, error="UNKNOWN_TOPIC_OR_PARTITION"))),
            record(),
        ),
        "prepare-stuck", "markers-all-written", "none",
    ),
    "a partition is open": (
        lambda: twice(look(named=(named(P), named(Q, epoch=7, start=3))), record()),
        "unknown", "markers-on-their-way", "none",
    ),
    "two-phase": (
        lambda: judge_id(look("Ongoing", row=row("Ongoing", timeout_ms=2**31 - 1))),
        "two-phase", "two-phase", "none",
    ),
    "no clock": (
        lambda: judge_id(
            look("Ongoing", row=row("Ongoing", start_timestamp=None), over_long=None)
        ),
        "unknown", "clock-not-seen", "none",
    ),
    "overdue": (
        lambda: judge_id(look("Ongoing", over_timeout=True), None, record("Ongoing")),
        "overdue", "past-timeout", "fence",
    ),
    "overdue, partitions hidden": (
        lambda: judge_id(
            look("Ongoing", row=row("Ongoing", partitions=(P,)), over_timeout=True),
            None, record("Ongoing"),
        ),
        "overdue", "past-timeout", "none",
    ),
    "overdue, no partition visible and its log not read": (
        lambda: judge_id(look("Ongoing", row=row("Ongoing", partitions=()), over_timeout=True)),
        "overdue", "past-timeout", "none",
    ),
    "long": (
        lambda: judge_id(look("Ongoing", over_long=True), None, record("Ongoing")),
        "long", "past-long", "fence",
    ),
    "open": (lambda: judge_id(look("Ongoing")), "open", "within-limits", "wait"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_case_has_its_verdict_rule_and_remedy(name: str) -> None:
    play, verdict, rule, action = CASES[name]
    found = play()
    assert (found.name, found.rule, found.remedy.action) == (verdict, rule, action)
    assert found.evidence
    assert remedy_words(found.remedy.does)


@pytest.mark.parametrize(
    "hidden",
    [
        {"partitions": None},
        {"producer_epoch": None},
        {"error": "NOT_COORDINATOR"},
        {"partitions": None, "producer_epoch": None, "error": "NOT_COORDINATOR"},
    ],
)
def test_an_id_is_described_with_its_epoch_its_partitions_and_without_an_error(
    hidden: dict[str, Any],
) -> None:
    assert judge_id(look(row=row(**hidden)), None, record()).rule == "id-not-described"


@pytest.mark.parametrize("decided", [True, False, None])
def test_of_an_open_id_nobody_asks_since_when_it_is_decided(decided: bool | None) -> None:
    assert judge_id(look("Ongoing", decided_long_ago=decided)).rule == "within-limits"


@pytest.mark.parametrize(
    "value",
    [
        record(producer_id=PID + 1).value,
        record(producer_epoch=EPOCH - 1).value,
        record("PrepareAbort").value,
        UnknownVersion(9),
        None,
    ],
)
def test_a_record_of_something_else_names_no_partition_and_no_version(
    value: TransactionValue | UnknownVersion | None,
) -> None:
    """With its version 2, P's own epoch would be taken for a stray's that refuses the marker."""
    kept = replace(record(), value=value)
    assert twice(look(named=(named(P, start=3), named(Q))), kept).rule == "prepare-record-not-read"


def test_a_partition_that_its_record_names_and_nobody_asked_may_lack_its_marker() -> None:
    v = twice(look(named=(named(P),)), record())
    assert (v.rule, evidence_words(v.evidence[-1])) == (
        "markers-on-their-way",
        "it waits for its markers on some partitions",
    )
    v = twice(look(named=(named(P, epoch=7, start=3), named(Q))), record())
    assert evidence_words(v.evidence[-1]) == "it waits for its markers on t:0"
    assert twice(look(named=None), record()).rule == "markers-on-their-way"
    once = look(named=(named(P, epoch=7, start=3), named(Q)))
    assert judge_id(once, None, record()).rule == "markers-on-their-way"


@pytest.mark.parametrize(
    ("recorded", "visible", "grant"),
    [
        ((P, Q), (P, Q), None),
        ((P, Q), (P,), "grant DESCRIBE on topic t: which"),
        ((P, Q), None, "grant DESCRIBE on topic t: which"),
        ((P, TopicPartition("u", 0)), (P,), "grant DESCRIBE on topic u: which"),
        ((), (P,), "ask again, until the log of its coordinator is read: which"),
        (None, (P, Q), "ask again, until the log of its coordinator is read: which"),
    ],
)
@pytest.mark.parametrize("late", ["over_timeout", "over_long"])
def test_a_fence_is_offered_only_where_its_record_and_its_description_agree(
    recorded: tuple[TopicPartition, ...] | None,
    visible: tuple[TopicPartition, ...] | None,
    grant: str | None,
    late: str,
) -> None:
    kept = None if recorded is None else record("Ongoing", partitions=recorded)
    seen = look("Ongoing", row=row("Ongoing", partitions=visible or ()), **{late: True})
    v = judge_id(seen, None, kept)
    assert v.remedy.action == ("fence" if grant is None else "none")
    assert remedy_words(v.remedy.does).startswith(grant or "")


@pytest.mark.parametrize("limit", ["over_timeout", "over_long"])
def test_each_limit_needs_its_clock(limit: str) -> None:
    seen = look("Ongoing", row=row("Ongoing", start_timestamp=None))
    assert judge_id(seen).rule == "within-limits"
    unknown: dict[str, Any] = {limit: None}
    assert judge_id(replace(seen, **unknown)).rule == "clock-not-seen"


@pytest.mark.parametrize("late", [None, "over_timeout", "over_long"])
def test_what_holds_records_now_is_judged_by_its_partition(late: str | None) -> None:
    for parts, told in (
        ((named(P, start=3), named(Q)), "it holds some now"),
        ((named(P), named(Q, seen=False, refusal="TIMED_OUT")), "t:1 (TIMED_OUT) were not seen"),
        ((named(P), named(Q, seen=False)), "producers on t:1 were not seen"),
    ):
        v = judge_id(look("Ongoing", named=parts, **({late: True} if late else {})))
        assert v.rule == ("holds-not-known" if late else "within-limits")
        assert late is None or evidence_words(v.evidence[-1]).endswith(told)


def test_what_an_owner_of_nothing_that_works_on_or_has_members_is_given() -> None:
    """Signs of life count only past a limit: before that nothing is offered."""
    members = (GroupFacts("orders", "Stable", members=(("c", "h"),)),)
    hidden = {"groups_seen": False}
    lives: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
        ({}, {"row": row("Ongoing", partitions=(P,))}),
        ({}, {"groups": members}),
        ({}, hidden),
    )
    for late in ({}, {"over_timeout": True}, {"over_long": True}):
        for first, second in lives:
            v = twice(look("Ongoing", **late, **first), record("Ongoing"), **second)
            assert (v.gate is not None) is bool(late)
            assert v.remedy.action == "wait"
        quiet = twice(look("Ongoing", **late), record("Ongoing"))
        assert (quiet.gate, quiet.remedy.action) == (None, "fence" if late else "wait")
    late_once = look("Ongoing", over_timeout=True, groups=members)
    assert judge_id(late_once, None, record("Ongoing")).gate is not None
    assert twice(look(over_long=True, groups=members), record()).gate is None


def test_what_an_id_names_is_its_records_and_holds_is_seen() -> None:
    def about(seen: IdFacts, kept: StateRecord | None = None) -> tuple[str, Any]:
        [said] = [e for e in twice(seen, kept).evidence if e.code == "coordinator"]
        return evidence_words(said).split("; it names ")[1], said.data["partitions"]

    few = row(partitions=(P,))
    assert about(look(row=few), record()) == ("t:0, t:1 and holds none of it back", ["t:0", "t:1"])
    assert about(look(row=few)) == ("t:0 and holds none of it back", ["t:0"])
    assert about(look(row=row(partitions=()))) == ("no partition and holds none of it back", [])
    assert about(look(named=None)) == ("t:0, t:1", ["t:0", "t:1"])
    assert about(look(named=(named(P, start=3),)))[0] == "t:0, t:1"
    assert about(look(named=(named(P, seen=False),)))[0] == "t:0, t:1"


def test_an_outcome_is_proven_by_prepare_alone() -> None:
    for state, outcome in (("PrepareCommit", "commit"), ("PrepareAbort", "abort")):
        assert judge_id(look(state)).proven_outcome == outcome
    assert judge_id(look("Ongoing")).proven_outcome is None


def _refused(part: NamedPartition, outcome: str = "PrepareCommit", version: int = 0) -> str:
    """What is said of the one partition that refuses the marker."""
    kept = record(outcome, version=version, partitions=(P,))
    v = twice(look(outcome, row=row(outcome, partitions=(P,)), named=(part,)), kept)
    [said] = [evidence_words(e) for e in v.evidence if e.code == "marker-refused"]
    return said


@pytest.mark.parametrize(
    ("part", "outcome", "version", "told"),
    [
        (
            named(P, coordinator=6, start=3),
            "PrepareCommit",
            0,
            (
                "t:0 has seen coordinator epoch 6, its coordinator's is 5: 1 below, so its marker "
                "is refused; a transaction is open there from offset 3"
            ),
        ),
        (
            named(P, coordinator=8),
            "PrepareCommit",
            0,
            (
                "t:0 has seen coordinator epoch 8, its coordinator's is 5: 3 below, so its marker "
                "is refused; none of it is open there any more"
            ),
        ),
        (
            named(P, epoch=9, ended_by=("commit", 7)),
            "PrepareCommit",
            0,
            (
                "t:0 has seen producer epoch 9, its Prepare* bears 8: its marker is refused; none "
                "of it is open there any more: the commit marker at offset 7 ended it"
            ),
        ),
        (
            named(P, epoch=9, ended_by=("commit", 7)),
            "PrepareAbort",
            0,
            (
                "t:0 has seen producer epoch 9, its Prepare* bears 8: its marker is refused; none "
                "of it is open there any more: the commit marker at offset 7 ended it. Its "
                "coordinator decided abort: records were delivered that it aborted"
            ),
        ),
        (
            named(P, epoch=9, ended_by=("abort", 7), start=11),
            "PrepareCommit",
            0,
            (
                "t:0 has seen producer epoch 9, its Prepare* bears 8: its marker is refused; a "
                "transaction is open there from offset 11"
            ),
        ),
        (
            named(P, start=3),
            "PrepareCommit",
            2,
            (
                "on t:0 somebody wrote with producer epoch 8, the one of its marker, which is "
                "refused for as long as that is open (KAFKA-19999): a transaction is open there "
                "from offset 3"
            ),
        ),
    ],
)
def test_which_epoch_refuses_the_marker_and_what_became_of_the_records(
    part: NamedPartition, outcome: str, version: int, told: str
) -> None:
    assert _refused(part, outcome, version) == told


@pytest.mark.parametrize(
    ("parts", "action", "partitions"),
    [
        ((named(P, coordinator=6, start=3), named(Q)), "restart-coordinator", ()),
        (
            (named(P, coordinator=6, start=3), named(Q, seen=False, error="TIMED_OUT")),
            "restore-leader",
            ("t:1",),
        ),
        (
            (
                named(P, coordinator=6, start=3),
                named(Q, seen=False, error="UNKNOWN_TOPIC_OR_PARTITION"),
            ),
            "restart-coordinator",
            (),
        ),
    ],
)
def test_a_deleted_partition_needs_no_leader_before_a_move(
    parts: tuple[NamedPartition, ...], action: str, partitions: tuple[str, ...]
) -> None:
    v = twice(look(named=parts), record(version=0))
    assert (v.remedy.action, v.remedy.partitions) == (action, partitions)


@pytest.mark.parametrize(("version", "refused"), [(2, True), (0, False)])
def test_where_a_marker_is_written_a_restart_of_the_coordinator_is_refused(
    version: int, refused: bool
) -> None:
    """v2, and Q has its marker already: KAFKA-19999. Under v1 a second one is taken."""
    seen = look(named=(named(P, coordinator=1005, start=3), named(Q)))
    remedy = twice(seen, record(version=version)).remedy
    assert remedy.action == "write-prepared-marker"
    assert ("restart-coordinator" in dict(remedy.refused)) is refused


@pytest.mark.parametrize(
    ("own", "action"),
    [
        # written with the marker's own epoch by nobody that is known: no outcome is proven
        ((named(P, start=3), named(Q)), "none"),
        # a later epoch: what is open there is another transaction's, by its producer's own epoch
        ((named(P, epoch=9, start=3), named(Q)), "write-prepared-marker"),
    ],
)
def test_what_was_written_with_the_markers_epoch_gets_no_marker(
    own: tuple[NamedPartition, ...], action: str
) -> None:
    assert twice(look(named=own), record()).remedy.action == action


@pytest.mark.parametrize(
    ("in_sync", "least", "version", "told"),
    [
        (1, 2, 2, "bring back replicas of __transaction_state:7: 1 in sync, it must have 2 "),
        (None, 2, 0, "find out whether __transaction_state:7 has as many replicas in sync"),
        (3, None, 2, "find out whether __transaction_state:7 has as many replicas in sync"),
        (
            2,
            2,
            0,
            (
                "ask again in a minute: a record that its log refused is tried again; then, "
                "its coordinator has only to write its last record"
            ),
        ),
        (
            2,
            2,
            1,
            (
                "ask again in a minute: a record that its log refused is tried again; then, "
                "its coordinator has only to write its last record"
            ),
        ),
        (
            2,
            2,
            2,
            (
                "ask again in a minute: a record that its log refused is tried again; then, "
                "its coordinator may send markers again"
            ),
        ),
    ],
)
def test_how_what_has_all_its_markers_is_finished(
    in_sync: int | None, least: int | None, version: int, told: str
) -> None:
    v = twice(look(in_sync=in_sync, min_in_sync=least), record(version=version))
    assert remedy_words(v.remedy.does).startswith(told)
    assert ("restart-coordinator" in dict(v.remedy.refused)) is (version == 2 or in_sync == 1)
    assert v.remedy.partitions == (("__transaction_state:7",) if in_sync == 1 else ())
    assert ("grant DESCRIBE_CONFIGS" in remedy_words(v.remedy.does)) is (least is None)


def test_all_say_the_same_of_which_brokers_have_the_fix_of_a_marker_refused_twice() -> None:
    """Remedies, evidence of a refused restart, what explain says, and two pages."""
    root = Path(__file__).parents[3]
    pages = ("eoctl/explain/verdicts.md", "docs/verdicts.md", "docs/compatibility.md")
    texts = [" ".join((root / page).read_text("utf-8").split()) for page in pages]
    finished = twice(look(), record()).remedy
    texts += [
        remedy_words(finished.does),
        remedy_words(dict(finished.refused)["restart-coordinator"]),
    ]
    for text in texts:
        assert "ach release of Apache Kafka that needs" in text
        assert "since 4.2.0" in text


def test_what_has_all_its_markers_says_which_partitions_are_gone() -> None:
    def told(*parts: NamedPartition) -> str:
        v = twice(look(named=parts), record())
        [said] = [evidence_words(e) for e in v.evidence if e.code == "markers-written"]
        return said

    gone = named(Q, seen=False, error="UNKNOWN_TOPIC_OR_PARTITION")
    assert told(named(P), gone).endswith("; deleted since: t:1")
    assert "deleted since" not in told(named(P), named(Q))
    assert told(named(P), named(Q)).startswith("it names 2 partitions: ")


def test_every_rule_has_a_case() -> None:
    assert {r.name for r in RULES} == {rule for _, _, rule, _ in CASES.values()}
    assert {r.name for r in RULES} >= LOOK_AGAIN


NOT_GRANTED = "TOPIC_AUTHORIZATION_FAILED"


def _hidden(state: str, refusal: str) -> IdVerdict:
    seen = look(state, named=(named(P), named(Q, seen=False, refusal=refusal)), over_timeout=True)
    return twice(seen, record(state))


@pytest.mark.parametrize(
    ("verdict", "granted"),
    [
        (lambda e: judge_id(look(decided_long_ago=None, log_error=e)), "__transaction_state"),
        (lambda error: judge_id(look(log_error=error)), "__transaction_state"),
        (lambda error: _hidden("PrepareCommit", error), "topic t"),
        (lambda error: _hidden("Ongoing", error), "topic t"),
        (
            lambda error: twice(
                look(
                    "Ongoing",
                    row=row("Ongoing", partitions=()),
                    over_timeout=True,
                    log_error=error,
                )
            ),
            "__transaction_state",
        ),
    ],
)
def test_a_permission_is_named_only_where_an_answer_refused_it(
    verdict: Callable[[str], IdVerdict], granted: str
) -> None:
    refused, late = verdict(NOT_GRANTED), verdict("REQUEST_TIMED_OUT")
    assert f"grant READ on {granted}" in remedy_words(refused.remedy.does)
    assert "grant" not in remedy_words(late.remedy.does)
    assert remedy_words(late.remedy.does)
    if refused.name == "unknown":
        assert NOT_GRANTED in evidence_words(refused.evidence[-1])
        assert "REQUEST_TIMED_OUT" in evidence_words(late.evidence[-1])


def test_what_a_record_names_and_a_description_hides_is_to_be_granted() -> None:
    play, *_ = CASES["overdue, partitions hidden"]
    assert remedy_words(play().remedy.does).startswith("grant DESCRIBE on topic t:")


def test_a_decided_id_is_a_finding_only_after_two_looks() -> None:
    """One that another look finds completed, or in its next transaction, was only ending."""
    for seen in (look(), look(named=(named(P, coordinator=6), named(Q)))):
        assert judge_id(seen, None, record()).name not in FINDINGS
        other = replace(seen, row=replace(seen.row, start_timestamp=START + 60_000))
        assert judge_id(seen, other, record()).name not in FINDINGS


def test_a_coordinator_that_moved_meanwhile_is_not_fenced() -> None:
    """The partition saw the new coordinator's epoch before Metadata told it."""
    seen = look(named=(named(P, coordinator=6), named(Q)))
    assert twice(seen, record(), coordinator_epoch=6).name == "prepare-stuck"


@pytest.mark.parametrize(
    ("outcome", "by", "loss"),
    [("PrepareCommit", "abort", True), ("PrepareCommit", "commit", False)],
)
def test_a_marker_that_contradicts_is_told_as_loss(outcome: str, by: str, loss: bool) -> None:
    p = named(P, coordinator=1005, ended_by=(by, 9))
    [refused] = [e for e in twice(look(outcome, named=(p,))).evidence if e.code == "marker-refused"]
    assert ("LOSS" in evidence_words(refused)) is loss
    assert refused.data["ended_by"] == [by, 9]


@pytest.mark.parametrize(
    ("version", "above", "caught_up", "mend"),
    [(0, 11, True, False), (2, 11, True, True), (None, 11, True, True), (0, 0, False, False)],
)
def test_when_a_refused_one_can_finish(
    version: int | None, above: int, caught_up: bool, mend: bool
) -> None:
    """A second marker is taken under v1; under v2 only since the mend of KAFKA-19999."""
    partition = named(P, coordinator=5 + above, epoch=EPOCH + (not above))
    kept = None if version is None else record(version=version, partitions=(P,))
    found = twice(look(named=(partition,), row=row(partitions=(P,))), kept)
    [said] = [
        c for c in map(remedy_words, found.remedy.caveats) if "until its coordinator reloads" in c
    ]
    assert ("has caught up" in said, "KAFKA-19999" in said) == (caught_up, mend)
    assert "has forgotten the producer" in said


def test_its_own_clock_decides_else_ours_beyond_the_skew() -> None:
    """Without the duration filter (below Kafka 3.8) nothing is called overdue within the skew."""

    def at(ms: int) -> IdVerdict:
        seen = look("Ongoing", over_timeout=None, over_long=None, collected_at=START + 60_000 + ms)
        return judge_id(seen, None, record("Ongoing"), Settings(clock_skew=5_000))

    assert at(5_000).rule == "clock-not-seen"
    assert at(5_001).rule == "past-timeout"
    assert at(-5_001).rule == "within-limits"
    exact = look("Ongoing", over_timeout=None, over_long=None, collected_at=START + 60_001)
    assert judge_id(exact, None, None, Settings(clock_skew=0)).rule == "past-timeout"
    young = look("Ongoing", collected_at=START + 10_000_000, over_timeout=False)
    assert judge_id(young).rule == "within-limits"


def test_an_age_is_never_negative() -> None:
    assert judge_id(look("Ongoing", collected_at=START - 1)).age_seconds is None
    assert judge_id(look("Ongoing", collected_at=START)).age_seconds == 0.0
    ran = judge_id(look("Ongoing", collected_at=START + 1500))
    assert (ran.age_seconds, ran.age_clock) == (1.5, "coordinator")
    unknown = judge_id(look("Ongoing", row=row("Ongoing", start_timestamp=None)))
    assert (unknown.age_seconds, unknown.age_clock) == (None, None)


@pytest.mark.parametrize(
    ("version", "partitions", "recorded", "safe"),
    [
        (0, None, None, True),
        (None, (named(P, epoch=7, start=3),), (P,), False),
        (2, None, (P,), False),
        (2, (named(P, epoch=7, start=3),), None, False),
        (2, (named(P, epoch=7, start=3),), (P,), True),
        (2, (named(P, epoch=7, start=3),), (P, Q), False),  # Q was acknowledged: no longer named
        (2, (named(P),), (P,), False),
        (2, (named(P, epoch=7),), (P,), True),
        (2, (named(P, start=3),), (P,), True),  # what is open has no marker after it
        (2, (named(P, seen=False),), (P,), False),
        (2, (named(P, seen=False, error="UNKNOWN_TOPIC_OR_PARTITION"),), (P,), True),
        (2, (NamedPartition(PartitionFacts(*P), True),), (P,), True),
    ],
)
def test_a_reload_is_safe_only_where_no_partition_has_its_marker(
    version: int | None,
    partitions: tuple[NamedPartition, ...] | None,
    recorded: tuple[TopicPartition, ...] | None,
    safe: bool,
) -> None:
    """KAFKA-19999: a marker of v2 that is there is refused, and the coordinator stays stuck."""
    assert reload_is_safe(look(named=partitions), version, recorded) is safe
    assert reload_is_safe(None, version, recorded) is (version == 0)


def test_without_the_epoch_of_its_prepare_no_marker_is_excluded() -> None:
    seen = look(row=row(producer_epoch=None), named=(named(P, epoch=7),))
    assert not reload_is_safe(seen, 2, (P,))
    assert reload_is_safe(look(named=(named(P, epoch=7),)), 2, (P,))


def test_no_remedy_restarts_a_coordinator_whose_markers_are_there() -> None:
    for name, (play, *_) in CASES.items():
        found = play()
        if found.remedy.action == "restart-coordinator":
            assert "KAFKA" not in name
    for in_sync in (None, 1, 3):
        found = twice(look(in_sync=in_sync), record())
        assert found.remedy.action != "restart-coordinator"
        assert "restart-coordinator" in dict(found.remedy.refused)


def test_how_many_replicas_are_in_sync_is_told_or_that_it_is_not_known() -> None:
    unknown = "in sync: not known, needed: 2: whether that is enough is not known"
    for in_sync, told in ((None, unknown), (1, "in sync: 1, needed: 2")):
        found = twice(look(in_sync=in_sync), record())
        assert any(told in evidence_words(e) for e in found.evidence)


def test_the_farthest_refusal_decides() -> None:
    """One move of the leader would not help where another partition is a thousand ahead."""
    parts = (named(P, coordinator=6, start=3), named(Q, coordinator=1005, start=3))
    v = twice(look(named=parts), record(version=0))
    assert (v.rule, v.remedy.action) == ("coordinator-fenced", "write-prepared-marker")


def test_a_deadline_is_of_what_is_not_decided() -> None:
    assert judge_id(look("Ongoing")).deadline == START + 60_000
    assert judge_id(look()).deadline is None
    endless = look("Ongoing", row=row("Ongoing", timeout_ms=2**31 - 1))
    assert judge_id(endless).deadline is None


def test_only_an_overdue_one_is_its_coordinators_to_abort() -> None:
    overdue = judge_id(look("Ongoing", over_timeout=True), None, record("Ongoing"))
    long = judge_id(look("Ongoing", over_long=True), None, record("Ongoing"))
    assert remedy_words(overdue.remedy.does) != remedy_words(long.remedy.does)
    assert "coordinator" in remedy_words(overdue.remedy.does)
    assert "coordinator" not in remedy_words(long.remedy.does)


def test_a_deadline_needs_a_start_and_a_timeout_and_is_by_its_coordinators_clock() -> None:
    for unknown in ({"start_timestamp": None}, {"timeout_ms": None}):
        v = judge_id(look("Ongoing", row=row("Ongoing", **unknown)))
        assert (v.deadline, v.deadline_in) == (None, None)
    ahead = judge_id(look("Ongoing", ahead=7_000))
    assert ahead.deadline_in == START + 60_000 - (NOW + 7_000)


def test_ours_before_its_limit_by_the_skew_says_nothing_either() -> None:
    seen = look("Ongoing", over_timeout=None, over_long=False, collected_at=START + 55_000)
    assert judge_id(seen, None, record("Ongoing"), Settings(clock_skew=5_000)).rule == (
        "clock-not-seen"
    )


def test_how_many_looks_it_stands_on() -> None:
    assert judge_id(look()).samples == 1
    assert twice(look()).samples == 2


def test_ten_epochs_are_caught_up_by_moves_and_only_where_nothing_else_refuses() -> None:
    ten = twice(look(named=(named(P, coordinator=15), named(Q))), record(version=0))
    assert (ten.remedy.action, "10 times" in remedy_words(ten.remedy.does)) == (
        "restart-coordinator",
        True,
    )
    both = look(named=(named(P, coordinator=6), named(Q, epoch=EPOCH + 1)))
    assert twice(both, record(version=0)).remedy.action == "none"


def test_what_runs_is_told_with_whose_clock_and_with_partitions_that_are_hidden() -> None:
    def said(seen: IdFacts, kept: StateRecord | None) -> dict[str, Any]:
        return {e.code: e for e in twice(seen, kept).evidence}

    late = look("Ongoing", over_timeout=True)
    whole = said(late, record("Ongoing"))
    assert "partitions-hidden" not in whole
    assert "compared by its coordinator's clock" in evidence_words(whole["running"])
    assert "(its timeout is 1m, counted as long after 15m; " in evidence_words(whole["running"])
    assert "partitions-hidden" not in said(late, None)
    hidden = said(replace(late, row=row("Ongoing", partitions=(P,))), record("Ongoing"))
    assert hidden["partitions-hidden"].data == {"partitions": ["t:1"]}
    assert evidence_words(hidden["partitions-hidden"]).endswith("that we may not see: t:1")
    unnamed = said(late, record("Ongoing", partitions=()))["partitions-hidden"]
    assert evidence_words(unnamed).endswith("that we may not see: none")
    ours = look("Ongoing", over_timeout=None, over_long=None)
    assert "compared by our clock" in evidence_words(said(ours, record("Ongoing"))["running"])


@pytest.mark.parametrize(
    ("first", "second", "above"),
    [
        ({"named": (named(P, coordinator=6),)}, {}, [1]),
        ({"named": (named(P, coordinator=5),)}, {}, []),
        ({"named": (named(P, coordinator=8), named(Q, coordinator=6))}, {}, [3, 1]),
        # the higher of its coordinator's two epochs counts, or the one that is known
        ({"named": (named(P, coordinator=8),)}, {"coordinator_epoch": 6}, [2]),
        (
            {"named": (named(P, coordinator=8),), "coordinator_epoch": 7},
            {"coordinator_epoch": 6},
            [1],
        ),
        (
            {"named": (named(P, coordinator=8),), "coordinator_epoch": None},
            {"coordinator_epoch": 6},
            [2],
        ),
        ({"named": (named(P, coordinator=8),), "coordinator_epoch": None}, {}, []),
        # the partition has no marker of any coordinator
        ({"named": (named(P, coordinator=None),)}, {}, []),
        ({"named": (named(P, coordinator=None, epoch=9),)}, {}, [0]),
        # a producer epoch above counts unless it was decided lately, by the newer look
        ({"named": (named(P, epoch=9),)}, {}, [0]),
        ({"named": (named(P, epoch=9),)}, {"decided_long_ago": False}, []),
        ({"named": (named(P, epoch=9),)}, {"decided_long_ago": None}, [0]),
        ({"named": (named(P, epoch=7),)}, {}, []),
        # what was not seen refuses nothing
        ({"named": (replace(named(P, coordinator=6), seen=False),)}, {}, []),
        ({"named": (NamedPartition(PartitionFacts(*P), True),)}, {}, []),
        ({"named": None}, {}, []),
        # another transaction, or another state, in the second look
        ({"named": (named(P, coordinator=6),)}, {"row": row(start_timestamp=NOW)}, []),
        ({"named": (named(P, coordinator=6),)}, {"row": row(producer_epoch=9)}, []),
        ({"named": (named(P, coordinator=6),)}, {"row": row(producer_id=PID + 1)}, []),
        ({"named": (named(P, coordinator=6),)}, {"row": row("PrepareAbort")}, []),
        ({"named": (named(P, coordinator=6),), "row": row("Ongoing")}, {}, []),
        ({"named": (named(P, epoch=9),), "row": row(producer_epoch=None)}, {}, []),
    ],
)
def test_who_refuses_the_marker(
    first: dict[str, Any], second: dict[str, Any], above: list[int]
) -> None:
    seen = look(**first)
    found = refusing(seen, replace(seen, **second))
    assert [r.above for r in found] == above


@pytest.mark.parametrize(
    ("part", "closed", "error"),
    [
        (named(P), True, None),
        (named(P, start=3), False, None),
        (named(P, seen=False), False, None),
        (named(P, seen=False, refusal=NOT_GRANTED), False, NOT_GRANTED),
        (named(P, seen=False, error="NOT_LEADER"), False, "NOT_LEADER"),
        (named(P, seen=False, error="NOT_LEADER", refusal=NOT_GRANTED), False, NOT_GRANTED),
        (named(P, seen=False, error="UNKNOWN_TOPIC_ID"), True, "UNKNOWN_TOPIC_ID"),
        (NamedPartition(PartitionFacts(*P), True), True, None),
    ],
)
def test_a_partition_is_closed_that_holds_nothing_of_it_or_is_gone(
    part: NamedPartition, closed: bool, error: str | None
) -> None:
    assert (part.closed, part.error) == (closed, error)


def test_groups_of_an_older_bundle_that_were_not_all_seen() -> None:
    hole = (Missing("group", "COORDINATOR_NOT_AVAILABLE", ""),)
    assert look().groups_unseen == ()
    assert look(groups_seen=False, groups_missing=hole).groups_unseen == hole
    assert [m.error for m in look(groups_seen=False).groups_unseen] == ["NOT_SEEN"]


@pytest.mark.parametrize(("epoch", "refuses"), [(32_766, True), (32_767, False)])
def test_the_last_epoch_is_taken_again_as_there_is_none_above(epoch: int, refuses: bool) -> None:
    prepared = replace(row("PrepareCommit"), producer_epoch=epoch)
    open_here = named(P, epoch=epoch, start=3)
    seen = look(row=prepared, named=(open_here,))
    assert bool(refusing(seen, None, 2)) is refuses
    assert not refusing(seen, None, 1)
    assert not refusing(seen, None)


def test_the_log_that_takes_no_record_is_its_coordinators() -> None:
    few = look("Ongoing", in_sync=1, away=(2, 3))
    log = CoordinatorFacts(7, 1, seen=True, in_sync=1, away=(2, 3), least=2)
    assert IdCase(few, None, None, Settings()).short_log == log
    assert IdCase(look("Ongoing"), None, None, Settings()).short_log is None
    assert IdCase(look(in_sync=1), None, None, Settings()).short_log is None


def test_as_many_replicas_in_sync_as_must_be_are_enough() -> None:
    for in_sync, few in ((1, True), (2, False), (3, False), (None, None)):
        assert look(in_sync=in_sync).too_few_in_sync is few
    assert look(min_in_sync=None).too_few_in_sync is None
