"""`check --doctor`: a row for each rule, found or not."""

from eoctl.render.watch_words import check_row
from recovery.doctor.as_checks import as_checks
from recovery.doctor.findings import DoctorFacts, Finding, judged
from recovery.doctor.rules import RULES
from recovery.watch.check_rows import CheckRow
from tests.unit.doctor_facts import REFUSED, healthy, with_setting


def rows_of(facts: DoctorFacts) -> list[CheckRow]:
    return [check_row(one) for one in as_checks(judged(facts, RULES), RULES)]


def by_rule(rows: list[CheckRow]) -> dict[str, CheckRow]:
    return {row.rule: row for row in rows}


def test_a_healthy_cluster_has_a_row_per_rule_that_is_ok() -> None:
    rows = rows_of(healthy())
    assert [row.rule for row in rows] == [f"doctor.{rule.name}" for rule in RULES]
    assert {(row.ok, row.observed, row.detail, row.unit) for row in rows} == {
        (True, 0, "none", "findings")
    }


def test_findings_are_counted_and_named() -> None:
    facts = with_setting("transaction.partition.verification.enable", "false", (2, 3))
    row = by_rule(rows_of(facts))["doctor.verification-off"]
    assert (row.ok, row.observed, row.threshold) == (False, 2, 1)
    assert row.detail == "broker 2, broker 3"


def test_what_is_hidden_is_not_ok_and_a_finding_beside_it_counts() -> None:
    facts = healthy(missing_brokers=(REFUSED,))
    assert {row.ok for row in rows_of(facts)} == {True, None}
    off = with_setting("transaction.partition.verification.enable", "false")
    hidden = by_rule(
        rows_of(healthy(broker_settings={1: off.broker_settings[1]}, missing_brokers=(REFUSED,)))
    )
    assert hidden["doctor.verification-off"].ok is False
    assert hidden["doctor.verification-off"].detail == ("broker 1; 1 question without an answer")
    assert hidden["doctor.ids-expire-early"].ok is None


def test_an_id_called_as_all_ids_are_is_named() -> None:
    [rule] = [rule for rule in RULES if rule.name == "speaks-v1"]
    [one] = as_checks([(rule, Finding("transactional-id", "*", ()))], [rule])
    row = check_row(one)
    assert (row.ok, row.detail) == (False, "transactional-id '*'")
