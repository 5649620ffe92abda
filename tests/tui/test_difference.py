"""Two moments side by side: what differs, what got worse first, and what is not known."""

from pathlib import Path

import pytest
from textual.pilot import Pilot

from eoctl.operations.dashboard.snapshot import Snapshot
from eoctl.stores.bundle_files import is_bundle
from recovery.inspect.cluster_rows import LsoRow
from recovery.row import ErrorRow
from recovery.values import replace
from tests.tui.driving import RECORDINGS, recording, run, running, text_of, until
from tui.app import Dashboard
from tui.board.difference import difference_page
from tui.feed.recording import read
from tui.widgets.lines import line_width, plain


def page(one: Snapshot, other: Snapshot, width: int = 100) -> str:
    lines = difference_page(one, other, width)
    assert all(line_width(line) <= width for line in lines)
    return "\n".join(plain(line).rstrip() for line in lines)


def held(s: Snapshot) -> dict[str, int]:
    rows = s.partitions.rows if s.partitions else ()
    return {str(r.topic_partition): r.held for r in rows if isinstance(r, LsoRow) and r.held}


def test_each_partition_whose_held_differs_is_named_with_both_numbers() -> None:
    first, *_, last = [s for s in read(RECORDINGS / "incident.jsonl") if s.hanging and s.groups]
    text = page(first, last)
    before, after = held(first), held(last)
    changed = {n for n in before | after if before.get(n, 0) != after.get(n, 0)}
    assert changed
    for name in changed:
        assert f" {name}  {before.get(name, 0)} > {after.get(name, 0)}" in text
    assert " orders:2  0 > orphan" in text
    assert page(last, first) == text, "the earlier one is first, whichever is shown"


def test_equal_moments_have_no_difference() -> None:
    [*_, s] = [s for s in read(RECORDINGS / "orders.jsonl") if s.hanging and s.groups]
    text = page(s, replace(s, taken_at=s.taken_at + 5000))
    assert text.count("no difference") == 3


def test_what_is_not_known_is_neither_gone_nor_0() -> None:
    [*_, s] = [s for s in read(RECORDINGS / "orders.jsonl") if s.hanging and s.partitions]
    assert s.partitions is not None
    assert "not known at one of the two moments" in page(s, replace(s, hanging=None))
    errors = [ErrorRow(scope="partition", error="NOT_SEEN", detail="no leader")]
    blind = replace(s, partitions=replace(s.partitions, rows=[], errors=errors))
    assert "what is gone may only be unseen" in page(s, blind)
    row = next(r for r in s.partitions.rows if isinstance(r, LsoRow) and r.held)
    unknown = replace(s.partitions, rows=[replace(row, held=None)])
    assert f"{row.topic_partition}  {row.held} > not known" in page(
        s, replace(s, taken_at=s.taken_at + 1, partitions=unknown)
    )


def test_m_keeps_a_moment_and_shows_what_differs_from_it() -> None:
    async def test() -> None:
        async with running(recording("incident")) as (app, pilot):
            await pilot.press("m")
            assert "this moment is kept" in text_of(app)
            await sought(app, pilot, "<")
            await pilot.press("m")
            assert "Two moments" in text_of(app)
            assert "Held" in text_of(app)
            await pilot.press("escape", "m")
            assert "this moment is kept" in text_of(app)

    run(test)


async def sought(app: Dashboard, pilot: Pilot[str], key: str) -> None:
    before = app.frame
    await pilot.press(key)
    await until(pilot, lambda: app.frame is not before)


@pytest.mark.parametrize("name", ["orders.jsonl", "none"])
def test_a_recording_is_no_bundle(name: str) -> None:
    assert not is_bundle(RECORDINGS / name)


def test_a_bundle_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x1f\x8b\x08")
    assert is_bundle(tmp_path / "x")
