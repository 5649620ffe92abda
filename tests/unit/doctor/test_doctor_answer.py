"""Which findings make the answer incomplete, and what is said of what was not read."""

from eoctl.kafka.read.chunks import Chunk, Range
from eoctl.kafka.read.recent_log import OF_RECORDS, Tail, Tails
from eoctl.operations.doctor.doctor_answer import bounds_reached, unknown_as_missing
from recovery.doctor.findings import judged
from recovery.doctor.recent_states import RecentStates
from recovery.doctor.rules import RULES
from tests.unit.doctor.test_version_rules import NEW, protocol, running
from tests.unit.doctor_facts import NOW, REFUSED, STATE, healthy


def test_an_unknown_of_which_nothing_is_missing_makes_the_answer_incomplete() -> None:
    """4.1.x: one bug is certain, one is not, although all brokers answered."""
    facts = running(*[protocol((4, 1))] * 3)
    assert facts.missing == ()
    [missing] = unknown_as_missing(judged(facts, RULES))
    assert (missing.scope, missing.error, missing.broker) == ("cluster", "UNKNOWN_FINDING", None)
    assert missing.detail.startswith("known-bug: brokers 1, 2, 3: Kafka 4.1.x")
    assert "KAFKA-19690" in missing.detail
    assert missing.detail.endswith("--broker-version 4.0.1, for instance.")


def test_an_unknown_of_one_broker_names_it() -> None:
    [missing] = unknown_as_missing(judged(running(protocol((4, 1))), RULES))
    assert (missing.scope, missing.broker) == ("broker", 1)


def test_what_was_not_seen_is_missing_already() -> None:
    facts = healthy(missing_brokers=(REFUSED,))
    found = judged(facts, RULES)
    assert any(f.state == "unknown" for _, f in found)
    assert unknown_as_missing(found) == []


def test_a_busy_cluster_is_a_note_and_not_an_error() -> None:
    assert bounds_reached(healthy()) == []
    facts = running(NEW, NEW, NEW, versions_from=NOW - 242_000)
    [back] = bounds_reached(facts)
    assert back.startswith("speaks-v1: only the last 4 min were read, since __transaction_state")
    assert judged(facts, RULES) == []
    assert facts.missing == ()


def test_partitions_of_which_nothing_was_read_are_unknown() -> None:
    ranges = tuple(Range(STATE, number, 0, 5) for number in range(3))
    tail = Tail(Tails(STATE, 50, 0, OF_RECORDS, ranges), RecentStates(NOW))
    tail.take(Chunk(STATE, 0, 0, 3, b"", None, 5, 5, 0))
    [missing] = tail.not_reached("ids there are not seen")
    assert (missing.error, missing.topic) == ("NOT_READ", STATE)
    assert missing.detail == (
        "2 of 50 partitions of __transaction_state were not read, since there are more than "
        "16 MiB, so ids there are not seen"
    )
    facts = running(NEW, NEW, NEW, missing_versions=(missing,))
    [(rule, finding)] = judged(facts, RULES)
    assert (rule.name, finding.state, finding.lacks) == ("speaks-v1", "unknown", None)
    for number in (1, 2):
        tail.take(Chunk(STATE, number, 0, 3, b"", None, 5, 5, 0))
    assert tail.not_reached("ids there are not seen") == []
