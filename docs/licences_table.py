"""The table in docs/dependencies.md: locked packages by licence, from their own metadata."""

from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import distributions
from typing import Protocol

from release.parts import locked, normal, shipped

SPDX = {
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "Apache Software License 2.0": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "ISC License": "ISC",
    "ISC license": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "GPLv2-or-later with a special exception which allows to use PyInstaller to build and "
    "distribute non-free programs (including commercial ones)": "GPL-2.0-or-later with exception",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2",
}
"""What packages write instead of an SPDX expression; classifiers are often the wider word."""
NO_LICENCE = frozenset(("", "UNKNOWN", "DFSG approved", "OSI Approved"))
"""What those fields hold beside licences."""
FREE = frozenset(
    ("0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0")
) | {"PSF-2.0", "Zlib"}
"""Licences that ask for no more than a notice."""
NAMED = {
    "LGPL-2.1-or-later": frozenset({"crc32c"}),
    "LGPL-3.0-only": frozenset({"psycopg", "psycopg-binary"}),
}
"""Other licences in an install, and of which packages: docs/dependencies.md says what follows."""
BY_HAND = {
    "httpx2-jsfetch": "BSD-3-Clause",  # of the next five: not installed on Linux, as PyPI has them
    "pywin32": "PSF-2.0",
    "macholib": "MIT",
    "pefile": "MIT",
    "pywin32-ctypes": "BSD-3-Clause",
    "pandas": "BSD-3-Clause AND Apache-2.0 AND MIT AND PSF-2.0",  # its field is the texts
    "python-dateutil": "Apache-2.0 OR BSD-3-Clause",  # "Dual License": its LICENSE says of which
}
"""Read by a person, where metadata cannot say it."""


class Metadata(Protocol):
    """What the fields of a package's metadata are asked through."""

    def get_all(self, name: str, failobj: None = None) -> list[str] | None: ...


def licences() -> dict[str, str]:
    """Return each locked package and its licence; "" where its metadata leave it open."""
    installed = {normal(one.name): one for one in distributions()}
    return {
        name: BY_HAND.get(name) or (licence(installed[name].metadata) if name in installed else "")
        for name in locked()
    }


def licence(metadata: Metadata) -> str:
    """Return everything the fields say in SPDX's words, joined with AND; "" if a part is unknown.

    A wider word for a licence that is named too, such as BSD beside BSD-3-Clause, is left out.
    """
    expression = "".join(metadata.get_all("License-Expression") or ())
    others = {SPDX.get(said, said) for said in _older_fields(metadata)}
    if not others <= {*FREE, *NAMED, *SPDX.values()}:
        return ""
    said = {*others, expression} - {""}
    narrow = sorted(a for a in said if not any(b.startswith(a) for b in said - {a}))
    return "" if len(narrow) > 1 and " OR " in expression else " AND ".join(narrow)


def _older_fields(metadata: Metadata) -> Iterator[str]:
    classifiers = metadata.get_all("Classifier") or ()
    found = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License :: ")]
    yield from {*(metadata.get_all("License") or ()), *found} - NO_LICENCE


def not_free(licence: str) -> set[str]:
    """Return what of an SPDX expression asks for more than a notice; of alternatives, none does.

    One with parentheses is not taken apart, and asks for a look.

    >>> not_free("MIT AND LGPL-3.0-only"), not_free("GPL-2.0-only OR MIT")
    ({'LGPL-3.0-only'}, set())
    >>> not_free("GPL-3.0-only AND (MIT OR ISC)")
    {'GPL-3.0-only AND (MIT OR ISC)'}
    """
    if "(" in licence:
        return {licence}
    choices = [set(choice.split(" AND ")) - FREE for choice in licence.split(" OR ")]
    return min(choices, key=len)


def table() -> str:
    """Return the table in Markdown: licence, packages that users get, those of developers alone."""
    users, rows = shipped(), defaultdict[str, tuple[list[str], list[str]]](lambda: ([], []))
    for name, licence in sorted(licences().items()):
        rows[licence][name not in users].append(name)
    lines = ["| licence | in an install | only developers have |", "|---|---|---|"]
    lines += [f"| {of} | {', '.join(a)} | {', '.join(b)} |" for of, (a, b) in sorted(rows.items())]
    return "\n".join([*lines, ""])
