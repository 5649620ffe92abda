"""Rules about what brokers run: bugs, the protocol of transactions, upgrades under way."""

from collections.abc import Mapping
from typing import Any

import pytest

from eoctl.render.doctor_words import change_argv, harm_of, remedy_of, sign_words
from recovery.doctor.findings import DoctorFacts, Finding, Replicas, judged
from recovery.doctor.narrowing import narrowed
from recovery.doctor.rules import RULES
from recovery.doctor.version_rules import newest_versions, refuse_contradiction
from recovery.doctor.versions import APIS, METADATA, TRANSACTION, Protocol, by_hand
from recovery.errors import UsageError
from recovery.facts import Missing
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateRecord
from recovery.values import replace
from tests.unit.doctor.test_versions import ANSWERS, LEVELS
from tests.unit.doctor_facts import (
    HIDDEN_TOPICS,
    REFUSED,
    SILENT,
    healthy,
    txn,
    with_ids,
    with_topic,
)

OURS = (
    "known-bug",
    "transaction-version-low",
    "speaks-v1",
    "mixed-versions",
    "newer-protocol",
)


def protocol(
    release: tuple[int, int], level: int = 2, apis: Mapping[int, tuple[int, int]] = {}
) -> Protocol:
    """What a broker of a release answers; level: the finalized transaction.version."""
    metadata = {METADATA: LEVELS[release]}
    return Protocol({**ANSWERS[release], **apis}, metadata, {TRANSACTION: level})


def running(*protocols: Protocol, facts: DoctorFacts | None = None, **more: Any) -> DoctorFacts:
    """A healthy cluster whose brokers 1, 2, ... answer so."""
    answered = dict(enumerate(protocols, start=1))
    return replace(facts or healthy(), brokers=(1, 2, 3), protocols=answered, **more)


def ours(facts: DoctorFacts) -> list[tuple[str, Finding]]:
    return [(rule.name, f) for rule, f in judged(facts, RULES) if rule.name in OURS]


def shown(facts: DoctorFacts) -> list[tuple[str, str, str, str | None]]:
    return [(name, f"{f.kind} {f.name}", f.state, f.bug) for name, f in ours(facts)]


PATCHED = {APIS["JoinGroup"]: (0, 9)}
"""What 4.0.1 and later releases of 4.0 answer otherwise than 4.0.0."""
NEW = protocol((4, 3))
RELEASED = protocol((4, 0), apis=PATCHED)


def test_a_cluster_of_the_newest_release_has_no_finding() -> None:
    assert shown(running(NEW, NEW, NEW)) == []


def test_bugs_that_all_releases_of_the_bounds_have() -> None:
    facts = running(*[protocol((4, 1))] * 3)
    assert shown(facts) == [
        ("known-bug", "cluster *", "finding", "KAFKA-20090"),
        ("known-bug", "cluster *", "unknown", "KAFKA-19690"),
    ]
    [(_, certain), (_, perhaps)] = ours(facts)
    assert [sign_words(sign) for sign in certain.signs] == [
        "brokers 1, 2, 3: Kafka 4.1.x, by what they answer to ApiVersions",
        "KAFKA-20090 is in Kafka 4.0.0 or later, before 4.3.0; fixed in 4.3.0",
    ]
    assert "raises the epoch" not in remedy_of("known-bug", certain)
    assert remedy_of("known-bug", certain) == "Upgrade the brokers."
    assert remedy_of("known-bug", perhaps).startswith("Say which version the brokers run")
    assert "Streams takes it for fatal" in harm_of("known-bug", perhaps)


def test_the_first_release_of_4_0_is_known_by_its_answer() -> None:
    bugs = {f.bug: f.state for _, f in ours(running(*[protocol((4, 0))] * 3))}
    assert bugs["KAFKA-19367"] == bugs["KAFKA-19690"] == "finding"
    later = {f.bug: f.state for _, f in ours(running(RELEASED, RELEASED, RELEASED))}
    assert "KAFKA-19367" not in later
    assert later["KAFKA-19690"] == "unknown"


@pytest.mark.parametrize(
    ("version", "bugs"), [("4.1.0", ["KAFKA-19690", "KAFKA-20090"]), ("4.1.2", ["KAFKA-20090"])]
)
def test_a_version_by_hand_leaves_nothing_open(version: str, bugs: list[str]) -> None:
    facts = running(*[protocol((4, 1))] * 3, broker_version=by_hand(version))
    assert [(f.state, f.bug) for _, f in ours(facts)] == [("finding", bug) for bug in bugs]
    [(_, last)] = ours(facts)[-1:]
    words = sign_words(last.signs[0])
    assert words == f"brokers 1, 2, 3: Kafka {version}, by --broker-version"


