"""The table in docs/compatibility.md: a row for each known bug of brokers, from the data."""

from eoctl.render.explain import means, part
from recovery.doctor.known_bugs import KNOWN_BUGS, LAST_READ, KnownBug
from recovery.doctor.versions import dotted


def table() -> str:
    """Return the table in Markdown: releases that have a bug, what happens, what helps."""
    lines = [
        "| bug | releases | fixed in | what happens | what helps | |",
        "|---|---|---|---|---|---|",
    ]
    for bug in KNOWN_BUGS:
        cells = [
            f"[{bug.number}](../eoctl/explain/bugs.md#{bug.number.lower()})",
            "; ".join(str(releases) for releases in bug.affected()),
            ", ".join(dotted(release) for release in bug.fixed)
            or f"none up to {dotted(LAST_READ)}",
            means(bug.number, "known bug"),
            part(bug.number, "known bug", "remedy") or "",
            _known_by(bug),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _known_by(bug: KnownBug) -> str:
    ways = {"tried": bug.tried, "tried by hand": bug.by_hand}
    if bug.not_seen:
        return f"read; tried, not seen: {', '.join(bug.not_seen)}"
    return "; ".join(f"{way}: {', '.join(on)}" for way, on in ways.items() if on) or "read"
