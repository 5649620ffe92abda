"""What mkdocs.yml leaves to code: pages that stand outside docs/, and the navigation.

MkDocs calls these functions by their names. Files stay where GitHub looks for them, README.md too,
which becomes the site's first page; their links are right in both places.
"""

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE: Mapping[str, str] = {
    "README.md": "index.md",
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
    """Name every page in the navigation: those of SECTIONS there, others unnamed in Reference."""
    assert config.nav is not None
    sections = {title: pages for entry in config.nav for title, pages in entry.items()}
    named = set[str]()
    for under in sections.values():
        named.update([under] if isinstance(under, str) else under)
    docs = Path(config.docs_dir)
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    for page in sorted((pages | {*OUTSIDE.values()}) - named):
        sections[SECTIONS.get(page.partition("/")[0], "Reference")].append(page)
    config.nav = [entry for entry in config.nav if all(entry.values())]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that stand outside docs/."""
    for name, page in OUTSIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        if name == "LICENSE":
            text = f"# License\n\n```\n{text}```\n"
        files.append(File.generated(config, page, content=text))


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Lead the links of a page, which are right in the repository, to the pages of the site."""
    here = page.file.src_uri
    repository = next((name for name, uri in OUTSIDE.items() if uri == here), f"docs/{here}")

    def led(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(repository), match[1]))
        if target not in OUTSIDE and not target.startswith("docs/"):
            return match[0]
        there = OUTSIDE.get(target, target.removeprefix("docs/"))
        return f"]({posixpath.relpath(there, posixpath.dirname(here) or '.')}"

    return re.sub(r"\]\(([^)#:\s]+)", led, markdown)
