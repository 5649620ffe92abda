"""When a mirror map is continued, and when it is left as it was."""

from pathlib import Path

import pytest

from eoctl.cli.commands.restart_target import _maps as named_maps
from eoctl.operations.audit.mirror_keep import ranges_after
from eoctl.operations.watch.check_answer import _maps as kept_maps
from eoctl.stores.offsets.mirror_maps import known
from recovery.audit.mirror_map import ids_unknown
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.formats.columns import NONE
from recovery.values import replace
from tests.unit.audit.test_mirror_map import WHOLE, _range, keep

BEFORE = keep(None, [(n, NONE) for n in range(10)], [(n, NONE) for n in range(8)])


def test_a_run_goes_on_where_the_last_one_ended() -> None:
    mine, theirs = ranges_after(BEFORE, _range(30), _range(24))
    assert (mine.start, mine.end, theirs.start, theirs.end) == (20, 30, 16, 24)
    mine, theirs = ranges_after(None, _range(30), _range(24))
    assert (mine.start, theirs.start) == (0, 0)


@pytest.mark.parametrize(("source", "mirror"), [(18, 16), (20, 14)])
def test_an_end_that_steps_back_leaves_the_map_as_it_was(source: int, mirror: int) -> None:
    """A leader that was just elected may not know its end yet: nothing is read twice."""
    with pytest.raises(IncompleteError, match="ends below what the map has seen"):
        ranges_after(BEFORE, _range(source), _range(mirror))


def test_deleted_records_that_the_map_has_not_seen_are_a_gap() -> None:
    mine = replace(_range(60, start=22), log_start_offset=22)
    with pytest.raises(RefusedError, match="before the map saw them"):
        ranges_after(BEFORE, mine, _range(24))


def test_topics_without_ids_are_not_known_to_be_the_same() -> None:
    assert ids_unknown(WHOLE) is None
    for name in ("source_topic_id", "mirror_topic_id"):
        text = ids_unknown(WHOLE.model_copy(update={name: None}))
        assert text is not None
        assert "orders has no topic id" in text


def test_a_map_that_cannot_be_written_is_said_before_anything_is_read(tmp_path: Path) -> None:
    assert known(tmp_path / "new.map") is None
    for path in (tmp_path / "nowhere" / "new.map", tmp_path / ("x" * 300)):
        with pytest.raises(UsageError):
            known(path)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "~nosuchuser/x"])
def test_an_impossible_name_is_no_map(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        named_maps([name])
    with pytest.raises(UsageError, match="no file"):
        named_maps([name, name])
    [found] = kept_maps([name])
    assert found.looked_at is None
    assert found.problem
