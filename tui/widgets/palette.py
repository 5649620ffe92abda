"""Colours by role, per theme. No role relies on colour alone: marks and words say it too."""

from collections.abc import Mapping
from functools import cache

from rich.style import Style

_THEMES: Mapping[str, Mapping[str, str]] = {
    "dark": {
        "text": "#d8dee9",
        "dim": "#8a94a6",
        "head": "bold #eceff4 on #2b3346",
        "tab": "bold #0f1218 on #88c0d0",
        "title": "bold #88c0d0",
        "act": "bold #ff7a85",
        "look": "#ebcb8b",
        "unknown": "#8fd0f5",
        "good": "#a3be8c",
        "spark": "#81a1c1",
        "key": "bold #88c0d0",
        "stale": "bold #14161c on #ebcb8b",
        "gone": "strike #8a94a6",
        "marked": "bold #d8a6e8",
        "cursor": "on #33405c",
        "cell": "underline",
    },
    "light": {
        "text": "#20242c",
        "dim": "#5c6573",
        "head": "bold #10131a on #d3dae8",
        "tab": "bold #ffffff on #1f5f8b",
        "title": "bold #1f5f8b",
        "act": "bold #b3001b",
        "look": "#8a5a00",
        "unknown": "#005c99",
        "good": "#2e6b1f",
        "spark": "#33658a",
        "key": "bold #1f5f8b",
        "stale": "bold #ffffff on #8a5a00",
        "gone": "strike #5c6573",
        "marked": "bold #7a2a94",
        "cursor": "on #cfe0f5",
        "cell": "underline",
    },
    "contrast": {
        "text": "#ffffff",
        "dim": "#d0d0d0",
        "head": "bold #000000 on #ffffff",
        "tab": "bold #000000 on #ffff00",
        "title": "bold underline #ffffff",
        "act": "bold #ffffff on #c00000",
        "look": "bold #ffff00",
        "unknown": "bold #00ffff",
        "good": "bold #00ff00",
        "spark": "#ffffff",
        "key": "bold #ffff00",
        "stale": "bold #000000 on #ffff00",
        "gone": "strike #d0d0d0",
        "marked": "bold #ff80ff",
        "cursor": "bold #000000 on #00ffff",
        "cell": "underline",
    },
    "ansi": {
        "text": "default",
        "dim": "default",
        "head": "bold reverse",
        "tab": "bold reverse",
        "title": "bold",
        "act": "bold red",
        "look": "yellow",
        "unknown": "cyan",
        "good": "green",
        "spark": "blue",
        "key": "bold",
        "stale": "bold reverse yellow",
        "gone": "strike",
        "marked": "bold magenta",
        "cursor": "reverse",
        "cell": "underline",
    },
}

BACKGROUNDS = {"dark": "#14161c", "light": "#f7f8fb", "contrast": "#000000"}
THEMES = ("dark", "light", "contrast", "ansi-dark", "ansi-light")


@cache
def style(theme: str, role: str, under: str | None = None) -> Style:
    """Return the style of a role in a theme; under: a second role laid over it (`cursor`)."""
    named = _THEMES["ansi" if theme.startswith("ansi") else theme]
    made = Style.parse(named[role])
    if under is None:
        return made
    over = Style.parse(named[under])
    if theme == "contrast" and under == "cursor":
        return over  # keeps its own colours, or else the text could not be read
    return made + over
