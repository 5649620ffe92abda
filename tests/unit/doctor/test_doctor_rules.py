"""Each rule of `doctor`: settings it speaks about, those it does not, and hidden ones."""

from eoctl.render.explain import entries, part
from recovery.doctor.findings import DoctorFacts, judged
from recovery.doctor.rules import RULES
from recovery.facts import Missing

REFUSED = Missing("broker", "CLUSTER_AUTHORIZATION_FAILED", "its settings are hidden", broker=2)


def rows(facts: DoctorFacts, rule: str) -> list[tuple[str, str, str, str | None]]:
    """The findings of one rule: (state, kind, name, lacking right)."""
    return [(f.state, f.kind, f.name, f.lacks) for r, f in judged(facts, RULES) if r.name == rule]


def test_verification_off_names_the_brokers_that_are_set_so() -> None:
    on, off = ({"transaction.partition.verification.enable": v} for v in ("true", "false"))
    facts = DoctorFacts(now=0, broker_settings={1: on, 2: off, 3: off})
    assert rows(facts, "verification-off") == [
        ("finding", "broker", "2", None),
        ("finding", "broker", "3", None),
    ]


def test_brokers_that_hide_their_settings_are_unknown_with_the_right() -> None:
    facts = DoctorFacts(now=0, missing_brokers=(REFUSED,))
    assert rows(facts, "verification-off") == [
        ("unknown", "cluster", "*", "cluster: DESCRIBE_CONFIGS")
    ]


def test_every_rule_says_whom_it_harms_and_what_helps() -> None:
    for rule in RULES:
        assert part(rule.name, "finding", "harm"), rule.name
        assert part(rule.name, "finding", "remedy"), rule.name
    assert {e.word for e in entries() if e.kind == "finding"} == {rule.name for rule in RULES}
