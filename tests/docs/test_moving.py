"""The moving picture: at each moment exactly the screen of that moment is visible."""

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from docs.moving import LINE, MARGIN, Run, Shot, moving

SVG = "{http://www.w3.org/2000/svg}"
HIGH = 3


def run(text: str) -> Run:
    return Run(text, max(len(text), 1), "#ffffff", "", bold=False)


LINES = st.lists(st.sampled_from(["", "a", "b<&>", "c"]), min_size=HIGH, max_size=HIGH)


def visible(group: ElementTree.Element, at: float) -> bool:
    """Whether a group is shown at this part of the whole time, by its animation (SMIL)."""
    animate = group.find(f"{SVG}animate")
    if animate is None:
        return True
    states = animate.attrib["values"].split(";")
    moments = [float(m) for m in animate.attrib["keyTimes"].split(";")]
    assert moments[0] == 0
    assert moments == sorted(moments)
    assert len(states) == len(moments)
    return [state for state, m in zip(states, moments, strict=True) if m <= at][-1] == "visible"


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.5, 4.0]), LINES), min_size=1, max_size=6))
def test_at_each_moment_its_screen(script: list[tuple[float, list[str]]]) -> None:
    shots = [Shot(seconds, [(run(text),) for text in lines]) for seconds, lines in script]
    made = moving(shots, "#000000", 'a "picture" of <it>')
    root = ElementTree.fromstring(made)
    outer = root.find(f"{SVG}g")
    assert outer is not None
    whole, begin = sum(shot.seconds for shot in shots), 0.0
    for seconds, lines in script:
        at = (begin + seconds / 2) / whole
        begin += seconds
        shown = [""] * HIGH
        drawn = [*outer.findall(f"{SVG}text")]
        drawn += [
            t for g in outer.findall(f"{SVG}g") if visible(g, at) for t in g.iter(f"{SVG}text")
        ]
        for text in drawn:
            y = int((float(text.attrib["y"]) - MARGIN) / LINE)
            assert not shown[y], "two lines at one place"
            shown[y] = text.text or ""
        assert shown == lines
    assert not re.search(r"<script|https?://(?!www\.w3\.org)", made), "it needs nothing"
    still = [g for g in outer.findall(f"{SVG}g") if g.attrib["visibility"] == "visible"]
    assert sum(len(list(g.iter(f"{SVG}text"))) for g in still) + len(
        outer.findall(f"{SVG}text")
    ) == sum(bool(text) for text in script[-1][1]), "without animation the last screen"
