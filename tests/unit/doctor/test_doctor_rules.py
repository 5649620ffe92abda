"""Each rule of `doctor`: settings it speaks about, those it does not, and hidden ones."""

from collections.abc import Mapping
from typing import Any

import pytest

from eoctl.render.doctor_words import remedy_of, sign_words
from eoctl.render.explain import entries, part
from recovery.doctor.findings import DoctorFacts, Finding, Replicas, Settings, judged
from recovery.doctor.narrowing import OF_THE_CLUSTER, about_names, narrowed, shown, unknown_names
from recovery.doctor.rules import RULES
from recovery.facts import GroupFacts, Missing, Transactions
from recovery.inspect.rights import NEEDS
from recovery.values import replace
from tests.unit.doctor_facts import (
    DAY,
    DEFAULTS,
    HIDDEN_IDS,
    HIDDEN_TOPICS,
    HOUR,
    MADE,
    NOW,
    OFFSETS,
    REFUSED,
    SAFE,
    SILENT,
    STATE,
    healthy,
    txn,
    with_ids,
    with_setting,
    with_topic,
)

Shown = tuple[str, str, str]


def findings(facts: DoctorFacts) -> list[Shown]:
    """All certain findings: (rule, kind, name)."""
    return [(r.name, f.kind, f.name) for r, f in judged(facts, RULES) if f.state == "finding"]


def unknown(facts: DoctorFacts, rule: str) -> list[tuple[str, str, str | None]]:
    """What a rule cannot tell: (kind, name, lacking right)."""
    return [
        (f.kind, f.name, f.lacks)
        for r, f in judged(facts, RULES)
        if f.state == "unknown" and r.name == rule
    ]


def only(facts: DoctorFacts) -> Finding:
    """The one finding."""
    [(_, finding)] = judged(facts, RULES)
    return finding


def test_a_healthy_cluster_has_none() -> None:
    assert judged(healthy(), RULES) == []
    assert judged(with_ids(txn("app", topic=None)), RULES) == []


