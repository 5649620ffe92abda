"""Each thing that a rule says has its sentence, and no sentence is left over."""

import ast
import inspect
from collections.abc import Mapping
from pathlib import Path

import pytest

from eoctl.render.doctor_words import SIGNS
from eoctl.render.verdicts.evidence_words import EVIDENCE, evidence_words
from eoctl.render.verdicts.remedy_words import REMEDY
from eoctl.render.verdicts.unknown_words import THEN, UNPROVEN
from eoctl.render.watch_words import REASONS
from eoctl.render.words import Words
from recovery.diagnose import id_verdicts, verdicts
from recovery.doctor.findings import NOT_SEEN
from recovery.inspect.observation import OpenTransaction
from recovery.remedy.repairs import NEVER_KNOWN
from recovery.values import Reason

ROOT = Path(__file__).parents[3] / "recovery"
UNKNOWN = {rule.name for rule in verdicts.RULES if rule.verdict == "unknown"} | {"no-rule"}
UNKNOWN |= {rule.name for rule in id_verdicts.RULES if rule.verdict == "unknown"}
ABOUT = OpenTransaction("t", 0, 7, 10)
MAKERS = ("Reason", "names_sign")  # their first argument is the code


def parts(*files: str) -> list[tuple[Path, ast.stmt]]:
    """The statements at the top of these modules of recovery."""
    paths = (path for pattern in files for path in ROOT.glob(pattern))
    return [(p, node) for p in paths for node in ast.parse(p.read_text("utf-8")).body]


def is_evidence(path: Path, node: ast.stmt) -> bool:
    """Evidence is collected in its own module, and elsewhere by functions that return a list."""
    returns = node.returns if isinstance(node, ast.FunctionDef) else None
    return path.stem == "evidence" or (
        returns is not None and ast.unparse(returns) == "list[Reason]"
    )


def codes(*nodes: ast.stmt) -> set[str]:
    """The codes of the reasons that these statements make, as their source has them."""
    made = (call for node in nodes for call in ast.walk(node) if isinstance(call, ast.Call))
    firsts = (call.args[0] for call in made if getattr(call.func, "id", "") in MAKERS)
    leaves = (leaf for first in firsts for leaf in ast.walk(first))
    return {x.value for x in leaves if isinstance(x, ast.Constant) and isinstance(x.value, str)}


def test_each_reason_has_a_sentence_behind_its_own_door_and_each_sentence_a_reason() -> None:
    made = parts("diagnose/*.py", "remedy/*.py")
    assert codes(*(n for p, n in made if is_evidence(p, n))) | UNKNOWN == set(EVIDENCE)
    assert codes(*(n for p, n in made if not is_evidence(p, n))) | UNKNOWN == set(REMEDY)


def test_each_reason_of_check_and_each_sign_of_doctor_has_a_sentence_too() -> None:
    judged, signs = parts("watch/*.py"), parts("doctor/*.py")
    judged += [(p, n) for p, n in signs if p.stem == "as_checks"]
    assert codes(*(n for _, n in judged)) == set(REASONS)
    assert codes(*(n for p, n in signs if p.stem != "as_checks")) | {NOT_SEEN} == set(SIGNS)


@pytest.mark.parametrize("table", [EVIDENCE, REMEDY, SIGNS, REASONS])
def test_no_sentence_makes_up_what_its_reason_does_not_give(table: Mapping[str, Words]) -> None:
    """A default would say of a forgotten or misspelled number that it is 0, or that it is so."""
    functions = {code: words for code, words in table.items() if not isinstance(words, str)}
    for code, words in functions.items():
        takes = inspect.signature(words).parameters.values()
        assert [p.name for p in takes if p.default is not p.empty] == [], code


@pytest.mark.parametrize(
    ("code", "data"),
    [
        ("history-replaced", {"about": ABOUT, "marked": 7}),
        ("start-deleted", {"about": ABOUT, "producer_epoch": 3, "deleted": False}),
        ("decided-when", {"leaderless": ()}),
        ("running", {"age_seconds": 9.0, "timeout_ms": 60_000, "long_after": 900_000}),
        ("coordinator", {"transactional_id": "a", "state": "Ongoing", "partitions": []}),
        ("coordinator-log", {"in_sync": 1, "min_in_sync": 2}),
    ],
)
def test_a_reason_that_lacks_a_number_has_no_sentence(code: str, data: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError)):
        evidence_words(Reason(code, data))


def test_an_unknown_says_what_is_not_known_and_what_to_do() -> None:
    assert set(EVIDENCE) >= UNKNOWN
    assert set(THEN) == UNKNOWN


def test_what_is_unproven_is_a_rule_of_unknown() -> None:
    assert set(UNPROVEN) <= UNKNOWN
    assert NEVER_KNOWN & set(UNPROVEN)
