"""A browser's terminal as Textual's driver, and what goes to it and comes from it."""

import asyncio
import json
from contextlib import suppress
from itertools import chain
from typing import Any

from textual import events
from textual._xterm_parser import XTermParser
from textual.driver import Driver
from textual.geometry import Size

TYPED = (events.Key, events.MouseEvent, events.Paste)
"""What a browser may say here: its size comes otherwise, within bounds."""
MOST_WAITING = 4 << 20  # characters that a slow browser may lag behind

BEGIN = "\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[?1003h\x1b[?1006h\x1b[?2004h"
"""Another screen, no cursor, the mouse with all its moves, pasted text in brackets."""


class Outlet:
    """What a dashboard says to its browser, in order. overrun: it takes too little of it."""

    def __init__(self) -> None:
        self._parts: list[str | bytes] = []
        self._size = 0
        self._any = asyncio.Event()
        self.overrun = False

    def write(self, data: str) -> None:
        """Add what the terminal shows."""
        self._add(data.encode("utf-8", "replace"))

    def send(self, **message: object) -> None:
        """Add a message to the page itself."""
        self._add(json.dumps(message))

    def _add(self, part: str | bytes) -> None:
        self._size += len(part)
        self.overrun = self.overrun or self._size > MOST_WAITING
        if not self.overrun:
            self._parts.append(part)
        self._any.set()

    async def taken(self) -> list[str | bytes]:
        """Return what there is, once there is any; what a terminal shows in one piece."""
        await self._any.wait()
        self._any.clear()
        parts, self._parts, self._size = self._parts, [], 0
        joined: list[str | bytes] = []
        for part in parts:
            last = joined[-1] if joined else None
            if isinstance(part, bytes) and isinstance(last, bytes):
                joined[-1] = last + part
            else:
                joined.append(part)
        return joined


class PageDriver(Driver):
    """Textual's driver of one viewer. The app has its `outlet`."""

    def __init__(self, app: Any, **given: Any) -> None:
        super().__init__(app, **given)
        self._outlet: Outlet = app.outlet

    @property
    def is_web(self) -> bool:
        return True

    def write(self, data: str) -> None:
        self._outlet.write(data)

    def start_application_mode(self) -> None:
        self.write(BEGIN)
        self.resized(*(self._size or (80, 24)))

    def typed(self, text: str) -> None:
        """Take keys and the mouse, as a terminal writes them; each message has complete ones.

        So nothing of a message is kept until the next one, whatever it begins.
        """
        parser = XTermParser()
        parts = (text, "") if text else ()  # the empty one ends it
        with suppress(ValueError, ArithmeticError):  # numbers that no terminal writes
            for event in chain.from_iterable(map(parser.feed, parts)):
                if isinstance(event, TYPED):
                    self.process_message(event)

    def resized(self, width: int, height: int) -> None:
        size = Size(width, height)
        self.send_message(events.Resize(size, size))

    def disable_input(self) -> None:
        """Do nothing: what comes later finds an app that has ended."""

    def stop_application_mode(self) -> None:
        """Do nothing: the connection is closed."""

    def open_url(self, url: str, new_tab: bool = True) -> None:
        """Do nothing: no page that a name from the cluster could lead to is opened."""
