"""When a mirror map is continued, and when it is left as it was."""

from pathlib import Path

import pytest

from eoctl.cli.commands.restart_target import _maps as named_maps
from eoctl.engine.mirror_task import ranges_after, refuse_cut_off
from eoctl.operations.audit.mirror_keep import either, groups_read
from eoctl.operations.watch.check_answer import _maps as kept_maps
from eoctl.stores.offsets import mirror_maps
from eoctl.stores.offsets.mirror_maps import known
from recovery.audit.mirror_map import MapRange, ids_unknown, unseen_after
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import GroupFacts, GroupOffsetFacts, Missing
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


def test_what_the_mirror_deleted_before_a_run_saw_it_is_noted() -> None:
    """BEFORE has seen the mirror from 0 to 16."""
    assert (BEFORE.mirror.end, BEFORE.unseen) == (16, ())
    later = BEFORE.model_copy(update={"unseen": unseen_after(BEFORE, 20)})
    old = BEFORE.model_copy(update={"unseen": None})  # of an eoctl that noted nothing
    cut = old.model_copy(update={"mirror": old.mirror.model_copy(update={"start": 5})})
    for before, start, noted in (
        (None, 0, []),
        (None, 7, [(0, 7, True)]),
        (BEFORE, 16, []),
        (BEFORE, 20, [(16, 20, True)]),
        (
            later.model_copy(update={"mirror": _mirror(20, 24)}),
            30,
            [(16, 20, True), (24, 30, True)],
        ),
        (old, 16, []),
        (cut, 16, [(0, 5, False)]),
    ):
        assert [(r.start, r.end, r.proven) for r in unseen_after(before, start)] == noted


def _mirror(start: int, end: int) -> MapRange:
    return MapRange(start=start, end=end, leader_epoch=None)


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


def test_a_map_that_cannot_be_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror_maps.write(WHOLE, tmp_path / "a.map")
    before = (tmp_path / "a.map").read_text()
    monkeypatch.setattr(mirror_maps, "MAX_BYTES", len(before))
    with pytest.raises(UsageError, match="larger than a map may be"):
        mirror_maps.write(WHOLE.model_copy(update={"partitions": (BEFORE,)}), tmp_path / "a.map")
    assert (tmp_path / "a.map").read_text() == before


@pytest.mark.parametrize(
    ("then", "now", "kept"),
    [
        (True, False, True),
        (False, True, True),
        (None, False, None),
        (False, None, None),
        (None, True, True),
        (False, False, False),
    ],
)
def test_a_source_that_was_compacted_once_stays_so(
    then: bool | None, now: bool | None, kept: bool | None
) -> None:
    assert either(then, now) is kept


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ((4, 2), (4, 2), True),
        ((4, 2), (5, 2), False),
        ((4, 2), (4, 3), False),
        ((None, 2), (None, 2), True),
        ((None, 2), (4, 2), False),
    ],
)
def test_a_log_that_was_cut_off_while_it_was_read_is_not_in_the_map(
    before: tuple[int | None, int | None], after: tuple[int | None, int | None], same: bool
) -> None:
    if same:
        refuse_cut_off(before, after)
    else:
        with pytest.raises(IncompleteError, match="was cut off while it was read"):
            refuse_cut_off(before, after)


def test_only_groups_that_answered_are_known_to_have_no_commit() -> None:
    groups = [GroupFacts("a", "Empty"), GroupFacts("b", "Empty"), GroupFacts("c", "Empty")]
    some = replace(groups[2], offsets=(GroupOffsetFacts("c", "orders", 0, 1),))
    of_group = Missing("group", "X", "", id="a")
    anywhere = Missing("coordinator", "X", "")
    assert groups_read([*groups[:2], some], []) == {"a", "b", "c"}
    assert groups_read([*groups[:2], some], [of_group]) == {"b", "c"}
    assert groups_read([*groups[:2], some], [of_group, anywhere]) == {"c"}


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "~nosuchuser/x"])
def test_an_impossible_name_is_no_map(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        named_maps([name])
    with pytest.raises(UsageError, match="no file"):
        named_maps([name, name])
    [found] = kept_maps([name])
    assert found.looked_at is None
    assert found.problem
