"""The site in a browser: axe finds no error, nothing is cut without a sign, words are found.

A page of ours loads each page of the site in a frame, asks there, and sends the answers back; the
browser prints its document once an image has come, for which the server waits until then.
"""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.docs.test_site import site as site
from tests.tools.conftest import NOT_RUN, Program
from tests.tools.test_report import NO_NETWORK, SCHEMES

AXE = "axe-core@4.14.1"
SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
"""The package on npm, and its digest there: nothing else is run."""
SECONDS = 200  # for the answers of one browser
WIDTHS = {"phone": 390, "desk": 1280}
SOME = ("index.html", "questions/consumers-stuck.html", "verdicts.html", "restart.html")
"""Pages with each kind of block: they are looked at by night and on a phone, too."""
BACK = re.compile(r"\d+")
ASKING = """
const ask = async (name) => {
  const frame = document.createElement("iframe");
  frame.style = "border:0;height:900px;width:WIDTHpx";
  frame.src = name;
  await new Promise(loaded => { frame.onload = loaded; document.body.append(frame); });
  const view = frame.contentWindow, page = frame.contentDocument;
  const answer = await (QUESTION)(view, page);
  frame.remove();
  return answer;
};
(async () => {
  const answers = {};
  for (const name of PAGES) {
    try { answers[name] = await ask(name); } catch (error) { answers[name] = String(error); }
  }
  await fetch("/answers", {method: "POST", body: JSON.stringify(answers)});
})();
"""
LOOK = """async (view, page) => {
  await new Promise(done => {
    const axe = page.createElement("script");
    axe.src = "/axe.js";
    axe.onload = done;
    page.head.append(axe);
  });
  const plain = page.createElement("style");  // axe judges no contrast on a gradient
  plain.textContent = "pre > code, .md-typeset__scrollwrap { background: var(--under) !important }";
  page.head.append(plain);
  const {violations, incomplete} = await view.axe.run({resultTypes: ["violations", "incomplete"]});
  plain.remove();
  const unjudged = incomplete.filter(v => v.id === "color-contrast").map(v => ({...v,
    nodes: v.nodes.filter(n => n.any.some(c => c.data?.messageKey === "bgGradient"))}));
  const style = e => view.getComputedStyle(e);
  // what is wider and visible makes the page wider, if anything does: see `wide`
  const scrolls = e => ["auto", "scroll"].includes(style(e).overflowX)
    && style(e).backgroundImage.includes("gradient") && e.tabIndex === 0;
  const cut = [...page.querySelectorAll("article *")]
    .filter(e => e.scrollWidth > e.clientWidth && style(e).overflowX !== "visible");
  return {
    errors: [...violations, ...unjudged].filter(v => v.nodes.length)
      .map(v => [v.id, v.nodes.slice(0, 3).map(n => n.html.slice(0, 200))]),
    wide: page.documentElement.scrollWidth, width: view.innerWidth, cut: cut.length,
    unseen: cut.filter(e => !scrolls(e)).map(e => e.outerHTML.slice(0, 100)),
    back: view.getComputedStyle(page.body).backgroundColor,
    fetched: view.performance.getEntriesByType("resource").map(e => e.name),
  };
}"""
FIND = """async (view, page) => {
  for (let tries = 0; tries < 100; tries++) {
    const first = page.querySelector(".md-search-result__link");
    if (first) return first.getAttribute("href");
    await new Promise(later => setTimeout(later, 100));
  }
  return "nothing found";
}"""

HERE_ALONE = f"{NO_NETWORK} , EXCLUDE 127.0.0.1"
Ask = Callable[..., dict[str, Any]]


