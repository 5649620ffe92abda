"""The page of `report` in a browser: two widths, light and dark, on paper, without a network."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from eoctl.render.report.page import page as written
from tests.kafka.command import FAST, eoctl
from tests.unit.render.test_report import NAMES, report

Page = Callable[..., str]
NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND"
SCHEMES = {"light": "--blink-settings=preferredColorScheme=1"} | {
    "dark": "--blink-settings=preferredColorScheme=0"
}
PROBE = """
const frame = document.querySelector("iframe"), out = document.querySelector("output");
frame.onload = () => {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement;
  const light = c => {
    const [r, g, b] = c.match(/[0-9.]+/g).map(x => x / 255)
      .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = view.getComputedStyle(e).backgroundColor;
      if (!c.endsWith(", 0)")) return c;
    }
    return "rgb(255, 255, 255)";
  };
  let worst = [99, ""];
  for (const e of page.body.querySelectorAll("*")) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const a = light(view.getComputedStyle(e).color), b = light(behind(e));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < worst[0]) worst = [contrast, e.outerHTML.slice(0, 80)];
  }
  const cut = [...page.querySelectorAll("pre.strip")].filter(e => e.scrollWidth > e.clientWidth);
  out.textContent = JSON.stringify({
    wide: root.scrollWidth, width: view.innerWidth, back: light(behind(page.body)), worst,
    cut: cut.length, strips: page.querySelectorAll("pre.strip").length, text: page.body.innerText,
    fetched: view.performance.getEntriesByType("resource").map(e => e.name),
  });
};
"""
"""What a browser says of the page in a frame; contrast as WCAG 2 counts it."""


@pytest.fixture(scope="module")
def incident(lab1: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a real incident: seen, kept, repaired."""
    tmp_path = tmp_path_factory.mktemp("incident")
    [truth] = break_(lab1, "orphan", topic="report-browser")
    name = f"{truth.topic}:{truth.partition}"
    server = ("--bootstrap-server", lab1.bootstrap_servers)
    bundle, file = tmp_path / "incident.eoctl", tmp_path / "incident.html"
    assert eoctl(*server, "bundle", "create", str(bundle), *FAST).status in (0, 3)
    pid, start = str(truth.producer_id), str(truth.start_offset)
    words = ("txn", "abort", name, "--pid", pid, "--start-offset", start, "--execute", "--yes")
    done = eoctl(*server, *words, *FAST)
    assert done.status == 0, done.stderr
    made = eoctl("report", str(bundle), "--output", str(file))
    assert made.status == 0, made.stderr
    return file


def look(page: Page, folder: Path, text: str, width: int, scheme: str) -> dict[str, Any]:
    """Return what the browser says of the page in a frame of this width."""
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    framed = html.escape(policy.sub("", text), quote=True)
    outer = folder / "outer.html"
    outer.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><output></output>'
        f'<iframe style="border:0;width:{width}px;height:900px" srcdoc="{framed}"></iframe>'
        f"<script>{PROBE}</script>",
        encoding="utf-8",
    )
    size = "--window-size=1400,1000"
    dom = page(outer.as_uri(), NO_NETWORK, SCHEMES[scheme], size)
    told = re.search("<output>(.*?)</output>", dom, re.DOTALL)
    assert told, dom[:300]
    found: dict[str, Any] = json.loads(html.unescape(told[1]))
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [375, 1200])
def test_it_is_readable(
    page: Page, incident: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    seen = look(page, tmp_path, incident.read_text(encoding="utf-8"), width, scheme)
    assert seen["width"] == width
    assert seen["wide"] <= width  # nothing is wider than the window
    assert (seen["back"] < 0.1) == (scheme == "dark")
    assert seen["worst"][0] >= 4.5, seen["worst"]
    assert seen["strips"] >= 1
    assert seen["cut"] == 0
    assert seen["fetched"] == []
    assert "its abort marker is at offset" in seen["text"]


@pytest.mark.parametrize("width", [375, 1200])
def test_hostile_names_break_nothing(page: Page, tmp_path: Path, width: int) -> None:
    for name in NAMES:
        seen = look(page, tmp_path, written(report(name)), width, "light")
        assert seen["wide"] <= width, name
        assert seen["fetched"] == []


def test_it_prints_and_is_the_same_without_a_network(
    page: Page, incident: Path, tmp_path: Path
) -> None:
    paper, shot = tmp_path / "paper.pdf", tmp_path / "shot.png"
    page(incident.as_uri(), NO_NETWORK, f"--print-to-pdf={paper}")
    pages = re.findall(rb"/Type\s*/Page\b", paper.read_bytes())
    assert 1 <= len(pages) <= 60
    page(incident.as_uri(), NO_NETWORK, "--window-size=1100,900", f"--screenshot={shot}")
    assert shot.stat().st_size > 20_000
    assert "<script" not in page(incident.as_uri(), NO_NETWORK)