CASES: Mapping[str, tuple[DoctorFacts, list[Shown]]] = {
    "two copies of the state log": (
        with_topic(STATE, 2, min_insync_replicas="1"),
        [("few-copies", "topic", STATE), ("one-copy-suffices", "topic", STATE)],
    ),
    "two copies, and two brokers": (
        replace(with_topic(STATE, 2, min_insync_replicas="1"), brokers=(1, 2)),
        [("one-copy-suffices", "topic", STATE)],
    ),
    "one copy of the offsets on two brokers": (
        replace(with_topic(OFFSETS, 1), brokers=(1, 2)),
        [("few-copies", "topic", OFFSETS)],
    ),
    "min ISR 1 of three": (
        with_topic(OFFSETS, 3, min_insync_replicas="1"),
        [("one-copy-suffices", "topic", OFFSETS)],
    ),
    "min ISR 3 of three": (
        with_topic(STATE, 3, min_insync_replicas="3"),
        [("every-copy-needed", "topic", STATE)],
    ),
    "min ISR 2 of two": (
        replace(with_topic(STATE, 2, min_insync_replicas="2"), brokers=(1, 2)),
        [("every-copy-needed", "topic", STATE)],
    ),
    "min ISR 2 of one copy: as many as exist count": (
        replace(with_topic(STATE, 1, min_insync_replicas="2"), brokers=(1,)),
        [],
    ),
    "unclean election": (
        with_topic(STATE, unclean_leader_election_enable="true"),
        [("unclean-election", "topic", STATE)],
    ),
    "a topic that nobody writes in a transaction": (with_topic("logs", 1), []),
    "a topic that a transaction writes": (
        with_ids(txn("app-1", topic="orders"), facts=with_topic("orders", 1)),
        [("few-copies", "topic", "orders")],
    ),
    "a topic that is held by nobody's transaction": (
        replace(with_topic("orders", 1), held=("orders",)),
        [("few-copies", "topic", "orders")],
    ),
    "verification off on two of three": (
        with_setting("transaction.partition.verification.enable", "false", (2, 3)),
        [("verification-off", "broker", "2"), ("verification-off", "broker", "3")],
    ),
    "a timeout of an hour": (
        with_ids(txn("flink", HOUR), facts=with_setting("transaction.max.timeout.ms", str(HOUR))),
        [],
    ),
    "a timeout of more than an hour": (
        with_ids(
            txn("b", HOUR + 1),
            txn("a", HOUR + 1),
            facts=with_setting("transaction.max.timeout.ms", str(DAY)),
        ),
        [("timeout-long", "transactional-id", "a")],
    ),
    "a timeout above what one broker allows": (
        with_ids(
            txn("app", 900_000), facts=with_setting("transaction.max.timeout.ms", "899999", (2,))
        ),
        [("timeout-above-max", "transactional-id", "app")],
    ),
    "a timeout at what brokers allow": (with_ids(txn("app", 900_000)), []),
    "a two-phase id that no broker takes": (
        with_ids(txn("flink", 2_147_483_647)),
        [("two-phase-off", "transactional-id", "flink")],
    ),
    "a two-phase id": (
        with_ids(
            txn("flink", 2_147_483_647),
            facts=with_setting("transaction.two.phase.commit.enable", "true"),
        ),
        [],
    ),
    "ids that are not described, and a ghost": (
        with_ids(txn("a", None), txn("b", DAY, ghost=True), txn("c", 2_147_483_647, ghost=True)),
        [],
    ),
    "ids that expire within a day": (
        with_setting("transactional.id.expiration.ms", str(DAY - 1)),
        [("ids-expire-early", "cluster", "*")],
    ),
    "ids that expire after a day": (with_setting("transactional.id.expiration.ms", str(DAY)), []),
    "producers forgotten within an hour by one broker": (
        with_setting("producer.id.expiration.ms", str(HOUR - 1), (3,)),
        [("producers-expire-early", "broker", "3")],
    ),
    "producers forgotten after an hour": (
        with_setting("producer.id.expiration.ms", str(HOUR)),
        [],
    ),
    "offsets that expire within a day": (
        with_setting("offsets.retention.minutes", "1439"),
        [("offsets-expire-early", "cluster", "*")],
    ),
    "offsets that expire within a day, and a group that is away": (
        replace(
            with_setting("offsets.retention.minutes", "1439"),
            groups=(
                GroupFacts("z", "Empty"),
                GroupFacts("a", "Stable"),
                GroupFacts("away", "Empty"),
            ),
        ),
        [("offsets-expire-early", "group", "away")],
    ),
    "offsets that expire after a day": (with_setting("offsets.retention.minutes", "1440"), []),
    "a changelog that is deleted": (
        with_topic("app-store-changelog", cleanup_policy="delete"),
        [("changelog-deletes", "topic", "app-store-changelog")],
    ),
    "a window's changelog": (with_topic("app-w-changelog", cleanup_policy="compact,delete"), []),
    "tombstones that go within an hour": (
        with_topic("app-store-changelog", delete_retention_ms=str(HOUR - 1)),
        [("changelog-forgets-deletes", "topic", "app-store-changelog")],
    ),
    "tombstones of a changelog that is deleted, which has none": (
        with_topic("app-store-changelog", cleanup_policy="delete", delete_retention_ms="1"),
        [("changelog-deletes", "topic", "app-store-changelog")],
    ),
    "tombstones that stay an hour": (
        with_topic("app-store-changelog", delete_retention_ms=str(HOUR)),
        [],
    ),
    "another topic's tombstones": (with_topic("table", delete_retention_ms="1"), []),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_rule_speaks_about(case: str) -> None:
    facts, expected = CASES[case]
    assert findings(facts) == expected


VERSION_RULES = (
    "known-bug",
    "transaction-version-low",
    "speaks-v1",
    "mixed-versions",
    "newer-protocol",
)
"""Their cases are in test_version_rules.py."""


def test_each_rule_has_a_case() -> None:
    spoken = {rule for _, expected in CASES.values() for rule, _, _ in expected}
    of_records = {"mixed-commits", "timeout-too-short", "two-writers"}
    elsewhere = {"idle-id-in-use", *of_records, *VERSION_RULES}
    assert spoken | elsewhere == {rule.name for rule in RULES}


def test_topics_to_be_made_are_judged_by_what_brokers_would_give_them() -> None:
    low = DEFAULTS | {
        "transaction.state.log.replication.factor": "1",
        "unclean.leader.election.enable": "true",
    }
    facts = healthy(
        topics={}, topic_settings={}, broker_settings={1: DEFAULTS, 2: DEFAULTS, 3: low}
    )
    assert findings(facts) == [
        ("few-copies", "topic", STATE),
        # min.insync.replicas is 1 by default, and __consumer_offsets would have three copies
        ("one-copy-suffices", "topic", OFFSETS),
        # Kafka itself makes __transaction_state with unclean.leader.election.enable=false
        ("unclean-election", "topic", OFFSETS),
    ]
    assert all(f.change is None for _, f in judged(facts, RULES))
    text = sign_words(judged(facts, RULES)[0][1].signs[0])
    assert text == "it does not exist yet; the brokers would make it with 1 copy of each record"
    unclean = judged(facts, RULES)[2][1].signs[0]
    assert sign_words(unclean) == (
        "it does not exist yet; the brokers would make it with "
        "unclean.leader.election.enable=true, with 3 copies of each record"
    )


def test_an_id_in_use_is_named_before_its_coordinator_drops_it() -> None:
    clients = [(f"app-5f-StreamThread-{n}-consumer-9", "h") for n in (1, 2)]
    members = GroupFacts("app", "Stable", members=tuple(clients))
    for idle, expected in ((6 * DAY - 1, []), (6 * DAY, ["app-5f-1"])):
        rows = (
            txn("app-5f-1", start_timestamp=NOW - idle),
            txn("gone-1", start_timestamp=NOW - idle),
            txn("app-5f-2", start_timestamp=NOW - idle, ghost=True),
            txn("open-1", start_timestamp=NOW - idle, topic=STATE),
        )
        groups = (GroupFacts("not described", "Stable"), members)
        facts = with_ids(*rows, facts=healthy(groups=groups))
        assert [name for rule, _, name in findings(facts)] == expected


def test_an_id_that_works_more_often_than_it_expires_is_no_finding() -> None:
    """With an expiration of 10 h an id is near only once half of it is over."""
    members = GroupFacts("app", "Stable", members=(("app-1", "h"),))
    short = with_setting("transactional.id.expiration.ms", str(10 * HOUR))
    for idle, rules in ((5 * HOUR - 1, 0), (5 * HOUR, 1)):
        facts = with_ids(
            txn("app-1", start_timestamp=NOW - idle), facts=replace(short, groups=(members,))
        )
        assert sum(rule == "idle-id-in-use" for rule, _, _ in findings(facts)) == rules


def test_a_change_is_a_setting_of_a_running_cluster() -> None:
    finding = only(with_topic(STATE, 3, min_insync_replicas="1"))
    assert finding.change is not None
    assert finding.change.as_dict() == {
        "entity": "topics",
        "name": STATE,
        "setting": "min.insync.replicas",
        "value": "2",
    }
    two = replace(with_topic(STATE, 2, min_insync_replicas="1"), brokers=(1, 2))
    assert only(two).change is None, "min.insync.replicas 2 of 2 would stop with either broker"
    three = only(with_topic(STATE, 3, min_insync_replicas="3"))
    assert three.change is not None
    assert three.change.value == "2"


def test_hidden_broker_settings_name_the_right() -> None:
    facts = healthy(broker_settings={}, missing_brokers=(REFUSED,))
    right = "cluster: DESCRIBE_CONFIGS"
    assert findings(facts) == []
    for rule in ("verification-off", "ids-expire-early", "producers-expire-early"):
        assert unknown(facts, rule) == [("cluster", "*", right)]
    assert unknown(facts, "offsets-expire-early") == [("group", "*", right)]
    assert unknown(facts, "few-copies") == []  # the topics are there: no default matters
    assert unknown(facts, "timeout-above-max") == []  # there is no id
    seen = with_ids(txn("app"), facts=facts)
    assert unknown(seen, "timeout-above-max") == [("transactional-id", "*", right)]
    unmade = replace(facts, topics={}, topic_settings={})
    assert unknown(unmade, "few-copies") == [("cluster", "*", right)]


def test_a_silent_broker_lacks_no_right() -> None:
    facts = healthy(broker_settings={1: DEFAULTS}, missing_brokers=(SILENT,))
    assert unknown(facts, "verification-off") == [("cluster", "*", None)]


def test_hidden_topics_are_not_topics_to_be_made() -> None:
    bad = DEFAULTS | {"transaction.state.log.replication.factor": "1"}
    facts = healthy(
        topics={},
        topic_settings={},
        broker_settings=dict.fromkeys((1, 2, 3), bad),
        missing_topics=(HIDDEN_TOPICS,),
    )
    assert findings(facts) == []
    assert unknown(facts, "few-copies") == [("topic", "*", "topics: DESCRIBE")]
    assert unknown(facts, "changelog-deletes") == [("topic", "*", "topics: DESCRIBE")]


DURABILITY = ("few-copies", "one-copy-suffices", "every-copy-needed", "unclean-election")


@pytest.mark.parametrize("place", ["missing_groups", "missing_commits", "transactions"])
def test_an_internal_topic_that_any_answer_says_is_hidden_is_not_to_be_made(place: str) -> None:
    topic = STATE if place == "transactions" else OFFSETS
    other = OFFSETS if place == "transactions" else STATE
    hidden = (replace(HIDDEN_TOPICS, topic=topic),)
    mine: Any = Transactions(missing=hidden) if place == "transactions" else hidden
    bad = DEFAULTS | {
        "transaction.state.log.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
    }
    facts = healthy(
        topics={other: MADE[other]},
        topic_settings={other: SAFE},
        broker_settings=dict.fromkeys((1, 2, 3), bad),
        **{place: mine},
    )
    assert findings(facts) == []
    for rule in DURABILITY:
        assert unknown(facts, rule) == [("topic", "*", "topics: DESCRIBE")]
    named = narrowed(with_topic("orders"), ("orders",))
    named = replace(named, named=("orders",), topics={"orders": Replicas(4, 3)}, **{place: mine})
    assert unknown(named, "few-copies") == [], "it hides nothing about the name"


def test_a_topic_without_a_leader_may_be_held() -> None:
    gone = Missing("partition", "LEADER_NOT_AVAILABLE", "no broker leads it", None, "orders", 0)
    facts = replace(with_topic("orders", 1), missing_held=(gone,))
    assert gone in facts.missing
    assert findings(facts) == []
    for rule in DURABILITY:
        assert unknown(facts, rule) == [("topic", "*", None)]
    held = replace(facts, held=("orders",))
    assert findings(held) == [("few-copies", "topic", "orders")]
    assert unknown(held, "few-copies") == [], "it is judged all the same"
    named = narrowed(replace(facts, named=(STATE,)), (STATE,))
    assert judged(named, RULES) == []
    assert named.missing == ()


def test_many_hidden_topics_and_ids_are_judged_at_once() -> None:
    hidden = tuple(replace(HIDDEN_TOPICS, topic=f"hidden-{n}") for n in range(300))
    ids = (txn(f"app-{n}", topic=f"topic-{n}") for n in range(10_000))
    facts = with_ids(*ids, facts=healthy(missing_topics=hidden, missing_settings=hidden))
    reads = 0

    class Counted(DoctorFacts):
        @property
        def written(self) -> dict[str, list[str]]:
            nonlocal reads
            reads += 1
            return {}

    counted = Counted(**{name: getattr(facts, name) for name in facts.__struct_fields__})
    for rule in RULES:
        list(rule.judge(counted))
    assert reads < 50


def test_hidden_settings_of_a_topic_name_the_right() -> None:
    def refused(name: str) -> Missing:
        return Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "hidden", topic=name)

    facts = healthy(topic_settings={OFFSETS: SAFE}, missing_settings=(refused(STATE),))
    for rule in ("one-copy-suffices", "every-copy-needed", "unclean-election"):
        assert unknown(facts, rule) == [("topic", "*", "topics: DESCRIBE_CONFIGS")]
    assert unknown(facts, "few-copies") == unknown(facts, "changelog-deletes") == []
    changelog = healthy(missing_settings=(refused("app-store-changelog"),))
    assert unknown(changelog, "one-copy-suffices") == []
    assert unknown(changelog, "changelog-deletes") == [("topic", "*", "topics: DESCRIBE_CONFIGS")]


