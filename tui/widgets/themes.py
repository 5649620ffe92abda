"""Textual's side of the themes: background and borders. Texts get theirs from palette.py."""

from typing import Any

from textual.app import App
from textual.theme import Theme

from tui.widgets.palette import BACKGROUNDS

WITH_16_COLOURS = {"dark": "contrast", "light": "ansi-light"}
"""Of their colours the nearest of 16 cannot be read on each other: a red finding on a grey row."""


def shown_as(theme: str, app: App[Any]) -> str:
    """Return the theme, or the one that takes its place if the terminal has only 16 colours."""
    few = app.console.color_system == "standard"
    return WITH_16_COLOURS.get(theme, theme) if few else theme


def instead_of(shown: str) -> str:
    """Return the sentence about a theme that is shown as another; 80 cells have room for it."""
    return f"shown as {shown}: TERM says 16 colours; if more, set COLORTERM=truecolor"


def begin_in(theme: str, app: App[Any]) -> None:
    """Register dark, light and contrast (ansi-dark and ansi-light are Textual's own); set one."""
    accents = {"dark": "#88c0d0", "light": "#1f5f8b", "contrast": "#ffff00"}
    for name, background in BACKGROUNDS.items():
        app.register_theme(
            Theme(
                name=name,
                primary=accents[name],
                background=background,
                surface=background,
                panel=background,
                foreground="#20242c" if name == "light" else "#ffffff",
                dark=name != "light",
            )
        )
    theme = shown_as(theme, app)
    chosen = app.get_theme(theme)
    if chosen is None or not chosen.dark or chosen.ansi:
        app.theme = theme
        return
    # The theme differs only in colours from the one that every app has first. Assigning it would
    # make Textual read the style sheets once more before the first paint.
    app.set_reactive(App.theme, theme)
    app.stylesheet.set_variables(app.get_css_variables())