@pytest.mark.parametrize("version", ["4.0", "4.0.0"])
def test_a_version_by_hand_makes_nothing_vaguer(version: str) -> None:
    """The answers alone prove 4.0.0."""
    facts = running(*[protocol((4, 0))] * 3)
    said = ours(replace(facts, broker_version=by_hand(version)))
    assert [f.state for _, f in said] == [f.state for _, f in ours(facts)]
    assert {sign_words(f.signs[0]) for _, f in said if f.bug} == {
        "brokers 1, 2, 3: Kafka 4.0.0, by what they answer to ApiVersions"
    }


def test_a_branch_by_hand_asks_for_all_numbers() -> None:
    facts = running(*[protocol((4, 1))] * 3, broker_version=by_hand("4.1"))
    [perhaps] = [f for _, f in ours(facts) if f.state == "unknown"]
    assert remedy_of("known-bug", perhaps).startswith("Say which version")  # as the answers say
    silent = Protocol({}, {}, {TRANSACTION: 2})
    vague = running(*[silent] * 3, broker_version=by_hand("4.1"))
    [perhaps] = [f for _, f in ours(vague) if f.state == "unknown"]
    assert sign_words(perhaps.signs[0]) == "brokers 1, 2, 3: Kafka 4.1.x, by --broker-version"
    assert remedy_of("known-bug", perhaps).startswith("Give all numbers")


def test_a_release_that_was_not_read_sends_nobody_in_a_circle() -> None:
    written = with_ids(txn("app-1", topic="orders"), facts=with_topic("orders", 1))
    exact = running(NEW, NEW, NEW, facts=written, broker_version=by_hand("4.3.7"))
    newer = running(*[protocol((4, 3), apis={APIS["EndTxn"]: (0, 6)})] * 3, facts=written)
    for facts in (exact, newer):
        [finding] = [f for _, f in ours(facts) if f.state == "unknown"]
        assert remedy_of("known-bug", finding) == (
            "eoctl has read Kafka's releases up to 4.4.0: look in KAFKA-20734 whether that of your "
            "brokers has the fix."
        )


def test_hidden_topics_hide_whether_a_bug_of_few_copies_can_come_about() -> None:
    hidden = healthy(missing_topics=(HIDDEN_TOPICS,))
    for version in ("4.3", "4.3.1"):
        facts = running(NEW, NEW, NEW, facts=hidden, broker_version=by_hand(version))
        [finding] = [f for _, f in ours(facts)]
        assert (finding.state, finding.bug) == ("unknown", "KAFKA-20734")
        assert finding.lacks == "topics: DESCRIBE"
        assert remedy_of("known-bug", finding) == "Grant DESCRIBE on topics, then ask again."
    seen = replace(hidden, topics={**hidden.topics, "orders": Replicas(1, 1)}, held=("orders",))
    facts = running(NEW, NEW, NEW, facts=seen, broker_version=by_hand("4.3.1"))
    [finding] = [f for _, f in ours(facts)]
    assert (finding.state, finding.lacks) == ("finding", None)


def test_a_version_by_hand_counts_where_it_can_be_true() -> None:
    """In the middle of an upgrade: the brokers that are done run another release."""
    facts = running(protocol((4, 1)), NEW, NEW, broker_version=by_hand("4.1.2"))
    assert [(n, f.kind, f.name, f.bug) for n, f in ours(facts)] == [
        ("known-bug", "broker", "1", "KAFKA-20090"),
        ("mixed-versions", "cluster", "*", None),
    ]


def test_a_version_that_no_broker_can_run_is_refused() -> None:
    facts = running(NEW, NEW, NEW)
    with pytest.raises(UsageError, match=r"no broker answers like that version.*4\.3\.x"):
        refuse_contradiction(replace(facts, broker_version=by_hand("3.6.1")))
    refuse_contradiction(replace(facts, broker_version=by_hand("4.3.1")))
    refuse_contradiction(facts)
    upgrading = running(protocol((4, 1)), NEW, NEW, broker_version=by_hand("4.1.2"))
    refuse_contradiction(upgrading)  # one of them can
    refuse_contradiction(healthy(broker_version=by_hand("3.6.1")))  # nobody answered


