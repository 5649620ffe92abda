"""Which findings make the answer incomplete, and what is said of what was not read."""

from eoctl.operations.doctor.doctor_answer import unknown_as_missing
from recovery.doctor.findings import judged
from recovery.doctor.rules import RULES
from tests.unit.doctor.test_version_rules import protocol, running
from tests.unit.doctor_facts import REFUSED, healthy


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