def test_hidden_ids_name_the_right() -> None:
    facts = healthy(transactions=Transactions(missing=(HIDDEN_IDS,)))
    for rule in ("timeout-long", "timeout-above-max", "two-phase-off", "idle-id-in-use"):
        assert unknown(facts, rule) == [("transactional-id", "*", "transactional ids: DESCRIBE")]
    topic = healthy(transactions=Transactions(missing=(HIDDEN_TOPICS,)))
    assert unknown(topic, "timeout-long") == [("transactional-id", "*", "topics: DESCRIBE")]


def test_every_unknown_makes_the_answer_incomplete() -> None:
    for facts in (
        healthy(missing_brokers=(REFUSED,)),
        healthy(missing_topics=(HIDDEN_TOPICS,)),
        healthy(transactions=Transactions(missing=(HIDDEN_IDS,))),
    ):
        assert any(f.state == "unknown" for _, f in judged(facts, RULES))
        assert facts.missing


def test_names_leave_out_what_is_about_others() -> None:
    everything = with_setting("transaction.partition.verification.enable", "false")
    everything = replace(
        everything,
        topics={**MADE, "orders": Replicas(1, 1), "other": Replicas(1, 1)},
        transactions=Transactions(
            (txn("app-1", topic="orders"), txn("app-2", topic="other"), txn("app-3", DAY))
        ),
        groups=(GroupFacts("readers", "Stable"),),
    )

    def of(*names: str) -> list[Shown]:
        facts = narrowed(replace(everything, named=names), names)
        found = shown(facts, judged(facts, RULES))
        assert list(unknown_names(facts)) == []
        return [(r.name, f.kind, f.name) for r, f in found]

    assert of("orders") == [("few-copies", "topic", "orders")]
    assert of("app-2") == [("few-copies", "topic", "other")]
    assert of("app-3") == [
        ("timeout-above-max", "transactional-id", "app-3"),
        ("timeout-long", "transactional-id", "app-3"),
    ]
    assert of("readers") == []
    assert len(of()) == 7


