"""`make audit`: the packages of requirements.lock against the advisories of PyPI (pip-audit).

Exit status 1: an advisory is about a locked version. 3: for some package nobody could be asked, as
where the registry is a mirror without advisories; pip-audit itself calls that no finding. make
ends with 2 for both.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from release.parts import LOCK
from release.supply import NotInstalledError, tool


def main(lock: Path = LOCK) -> int:
    """Print what is known against a package, and for how many that could not be asked."""
    try:
        packages = _packages(lock)
    except (NotInstalledError, ValueError) as error:
        print(f"NOT AUDITED: {error}", file=sys.stderr)
        return 3
    lines, status = judged(packages)
    print("\n".join(lines))
    return status


def _packages(lock: Path) -> list[dict[str, Any]]:
    """Return what pip-audit says of each package. Raises ValueError: it gave no such answer."""
    words: list[str | Path] = [tool("pip-audit"), "--disable-pip", "--require-hashes", "-r", lock]
    words += ["--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, LookupError, TypeError):  # it ended with an error of its own
        said = done.stderr.strip().splitlines() or ["no answer"]
        raise ValueError(f"pip-audit: {said[-1]}") from None
    return packages


def judged(packages: Iterable[Mapping[str, Any]]) -> tuple[list[str], int]:
    """Return what to print of pip-audit's answer, and the exit status."""
    asked = list(packages)
    flaws = [
        f"{one['name']} {one['version']}: {flaw['id']}, fixed in {', '.join(fixed) or 'no release'}"
        for one in asked
        for flaw in one.get("vulns", ())
        for fixed in [flaw.get("fix_versions", ())]
    ]
    hidden = sum("skip_reason" in one for one in asked)
    if hidden or not asked:
        count = f"{hidden} of {len(asked)} packages"
        unseen = f"NOT AUDITED: {count}: their advisories could not be reached here."
        return [*flaws, unseen], 1 if flaws else 3
    return [*flaws, f"Looked up: {len(asked)} packages."], 1 if flaws else 0


if __name__ == "__main__":
    sys.exit(main())
