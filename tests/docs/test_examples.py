"""Every command that README and docs show exists, with the options that they give it."""

import re
import shlex
from pathlib import Path

import pytest

from eoctl.cli.parser import build
from eoctl.cli.tree import TREE
from tests.docs.pages import PAGES, ROOT, RUNBOOKS, WORLDS, commands, differs, masked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_exist(page: Path) -> None:
    for shown in commands(page):
        assert shown.marked, f"{shown}: `$ ` (a test runs it) or `prod$ ` is missing before it"
        if shown.text.startswith("eoctl "):
            parse(_words(shown.text), str(shown))


def test_each_command_runs() -> None:
    """None is only parsed: what needs more than a lab has stands below a heading of WORLDS."""
    assert not [shown for page in PAGES for shown in commands(page) if shown.run_by is None]


def test_each_world_has_lines_and_one_test() -> None:
    """No line counts as run that no test runs."""
    shown = {c.where for page in PAGES for c in commands(page) if not (c.runs or c.copied)}
    assert shown >= WORLDS.keys()
    followed = [
        tuple(re.findall(r'"(.*?)"', words))
        for file in sorted((ROOT / "tests").glob("*/test_*.py"))
        for words in re.findall(
            r"^@follows\((.*?)\)$", file.read_text(encoding="utf-8"), re.M | re.S
        )
    ]
    assert sorted(followed) == sorted(WORLDS)


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_a_runbook_has_all_its_parts(page: Path) -> None:
    """Whoever reads one has read all; each stands in the list, and nothing in them acts unasked."""
    parts = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert parts == [
        "Symptom",
        "First command",
        "How to read it",
        "Decide",
        "Remedy",
        "Verify",
        "Undo",
    ]
    assert f"]({page.name})" in (page.parent / "README.md").read_text(encoding="utf-8")
    assert commands(page), "commands to copy"


def _words(line: str) -> list[str]:
    """The words of eoctl's own command: up to a comment, a pipe or a redirection.

    Options in brackets, which a page calls optional, are parsed as if they were given.
    """
    words = shlex.split(re.sub(r"\[(--[^]]*)\]", r"\1", re.sub(r"\s# .*", "", line)))[1:]
    ends = [i for i, word in enumerate(words) if word in ("|", ">", "&&", "||")]
    return words[: ends[0]] if ends else words


def parse(words: list[str], where: str) -> None:
    """Parse words as eoctl does, without carrying anything out."""
    command, parent = build("eoctl", TREE), None
    name = "eoctl"
    while True:
        try:
            context = command.make_context(name, list(words), parent=parent)
        except Exception as error:
            pytest.fail(f"{where}: {error}")
        if not hasattr(command, "commands"):
            return
        rest = [*context._protected_args, *context.args]
        name, command, words = command.resolve_command(context, rest)
        parent = context


def test_links_lead_to_files_and_headings() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)]+)\)", text):
            if "://" in target:
                continue
            file, _, heading = target.partition("#")
            there = (page.parent / file).resolve() if file else page
            assert there.exists(), f"{page.relative_to(ROOT)}: {target}"
            if heading:
                assert heading in _headings(there), f"{page.relative_to(ROOT)}: {target}"


def _headings(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in found}


def test_what_is_masked() -> None:
    assert masked("~14m at 13:18:56Z,  2 of\n56 in 6d 23h") == "AGE at TIME, 2 of 56 in AGE"
    for cluster in ("q0mSeRKdQxe5PeosfKu9qQ", "iPuYYrGFTdK-XUrgVCYNYw"):  # the second has no digit
        assert masked(f"lab (cluster {cluster})") == "lab (cluster CLUSTER)"
    assert masked("INVALID_PRODUCER_EPOCH") == "INVALID_PRODUCER_EPOCH"
    assert masked("entry j-20261123-012859-c03d, entry 5d") == "entry ENTRY, entry AGE"


def test_another_output_than_shown_is_seen() -> None:
    assert differs("a ... d", "a\nb c d") is None
    assert differs("a 1\n...", "a 1 b") is None
    for other in ("b a d", "a d e", "a"):
        assert differs("a ... d", other) is not None
