"""The parts of `make test-long`: `make test-long PART=name` runs one of them.

Each is meant to take at most an hour on two cores.
"""

from pathlib import Path

PARTS: dict[str, tuple[str, ...]] = {
    "unit": ("unit/*/*",),
    "tui": ("tui/*",),
    "spark-sink": ("spark/test_sink*", "spark/test_source*", "spark/test_formats*"),
    "spark-state": ("spark/test_rebuild*", "spark/test_state*", "spark/test_executors*"),
    "spark-checkpoints": ("spark/test_checkpoint*", "spark/test_versions*"),
    "spark-copies": ("spark/*",),
    "restart": ("kafka/test_restart*",),
    "stores": ("kafka/test_offset_stores*", "kafka/test_zookeeper*", "kafka/test_exactly_once*"),
    "state": ("kafka/test_state*",),
    "streams": ("kafka/test_streams*",),
    "connect": ("kafka/test_connect*",),
    "copies": ("kafka/test_dedup*", "kafka/test_merge*"),
    "audit": ("kafka/test_audit*", "kafka/test_mirror_maker*", "kafka/test_failover*"),
    "records": ("kafka/test_offsets*", "kafka/test_fetch*", "kafka/test_segments*"),
    "verdicts": ("kafka/test_verdicts*", "kafka/test_lost_markers*", "kafka/test_remedies*"),
    "busy": ("kafka/test_busy*",),
    "soak": ("kafka/test_soak*",),
    "bugs": ("kafka/test_known_bugs*", "kafka/test_broker_versions*"),
    "pythons": ("kafka/test_pythons*",),
    "rest": ("*",),
}
"""Patterns of files below `tests/`. A file belongs to the first part that names it."""


def part_of(file: Path) -> str:
    """The part that a test file, such as tests/kafka/test_check.py, belongs to."""
    path = file.relative_to(Path(__file__).parent)
    return next(n for n, patterns in PARTS.items() if any(path.match(p) for p in patterns))
