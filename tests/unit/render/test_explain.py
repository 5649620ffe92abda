"""`eoctl explain` knows every word that eoctl's output uses, and its pages are well made."""

import importlib
import json
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import eoctl.render.columns
import tui.screens.views
from docs.generate_schemas import ENVELOPES, paths, schema
from eoctl.cli.main import run
from eoctl.lab import lab_tables
from eoctl.render.columns.table import Table
from eoctl.render.explain import ASK, PAGES, entries, explain_lines, find, key, names, part
from eoctl.render.strip_drawing import SIGNS
from recovery.audit.audit_rows import AuditSequencesRow, AuditTransactionsRow, MirrorFinding
from recovery.diagnose import id_verdicts, verdicts
from recovery.errors import EoctlError, Exit
from recovery.merge.log_rows import MergeFindingRow
from recovery.remedy.repairs import NEVER_KNOWN
from recovery.restart.verify_rows import RestartVerifyRow

ROOT = Path(__file__).resolve().parents[3]
"""tests/unit/kafka/kafka_errors.txt has Kafka's own names, one a line."""
KAFKA = {
    line.split()[1]
    for line in (ROOT / "tests/unit/kafka/kafka_errors.txt").read_text().splitlines()
    if not line.startswith("#")
}
OWN_ERRORS = re.compile(r"error=\"([A-Z]+(?:_[A-Z]+)*)\"|Missing\([^)]*?\"([A-Z]+_[A-Z_]+)\"", re.S)
PLAIN = set((ROOT / "tests/unit/plain_fields.txt").read_text().split())
"""Fields that are everyday words, or say in their own name what they hold: no terms."""


RULES: list[tuple[str, str]] = [
    *((r.name, r.verdict) for r in verdicts.RULES),
    *((r.name, r.verdict) for r in id_verdicts.RULES),
    (verdicts._NO_RULE.name, verdicts._NO_RULE.verdict),
]


def missing(words: set[str], *kinds: str) -> list[str]:
    return sorted(word for word in words if not find(word, kinds or tuple(PAGES.values())))


def test_verdicts_and_rules() -> None:
    judged = {*get_args(verdicts.VerdictName), "mixed"}
    assert missing(judged, "verdict") == []
    rules = {name for name, _ in RULES}
    assert missing(rules, "rule") == []
    # and none that there is not
    assert {e.word for e in entries() if e.kind == "verdict"} == judged
    assert {e.word for e in entries() if e.kind == "rule"} == rules


def test_each_verdict_ends_with_whom_to_ask_or_what_to_do() -> None:
    """What `why` says last. Of an `unknown` somebody is asked only where no look can ever tell."""
    for name, verdict in RULES:
        action = part(name, "rule", "do")
        assert (action is not None) == (verdict == "unknown"), name
        question = part(name, "rule", ASK)
        if verdict == "unknown":
            assert (question is not None) == (name in NEVER_KNOWN), name
            assert ("--without-proof" in str(action)) == (name in NEVER_KNOWN), name
        else:
            assert part(verdict, "verdict", ASK), verdict


def test_a_rule_names_the_verdict_that_it_gives() -> None:
    for name, verdict in RULES:
        [entry] = find(name, ("rule",))
        assert f"`{verdict}`" in entry.means.partition(":")[0], name


def test_a_verdict_says_all_that_an_operator_asks() -> None:
    """And why it is not the similar one, with a drawing of before and after."""
    asked = {"readers feel", "cause", "if you act", "if you wait", "ask the owner"}
    for entry in entries():
        if entry.kind != "verdict":
            continue
        labels = [part.label for part in entry.parts]
        assert asked <= set(labels), entry.word
        assert any("not " in label for label in labels), entry.word
        logs = [line for line in entry.drawing if "^" not in line]
        assert len(logs) >= 2, entry.word
        signs = {sign for sign, _ in SIGNS.values()}
        for line in logs:
            name, strip = line.split()[:2]
            assert name in ("before", "after", "commit", "abort", "fence")
            assert set(strip) <= signs, line
        for line, arrow in zip(entry.drawing, entry.drawing[1:], strict=False):
            if "^" in arrow:  # the first open offset, else the end
                strip = line.split()[1]
                start = line.index(strip)
                held = strip.index("#") if "#" in strip else len(strip)
                assert arrow.index("^") == start + held, line