def about(facts: DoctorFacts, *names: str) -> list[tuple[str, Finding]]:
    """What `doctor NAME...` finds, each with its rule."""
    facts = narrowed(replace(facts, named=names), names)
    return [(rule.name, f) for rule, f in shown(facts, judged(facts, RULES))]


def test_members_of_groups_that_are_not_named_show_that_an_id_is_in_use() -> None:
    members = GroupFacts("app", "Stable", members=(("app-1", "h"),))
    row = txn("app-1", start_timestamp=NOW - 6 * DAY)
    facts = with_ids(row, facts=healthy(groups=(members,)))
    [(rule, finding)] = about(facts, "app-1")
    assert (rule, finding.name) == ("idle-id-in-use", "app-1")
    assert about(facts, "app") == []


def test_a_named_group_loses_its_offsets_whether_it_has_members_or_not() -> None:
    short = with_setting("offsets.retention.minutes", "60")
    groups = (GroupFacts("away", "Empty"), GroupFacts("busy", "Stable"), GroupFacts("z", "Empty"))
    facts = replace(short, groups=groups)

    def of(*names: str) -> list[tuple[str, list[str]]]:
        return [(f.name, [s.code for s in f.signs]) for _, f in about(facts, *names)]

    assert of("busy") == [("busy", ["setting"])]
    assert of("busy", "z") == [("busy", ["setting"]), ("z", ["setting", "idle-groups"])]
    assert [f.signs[1].data["names"] for _, f in about(facts, "z")] == [["z"]]
    assert of(STATE) == []