def test_a_bug_of_partitions_without_a_leader_needs_few_copies() -> None:
    written = with_ids(txn("app-1", topic="orders"), facts=with_topic("orders", 1))
    [row] = shown(running(NEW, NEW, NEW, facts=written))
    assert row == ("known-bug", "cluster *", "unknown", "KAFKA-20734")  # 4.3.2 may have a fix
    exact = replace(written, broker_version=by_hand("4.3.1"))
    [row] = shown(running(NEW, NEW, NEW, facts=exact))
    assert row == ("known-bug", "cluster *", "finding", "KAFKA-20734")
    kept = with_ids(txn("app-1", topic="orders"), facts=with_topic("orders", 3))
    assert shown(running(NEW, NEW, NEW, facts=kept)) == []
    [(_, finding)] = ours(running(NEW, NEW, NEW, facts=written))
    assert sign_words(finding.signs[1]) == (
        "KAFKA-20734 is in Kafka 4.3.0 or later; no fix up to 4.4.0"
    )


def test_an_answer_like_no_release() -> None:
    other = Protocol({**ANSWERS[4, 3], APIS["Fetch"]: (4, 12)})
    facts = running(NEW, other, NEW)
    assert shown(facts) == [("known-bug", "broker 2", "unknown", None)]
    [(_, finding)] = ours(facts)
    assert sign_words(finding.signs[0]).startswith("broker 2: answers like no release")
    several = replace(finding.signs[0], data={"brokers": [2, 3]})
    assert sign_words(several).startswith("brokers 2, 3: answer like no release")
    assert remedy_of("known-bug", finding).startswith("Say which version")
    assert shown(replace(facts, broker_version=by_hand("4.3.1"))) == []


@pytest.mark.parametrize("level", [0, 1])
def test_a_low_transaction_version_that_all_brokers_could_raise(level: int) -> None:
    facts = running(*[protocol((4, 3), level)] * 3)
    assert shown(facts) == [("transaction-version-low", "cluster *", "finding", None)]
    [(_, finding)] = ours(facts)
    assert sign_words(finding.signs[0]) == (f"transaction.version is {level}; all brokers can do 2")
    assert finding.change is not None
    assert change_argv(finding.change, [("a", 9092)]) == [
        "kafka-features.sh",
        "--bootstrap-server",
        "a:9092",
        "upgrade",
        "--feature",
        "transaction.version=2",
    ]


def test_a_level_that_is_not_finalized_is_0() -> None:
    none = Protocol(ANSWERS[4, 3], {METADATA: 30})
    [(name, finding)] = ours(running(none, none, none))
    assert name == "transaction-version-low"
    assert finding.signs[0].data["level"] == 0


def test_the_first_release_that_can_do_version_2_is_4_0_0() -> None:
    first = running(*[protocol((4, 0), 0)] * 3)  # whose bounds are 4.0.0 alone
    assert "transaction-version-low" in [name for name, _ in ours(first)]
    before = running(*[protocol((3, 9), 0)] * 3)
    assert "transaction-version-low" not in [name for name, _ in ours(before)]


def test_a_low_transaction_version_of_brokers_that_can_do_no_more() -> None:
    facts = running(protocol((3, 9), 0), protocol((4, 3), 0), protocol((4, 3), 0))
    assert "transaction-version-low" not in [name for name, _ in ours(facts)]


def test_a_broker_that_is_not_seen_may_be_unable_to_do_more() -> None:
    two = running(protocol((4, 3), 0), protocol((4, 3), 0))
    silent = replace(two, missing_brokers=(replace(SILENT, broker=3),))
    answers = [(name, "cluster *", "unknown", None) for name in OURS if name != "speaks-v1"]
    assert shown(silent) == answers
    answered = running(protocol((4, 3), 0), protocol((4, 3), 0), protocol((4, 3), 0))
    assert [n for n, f in ours(replace(answered, missing_brokers=(REFUSED,)))] == [
        "transaction-version-low"  # its settings are hidden, its versions are not
    ]


def test_brokers_before_the_table_and_no_brokers_at_all() -> None:
    old = Protocol(ANSWERS[2, 7])
    rows = shown(running(old, old, old))
    assert {(name, kind) for name, kind, _, _ in rows} == {("known-bug", "cluster *")}
    assert ours(DoctorFacts(now=0)) == []


def test_no_right_is_named_for_what_needs_none() -> None:
    silent: Missing = replace(SILENT, broker=3)
    facts = running(NEW, NEW, missing_brokers=(silent,))
    assert {f.lacks for _, f in ours(facts)} == {None}


