"""Make HTML from values: text that is not markup yet is escaped, so no name becomes markup."""

from collections.abc import Iterable
from html import escape

from eoctl.render.sanitise import visible


class Markup(str):
    """Text that is HTML already; any other `str` is escaped where it becomes a child."""

    __slots__ = ()


def text(value: str) -> Markup:
    """Return text as HTML: controls and invisible characters shown, then `<`, `&` and quotes.

    >>> text("<b>\\x1b")
    '&lt;b&gt;\\\\x1b'
    """
    return Markup(escape(visible(value)))


def join(parts: Iterable[str], between: str = "") -> Markup:
    """Return the parts one after the other."""
    return Markup(between.join(p if isinstance(p, Markup) else text(p) for p in parts))


def tag(name: str, *children: str, **attributes: str) -> Markup:
    """Return an element. `class_` becomes `class`, `data_x` becomes `data-x`.

    >>> tag("p", "a < b", tag("b", "c"), class_="x")
    '<p class="x">a &lt; b<b>c</b></p>'
    """
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items()
    )
    return Markup(f"<{name}{words}>{join(children)}</{name}>")


def facts(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Return labelled texts as a list of terms. A pair with an empty label, or with that of the
    pair before, continues that pair."""
    parts: list[Markup] = []
    before = ""
    for label, said in pairs:
        parts += [tag("dt", label)] if label not in ("", before) else []
        parts.append(tag("dd", said))
        before = label or before
    return tag("dl", *parts)


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Markup:
    """Return a table that scrolls on its own if the window is narrow."""
    head = tag("tr", *(tag("th", h, scope="col") for h in headings))
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    return tag(
        "div",
        tag("table", tag("thead", head), tag("tbody", *body)),
        class_="scrolls",
        tabindex="0",
    )
