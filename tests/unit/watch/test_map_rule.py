"""When `check` speaks of mirror maps."""

import pytest

from recovery.watch.map_rule import KeptMap, mirror_map_age

NOW = 1_700_000_000_000
FRESH, OLD = KeptMap("/maps/a.map", NOW - 60_000), KeptMap("/maps/b.map", NOW - 900_000)
GONE = KeptMap("/maps/c.map", None, "cannot be read: No such file or directory")


@pytest.mark.parametrize(
    ("maps", "observed", "ok", "detail"),
    [
        ([FRESH], 60, True, "'a.map' knows its source up to 2023-11-14T22:12:20"),
        ([FRESH, OLD], 900, False, "'b.map' knows its source up to 2023-11-14T21:58:20"),
        ([FRESH, GONE], 60, False, "'/maps/c.map' cannot be read: No such file"),
        ([GONE], None, False, "cannot be read"),
        ([], None, None, "no map is named: see mirror_maps"),
    ],
)
def test_the_oldest_map_counts(
    maps: list[KeptMap], observed: float | None, ok: bool | None, detail: str
) -> None:
    row = mirror_map_age(maps, NOW, 900)
    assert (row.rule, row.observed, row.ok, row.unit) == ("mirror_map_age", observed, ok, "seconds")
    assert detail in row.detail
