"""Each thing that a rule says has its sentence, and no sentence is left over."""

import ast
from pathlib import Path

from eoctl.render.verdicts.evidence_words import EVIDENCE
from eoctl.render.verdicts.remedy_words import REMEDY
from eoctl.render.verdicts.unknown_words import THEN, UNPROVEN
from eoctl.render.watch_words import REASONS
from recovery.diagnose import id_verdicts, verdicts
from recovery.remedy.repairs import NEVER_KNOWN

ROOT = Path(__file__).parents[3]
UNKNOWN = {rule.name for rule in verdicts.RULES if rule.verdict == "unknown"} | {"no-rule"}
UNKNOWN |= {rule.name for rule in id_verdicts.RULES if rule.verdict == "unknown"}


def written(*files: str) -> set[str]:
    """The codes of the reasons in these modules of recovery, as their source has them."""
    codes = set()
    for path in (path for pattern in files for path in (ROOT / "recovery").glob(pattern)):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Reason":
                codes |= {
                    leaf.value
                    for leaf in ast.walk(node.args[0])
                    if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
                }
    return codes


def test_each_reason_has_a_sentence_and_each_sentence_a_reason() -> None:
    codes = written("diagnose/*.py", "remedy/*.py")
    assert codes | UNKNOWN == set(EVIDENCE) | set(REMEDY)
    assert written("watch/*.py", "doctor/as_checks.py") == set(REASONS)


def test_an_unknown_says_what_is_not_known_and_what_to_do() -> None:
    assert set(EVIDENCE) >= UNKNOWN
    assert set(THEN) == UNKNOWN


def test_what_is_unproven_is_a_rule_of_unknown() -> None:
    assert set(UNPROVEN) <= UNKNOWN
    assert NEVER_KNOWN & set(UNPROVEN)
