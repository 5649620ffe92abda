"""What mkdocs.yml leaves to code: pages outside docs/, the navigation, the front page.

MkDocs calls the functions that begin with `on_`. Files stay where GitHub looks for them, README.md
too, which becomes the site's front page; their links are right in both places.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FRONT = "index.md"
OUTSIDE: Mapping[str, str] = {
    "README.md": FRONT,
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "LICENSE": "LICENSE.md",
    **{f"eoctl/explain/{p.name}": f"explain/{p.name}" for p in ROOT.glob("eoctl/explain/*.md")},
}
"""Files of the repository that are pages of the site, and what they are called there."""
SECTIONS = {"runbooks": "Runbooks", "explain": "Words"}
"""Folders whose pages are a section of the navigation."""


def on_config(config: MkDocsConfig) -> None:
    """Add the pages that mkdocs.yml does not name to SECTIONS, else to Reference."""
    assert config.nav is not None
    sections = {title: pages for entry in config.nav for title, pages in entry.items()}
    docs = Path(config.docs_dir)
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    for page in sorted((pages | {*OUTSIDE.values()}) - {*_named(config.nav)}):
        sections[SECTIONS.get(page.partition("/")[0], "Reference")].append(page)


def _named(nav: object) -> Iterator[str]:
    """Yield the pages of a navigation: a page, a list, or titles with what is below them."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, Mapping | list):
        for below in nav.values() if isinstance(nav, Mapping) else nav:
            yield from _named(below)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that stand outside docs/."""
    for name, page in OUTSIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        if name == "LICENSE":
            text = f"# License\n\n```\n{text}```\n"
        files.append(File.generated(config, page, content=text))


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Lead the links of a page, which are right in the repository, to the pages of the site.

    A word that is explained comes first in a search. The front page has no columns at its sides.
    """
    here = page.file.src_uri
    if here.startswith("explain/"):
        page.meta["search"] = {"boost": 4}
    if here == FRONT:
        page.meta["hide"] = ["navigation", "toc"]
    repository = next((name for name, uri in OUTSIDE.items() if uri == here), f"docs/{here}")

    def led(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(repository), match[1]))
        if target not in OUTSIDE and not target.startswith("docs/"):
            return match[0]
        there = OUTSIDE.get(target, target.removeprefix("docs/"))
        return f"]({posixpath.relpath(there, posixpath.dirname(here) or '.')}"

    return re.sub(r"\]\(([^)#:\s]+)", led, markdown)


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Leave out the names of columns that have none, which a screen reader would announce.

    Let docs/theme/site.css place what the front page begins with: picture, words, commands.
    """
    html = html.replace("<th></th>", "<td></td>")
    if page.file.src_uri != FRONT:
        return html
    first, heading, rest = html.partition("<h2")
    return f'<div class="front">{first}</div>{heading}{rest}'


def on_post_page(output: str, **_: object) -> str:
    """Name the dialog of the search for screen readers, as the theme does not."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


on_post_template = on_post_page  # the page for what is not found is a template
