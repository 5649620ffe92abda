"""A headless Chromium that is driven over its own protocol, as somebody who types and clicks."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import ClientConnection, connect

KEYS = {
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "ArrowDown": (40, ""),
    "Tab": (9, ""),
}
CTRL = 2


class Tab:
    """One page of the browser. Its methods do what a person does, or read what is shown."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.call("Page.enable")

    def call(self, method: str, **given: object) -> dict[str, Any]:
        """Call the browser; return its answer."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": given}))
        while True:
            answer = json.loads(self._socket.recv(30))
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def sized(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Run a script in the page; return its value."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return found["result"].get("value")

    @property
    def lines(self) -> list[str]:
        """The lines that the terminal shows."""
        script = "[...document.querySelectorAll('.xterm-rows > div')].map(d => d.textContent)"
        return [line.replace("\xa0", " ").rstrip() for line in self.run(script) or ()]

    @property
    def screen(self) -> str:
        return "\n".join(self.lines)

    @property
    def says(self) -> str:
        """What the page says over the terminal; "" if nothing."""
        script = "(s => s && !s.hidden ? s.textContent : '')(document.getElementById('says'))"
        return str(self.run(script) or "")

    def shows(self, *texts: str, seconds: float = 30) -> None:
        """Wait until the terminal shows all of these."""
        self.until(lambda: all(text in self.screen for text in texts), seconds)

    def until(self, true: Callable[[], bool], seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"{self.screen}\n{self.says}"
            time.sleep(0.1)

    def press(self, *keys: str) -> None:
        """Press keys: a letter, a name of KEYS, `ctrl+s`."""
        for key in keys:
            letter, modifiers = key, 0
            if key.startswith("ctrl+"):
                letter, modifiers = key[-1], CTRL
            if letter in KEYS:
                code, text = KEYS[letter]
            else:
                code, text = ord(letter.upper()) if letter.isalnum() else 0, letter
            given = {"key": letter, "windowsVirtualKeyCode": code, "modifiers": modifiers}
            if text and not modifiers:
                given["text"] = text
            self.call("Input.dispatchKeyEvent", type="keyDown", **given)
            self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def click(self, text: str) -> None:
        """Click where the terminal shows this text."""
        row = next(n for n, line in enumerate(self.lines) if text in line)
        column = self.lines[row].index(text)
        box = self.run(
            "(b => [b.x, b.y, b.width, b.height])"
            "(document.querySelector('.xterm-screen').getBoundingClientRect())"
        )
        cells = self.run("[term.cols, term.rows]")
        x = box[0] + (column + 0.5) * box[2] / cells[0]
        y = box[1] + (row + 0.5) * box[3] / cells[1]
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


@contextmanager
def browsing(program: str, folder: Path) -> Iterator[Tab]:
    """A tab of a Chromium that keeps its own files, and downloads, in this folder."""
    words = (program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
    own = folder / "browser"
    port = own / "DevToolsActivePort"
    with subprocess.Popen(
        [*words, f"--user-data-dir={own}", "--remote-debugging-port=0", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as browser:
        try:
            end = time.monotonic() + 30
            while not (port.exists() and "\n" in port.read_text()):
                assert time.monotonic() < end
                time.sleep(0.1)
            number = port.read_text().split("\n")[0]
            with urlopen(f"http://127.0.0.1:{number}/json/list", timeout=10) as answer:
                [tab] = [t for t in json.load(answer) if t["type"] == "page"]
            with connect(tab["webSocketDebuggerUrl"], max_size=None) as socket:
                yield Tab(socket)
        finally:
            browser.terminate()
            browser.wait(20)
