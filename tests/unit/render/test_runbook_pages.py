"""`runbook NAME`: each runbook of the documentation, as text, with every command that it has."""

import re
import tomllib

import pytest

from eoctl.cli import main
from eoctl.render.runbook_pages import names, page, page_lines
from eoctl.render.width import cells
from recovery.errors import UsageError
from tests.docs.pages import ROOT

FOLDER = ROOT / "docs" / "runbooks"
STEMS = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "README")


def test_the_names_are_those_of_the_documentation() -> None:
    assert names() == STEMS
    with pytest.raises(UsageError) as refused:
        page("../../README")
    assert all(name in str(refused.value.remedy) for name in STEMS)


@pytest.mark.parametrize("name", STEMS)
@pytest.mark.parametrize("width", [80, None])
def test_a_page_loses_its_signs_and_nothing_else(name: str, width: int | None) -> None:
    markdown = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    lines = list(page_lines(page(name), width))
    text = "\n".join(lines)
    assert not re.search(r"```|\]\(|\*\*|^#|\n\n\n", text, re.MULTILINE)
    blocks = re.findall(r"^```\w*\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL)
    assert blocks
    for line in "".join(blocks).splitlines():
        assert f"   {line}".rstrip() in lines  # as it stands: to be copied
    headings = re.findall(r"^#+ (.*)", markdown, re.MULTILINE)
    assert [line for line in lines if line.isupper() and line in map(str.upper, headings)]
    words = re.findall(r"\w+", re.sub(r"\]\([^)]*\)|^```\w*", "]", markdown, flags=re.M))
    shown = re.findall(r"\w+", re.sub(r"\s+\(`eoctl\s+runbook\s+[\w-]+`\)", "", text))
    assert list(map(str.casefold, shown)) == list(map(str.casefold, words))
    if width is not None:
        prose = [line for line in lines if not line.startswith("   ")]
        assert max(map(cells, prose)) <= width


def test_a_link_to_another_runbook_is_its_command() -> None:
    text = " ".join(page_lines("See [stuck\nreaders](readers-stuck.md#a), [x](../x.md).\n", 80))
    assert text == "See stuck readers (`eoctl runbook readers-stuck`), x."


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a cluster, and without a pager off a terminal."""
    assert main.run(["runbook", "zombie"]) == 0
    assert capsys.readouterr().out.startswith("ZOMBIE\n")
    assert main.run(["runbook", "no-such"]) == 2
    assert "readers-stuck" in capsys.readouterr().err
    assert main.run(["runbook", "zombie", "-o", "json"]) == 2


def test_the_wheel_holds_the_pages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    schemas = {"docs/schemas": "eoctl/schemas"}  # of the answers that an agent gets
    assert wheel["force-include"] == {"docs/runbooks": "eoctl/runbooks"} | schemas
