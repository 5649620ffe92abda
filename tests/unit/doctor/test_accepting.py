"""Findings that a context accepts: notes of `check --doctor`, and only what was seen."""

import pytest

from eoctl.operations.doctor.doctor_answer import accepted_as_notes, unknown_as_missing
from eoctl.render.watch_words import check_row
from recovery.doctor.accepting import refuse_unknown, split_findings
from recovery.doctor.as_checks import as_checks
from recovery.doctor.findings import DoctorFacts, judged
from recovery.doctor.rules import RULES
from recovery.errors import UsageError
from recovery.values import replace
from tests.unit.doctor.test_version_rules import protocol, running
from tests.unit.doctor_facts import REFUSED, txn, with_ids, with_setting, with_topic

FEW = with_topic("orders", 1)
VERIFICATION = "transaction.partition.verification.enable"


def names(facts: DoctorFacts, *accepted: str) -> tuple[list[str], list[str]]:
    """The findings that count, and those that are accepted, as rule and name or bug."""
    split = split_findings(judged(facts, RULES), accepted)
    count, notes = ([f"{r.name}:{f.bug or f.name}" for r, f in part] for part in split)
    return count, notes


def test_one_subject_or_every_subject_of_a_rule_is_accepted() -> None:
    facts = with_setting(VERIFICATION, "false", (2, 3))
    two, three = "verification-off:2", "verification-off:3"
    assert names(facts) == ([two, three], [])
    assert names(facts, two) == ([three], [two])
    assert names(facts, "verification-off") == ([], [two, three])
    assert names(facts, "verification-off:1", "few-copies") == ([two, three], [])


def test_a_bug_is_accepted_by_its_number_alone_also_if_only_some_releases_have_it() -> None:
    facts = running(protocol((4, 1)))
    count, notes = names(facts, "known-bug:KAFKA-19690")
    assert notes == ["known-bug:KAFKA-19690"]
    assert count == ["known-bug:KAFKA-20090"]
    assert unknown_as_missing(split_findings(judged(facts, RULES), notes)[0]) == []


def test_brokers_like_no_release_are_accepted() -> None:
    alien = replace(protocol((4, 1)), apis={**protocol((4, 1)).apis, 1: (0, 13)})
    facts = running(alien)
    accepted = ("known-bug:no-release", "transaction-version-low:no-release")
    split = split_findings(judged(facts, RULES), accepted)
    assert [f.state for _, f in split[1]] == ["unknown"]
    assert split[0] == []


def test_what_could_not_be_seen_is_never_accepted() -> None:
    facts = replace(FEW, missing_brokers=(REFUSED,))
    every = [rule.name for rule in RULES]
    count, _ = split_findings(judged(facts, RULES), every)
    assert count
    assert {f.state for _, f in count} == {"unknown"}


def test_the_row_counts_the_others_and_says_how_many_are_accepted() -> None:
    count, notes = split_findings(
        judged(with_setting(VERIFICATION, "false", (2, 3)), RULES), ["verification-off:2"]
    )
    rows = {row.rule: row for row in map(check_row, as_checks(count, RULES, notes))}
    row = rows["doctor.verification-off"]
    assert (row.ok, row.observed, row.detail) == (False, 1, "broker 3; 1 accepted")
    quiet = {row.rule: row for row in map(check_row, as_checks([], RULES, notes))}[
        "doctor.verification-off"
    ]
    assert (quiet.ok, quiet.observed, quiet.detail) == (True, 0, "none; 1 accepted")
    [note] = accepted_as_notes(notes)
    assert (note.scope, note.error, note.broker) == ("broker", "ACCEPTED_FINDING", 2)
    assert note.detail == (
        "verification-off:2 is accepted: transaction.partition.verification.enable is false "
        "on broker 2"
    )


def test_a_note_names_its_subject() -> None:
    facts = with_ids(txn("slow", 2 * 3_600_000))
    _, notes = split_findings(judged(facts, RULES), ["timeout-long", "timeout-above-max"])
    assert {(n.scope, n.id) for n in accepted_as_notes(notes)} == {("transaction", "slow")}


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("few-copy", "RULE:NAME"),
        ("", "RULE:NAME"),
        ("known-bug", "known-bug:KAFKA-NUMBER"),
        ("known-bug:KAFKA-1", "known-bug:KAFKA-NUMBER"),
    ],
)
def test_what_names_no_finding_is_refused(text: str, remedy: str) -> None:
    refuse_unknown(["few-copies", "few-copies:orders", "known-bug:KAFKA-20734"], RULES)
    with pytest.raises(UsageError, match="accept_findings: no finding") as caught:
        refuse_unknown(["few-copies", text], RULES)
    assert remedy in caught.value.sentence
