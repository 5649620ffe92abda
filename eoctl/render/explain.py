"""Read the pages in `eoctl/explain/`, which terminal, dashboard and docs site show.

A page is Markdown. `## NAME, OTHER NAME` begins an entry; its first paragraph says what it means; a
list item `- **label:** text` adds one point; a fenced block is a drawing.
"""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from eoctl.render.ends import ways_of
from eoctl.render.width import LABEL, labelled, wrapped
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.errors import UsageError
from recovery.quoting import quoted
from recovery.row import Row


class PartRow(Row):
    """One thing that is said about a word. label: what it is about (`cause`); "" for more text."""

    label: str
    text: str


class ExplainRow(Row):
    """One entry. aliases: other words that lead to it. drawing: its lines."""

    kind: str
    word: str
    aliases: list[str]
    means: str
    parts: list[PartRow]
    drawing: list[str]


PAGES = {
    "verdicts": "verdict",
    "rules": "rule",
    "doctor": "finding",
    "bugs": "known bug",
    "exit-statuses": "exit status",
    "errors": "error",
    "terms": "term",
}
"""Page → the kind of its entries, in the order in which they are shown."""

ASK = "ask the owner"
"""The label of whom to ask what."""

_LABELLED = re.compile(r"- \*\*(?P<label>.+?):\*\* (?P<text>.*)", re.DOTALL)
_SIGNS = re.compile(r"[\s_-]+")


@cache
def entries() -> tuple[ExplainRow, ...]:
    """Return all entries, page by page."""
    pages = files("eoctl") / "explain"
    return tuple(
        entry
        for page, kind in PAGES.items()
        for entry in read((pages / f"{page}.md").read_text(encoding="utf-8"), kind)
    )


def read(page: str, kind: str) -> Iterable[ExplainRow]:
    """Return the entries of one page.

    >>> [entry] = read("# Terms\\n\\n## LSO, stable\\n\\nWhere readers\\nstop.\\n", "term")
    >>> entry.word, entry.aliases, entry.means
    ('LSO', ['stable'], 'Where readers stop.')
    """
    for chunk in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        title, _, body = chunk.partition("\n")
        prose, *fenced = re.split(r"^```.*\n", body, flags=re.MULTILINE)
        said = [
            " ".join(part.split()) for part in re.split(r"\n\n|\n(?=- )", prose) if part.strip()
        ]
        word, *aliases = (name.strip() for name in title.split(","))
        yield ExplainRow(
            kind=kind,
            word=word,
            aliases=aliases,
            means=said[0] if said else "",
            parts=[_read_part(text) for text in said[1:]],
            drawing=fenced[0].splitlines() if fenced else [],
        )


def _read_part(text: str) -> PartRow:
    item = _LABELLED.match(text)
    return PartRow(label=item["label"], text=item["text"]) if item else PartRow(label="", text=text)


def key(word: str) -> str:
    """Return a word without differences of case, blanks, dashes and underscores."""
    return _SIGNS.sub("-", word.strip().casefold())


def find(word: str, kinds: Sequence[str] = tuple(PAGES.values())) -> list[ExplainRow]:
    """Return a word's entries of these kinds; none if the word is unknown."""
    return [e for e in entries() if e.kind in kinds and key(word) in map(key, names(e))]


def names(entry: ExplainRow) -> list[str]:
    """Return all words that lead to an entry, its own first."""
    return [entry.word, *entry.aliases]


def explained(word: str) -> list[ExplainRow]:
    """Return the entries of a word. Raise UsageError, naming similar words, if none exists."""
    found = find(word)
    if found:
        return found
    known = {key(name): name for e in entries() for name in names(e)}
    like = [known[k] for k in get_close_matches(key(word), known, n=3, cutoff=0.6)]
    raise UsageError(
        f"no entry for {quoted(word)}",
        where="explain",
        remedy=f"did you mean {' or '.join(like)}?" if like else "`eoctl explain` lists all words",
    )


def means(word: str, kind: str) -> str:
    """Return what one word of a kind means, in one paragraph. Raise KeyError if unknown."""
    for entry in find(word, (kind,)):
        return entry.means
    raise KeyError(word)


def part(word: str, kind: str, label: str) -> str | None:
    """Return what an entry says under a label; None if the entry or label does not exist."""
    parts = [p for entry in find(word, (kind,)) for p in entry.parts]
    return next((p.text for p in parts if p.label == label), None)


def whom_to_ask(h: TxnHangingRow) -> str | None:
    """Return whom to ask what about a judged transaction; None if nobody."""
    text = part(_reason(h), "rule", ASK)
    if text is None and h.verdict != "unknown":
        text = part("mixed" if h.mixed else h.verdict, "verdict", ASK)
    return None if text is None or text.startswith("nobody") else text


def what_to_do(h: TxnHangingRow) -> str | None:
    """Return what to grant, or what to wait for, so that an outcome can be judged."""
    reason = _reason(h)
    return part(reason, "rule", "do") if h.verdict == "unknown" or reason != h.rule else None


def _reason(h: TxnHangingRow) -> str:
    """Return the rule that says why an outcome is not known; else the rule of the verdict."""
    named = None if h.ends is None else h.ends.otherwise.data.get("rule")
    return h.rule if named is None else str(named)


def explain_lines(entry: ExplainRow, width: int | None) -> list[str]:
    """Return an entry as lines for people. width: cells of the terminal, None without one."""
    others = f"  ({', '.join(entry.aliases)})" if entry.aliases else ""
    lines = _paragraph(f"{entry.word}  {entry.kind}{others}", width)
    lines += [f" {part}" for part in _paragraph(entry.means, width)]
    for part in entry.parts:
        if not part.label:
            lines += ["", *(f" {line}" for line in _paragraph(part.text, width))]
        elif len(part.label) < LABEL - 2:
            lines += labelled(part.label, part.text, width, "…")
        else:  # a label on its own line
            lines += [f" {part.label}", *labelled("", part.text, width, "…")]
    if entry.kind == "verdict":
        for number, text in enumerate(ways_of(entry.word)):
            lines += labelled("" if number else "ways out", text, width, "…")
    if entry.drawing:
        lines += ["", *(f" {line}" for line in entry.drawing)]
    return lines


def _paragraph(text: str, width: int | None) -> list[str]:
    return [text] if width is None else wrapped(text, max(width - 2, 20), "…")
