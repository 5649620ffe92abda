"""The site that `make docs` makes: every link leads somewhere, and nothing comes from elsewhere."""

import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from docs.site import OUTSIDE
from tests.docs.pages import PAGES, ROOT

LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
COUNTED = ("h1", "h2", "h3", "h4", "li", "tr", "pre", "img")


class Page(HTMLParser):
    """Links, anchors and what is loaded, of one page; counts of the elements in its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.elements: Counter[str] = Counter()
        self._article = "<article" not in text
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self._article |= tag == "article"
        self.anchors |= {named["id"]} if "id" in named else set()
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        if tag in LOADS and LOADS[tag] in named and named.get("rel") not in ("next", "prev"):
            self.loads.append(named[LOADS[tag]])
        if self._article:
            self.elements[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._article &= tag != "article"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built as `make docs` does: any warning fails."""
    folder = tmp_path_factory.mktemp("site")
    mkdocs = Path(sys.executable).with_name("mkdocs")
    argv = [str(mkdocs), "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@cache
def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def of(site: Path, page: Path) -> Path:
    """The file of a page on the site."""
    name = page.relative_to(ROOT).as_posix()
    path = Path(OUTSIDE.get(name, name.removeprefix("docs/"))).with_suffix(".html")
    return site / (path.with_name("index.html") if path.stem == "README" else path)


def test_every_page_is_there_and_no_code(site: Path) -> None:
    assert [page for page in PAGES if not of(site, page).exists()] == []
    assert not list(site.rglob("*.py*"))


def test_links_and_anchors_hold(site: Path) -> None:
    lost = []
    for path in site.rglob("*.html"):
        if path.name == "404.html":  # shown in any folder: its links begin at the server's root
            continue
        for link in [*read(path).links, *read(path).loads]:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            there = (path.parent / unquote(url.path)).resolve() if url.path else path
            there = there / "index.html" if there.is_dir() else there
            anchor = url.fragment if there.suffix == ".html" else ""
            if not there.exists() or (anchor and anchor not in read(there).anchors):
                lost.append(f"{path.relative_to(site)}: {link}")
    assert lost == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = [load for path in site.rglob("*.html") for load in read(path).loads]
    assert loaded
    styles = [
        p.read_text(encoding="utf-8") for p in site.rglob("*") if p.suffix in (".css", ".svg")
    ]
    loaded += [
        u for text in styles for u in re.findall(r"(?:url\(|@import )[\"']?([^\"')\s]+)", text)
    ]
    assert [load for load in loaded if re.match(r"(https?:)?//", load)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_github_shows(page: Path, site: Path) -> None:
    """The same headings, list items, rows and blocks by another parser, which reads as GitHub's."""
    github = Page(MarkdownIt("gfm-like", {"linkify": False}).render(page.read_text("utf-8")))
    ours = read(of(site, page)).elements
    assert {tag: ours[tag] for tag in COUNTED} == {tag: github.elements[tag] for tag in COUNTED}


def test_no_title_is_there_twice(site: Path) -> None:
    """In the navigation, sections included; 404.html has it without the titles of its own page."""
    text = (site / "404.html").read_text(encoding="utf-8")
    shown = re.findall(r'<span class="md-ellipsis">(.*?)</span>', text, re.DOTALL)
    titles = Counter(" ".join(title.split()) for title in shown)
    assert {*titles} > {"Questions", "Runbooks", "Readers stuck", "Verdicts", "Who fences me?"}
    assert [title for title, times in titles.items() if times > 1 and title != "eoctl"] == []


def test_the_front_page_shows_at_once_what_it_is(site: Path) -> None:
    """README too: a picture, a few words, three commands; what no other tool does comes next."""
    front = (site / "index.html").read_text(encoding="utf-8").partition('<div class="front">')[2]
    first, _, rest = front.partition("</div><h2")
    assert re.findall(r"<(h1|img|p|pre)\b", first) == ["h1", "p", "img", "p", "pre"]
    assert first.count("$ eoctl ") == 3
    assert rest.split("<li>")[1].startswith("<strong>A lost COMMIT is proven.")
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150
