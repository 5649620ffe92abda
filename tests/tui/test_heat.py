"""The map of held partitions: which are on it, what a cell shows, and the list's cursor on it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.inspect.cluster_rows import LsoRow
from tests.tui.driving import lines_of, recording, run, running, until
from tests.tui.large import LargeFeed, large
from tui.screens.views import PARTITIONS, WHY
from tui.widgets.heat import LEAST, LEVELS, HeatMap, mapped
from tui.widgets.tables import TableRow

HELD = 200  # of 10,000 partitions, every 50th


def row(number: int, held: int, mark: str = "") -> TableRow:
    [known] = [r for r in large(50).partitions.rows if isinstance(r, LsoRow) and r.held]  # type: ignore[union-attr]
    source = LsoRow(
        **{n: getattr(known, n) for n in known.__struct_fields__}
        | {"partition": number, "held": held}
    )
    return TableRow(f"t:{number}", (), (), mark, source)


class Still(HeatMap):
    """A map of a known size."""

    wide, high = 4, 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 10**9), st.sampled_from(list(LEVELS))), min_size=1, max_size=40
    )
)
def test_a_cell_shows_its_highest_value_and_its_worst_partition(
    found: list[tuple[int, str]],
) -> None:
    rows = tuple(row(n, held, mark) for n, (held, mark) in enumerate(found))
    heat = Still(name="heat")
    heat.rows = rows
    heat.measure()
    cells = heat._cells
    assert heat.each == -(-len(rows) // 8)
    assert len(cells) == heat.length <= 8
    assert all(len(sign) == heat.across and len(set(sign)) == 1 for sign, _ in cells)
    order = ["!!", "!", "?", ""]
    peaks = []
    for number, (sign, role) in enumerate(cells):
        mine = found[number * heat.each : (number + 1) * heat.each]
        worst = min((mark for _, mark in mine), key=order.index)
        assert role == LEVELS[worst][2]
        if worst != "?":
            peaks.append((max(value for value, _ in mine), LEVELS[worst][0].index(sign[0])))
    assert [level for _, level in sorted(peaks)] == sorted(level for _, level in peaks)


def test_only_hundreds_are_mapped_in_the_order_of_partitions() -> None:
    few = [row(n, 5) for n in range(LEAST - 1)]
    assert mapped(few, ()) == ()
    many = [*(row(n, 5) for n in range(LEAST, 0, -1)), row(500, 0)]
    found = mapped(many, ())
    assert [r.key for r in found] == [f"t:{n}" for n in range(1, LEAST + 1)]
    assert mapped(many, found) is found, "nothing is drawn again that did not change"


def test_the_map_shows_and_moves_the_cursor_of_the_list() -> None:
    async def test() -> None:
        async with running(LargeFeed(10_000), (120, 40)) as (app, pilot):
            assert not app.heat.display
            await pilot.press("2")
            await until(pilot, lambda: app.heat.display and app.heat.region.y > 0)
            top = lines_of(app)[app.heat.region.y]
            assert f"Map {HELD} held" in top
            assert "offsets 107 to 10057" in top
            await pilot.press("j", "j")
            key = app.table.state.cursor
            assert key is not None
            assert app.heat.rows[app.heat._cursor()].key == key
            await pilot.press("tab", "tab")
            assert app.scrolled is app.heat
            await pilot.press("G", "h")
            assert app.table.state.cursor == app.heat.rows[-2].key
            await pilot.press("g", "l", "j")
            below = app.heat.rows[app.heat.in_line + 1]
            assert app.table.state.cursor == below.key
            assert below.key in app.side.titles()[0][0][0], "the story follows"
            await pilot.click(app.heat, offset=(7, 1))
            assert app.table.state.cursor == app.heat.rows[2].key
            await pilot.press("escape", "slash", *"0199", "enter")
            await pilot.click(app.heat, offset=(3, 1))
            assert app.table.state.filter is None, "the list shows what was picked"
            await pilot.press("A")
            assert " age " in lines_of(app)[app.heat.region.y]
            await pilot.click(app.heat, offset=(10, 1), times=2)
            assert (app.location.view, app.location.about) == (WHY, app.heat.rows[3].key)

    run(test)


def test_few_held_partitions_are_in_the_list_only() -> None:
    async def test() -> None:
        async with running(recording("orders")) as (app, pilot):
            await pilot.press("2")
            assert app.location.view is PARTITIONS
            assert not app.heat.display

    run(test)
