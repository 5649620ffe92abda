"""Which engine carries an audit out, and why."""

import pytest

from eoctl.operations.audit.engine import AuditEngine
from eoctl.operations.jobs.spark_launch import Spark

SPARK = Spark("local[2]")


@pytest.mark.parametrize(
    ("engine", "offsets", "max_rate", "expected"),
    [
        (AuditEngine("spark", SPARK), 1, 1.0, ("spark", "as asked")),
        (AuditEngine("local"), 10**9, None, ("local", "as asked")),
        (AuditEngine("auto", SPARK), 999, None, ("local", "only 999 offsets to read")),
        (
            AuditEngine("auto", SPARK),
            1_000,
            None,
            ("spark", "1,000 offsets are worth starting Spark"),
        ),
        (AuditEngine("auto"), 1_000, None, ("local", "Spark is not available")),
        (AuditEngine("auto", SPARK), 1_000, 1e6, ("local", "as fast as --max-rate allows")),
    ],
)
def test_choice(
    engine: AuditEngine, offsets: int, max_rate: float | None, expected: tuple[str, str]
) -> None:
    name, why = engine.choose(offsets, 1_000, max_rate)
    assert name == expected[0]
    assert expected[1] in why