def test_the_drawings_legend_has_every_sign() -> None:
    page = (ROOT / "eoctl/explain/verdicts.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert [s for s, _ in SIGNS.values() if s.strip() and f"`{s}`" not in page] == []


def test_exit_statuses_and_error_classes() -> None:
    assert missing({str(int(status)) for status in Exit}, "exit status") == []
    assert missing({status.name for status in Exit}, "exit status") == []
    classes = {EoctlError}
    for package in ("recovery", "eoctl"):
        for path in (ROOT / package).rglob("*.py"):
            if "(RefusedError)" in (text := path.read_text()) or "(IncompleteError)" in text:
                importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    while more := {sub for c in classes for sub in c.__subclasses__()} - classes:
        classes |= more
    assert missing({c.__name__ for c in classes}, "error") == []


def constants() -> Iterator[str]:
    """Names in quotes in the code of what is asked of a cluster and shown of it."""
    for package in ("recovery", "eoctl", "tui"):
        for path in (ROOT / package).rglob("*.py"):
            if "lab" not in path.relative_to(ROOT).parts:
                yield from re.findall(r'"([A-Z_0-9]+)"', path.read_text(encoding="utf-8"))


def test_names_of_errors() -> None:
    """Kafka's that our code knows, and our own that stand in their place."""
    assert missing(KAFKA & set(constants()), "error") == []
    own = {
        name
        for package in ("recovery", "eoctl")
        for path in (ROOT / package).rglob("*.py")
        if "lab" not in path.relative_to(ROOT).parts
        for pair in OWN_ERRORS.findall(path.read_text(encoding="utf-8"))
        for name in pair
        if name
    }
    assert {"UNKNOWN_VERDICT", "AGE_UNKNOWN", "HOLDER_NOT_FOUND"} <= own
    assert missing(own, "error") == []


def headings() -> set[str]:
    """Of all tables on the command line and in the dashboard."""
    found = set()
    columns = pkgutil.iter_modules(eoctl.render.columns.__path__)
    rooms = [importlib.import_module(f"eoctl.render.columns.{module.name}") for module in columns]
    for room in (*rooms, lab_tables):
        for table in vars(room).values():
            if isinstance(table, Table):
                found |= {column.title for column in table.columns}
    found |= {column.title for view in tui.screens.views.VIEWS for column in view.columns}
    return {title.partition(",")[0] for title in found - {""}}


def test_headings() -> None:
    assert len(headings()) > 100
    assert missing(headings(), "term") == []


def test_fields_that_are_terms() -> None:
    """A new field gets an entry, or stands among the plain words above."""
    found = {
        word
        for name in ENVELOPES
        for path in paths(schema(name))
        for word in re.findall(r"[a-z_0-9]+", path)
    }
    assert [w for w in missing(found) if w not in PLAIN] == []


def test_findings_of_audits_and_verifications() -> None:
    findings = set(get_args(MirrorFinding))
    for model in (AuditSequencesRow, AuditTransactionsRow, MergeFindingRow, RestartVerifyRow):
        findings |= set(get_args(model.__annotations__["finding"]))
    assert missing(findings) == []


def test_no_word_leads_to_two_entries_of_one_kind() -> None:
    count = Counter((e.kind, key(name)) for e in entries() for name in names(e))
    assert [word for word, times in count.items() if times > 1] == []


def test_every_entry_says_something_and_fits() -> None:
    for entry in entries():
        assert entry.means, entry.word
        for width in (60, 80):
            lines = explain_lines(entry, width)
            prose = lines[: -len(entry.drawing) or None] if width < 80 else lines
            assert [line for line in prose if len(line) > width] == []


def test_the_words_that_an_entry_names_are_known() -> None:
    """`eoctl explain` leads on: what a page writes as `like-this` among verdicts and rules is."""
    known = {key(name) for e in entries() for name in names(e)}
    for entry in entries():
        for said in entry.parts:
            named = re.fullmatch(r"not `([a-z-]+)`", said.label)
            assert named is None or key(named[1]) in known, entry.word


def test_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "Coordinator_Fenced"]) == 0
    shown = capsys.readouterr().out
    assert "coordinator-fenced  verdict" in shown
    assert "coordinator-fenced  rule" in shown
    assert run(["explain", "high", "watermark", "-o", "json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert (row["word"], row["kind"]) == ("HW", "term")
    assert run(["explain"]) == 0
    assert "orphan" in capsys.readouterr().out
    assert run(["explain", "orfan"]) == 2
    assert "did you mean orphan" in capsys.readouterr().err
    assert run(["explain", "xyzzyxyzzy"]) == 2
    assert "lists all words" in capsys.readouterr().err
