"""`context test`: find what would fail because of this machine or the clocks. Reads only."""

import locale
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from eoctl.host.clock import now_ms
from eoctl.host.java import find_java
from eoctl.kafka.ask import clocks
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.inspect.lists import CLOCK_SKEW_MS
from eoctl.render.words import size
from eoctl.settings.context_rows import ContextTestRow
from eoctl.settings.folders import cache_dir, state_dir
from eoctl.stores.unfinished import unfinished_notice
from recovery.errors import UsageError
from recovery.facts import CoordinatorClock
from recovery.plurals import counted, listed
from recovery.times import span

LEAST_COLUMNS = 80
LOCKS = Path("/proc/locks")


def row_of(
    kind: Literal["right", "machine"],
    check: str,
    sees: bool | None,
    detail: str,
    cannot: Sequence[str] = (),
    error: str | None = None,
) -> ContextTestRow:
    """Return a row. cannot: what remains unknown if the check fails or its outcome is unknown."""
    return ContextTestRow(
        kind=kind,
        check=check,
        sees=sees,
        detail=detail,
        cannot_say=[] if sees else list(cannot),
        error=error,
    )


_row = partial(row_of, "machine")


async def machine(cluster: Cluster) -> list[ContextTestRow]:
    """Return a row per part: Java, jars, terminal, clocks, folders, locks, leftovers."""
    return [
        _java(),
        _jars(),
        _terminal(),
        await _clock(cluster),
        _folder("cache", cache_dir, "kept histories, which can prove what a cluster has forgotten"),
        _folder("state folder", state_dir, "journal, plans, jobs and locks"),
        _locks(),
        *_leftovers(),
    ]


def _java() -> ContextTestRow:
    """Find the Java of the lab and of Spark."""
    try:
        java = find_java()
    except UsageError as error:
        return _row("Java", False, f"only the lab and Spark need it: {error.sentence}")
    return _row("Java", True, f"{java.version} at {java.path}")


def _jars() -> ContextTestRow:
    """Say which of Kafka's jars the cache holds."""
    try:
        folder = cache_dir() / "jars"
        files = list(folder.glob("*.jar"))
        if not files:
            return _row("jars", True, f"none in {folder}; the lab and Spark fetch what they need")
        total = size(sum(file.stat().st_size for file in files))
    except (OSError, UsageError) as error:
        return _row("jars", None, _reason(error))
    return _row("jars", True, f"{counted(len(files), 'jar')}, {total} in {folder}")


def _terminal() -> ContextTestRow:
    """Say what the terminal offers to the dashboard and to tables."""
    if not sys.stdout.isatty():
        return _row(
            "terminal", None, "stdout is not a terminal: tables are not cut, and have no colour"
        )
    columns, lines = shutil.get_terminal_size()
    encoding = (sys.stdout.encoding or locale.getpreferredencoding()).lower().replace("-", "")
    from rich.console import Console

    colours = "no colour" if os.environ.get("NO_COLOR") else Console().color_system or "no colour"
    detail = f"{columns} columns, {lines} lines, {colours}, {encoding}"
    if columns < LEAST_COLUMNS:
        detail += f"; below {LEAST_COLUMNS} columns names are cut"
    if encoding != "utf8":
        detail += "; without UTF-8 lines are drawn in ASCII (LC_ALL=C.UTF-8)"
    return _row("terminal", columns >= LEAST_COLUMNS and encoding == "utf8", detail)


async def _clock(cluster: Cluster) -> ContextTestRow:
    """Measure the coordinators' clocks; only an open transaction lets one be measured."""
    listed, measured = await clocks.of_coordinators(cluster, now_ms)
    return _clocks(measured, {c.leader for c in listed.coordinators if c.leader is not None})


def _clocks(measured: Sequence[CoordinatorClock], of_brokers: Collection[int]) -> ContextTestRow:
    """Say how far the clocks are from ours. of_brokers: all coordinators; None unless all known."""
    cannot_say = ["ages to the second"]
    if not measured:
        return _row(
            "clock",
            None,
            "no API returns a broker's clock, and no open transaction shows it: compare `date "
            "-u` on both sides",
            cannot_say,
        )
    near = [c.broker for c in measured if not c.ahead]
    words = [f"{listed(near, 'broker')} within 1 s of ours"] if near else []
    words += [
        f"broker {c.broker} {span(c.ahead)} {'ahead' if c.ahead > 0 else 'behind'}"
        for c in measured
        if c.ahead
    ]
    detail = ", ".join(words)
    well: bool | None = all(abs(c.ahead) <= CLOCK_SKEW_MS for c in measured)
    if unmeasured := sorted(set(of_brokers) - {c.broker for c in measured}):
        well = None if well else False
        detail += (
            f"; {listed(unmeasured, 'broker')} not measured, because no open transaction there "
            "shows its clock: compare `date -u`"
        )
    return _row("clock", well, detail, cannot_say)


def _folder(check: str, folder: Callable[[], Path], holds: str) -> ContextTestRow:
    """Say whether a folder can be written."""
    try:
        path = folder()
        while not path.exists() and path != path.parent:
            path = path.parent  # created when first needed
        if not os.access(path, os.W_OK | os.X_OK):
            return _row(check, False, f"{path} cannot be written; it is for {holds}")
        free = size(shutil.disk_usage(path).free)
    except (OSError, UsageError) as error:
        return _row(check, False, _reason(error))
    return _row(check, True, f"{folder()}, {free} free; for {holds}")


def _locks() -> ContextTestRow:
    """Say which lock files a process holds; a file without a process is no lock."""
    try:
        files = sorted((state_dir() / "locks").glob("*.lock"))
        held = _inodes_held()
        taken = [f.name for f in files if f.stat().st_ino in held]
    except (OSError, UsageError) as error:
        return _row("locks", None, _reason(error))
    detail = f"{counted(len(files), 'file')}, {len(taken)} taken by a process now"
    return _row("locks", True, detail + (f": {', '.join(taken[:3])}" if taken else ""))


def _inodes_held() -> set[int]:
    """Return the inodes of files with a lock, by Linux's list. Raises OSError elsewhere.

    Trying each lock would hold it for a moment, in which a `check` would find it taken.
    """
    held = set[int]()
    for line in LOCKS.read_text().splitlines():
        for word in line.split():
            major, _, rest = word.partition(":")
            with suppress(ValueError):
                if major and rest.count(":") == 1:
                    held.add(int(rest.partition(":")[2]))
    return held


def _leftovers() -> list[ContextTestRow]:
    """Return what interrupted runs left: journal entries, temporary folders."""
    notice = unfinished_notice()
    rows = [_row("journal", notice is None, notice or "no change is unfinished")]
    try:
        held = _inodes_held()
        folders = Path(tempfile.gettempdir()).glob("eoctl-*-held-*")
        left = [f.name for f in folders if f.stat().st_ino not in held]
    except OSError as error:
        return [*rows, _row("temporary folders", None, _reason(error))]
    detail = "none is left over"
    if left:
        detail = (
            f"{counted(len(left), 'folder')} of processes that were killed, in "
            f"{tempfile.gettempdir()}: {', '.join(left[:3])}; the next run of that kind removes it"
        )
    return [*rows, _row("temporary folders", not left, detail)]


def _reason(error: OSError | UsageError) -> str:
    return error.sentence if isinstance(error, UsageError) else str(error.strerror or error)
