"""For maintainers: make the kept checkpoints anew: `python -m tests.flink.keep`, some minutes.

Real Flink jobs write them, each killed between a checkpoint and its commit; what Flink's own
classes read from each is kept beside it (`loaded.json`). Unit tests then need no Flink.
"""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from eoctl.lab.cluster import up
from eoctl.lab.record import LabSpec
from tests.flink.job import Job, load, rewrite, topics

KEPT = Path(__file__).parent.parent / "kept" / "flink"
WHERE = Path("/tmp/flink-kept")  # handles that are not relative bear it
_OUT = "state.storage.fs.memory-threshold"
_CHECKPOINTING = "execution.checkpointing"
CASES = {
    "incrementing-2.2": ("2.2.0", "INCREMENTING", {}),
    "pooling-2.2": ("2.2.0", "POOLING", {}),
    "incrementing-2.0": ("2.0.0", "INCREMENTING", {}),
    "pooling-2.0": ("2.0.0", "POOLING", {}),
    "files": ("2.2.0", "INCREMENTING", {_OUT: "0 b"}),
    "merged-files": (
        "2.2.0",
        "POOLING",
        {_OUT: "0 b", f"{_CHECKPOINTING}.file-merging.enabled": "true"},
    ),
    "unaligned": ("2.2.0", "INCREMENTING", {f"{_CHECKPOINTING}.unaligned.enabled": "true"}),
    "compressed": ("2.2.0", "INCREMENTING", {f"{_CHECKPOINTING}.snapshot-compression": "true"}),
}
OLDER = (3, 4, 5)


def main() -> None:
    """Make every case."""
    shutil.rmtree(WHERE, ignore_errors=True)
    lab = up(LabSpec(name="flink-kept", settings={"transaction.state.log.num.partitions": "10"}))
    try:
        for name, (version, naming, settings) in CASES.items():
            shutil.rmtree(KEPT / name, ignore_errors=True)
            topics(lab, f"in-{name}", f"out-{name}")
            job = Job(
                lab,
                WHERE / name,
                source=f"in-{name}",
                sink=f"out-{name}",
                version=version,
                naming=naming,
                settings=settings,
            )
            keep(job.killed_before_commit(2), name, version)
            print(name)
    finally:
        lab.down()


def keep(checkpoint: Path, name: str, version: str) -> None:
    """Keep a checkpoint's folder, the merged files beside it, and what Flink reads from it."""
    target = KEPT / name
    target.mkdir(parents=True)
    for path in checkpoint.parent.rglob("*"):
        beside = path.parent == checkpoint or "/chk-" not in str(path)
        if path.is_file() and beside and path.stat().st_size:
            kept = target / path.relative_to(checkpoint.parent)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, kept)
    if name != "compressed":
        text = json.dumps(asdict(load(version, checkpoint)), indent=1)
        (target / "loaded.json").write_text(text + "\n")
    if name == "incrementing-2.2":
        for form in OLDER:
            rewrite(version, checkpoint, form, target / checkpoint.name / f"_metadata-{form}")


if __name__ == "__main__":
    main()