class Handler(SimpleHTTPRequestHandler):
    """The site's files, and `more`: path → what is there besides."""

    more: dict[str, bytes]
    answers: dict[str, Any]
    answered: Event

    def do_GET(self) -> None:
        if self.path == "/answered":
            self.answered.wait(SECONDS)
        body = self.more.get(self.path)
        if body is None:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        kind = "text/javascript" if self.path.endswith(".js") else "text/html"
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.answers.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()
        self.answered.set()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serving(folder: Path, more: dict[str, bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Serve a folder on this host; yield its address and the answers that are sent to it."""
    answers: dict[str, Any] = {}
    names = {"more": more, "answers": answers, "answered": Event()}
    handler = partial(type("Serving", (Handler,), names), directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", answers
        finally:
            server.shutdown()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The script of axe-core, as npm's registry has it."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"{NOT_RUN}no npm here; apt-get install npm")
    folder = tmp_path_factory.mktemp("axe")
    words = [npm, "pack", AXE, "--silent", "--pack-destination", str(folder)]
    try:
        subprocess.run(words, capture_output=True, timeout=60, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip(f"{NOT_RUN}npm does not bring {AXE}")
    [package] = folder.glob("*.tgz")
    digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    assert digest == SHA512, f"{AXE} is another one"
    with tarfile.open(package) as files:
        script = files.extractfile("package/axe.min.js")
        assert script is not None
        return script.read()


@pytest.fixture
def ask(program: Program, site: Path, tmp_path: Path) -> Ask:
    """ask(QUESTION, PAGES, WIDTH, SCHEME, AXE): what each page answers in a frame of a browser."""
    browser = program("chromium")

    def call(
        question: str,
        pages: Sequence[str],
        width: int = 1280,
        scheme: str = "light",
        axe: bytes = b"",
    ) -> dict[str, Any]:
        script = ASKING.replace("WIDTH", str(width)).replace("QUESTION", question)
        script = script.replace("PAGES", json.dumps(list(pages)))
        outer = f'<!DOCTYPE html><body><img src="/answered"><script>{script}</script>'
        with serving(site, {"/axe.js": axe, "/ask.html": outer.encode(), "/answered": b""}) as (
            url,
            answers,
        ):
            words = [browser, "--headless", "--no-sandbox", "--disable-gpu", HERE_ALONE]
            words += ["--disable-dev-shm-usage", f"--user-data-dir={tmp_path / 'browser'}"]
            words += ["--window-size=1400,1000", SCHEMES[scheme], "--dump-dom", f"{url}/ask.html"]
            subprocess.run(words, capture_output=True, timeout=SECONDS + 20, check=True)
        return answers

    return call


@pytest.mark.parametrize(
    ("width", "scheme"),
    [("desk", "light"), ("desk", "dark"), ("phone", "light"), ("phone", "dark")],
)
def test_everybody_can_read_every_page(
    ask: Ask, site: Path, axe: bytes, width: str, scheme: str
) -> None:
    """All pages at a desk by day; by night and on a phone, those with each kind of block."""
    every = sorted(p.relative_to(site).as_posix() for p in site.rglob("*.html"))
    names = every if (width, scheme) == ("desk", "light") else SOME
    seen: dict[str, Any] = {}
    for part in range(0, len(names), 10):
        seen |= ask(LOOK, names[part : part + 10], WIDTHS[width], scheme, axe)
    assert sorted(seen) == sorted(names)
    assert {name: page["errors"] for name, page in seen.items() if page["errors"]} == {}
    assert {name: page["unseen"] for name, page in seen.items() if page["unseen"]} == {}
    assert [name for name, page in seen.items() if page["wide"] > page["width"]] == []
    assert sum(page["cut"] for page in seen.values()), "some block is wider than its place"
    fetched = {url for page in seen.values() for url in page["fetched"]}
    assert {url for url in fetched if not url.startswith("http://127.0.0.1:")} == set()
    assert {sum(map(int, BACK.findall(page["back"]))) < 150 for page in seen.values()} == {
        scheme == "dark"
    }


def test_a_word_is_found_where_it_is_explained(ask: Ask, site: Path) -> None:
    words = ("marker-lost", "orphan", "LSO", "drop first", "PRODUCER_FENCED", "held")
    found = ask(FIND, [f"index.html?q={word.replace(' ', '+')}" for word in words])
    assert {word: href for word, href in found.items() if "explain/" not in href} == {}
