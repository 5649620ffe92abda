"""`check --doctor`: what each rule of `doctor` says, as a rule of `check`."""

from collections.abc import Sequence

from recovery.doctor.accepting import Found
from recovery.doctor.findings import DoctorRule, Finding
from recovery.values import Reason
from recovery.watch.check_rows import Judgement
from recovery.watch.check_rules import judgement

PREFIX = "doctor."
"""Before a rule's name, as in `doctor.few-copies`."""


def as_checks(found: Found, rules: Sequence[DoctorRule], accepted: Found = ()) -> list[Judgement]:
    """Return how many subjects each rule finds, without those accepted, in the rules' order."""
    return [
        _judged(rule, [f for r, f in found if r is rule], [f for r, f in accepted if r is rule])
        for rule in rules
    ]


def unseen_checks(rules: Sequence[DoctorRule], error: str) -> list[Judgement]:
    """Return for each rule that nobody knows. error: its sentence."""
    why = Reason("error", {"sentence": error})
    return [
        judgement(PREFIX + rule.name, 1, None, "findings", why, finding=False, unsure=True)
        for rule in rules
    ]


def _judged(rule: DoctorRule, mine: Sequence[Finding], accepted: Sequence[Finding]) -> Judgement:
    certain = [f for f in mine if f.state == "finding"]
    reasons = [Reason("subjects", {"subjects": [(f.kind, f.name) for f in certain]})]
    if unknown := [f for f in mine if f.state == "unknown"]:
        reasons.append(Reason("without-answer", {"number": len(unknown)}))
    if accepted:
        reasons.append(Reason("accepted", {"number": len(accepted)}))
    return judgement(
        PREFIX + rule.name,
        1,
        len(certain),
        "findings",
        *reasons,
        finding=bool(certain),
        unsure=bool(unknown),
    )
