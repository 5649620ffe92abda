"""Findings that a context accepts: `check --doctor` notes them and does not count them."""

from collections.abc import Collection, Sequence

from recovery.doctor.findings import NOT_SEEN, DoctorRule, Finding
from recovery.doctor.known_bugs import KNOWN_BUGS
from recovery.errors import UsageError
from recovery.quoting import quoted

BUG, NO_RELEASE = "known-bug", "no-release"

Found = Sequence[tuple[DoctorRule, Finding]]


def refuse_unknown(accepted: Sequence[str], rules: Sequence[DoctorRule]) -> None:
    """Raise UsageError for a name in accept_findings that is no rule, or no known bug."""
    names, bugs = {rule.name for rule in rules}, {bug.number for bug in KNOWN_BUGS}
    for text in accepted:
        name, _, about = text.partition(":")
        if name not in names:
            remedy = (
                "write RULE, RULE:NAME or known-bug:KAFKA-NUMBER; docs/doctor.md names the rules"
            )
        elif name == BUG and about not in {*bugs, NO_RELEASE}:
            remedy = f"write {BUG}:KAFKA-NUMBER; `eoctl doctor` names the bugs of these brokers"
        else:
            continue
        raise UsageError(f"no finding {quoted(text)}", where="accept_findings", remedy=remedy)


def split_findings(
    found: Found, accepted: Collection[str]
) -> tuple[list[tuple[DoctorRule, Finding]], list[tuple[DoctorRule, Finding]]]:
    """Split into findings that count and those that are accepted.

    What could not be seen is never accepted here: `accept_missing` is for that.
    """
    count: list[tuple[DoctorRule, Finding]] = []
    notes: list[tuple[DoctorRule, Finding]] = []
    for rule, finding in found:
        hidden = finding.bug is None and any(sign.code == NOT_SEEN for sign in finding.signs)
        is_accepted = rule.name in accepted or accepted_name(rule, finding) in accepted
        (notes if is_accepted and not hidden else count).append((rule, finding))
    return count, notes


def accepted_name(rule: DoctorRule, finding: Finding) -> str:
    """Return how accept_findings names a finding."""
    if any(sign.code == NO_RELEASE for sign in finding.signs):
        return f"{rule.name}:{NO_RELEASE}"
    return f"{rule.name}:{finding.bug or finding.name}"
