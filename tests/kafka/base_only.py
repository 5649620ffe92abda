"""Runs commands of eoctl in a process where nothing of the extra `data` can be imported.

Called as `python -m tests.kafka.base_only JSON`: a list of command lines. Prints a JSON list of
[exit status, stdout, stderr] of each. `tui` as a command line drives the dashboard instead.
"""

import asyncio
import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import ModuleSpec

BLOCKED = ("numpy", "pyarrow", "pandas")


class Blocker:
    """Finds nothing of these packages, as if they were not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def main() -> None:
    """Run each command line, and say at the end that nothing got past the blocker."""
    sys.meta_path.insert(0, Blocker())
    from eoctl.cli.main import run

    found = []
    for words in json.loads(sys.argv[1]):
        out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
        sys.argv = ["eoctl", *words]
        with redirect_stdout(out), redirect_stderr(err):
            status = dashboard(words[1]) if words[0] == "tui" else run(words)
        for stream in (out, err):
            stream.seek(0)
        found.append([status, out.read(), err.read()])
    assert not set(BLOCKED) & sys.modules.keys()
    print(json.dumps(found))


def dashboard(servers: str) -> int:
    """Let the dashboard judge the cluster, open its screens, and print all that it shows."""
    from eoctl.settings.context import Connect, resolve
    from tests.tui.driving import running, text_of, until
    from tui.feed.asking import LiveFeed

    shown: list[str] = []  # the app takes what is printed while it runs
    feed = LiveFeed(resolve(Connect(bootstrap_server=servers)), interval=1.0, sample_interval=0.3)

    async def look() -> None:
        async with running(feed) as (app, pilot):
            await until(pilot, lambda: "orphan" in text_of(app))
            for number in "1234567890":
                await pilot.press(number)
                await until(pilot, lambda: app.answered)
                shown.append(text_of(app))

    asyncio.run(look())
    print("\n".join(shown))
    return 0


if __name__ == "__main__":
    main()
