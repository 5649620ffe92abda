"""The table in docs/dependencies.md: locked packages by licence, from their own metadata."""

from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions

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
    "Dual License": "Apache-2.0 OR BSD-3-Clause",  # python-dateutil
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "GPLv2-or-later with a special exception which allows to use PyInstaller to build and "
    "distribute non-free programs (including commercial ones)": "GPL-2.0-or-later with exception",
}
"""What packages write instead of an SPDX expression."""
FREE = frozenset(
    ("0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0")
) | {"PSF-2.0", "Zlib"}
"""Licences that ask for no more than a notice."""
NAMED = {
    "LGPL-2.1-or-later": frozenset({"crc32c"}),
    "LGPL-3.0-only": frozenset({"psycopg", "psycopg-binary"}),
}
"""Other licences in an install, and of which packages: docs/dependencies.md says what follows."""
ELSEWHERE = {
    "macholib": "MIT",
    "pefile": "MIT",
    "pywin32-ctypes": "BSD-3-Clause",
}
"""Not installed on Linux: licences as PyPI has them."""


def licences() -> dict[str, str]:
    """Return each locked package and its licence; "" where its metadata name none."""
    installed = {normal(one.name): one for one in distributions()}
    return {
        name: _licence(installed[name]) if name in installed else ELSEWHERE.get(name, "")
        for name in locked()
    }


def _licence(one: Distribution) -> str:
    """Return its SPDX expression, or what its older fields say in SPDX's words."""
    expression, *others = _said(one)
    known = {*FREE, *NAMED, *SPDX.values()}
    spoken = [SPDX.get(said, said) for said in others]
    return expression or next((said for said in spoken if said in known), "")


def _said(one: Distribution) -> Iterator[str]:
    for field in ("License-Expression", "License"):
        yield "".join(one.metadata.get_all(field) or ()).partition("\n")[0]
    for classifier in one.metadata.get_all("Classifier") or ():
        if classifier.startswith("License :: "):
            yield classifier.rpartition(" :: ")[2]


def not_free(licence: str) -> set[str]:
    """Return what of an SPDX expression asks for more than a notice; of alternatives, none does.

    >>> not_free("MIT AND LGPL-3.0-only"), not_free("GPL-2.0-only OR MIT")
    ({'LGPL-3.0-only'}, set())
    """
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
