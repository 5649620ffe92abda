"""What a rebuild proves: which batches of a response are the range's, and when it is complete."""

import pytest

from recovery.combine.changelog import changelog_format
from recovery.combine.range_counts import RangeCounts
from recovery.formats.columns import decode
from recovery.manifest import completeness
from tests.unit.formats_build import COMMIT, Item, batch, marker


def test_what_lies_behind_the_range_is_not_the_ranges() -> None:
    """A response is not cut at the range's end, nor at its start."""
    written = [
        batch(0, [Item(0, key=b"k")], producer=(7, 4, 0), transactional=True),
        marker(1, 7, COMMIT, epoch=4),
        batch(2, [Item(0, key=b"k")], producer=(7, 5, 0), transactional=True),
        batch(3, [Item(0, key=b"k")], producer=(7, 6, 0), transactional=True),
        marker(4, 7, COMMIT, epoch=6),
        batch(5, [Item(0, key=b"k")], producer=(8, 1, 0), transactional=True),
    ]
    counts = RangeCounts(2, 3)
    counts.visible(decode(b"".join(written), (), start=2, end=3))
    assert counts.producers() == {
        "7": {
            "epoch": 5,
            "last_offset": 2,
            "outcome": "committed",
            "marker": None,
            "marker_epoch": None,
        }
    }
    assert counts.counts()["data"] == 1


DAY_MS = 86_400_000
WINDOWS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(2 * DAY_MS),
    "delete.retention.ms": "5000",
}


@pytest.mark.parametrize(
    ("form", "log_start", "took_ms", "reasons", "proven"),
    [
        ("streams-window", 0, 1000, (), True),
        ("streams-window", 0, 6000, ("delete.retention.ms",), False),
        ("streams-window", 3, 1000, ("starts at 3", "deletes"), False),
        ("streams-window", 3, 6000, ("starts at 3", "deletes", "delete.retention.ms"), False),
        ("plain", 0, 6000, ("deletes", "delete.retention.ms"), False),
    ],
)
def test_a_proof_of_the_start_says_nothing_of_tombstones(
    form: str, log_start: int, took_ms: int, reasons: tuple[str, ...], proven: bool
) -> None:
    made = changelog_format(form, {"retention_ms": DAY_MS} if form != "plain" else {})
    found, proof = completeness(made, WINDOWS, log_start, {"max": 5}, (10_000, 10_000 + took_ms))
    assert len(found) == len(reasons)
    assert all(word in why for word, why in zip(reasons, found, strict=True))
    assert (proof is not None) == proven
