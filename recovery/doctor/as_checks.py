"""`check --doctor`: a row of `check` for each rule of `doctor`."""

from collections.abc import Sequence

from recovery.doctor.accepting import Found
from recovery.doctor.findings import DoctorRule, Finding
from recovery.plurals import counted
from recovery.quoting import quoted, some
from recovery.watch.check_rows import CheckRow
from recovery.watch.check_rules import check_row

PREFIX = "doctor."
"""Before a rule's name, as in `doctor.few-copies`."""


def check_rows(found: Found, rules: Sequence[DoctorRule], accepted: Found = ()) -> list[CheckRow]:
    """Return a row per rule, in their order: how many subjects it finds, without those accepted."""
    return [
        _row(rule, [f for r, f in found if r is rule], [f for r, f in accepted if r is rule])
        for rule in rules
    ]


def unseen_rows(rules: Sequence[DoctorRule], why: str) -> list[CheckRow]:
    """Return a row per rule that says that nobody knows. why: one sentence."""
    return [
        check_row(PREFIX + rule.name, 1, None, "findings", why, finding=False, unsure=True)
        for rule in rules
    ]


def _row(rule: DoctorRule, mine: Sequence[Finding], accepted: Sequence[Finding]) -> CheckRow:
    certain = [f for f in mine if f.state == "finding"]
    words = [some([_subject(f) for f in certain])] if certain else ["none"]
    if unknown := [f for f in mine if f.state == "unknown"]:
        words.append(f"{counted(len(unknown), 'question')} without an answer")
    if accepted:
        words.append(f"{len(accepted)} accepted")
    return check_row(
        PREFIX + rule.name,
        1,
        len(certain),
        "findings",
        "; ".join(words),
        finding=bool(certain),
        unsure=bool(unknown),
    )


def _subject(finding: Finding) -> str:
    if finding.kind == "cluster":
        return finding.kind
    name = finding.name if finding.kind == "broker" else quoted(finding.name)
    return f"{finding.kind} {name}"
