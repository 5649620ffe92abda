"""A moving picture: screens of text, one after the other, as an SVG that needs no script.

A line that several screens share is in it once, and says during which seconds it is visible.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

CELL, LINE = 7.2, 14.4  # of the font, in the picture's units
MARGIN = 8.0
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
BLANKS = " \N{BRAILLE PATTERN BLANK}"


class Run(NamedTuple):
    """Text of one look. colour, background: as in CSS. cells: how wide it is."""

    text: str
    cells: int
    colour: str
    background: str
    bold: bool


class Shot(NamedTuple):
    """One screen, and for how many seconds it is shown. lines: from the top."""

    seconds: float
    lines: Sequence[Sequence[Run]]


Times = tuple[tuple[float, float], ...]
"""When something is visible: from and to, in parts of the whole time."""


def moving(shots: Sequence[Shot], background: str, says: str) -> str:
    """Return the SVG, which begins again at its end. says: the picture in words.

    Without animation the last screen is shown.
    """
    whole = sum(shot.seconds for shot in shots)
    parts = [_group(drawn, times, whole) for times, drawn in _visible(shots, whole).items()]
    wide = max(sum(run.cells for run in line) for line in shots[0].lines) * CELL + 2 * MARGIN
    high = len(shots[0].lines) * LINE + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" role="img">\n'
        f"<title>{escape(says)}</title>\n"
        "<style>text{white-space:pre}</style>\n"  # Chromium heeds xml:space at a text alone
        f'<rect width="100%" height="100%" rx="6" fill="{background}"/>\n'
        f'<g font-family="{FONT}" font-size="12" xml:space="preserve">\n'
        + "\n".join(parts)
        + "\n</g>\n</svg>\n"
    )


def _visible(shots: Sequence[Shot], whole: float) -> Mapping[Times, list[str]]:
    """Return what is drawn, by when it is visible."""
    times: dict[tuple[int, tuple[Run, ...]], list[tuple[float, float]]] = {}
    at = 0.0
    for shot in shots:
        end = at + shot.seconds / whole
        for y, line in enumerate(shot.lines):
            seen = times.setdefault((y, tuple(line)), [])
            if seen and seen[-1][1] == at:
                seen[-1] = (seen[-1][0], end)
            else:
                seen.append((at, end))
        at = end
    found: dict[Times, list[str]] = {}
    for (y, line), seen in times.items():
        found.setdefault(tuple(seen), []).append(_line(y, line))
    return found


def _group(drawn: Sequence[str], times: Times, whole: float) -> str:
    """Return what is visible at the same times."""
    last = round(times[-1][1], 6) == 1
    if last and times == ((0.0, times[-1][1]),):
        return "".join(drawn)
    steps = [(0.0, "hidden")] if times[0][0] else []
    for begin, end in times:
        steps += [(begin, "visible"), (end, "hidden")]
    steps = [(at, state) for at, state in steps if at < 1 - 1e-6]
    values = ";".join(state for _, state in steps)
    moments = ";".join(f"{at:.4f}".rstrip("0").rstrip(".") for at, _ in steps)
    return (
        f'<g visibility="{"visible" if last else "hidden"}">'
        f'<animate attributeName="visibility" calcMode="discrete" dur="{whole:g}s" '
        f'repeatCount="indefinite" values="{values}" keyTimes="{moments}"/>{"".join(drawn)}</g>'
    )


def _line(y: int, line: Sequence[Run]) -> str:
    """Return the rectangles and the texts of a line."""
    x, top = MARGIN, MARGIN + y * LINE
    boxes, texts = [], []
    for run in line:
        wide = run.cells * CELL
        if run.background:
            size = f'width="{wide:.1f}" height="{LINE:g}"'
            boxes.append(f'<rect x="{x:.1f}" y="{top:.1f}" {size} fill="{run.background}"/>')
        if run.text.strip(BLANKS):
            bold = ' font-weight="bold"' if run.bold else ""
            texts.append(
                f'<text x="{x:.1f}" y="{top + 11:.1f}" textLength="{wide:.1f}" '
                f'fill="{run.colour}"{bold}>{escape(run.text)}</text>'
            )
        x += wide
    return "".join(boxes + texts)
