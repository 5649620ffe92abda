"""What the product is made of: the packages of requirements.lock, and who needs each of them."""

import hashlib
import re
import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
DIST = ROOT / "dist"
PYTHONS = ("3.11", "3.12", "3.13")
"""Those of eoctl.pex and `make test-long PART=pythons`; classifiers name those that passed."""
SUMS = "SHA256SUMS"
NO_EXTRA_OF_USERS = ("binary", "dev")


def normal(name: str) -> str:
    """Return a package's name as lock files write it (PEP 503).

    >>> normal("Flask_Cors")
    'flask-cors'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def locked() -> Mapping[str, frozenset[str]]:
    """Return each package of the lock and the packages that it was locked for."""
    found: dict[str, frozenset[str]] = {}
    for block in re.split(r"^(?=[a-z0-9])", LOCK.read_text(), flags=re.MULTILINE)[1:]:
        via = block.partition("# via")[2]
        found[block.partition("==")[0]] = frozenset(re.findall(r"[a-z0-9][a-z0-9.-]+", via))
    return found


def project() -> dict[str, list[str]]:
    """Return what pyproject.toml asks for: extra → package names, "" = the base install."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {"": table["dependencies"], **table["optional-dependencies"]}
    return {extra: [_name(one) for one in wanted] for extra, wanted in asked.items()}


def _name(requirement: str) -> str:
    return normal(re.split(r"[^\w.-]", requirement)[0])


def shipped(extras: Collection[str] | None = None) -> frozenset[str]:
    """Return the packages that an install brings: the base and these extras, None = all of them."""
    asked = project()
    if extras is None:
        extras = asked.keys() - set(NO_EXTRA_OF_USERS)
    found = {name for extra in ("", *extras) for name in asked[extra]} & locked().keys()
    while more := {name for name, via in locked().items() if via & found} - found:
        found |= more
    return frozenset(found)


def write_sums() -> None:
    """Write dist/SHA256SUMS: each file beside it, as `sha256sum --check` reads them."""
    files = sorted(path for path in DIST.iterdir() if path.is_file() and path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (DIST / SUMS).write_text("".join(lines))
