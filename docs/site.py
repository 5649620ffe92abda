"""What mkdocs.yml leaves to code: pages that stand outside docs/, and the navigation.

MkDocs calls these functions by their names. README.md becomes the site's first page; it and the
other Markdown files of the repository stay where GitHub looks for them, and their links are right
in both places.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "LICENSE": "LICENSE.md",
}
"""Files of the repository that are pages of the site, and what they are called there."""


def on_config(config: MkDocsConfig) -> None:
    """Name every page in the navigation: runbooks in theirs, any other unnamed one in Reference."""
    assert config.nav is not None
    sections = {title: pages for entry in config.nav for title, pages in entry.items()}
    named = {
        page
        for pages in sections.values()
        for page in ([pages] if isinstance(pages, str) else pages)
    }
    docs = Path(config.docs_dir)
    for path in sorted(docs.rglob("*.md")):
        page = path.relative_to(docs).as_posix()
        if page not in named:
            sections["Runbooks" if page.startswith("runbooks/") else "Reference"].append(page)
    config.nav = [entry for entry in config.nav if all(entry.values())]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that stand outside docs/."""
    for name, page in OUTSIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        if name == "LICENSE":
            text = f"# License\n\n```\n{text}```\n"
        files.append(File.generated(config, page, content=_from_docs(text)))


def on_page_markdown(markdown: str, **_: object) -> str:
    """Lead a link of docs/ to a file outside of it to the page that the file became."""
    for name, page in OUTSIDE.items():
        markdown = re.sub(rf"(\]\()\.\./{re.escape(name)}([)#])", rf"\1{page}\2", markdown)
    return markdown


def _from_docs(text: str) -> str:
    """The text with its links as they are seen from docs/."""
    text = re.sub(r"(\]\()docs/", r"\1", text)
    for name, page in OUTSIDE.items():
        text = re.sub(rf"(\]\(){re.escape(name)}([)#])", rf"\1{page}\2", text)
    return text
