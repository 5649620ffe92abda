"""When `check` speaks of mirror maps."""

from pathlib import Path

import pytest

from eoctl.operations.watch.check_answer import _maps, thresholds
from eoctl.render.watch_words import check_row
from eoctl.settings.context import CheckThresholds
from eoctl.stores.offsets import mirror_maps
from recovery.errors import UsageError
from recovery.watch.map_rule import KeptMap, mirror_map_age
from tests.unit.audit.test_mirror_map import WHOLE

NOW = 1_700_000_000_000
FRESH, OLD = KeptMap("/maps/a.map", NOW - 60_000), KeptMap("/maps/b.map", NOW - 900_000)
AHEAD = KeptMap("/maps/d.map", NOW + 10**17)
GONE = KeptMap("/maps/c.map", None, "cannot be read: No such file or directory")


@pytest.mark.parametrize(
    ("maps", "observed", "ok", "detail"),
    [
        ([FRESH], 60, True, "'a.map' knows its source up to 2023-11-14T22:12:20"),
        ([FRESH, OLD], 900, False, "'b.map' knows its source up to 2023-11-14T21:58:20"),
        ([FRESH, GONE], 60, False, "'/maps/c.map' cannot be read: No such file"),
        ([GONE], None, False, "cannot be read"),
        ([], None, None, "no map is named: see mirror_maps"),
        ([AHEAD], None, None, "'d.map' is of a later time than now: a clock is wrong"),
        ([AHEAD, OLD], 900, False, "'b.map' knows its source up to 2023-11-14T21:58:20"),
        ([FRESH, AHEAD], 60, None, "a clock is wrong"),
    ],
)
def test_the_oldest_map_counts(
    maps: list[KeptMap], observed: float | None, ok: bool | None, detail: str
) -> None:
    row = check_row(mirror_map_age(maps, NOW, 900))
    assert (row.rule, row.observed, row.ok, row.unit) == ("mirror_map_age", observed, ok, "seconds")
    assert detail in row.detail


def test_maps_without_an_age_are_a_mistake() -> None:
    with pytest.raises(UsageError, match="mirror_map_age"):
        thresholds(CheckThresholds(mirror_maps=["/maps/a.map"]))


def test_a_map_that_lacks_a_partition_is_no_map_yet(tmp_path: Path) -> None:
    mirror_maps.write(WHOLE.model_copy(update={"asked": (0,)}), tmp_path / "a.map")
    [found] = _maps([str(tmp_path / "a.map")])
    assert (found.looked_at, found.problem) == (None, "does not know all of its partitions yet")