def test_brokers_of_two_branches() -> None:
    facts = running(RELEASED, NEW, NEW)
    [finding] = [f for name, f in ours(facts) if name == "mixed-versions"]
    assert [sign_words(sign) for sign in finding.signs] == [
        "broker 1: Kafka 4.0.1 or later, before 4.1.0, by what it answers to ApiVersions",
        "brokers 2, 3: Kafka 4.3.x, by what they answer to ApiVersions",
    ]


def test_brokers_of_one_branch_are_not_mixed() -> None:
    facts = running(protocol((4, 0)), RELEASED, RELEASED)
    assert "mixed-versions" not in [name for name, _ in ours(facts)]


def test_brokers_that_may_be_of_one_release_are_not_mixed() -> None:
    """One of 3.5 or 3.6 by its requests beside one of 3.6 by its level too."""
    either = Protocol(ANSWERS[3, 6])
    facts = running(either, protocol((3, 6)), protocol((3, 6)))
    assert "mixed-versions" not in [name for name, _ in ours(facts)]


def test_a_newer_protocol() -> None:
    newer = protocol((4, 4), apis={APIS["EndTxn"]: (0, 6), APIS["Fetch"]: (4, 19)})
    facts = running(protocol((4, 4)), newer, newer)
    rows = {name: f for name, f in ours(facts) if f.state == "finding"}
    assert list(rows) == ["newer-protocol"]
    assert sign_words(rows["newer-protocol"].signs[0]) == (
        "brokers 2, 3: newer than eoctl knows: Fetch 19, EndTxn 6"
    )
    assert rows["newer-protocol"].kind == "cluster"


def record(name: str, state: TransactionState, version: int, offset: int) -> StateRecord:
    value = TransactionValue(7, 0, 60_000, state, (), 0, 0, client_transaction_version=version)
    return StateRecord(name, 3, offset, 0, value)


def test_the_version_of_an_id_is_that_of_its_newest_transaction() -> None:
    ongoing, prepared = TransactionState.ONGOING, TransactionState.PREPARE_COMMIT
    aborted = TransactionState.PREPARE_ABORT
    records = [
        record("upgraded", ongoing, 0, 0),
        record("upgraded", ongoing, 2, 1),
        record("lowered", prepared, 2, 2),
        record("lowered", ongoing, 0, 3),
        record("timed-out", ongoing, 0, 4),
        record("timed-out", aborted, 2, 5),  # by the coordinator, with its own version
        record("only-initialised", TransactionState.EMPTY, 0, 6),
        StateRecord("expired", 3, 7, 0, None),
    ]
    assert newest_versions(records) == {"upgraded": 2, "lowered": 0, "timed-out": 0}


def test_ids_that_speak_version_1_although_the_cluster_can_do_2() -> None:
    spoken = {"b": 0, "a": 1, "new": 2}
    facts = running(NEW, NEW, NEW, client_versions=spoken)
    assert shown(facts) == [("speaks-v1", "transactional-id a", "finding", None)]
    [(_, finding)] = ours(facts)
    assert sign_words(finding.signs[0]) == (
        "2 ids wrote a transaction of version 1 in the last 10 minutes: 'a', 'b'"
    )
    low = running(*[protocol((4, 3), 1)] * 3, client_versions=spoken)
    assert [name for name, _ in ours(low)] == ["transaction-version-low"]


def test_all_ids_that_speak_version_1_can_be_listed() -> None:
    spoken = {f"id-{number:03}": 0 for number in range(600)}
    [(_, finding)] = ours(running(NEW, NEW, NEW, client_versions=spoken))
    assert finding.signs[0].data == {"names": sorted(spoken)[:500], "number": 600}
    assert sign_words(finding.signs[0]).endswith(": 'id-000', 'id-001', 'id-002' and 597 more")


def test_only_named_ids_are_said_to_speak_version_1() -> None:
    facts = with_ids(txn("a"), txn("b"), facts=running(NEW, NEW, NEW))
    facts = replace(facts, client_versions={"a": 0, "b": 0}, named=("b",))
    about = narrowed(facts, ("b",))
    [(_, finding)] = [one for one in judged(about, RULES) if one[0].name == "speaks-v1"]
    assert finding.name == "b"
    assert finding.signs[0].data["names"] == ["b"]


def test_a_log_that_may_not_be_read() -> None:
    denied = Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "not read", topic="__transaction_state")
    facts = running(NEW, NEW, NEW, missing_versions=(denied,))
    assert shown(facts) == [("speaks-v1", "transactional-id *", "unknown", None)]
    [(rule, finding)] = ours(facts)
    assert remedy_of(rule, finding) == "Grant READ on __transaction_state, then ask again."
    assert denied in facts.missing
