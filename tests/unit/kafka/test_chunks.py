"""Which records of a response belong to a range: from its start on, up to its end, not with it."""

import pytest

from eoctl.kafka.read.chunks import Chunk, visible_records
from tests.unit.formats_build import Item, batch


@pytest.mark.parametrize(
    ("start", "end", "offsets"),
    [
        (0, 6, [0, 1, 2, 3, 4, 5]),
        (1, 3, [1, 2]),
        (2, 3, [2]),
        (3, 3, []),
        (0, 5, [0, 1, 2, 3, 4]),
    ],
)
def test_the_end_is_not_in_it(start: int, end: int, offsets: list[int]) -> None:
    """Batches go on behind the range, and begin before it."""
    written = batch(0, [Item(n) for n in range(3)]) + batch(3, [Item(n) for n in range(3)])
    chunk = Chunk("t", 0, 0, 6, written, (), 6, 6, 0)
    assert [r.offset for r in visible_records(chunk, start, end)] == offsets
