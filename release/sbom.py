"""`make sbom`: dist/eoctl-all.cdx.json, what an install of eoctl with all its extras brings.

CycloneDX 1.6, written by cyclonedx-py from the installed packages: names, versions, licences and
who needs whom. Tools of developers are left out. Hashes are in requirements.lock.
"""

import json
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from release.parts import ROOT, normal, shipped
from release.supply import NotInstalledError, tool


def sbom(python: str | Path, extras: Collection[str] | None = None) -> dict[str, Any]:
    """Return the document for what `python` has installed of these extras (None: of all)."""
    words: list[str | Path] = [
        tool("cyclonedx-py"),
        "environment",
        "--output-reproducible",
        "--sv",
        "1.6",
    ]
    words += ["--pyproject", ROOT / "pyproject.toml", "-o", "-", python]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    return kept(json.loads(done.stdout), shipped(extras))


def kept(document: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the document with these packages alone, among each other's needs too."""
    root = document["metadata"]["component"]["bom-ref"]
    parts = [c for c in document["components"] if normal(c["name"]) in names]
    refs = {root, *(part["bom-ref"] for part in parts)}
    needs = [
        entry | {"dependsOn": [ref for ref in entry.get("dependsOn", ()) if ref in refs]}
        for entry in document["dependencies"]
        if entry["ref"] in refs
    ]
    return {**document, "components": parts, "dependencies": needs}


def write(path: Path, document: Mapping[str, Any]) -> Path:
    """Write the document, and return its path."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


if __name__ == "__main__":
    try:
        made = sbom(sys.executable)
    except NotInstalledError as error:
        sys.exit(f"no SBOM: {error}")
    path = write(ROOT / "dist" / "eoctl-all.cdx.json", made)
    print(f"{path.relative_to(ROOT)}: {len(made['components'])} packages")