def test_a_name_leaves_out_kafkas_own_topics_and_keeps_who_writes_it() -> None:
    facts = with_topic(STATE, 1)
    facts = replace(facts, topics={**facts.topics, "orders": Replicas(1, 1)}, named=("orders",))
    facts = narrowed(with_ids(txn("app-1", topic="orders"), facts=facts), ("orders",))
    assert len(judged(facts, RULES)) == 2
    [(_, finding)] = shown(facts, judged(facts, RULES))
    assert finding.name == "orders"
    assert finding.signs[1].data == {"names": ["app-1"], "number": 1}


def test_a_changelog_whose_settings_are_hidden_is_no_finding() -> None:
    name = "app-store-changelog"
    settings: Settings = {"cleanup.policy": "compact", "delete.retention.ms": None}
    facts = healthy(topic_settings={**dict.fromkeys(MADE, SAFE), name: settings})
    assert judged(facts, RULES) == []
    empty = healthy(topic_settings={**dict.fromkeys(MADE, SAFE), name: {}})
    assert judged(empty, RULES) == []


def test_a_changelog_that_is_not_described_is_unknown() -> None:
    def refused(topic: str | None) -> Missing:
        return Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "hidden", topic=topic)

    for names, expected in (
        (("app-store-changelog",), [("topic", "*", "topics: DESCRIBE")]),
        (("orders",), []),
    ):
        facts = healthy(missing_topics=tuple(map(refused, names)))
        assert unknown(facts, "changelog-deletes") == expected
    nameless = healthy(missing_settings=(refused(None),))
    assert unknown(nameless, "changelog-deletes") == []


