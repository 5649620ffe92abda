"""What a terminal can show, asked of a real pseudo-terminal."""

import fcntl
import io
import os
import pty
import struct
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from eoctl.render.screen import Screen, screen_of

XTERM = {"TERM": "xterm-256color"}


def resize(stream: TextIO, columns: int) -> None:
    fcntl.ioctl(stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


@pytest.fixture
def terminal() -> Iterator[TextIO]:
    controller, end = pty.openpty()
    with os.fdopen(end, "w", encoding="utf-8") as stream:
        yield stream
    os.close(controller)


def test_a_terminal(terminal: TextIO) -> None:
    resize(terminal, 132)
    assert screen_of(terminal, XTERM) == Screen(132, colour=True)
    assert screen_of(terminal, XTERM | {"COLUMNS": "100"}).width == 100
    assert screen_of(terminal, XTERM | {"COLUMNS": "wide"}).width == 132
    assert screen_of(terminal, XTERM | {"COLUMNS": "0"}).width == 132


def test_a_terminal_that_does_not_tell_its_size(terminal: TextIO) -> None:
    resize(terminal, 0)
    assert screen_of(terminal, XTERM).width == 80


@pytest.mark.parametrize(
    ("environ", "colour"),
    [
        (XTERM, True),
        (XTERM | {"NO_COLOR": ""}, True),
        (XTERM | {"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": ""}, False),
        ({}, False),
    ],
)
def test_colour(terminal: TextIO, environ: dict[str, str], colour: bool) -> None:
    assert screen_of(terminal, environ).colour is colour


@pytest.mark.parametrize(
    ("encoding", "ascii_only"),
    [("utf-8", False), ("UTF8", False), ("ascii", True), ("latin-1", True)],
)
def test_a_pipe(encoding: str, ascii_only: bool) -> None:
    pipe = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert screen_of(pipe, XTERM | {"COLUMNS": "100"}) == Screen(ascii_only=ascii_only)
