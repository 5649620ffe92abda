"""Our code as one zip, which Spark's executors and spark-submit import."""

import hashlib
import zipfile
from pathlib import Path

PACKAGES = ("eoctl", "recovery", "spark_jobs")


def code_zip(folder: Path) -> Path:
    """Write the packages that executors import into one zip, named by its content; return its path.

    When run from such a zip (spark-submit --py-files), return that one.
    """
    root = Path(__file__).resolve().parents[2]
    if root.is_file():
        return root
    files = sorted(
        path
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.suffix in (".py", ".json") and "__pycache__" not in path.parts
    )
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    made = folder / f"eoctl-{digest.hexdigest()[:12]}.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, path.relative_to(root))
    return made