def test_copies_that_are_not_known_are_no_finding() -> None:
    """The brokers hide what they would give a topic that does not exist yet."""
    hidden = {broker: {"min.insync.replicas": "2"} for broker in (1, 2, 3)}
    assert judged(healthy(topics={}, topic_settings={}, broker_settings=hidden), RULES) == []


def test_names_leave_out_the_cluster_and_its_brokers() -> None:
    facts = with_setting("transactional.id.expiration.ms", "1")
    facts = replace(
        facts,
        broker_settings={
            1: {**facts.broker_settings[1], "producer.id.expiration.ms": "1"},
            2: facts.broker_settings[2],
        },
        named=("1", STATE),
    )
    found = shown(facts, judged(facts, RULES))
    assert len(judged(facts, RULES)) == 2
    assert found == []


def test_an_id_that_was_not_described_has_no_topics() -> None:
    row = replace(txn("app"), partitions=None)
    facts = narrowed(with_ids(row, facts=healthy(named=("app", "t"))), ("app", "t"))
    assert facts.written == {}
    assert [t.transactional_id for t in facts.transactions.rows] == ["app"]
    assert narrowed(with_ids(row), ("t",)).transactions.rows == ()


def test_the_settings_of_a_topic_that_a_named_id_writes_stay() -> None:
    refused = Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "hidden", topic="orders")
    hidden = healthy(missing_settings=(refused,), missing_topics=(refused,), named=("app",))
    facts = narrowed(with_ids(txn("app", topic="orders"), facts=hidden), ("app",))
    assert facts.missing == (refused, refused)
    assert unknown(facts, "one-copy-suffices") == [
        ("topic", "*", "topics: DESCRIBE"),
        ("topic", "*", "topics: DESCRIBE_CONFIGS"),
    ]
    other = replace(facts, transactions=Transactions(), named=())
    assert unknown(other, "one-copy-suffices") == []


def test_one_topic_of_kafka_made_and_one_not() -> None:
    facts = healthy(topics={STATE: MADE[STATE]}, broker_settings={}, missing_brokers=(REFUSED,))
    assert unknown(facts, "few-copies") == [("cluster", "*", "cluster: DESCRIBE_CONFIGS")]


def test_certain_findings_come_first() -> None:
    facts = replace(with_topic(STATE, 3, min_insync_replicas="1"), missing_brokers=(SILENT,))
    states = [f.state for _, f in judged(facts, RULES)]
    assert states == sorted(states)
    assert set(states) == {"finding", "unknown"}


def test_what_was_not_seen_is_named() -> None:
    def refused(topic: str | None = None, **more: Any) -> Missing:
        return Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "hidden", topic=topic, **more)

    names = ("a", "b", "c", "d")
    facts = healthy(missing_settings=tuple(map(refused, names)), named=names)
    [rule] = [f for r, f in judged(facts, RULES) if r.name == "unclean-election"]
    assert rule.signs[0].data == {
        "names": ["a", "b", "c"],
        "number": 4,
        "error": "TOPIC_AUTHORIZATION_FAILED",
        "detail": "hidden",
        "brokers": [],
    }
    assert sign_words(rule.signs[0]) == (
        "'a', 'b', 'c' and 1 more: hidden (TOPIC_AUTHORIZATION_FAILED)"
    )
    one = healthy(
        transactions=Transactions(missing=(Missing("transaction", "X", "no", broker=2, id="i"),))
    )
    [finding] = [f for r, f in judged(one, RULES) if r.name == "timeout-long"]
    assert sign_words(finding.signs[0]) == "broker 2: 'i': no (X)"


def test_why_a_topic_matters() -> None:
    facts = replace(with_topic("orders", 1), held=("orders",))
    assert [s.code for s in only(facts).signs] == ["copies", "held"]
    written = with_ids(txn("app-1", topic="orders"), facts=facts)
    assert [s.code for s in only(written).signs] == ["copies", "written-by", "held"]


def test_names_leave_out_what_hides_other_topics() -> None:
    def refused(name: str | None) -> Missing:
        return Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "hidden", topic=name)

    hidden = healthy(
        missing_topics=(refused(None), refused("lost"), refused("mine")),
        missing_settings=(refused("other-changelog"), refused("mine")),
        named=("mine",),
    )
    facts = narrowed(hidden, ("mine",))
    assert [m.topic for m in facts.missing] == [None, "mine", "mine"]


