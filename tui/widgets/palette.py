"""Colours by meaning, per theme. None relies on colour alone: marks and words say it too.

act: needs a person now. look: soon. unknown: cannot tell. good: ended well. acts: what changes the
cluster, and rows marked for that; used for nothing else. key: the accent. series1 to series4 and
aborted: lines of pictures, none of them a meaning. edge: of a panel without the focus, a contrast
of at least 3. Each text can be read on its background: a contrast of at least 4.5 (WCAG AA), also
under the cursor. The 16 colours of ansi-dark and ansi-light are the terminal's: those are used that
have at least 3 on black, or on white, in the palettes of usual terminals.
"""

from collections.abc import Mapping
from functools import cache

from rich.style import Style

_ANSI = {
    "text": "default",
    "dim": "default",
    "head": "bold reverse",
    "slider": "bold reverse",
    "tab": "bold reverse",
    "title": "bold",
    "unknown": "default",
    "edge": "default",
    "key": "bold",
    "gone": "strike",
    "cursor": "reverse",
    "cell": "underline",
}
"""Of both themes of 16 colours: a terminal's own text on its own background."""

_THEMES: Mapping[str, Mapping[str, str]] = {
    "dark": {
        "text": "#d8dee9",
        "dim": "#949eb0",
        "head": "bold #eceff4 on #2b3346",
        "slider": "bold #eceff4 on #2b3346",
        "tab": "bold #0f1218 on #88c0d0",
        "title": "bold #88c0d0",
        "act": "bold #ff7a85",
        "look": "#ebcb8b",
        "unknown": "#b4bccb",
        "good": "#a3be8c",
        "spark": "#86a7c8",
        "edge": "#5e6a82",
        "series1": "#6ea8ff",
        "series2": "#45c4b0",
        "series3": "#b3a1f7",
        "series4": "#d0a27a",
        "aborted": "#f0935a",
        "key": "bold #88c0d0",
        "stale": "bold #14161c on #ebcb8b",
        "gone": "strike #949eb0",
        "acts": "bold #e29bf0",
        "cursor": "on #29344d",
        "cell": "underline",
    },
    "light": {
        "text": "#20242c",
        "dim": "#555e6b",
        "head": "bold #10131a on #d3dae8",
        "slider": "bold #10131a on #d3dae8",
        "tab": "bold #ffffff on #1f5f8b",
        "title": "bold #1f5f8b",
        "act": "bold #b3001b",
        "look": "#7f5200",
        "unknown": "#4d5563",
        "good": "#2e6b1f",
        "spark": "#33658a",
        "edge": "#7b8597",
        "series1": "#1a56c4",
        "series2": "#0b6b60",
        "series3": "#5a48b8",
        "series4": "#7a4a1e",
        "aborted": "#95400a",
        "key": "bold #1f5f8b",
        "stale": "bold #ffffff on #8a5a00",
        "gone": "strike #555e6b",
        "acts": "bold #7a2a94",
        "cursor": "on #cfe0f5",
        "cell": "underline",
    },
    "contrast": {
        "text": "#ffffff",
        "dim": "#d0d0d0",
        "head": "bold #000000 on #ffffff",
        "slider": "bold #000000 on #ffffff",
        "tab": "bold #000000 on #ffff00",
        "title": "bold underline #ffffff",
        "act": "bold #ffffff on #c00000",
        "look": "bold #ffff00",
        "unknown": "#d0d0d0",
        "good": "bold #00ff00",
        "spark": "#ffffff",
        "edge": "#d0d0d0",
        "series1": "#66b3ff",
        "series2": "#00e5cc",
        "series3": "#c0b0ff",
        "series4": "#ffc080",
        "aborted": "#ff9040",
        "key": "bold #ffff00",
        "stale": "bold #000000 on #ffff00",
        "gone": "strike #d0d0d0",
        "acts": "bold #ff80ff",
        "cursor": "bold #000000 on #00ffff",
        "cell": "underline",
    },
    "ansi-dark": _ANSI
    | {
        "act": "bold bright_red",
        "look": "bright_yellow",
        "good": "green",
        "spark": "cyan",
        "series1": "bright_cyan",
        "series2": "bright_green",
        "series3": "white",
        "series4": "cyan",
        "aborted": "yellow",
        "stale": "bold black on bright_yellow",
        "acts": "bold bright_magenta",
    },
    "ansi-light": _ANSI
    | {
        "act": "bold red",
        "look": "black on yellow",  # no terminal's yellow can be read on white
        "good": "bold blue",  # nor its green
        "spark": "blue",
        "series1": "blue",
        "series2": "bright_black",
        "series3": "bright_blue",
        "series4": "bold",
        "aborted": "bright_black",
        "stale": "bold black on yellow",
        "acts": "bold magenta",
    },
}

BACKGROUNDS = {"dark": "#14161c", "light": "#f7f8fb", "contrast": "#000000"}
THEMES = ("dark", "light", "contrast", "ansi-dark", "ansi-light")


@cache
def style(theme: str, role: str, under: str | None = None) -> Style:
    """Return the style of a role in a theme; under: a second role laid over it (`cursor`)."""
    named = _THEMES[theme]
    # with its background: the terminal's own may be as dark as the text
    made = Style(bgcolor=BACKGROUNDS.get(theme)) + Style.parse(named[role])
    if under is None:
        return made
    over = Style.parse(named[under])
    if theme == "contrast" and under == "cursor":
        return over  # keeps its own colours, or else the text could not be read
    return made + over
