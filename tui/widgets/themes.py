"""Textual's side of the themes: background and borders. Texts take theirs from palette.py."""

from typing import TYPE_CHECKING, Any

from textual.theme import Theme

from tui.widgets.palette import BACKGROUNDS

if TYPE_CHECKING:
    from textual.app import App


def register(app: "App[Any]") -> None:
    """Make dark, light and contrast known; ansi-dark and ansi-light are Textual's own."""
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