def test_nameless_topics_hide_nothing_about_names_that_were_seen() -> None:
    hidden = with_topic("orders", 3)
    hidden = replace(hidden, missing_topics=(HIDDEN_TOPICS,), groups=(GroupFacts("g", "Empty"),))
    hidden = with_ids(txn("app", topic="orders"), txn("other", topic="lost"), facts=hidden)

    def missing(*names: str) -> tuple[Missing, ...]:
        return narrowed(hidden, names).missing

    assert missing("orders") == missing("app") == missing("g", "orders") == ()
    for names in ((), ("orders", "nothing"), ("other",)):
        assert missing(*names) == (HIDDEN_TOPICS,)


def test_rules_of_the_cluster_find_nothing_about_names() -> None:
    found = [(name, kind) for _, rows in CASES.values() for name, kind, _ in rows]
    kinds = {name: {k for n, k in found if n == name} for name, _ in found}
    apart = {rule.name for rule in RULES} - {rule.name for rule in about_names(RULES)}
    assert apart == OF_THE_CLUSTER
    for name, seen in kinds.items():
        assert (seen <= {"cluster", "broker"}) is (name in OF_THE_CLUSTER), name


def test_a_topic_that_is_named_is_judged_though_nobody_writes_it() -> None:
    facts = replace(with_topic("orders", 1), named=("orders",))
    assert findings(facts) == [("few-copies", "topic", "orders")]


def test_a_name_that_is_nothing_is_missing() -> None:
    facts = narrowed(healthy(named=("nothing", STATE)), ("nothing", STATE))
    assert [(m.error, m.id) for m in unknown_names(facts)] == [("UNKNOWN_NAME", "nothing")]


def test_every_rule_says_whom_it_harms_and_what_helps() -> None:
    for rule in RULES:
        assert part(rule.name, "finding", "harm"), rule.name
        assert part(rule.name, "finding", "remedy"), rule.name
        assert rule.sources, rule.name
        assert rule.needs_app or set(rule.needs) <= set(NEEDS["doctor"]), rule.name
    assert {e.word for e in entries() if e.kind == "finding"} == {rule.name for rule in RULES}


def test_every_sign_has_words() -> None:
    for facts, _ in CASES.values():
        for rule, finding in judged(facts, RULES):
            assert all(sign_words(sign) for sign in finding.signs)
            assert remedy_of(rule.name, finding)


def test_the_words_of_some_signs() -> None:
    def words(facts: DoctorFacts) -> list[str]:
        return [sign_words(sign) for _, f in judged(facts, RULES) for sign in f.signs]

    assert words(CASES["min ISR 1 of three"][0]) == [
        "min.insync.replicas is 1, with 3 copies of each record"
    ]
    assert words(CASES["a timeout of more than an hour"][0]) == [
        "transaction timeout 3600001 ms (1h)",
        "2 transactional ids: 'a', 'b'",
    ]
    assert words(CASES["offsets that expire within a day"][0]) == [
        "offsets.retention.minutes is 1439 (23h 59m) on brokers 1, 2, 3"
    ]
    assert words(CASES["a topic that a transaction writes"][0]) == [
        "1 copy of each record",
        "transactions write it now, such as that of 'app-1'",
    ]


def test_what_would_show_an_unknown() -> None:
    hidden = healthy(missing_brokers=(REFUSED,))
    rule, finding = next(one for one in judged(hidden, RULES) if one[1].state == "unknown")
    assert remedy_of(rule.name, finding) == "Grant DESCRIBE_CONFIGS on the cluster, then ask again."
    silent = healthy(missing_brokers=(SILENT,))
    rule, finding = next(one for one in judged(silent, RULES) if one[1].state == "unknown")
    assert remedy_of(rule.name, finding) == "Ask again once the brokers answer."
    old = Missing("feature", "UNSUPPORTED_VERSION", "listing transactions needs Kafka 3.0", 1)
    facts = healthy(transactions=Transactions(missing=(old,)))
    rule, finding = next(one for one in judged(facts, RULES) if one[1].state == "unknown")
    assert (rule.name, finding.lacks) == ("timeout-above-max", None)
    assert remedy_of(rule.name, finding).startswith("No right shows it")
