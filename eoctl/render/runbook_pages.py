"""The runbooks of the documentation as text for a terminal: `runbook readers-stuck`."""

import re
from collections.abc import Iterator

from eoctl.host.program import shipped
from eoctl.render.width import wrapped
from recovery.errors import UsageError
from recovery.quoting import quoted

_LINK = re.compile(r"\[([^]]*)\]\(([^)]*)\)", re.DOTALL)
_ITEM = re.compile(r"( *)((?:[-*]|\d+\.|\(\d+\)) +)?(.*)")
_FOLDER = "runbooks"
_INDEX = "README"  # the list of the pages, which is no page itself


def names() -> list[str]:
    """Return the names of all pages, sorted; none if this installation has no pages."""
    return sorted(p.stem for p in shipped(_FOLDER).glob("*.md") if p.stem != _INDEX)


def page(name: str) -> str:
    """Return a page's Markdown. Raise UsageError, with the names, if there is no such page."""
    known = names()
    if name not in known:
        raise UsageError(
            f"no runbook {quoted(name)}",
            where="runbook",
            remedy=f"one of {', '.join(known)}" if known else "this installation has no pages",
        )
    return (shipped(_FOLDER) / f"{name}.md").read_text(encoding="utf-8")


def page_lines(markdown: str, width: int | None) -> Iterator[str]:
    """Yield a page without Markdown's signs. width: of the terminal; None: lines as they are."""
    begun = blank = False
    for line in _lines(_without_links(markdown), width):
        if line and begun and blank:  # one blank line between two parts
            yield ""
        if line:
            yield line
            begun = True
        blank = not line


def _lines(text: str, width: int | None) -> Iterator[str]:
    """Yield the lines of prose, and those of blocks as they are."""
    for number, part in enumerate(re.split(r"^```.*\n", text, flags=re.MULTILINE)):
        if number % 2:
            yield from (f"   {line}".rstrip() for line in part.splitlines())
            yield ""
        else:
            yield from _prose(part, width)


def _without_links(markdown: str) -> str:
    """Return the text with each link to a runbook as the command that shows it."""

    def text(match: re.Match[str]) -> str:
        words, target = match[1], match[2].partition("#")[0]
        name = target.removesuffix(".md")
        if target.endswith(".md") and "/" not in target and name != _INDEX:
            return f"{words} (`eoctl runbook {name}`)"
        return words

    return _LINK.sub(text, markdown).replace("**", "")


def _prose(text: str, width: int | None) -> Iterator[str]:
    """Yield headings, paragraphs and items, each wrapped to the width."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        begins = bool(_ITEM.fullmatch(line) and re.match(r" *([-*]|\d+\.) ", line))
        if lines and (not line.strip() or begins or line.startswith(("#", "|"))):
            yield from _paragraph(lines, width)
            lines = []
        if line.startswith("#"):
            yield line.lstrip("# ").upper()
        elif line.startswith("|"):
            yield line
        elif line.strip():
            lines.append(line)
        elif not lines:
            yield ""


def _paragraph(lines: list[str], width: int | None) -> Iterator[str]:
    """Yield one paragraph or item; its later lines are indented like its text."""
    if width is None:
        yield from lines
        return
    match = _ITEM.fullmatch(lines[0])
    assert match is not None
    head = (match[1] or "") + (match[2] or "")
    text = " ".join([match[3], *(line.strip() for line in lines[1:])])
    for number, part in enumerate(wrapped(text, max(width - 1 - len(head), 20), "…")):
        yield (head if number == 0 else " " * len(head)) + part
