"""Lines over time: never outside their box, 0 at the bottom, a gap where nothing was seen."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.render.sanitise import visible
from tui.widgets.charts import AXIS_LINES, LEAST_SAMPLES, Picture, Series, picture_lines, short
from tui.widgets.lines import line_width, plain

T0 = 1_764_230_400_000  # 08:00:00Z
values = st.none() | st.floats(0, 1e18) | st.integers(0, 2**63)
names = st.text(max_size=300).map(lambda text: visible(text, spaces=True) or '""')


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    gaps = draw(st.lists(st.integers(1, 10**9), max_size=40))
    times = [T0 + sum(gaps[:n]) for n in range(len(gaps))]
    series = draw(
        st.lists(
            st.builds(
                Series,
                names,
                st.sampled_from(["series1", "good"]),
                st.lists(values, min_size=len(times), max_size=len(times)).map(tuple),
            ),
            max_size=12,
        )
    )
    marks = draw(st.lists(st.tuples(st.integers(T0 - 99, T0 + 10**9), st.sampled_from("acf"))))
    words = draw(st.text("ab ", max_size=200))
    return Picture(
        "x",
        tuple(times),
        tuple(series),
        words,
        tuple(marks),
        draw(st.booleans()),
        draw(st.booleans()),
    )


@given(pictures(), st.integers(1, 300), st.integers(1, 60))
def test_nothing_is_ever_outside_the_box(picture: Picture, width: int, height: int) -> None:
    lines = picture_lines(picture, width, height)
    assert len(lines) <= height
    assert all(line_width(line) <= max(width, 9) for line in lines)
    if picture.ascii_only and all(s.name.isascii() for s in picture.series):
        assert "\n".join(map(plain, lines)).replace("…", "").isascii()


def picture(*series: tuple[float | None, ...], ascii_only: bool = False, **more: object) -> Picture:
    times = tuple(T0 + n * 1000 for n in range(len(series[0])))
    lines = tuple(Series(f"s{n}", f"series{n + 1}", s) for n, s in enumerate(series))
    return Picture("x", times, lines, "too few", ascii_only=ascii_only, **more)  # type: ignore[arg-type]


def text(made: Picture, width: int = 40, height: int = 9) -> list[str]:
    return [plain(line).rstrip() for line in picture_lines(made, width, height)]


def test_a_line_rises_from_the_bottom_left_to_the_top_right() -> None:
    lines = text(picture(tuple(map(float, range(27))), ascii_only=True), 40, 9)
    *plot, axis, times = lines
    assert [line[:3] for line in plot] == ["30|", "  |", "  |", "15|", "  |", "  |", " 0|"]
    at = {row: line.find("*") for row, line in enumerate(plot) if "*" in line}
    assert list(at.values()) == sorted(at.values(), reverse=True)
    assert plot[-1][3] == "*", "begins with the first sample, at 0"
    assert plot[1].endswith("* s0 26") or plot[0].endswith("* s0 26")
    assert set(axis.strip()) == {"+", "-"}
    assert times.split() == ["08:00:00", "08:00:26Z"]


def test_the_value_of_every_sample_is_where_its_axis_says() -> None:
    """Each dot of a cell is read back from its braille sign."""
    given = (0.0, 10.0, 5.0, 10.0, 0.0)
    lines = text(picture(given), 40, 6 + AXIS_LINES)[:6]
    room = lines[0].index("s0") - 1 - lines[0].index("│") - 1 if "s0" in lines[0] else None
    wide = room or next(x.index("s0") - 1 - x.index("│") - 1 for x in lines if "s0" in x)
    dots: dict[int, set[int]] = {}
    for row, line in enumerate(lines):
        for x, sign in enumerate(line[line.index("│") + 1 :][:wide]):
            bits = ord(sign) - 0x2800 if sign >= "\u2800" else 0
            for bit, (right, down) in enumerate(
                ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
            ):
                if bits >> bit & 1:
                    dots.setdefault(2 * x + right, set()).add(23 - row * 4 - down)
    last = 2 * wide - 1
    for n, value in enumerate(given):
        assert round(value * 23 / 10) in dots[n * last // (len(given) - 1)]
    assert set(range(last + 1)) == dots.keys(), "joined samples have no gap"


def test_a_missing_sample_leaves_a_gap_and_a_lone_one_a_dot() -> None:
    [row, *_] = text(picture((5.0, 5.0, None, 5.0, None, 5.0, 5.0), ascii_only=True), 40, 5)
    drawn = row[row.index("|") + 1 : row.index(" s0") - 2]
    at = [n * (len(drawn) - 1) // 6 for n in range(7)]
    assert [len(part) for part in drawn.split()] == [
        at[1] + 1,
        1,
        len(drawn) - at[5],
    ]


def test_a_short_peak_among_many_samples_is_drawn() -> None:
    many = [0.0] * 600
    many[311] = 900.0
    lines = text(picture(tuple(many), ascii_only=True), 60, 12)
    assert "*" in lines[0]
    assert lines[0].startswith("900|")


@pytest.mark.parametrize("number", [0, 1, LEAST_SAMPLES - 1])
def test_fewer_than_three_samples_are_a_sentence(number: int) -> None:
    assert text(picture((1.0,) * number)) == [" too few"]


def test_lines_without_a_value_and_boxes_too_small_are_a_sentence() -> None:
    assert text(picture((None,) * 9)) == [" too few"]
    assert text(picture((1.0,) * 9), 20, 9) == [" too few"]
    assert text(picture((1.0,) * 9), 40, 3) == [" too few"]


@pytest.mark.parametrize("ascii_only", [True, False])
def test_zero_one_value_and_huge_values(ascii_only: bool) -> None:
    for value, top, last in (
        (0, "1", "s0 0"),
        (1, "1", "s0 1"),
        (1204, "1500", "s0 1204"),
        (454, "500", "s0 454"),
        (699, "700", "s0 699"),
        (10**15 + 1, "1500T", "s0 1000T"),
        (2**63, "1e+19", "s0 9e+18"),
    ):
        lines = text(picture((value,) * 5, ascii_only=ascii_only))
        assert lines[0].split("|" if ascii_only else "│")[0].strip() == top
        assert any(line.endswith(last) for line in lines), lines


def test_ages_have_round_limits_with_round_halves() -> None:
    lines = text(picture((1.0, 61.0, 100.0), seconds=True))
    assert [line.split("│")[0].strip() for line in lines[:7]] == ["2m", "", "", "1m", "", "", "0"]
    assert any(line.endswith("s0 1m") for line in lines)


def test_each_line_is_named_beside_its_end_in_its_own_colour() -> None:
    made = picture((0.0, 5.0, 9.0), (9.0, 5.0, 0.0), (0.0, 0.0, 9.0))
    lines = picture_lines(made, 60, 11)
    named = [(line[-1], y) for y, line in enumerate(lines[:9]) if line[-1][0].strip()]
    assert [(text.split()[0], role) for (text, role), _ in named] == [
        ("s0", "series1"),
        ("s2", "series3"),
        ("s1", "series2"),
    ]
    assert [y for _, y in named] == [0, 1, 8], (
        "beside the newest value, or as near as there is room"
    )
    drawn = {role for line in lines[:9] for text, role in line[1:-1] if text.strip()}
    assert drawn == {"series1", "series2", "series3"}


def test_marks_are_on_the_axis_where_they_happened() -> None:
    marks = ((T0 - 1, "x"), (T0, "a"), (T0 + 5000, "c"), (T0 + 5000, "f"), (T0 + 10_000, "a"))
    lines = text(picture((1.0,) * 11, ascii_only=True, marks=marks), 40, 6)
    axis = lines[-2].strip()[1:]
    assert (axis[0], axis[(len(axis) - 1) // 2], axis[-1]) == ("a", "*", "a")
    assert set(axis) == {"a", "*", "-"}, "what happened before is not on the axis"


def test_a_number_of_an_axis_is_short() -> None:
    assert [short(n) for n in (99_999, 100_000, 10**8, 2.25)] == ["99999", "100k", "100M", "2.2"]


@pytest.mark.parametrize("lines", [1, 5])
def test_600_samples_are_drawn_in_3_ms(lines: int) -> None:
    """Of its own time, the best of many: other processes share the cores."""
    many = [tuple(float((n * (7 + k)) % 211) for n in range(600)) for k in range(lines)]
    made, best = picture(*many), 1.0
    for _ in range(30):
        begin = time.thread_time()
        picture_lines(made, 60, 12)
        best = min(best, time.thread_time() - begin)
    assert best < 0.003 * max(1, lines / 2.5)
