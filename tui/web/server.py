"""The server of `tui --web`: a page with a terminal, and a connection for each viewer."""

import asyncio
import json
import ssl
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from sys import stderr, stdout
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from recovery.errors import Exit, UsageError
from tui.feed.shared import Seat, SharedFeed
from tui.web.door import WEBSOCKET, Door, Listening
from tui.web.terminal import Outlet
from tui.web.viewer import WebDashboard

MOST_VIEWERS = 8
FIRST_SECONDS = 10.0  # until a browser says how large its terminal is
MOST_BYTES = 16 << 10  # of one message from a browser
RESIZED_SECONDS = 0.1  # until it is heard again: all is drawn anew
A_SECOND = 4 << 10  # characters that are taken from one browser: what is more waits in it
AGAIN, TOO_SLOW, FAILED = 1013, 1008, 1011
"""Why a connection is closed: later there may be room; it lags behind; an error of eoctl's."""
LEAST, MOST = (20, 5), (500, 200)  # cells of a terminal

PAGES = {
    "": ("index.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
    "xterm.css": ("xterm.css", "text/css"),
    "xterm.js": ("xterm.js", "text/javascript"),
    "xterm-fit.js": ("xterm-fit.js", "text/javascript"),
}
"""Path after the token → file in the folder `page`, and its type."""
SAFE = {
    # xterm.js writes style elements; scripts and connections are this server's alone
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address has the token
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Say = Callable[[str], None]


class House:
    """What all viewers share: the feed, the theme, the door once it is known."""

    def __init__(self, feed: SharedFeed, theme: str) -> None:
        self.feed = feed
        self.theme = theme
        self.door: Door | None = None
        self.viewers: set[ServerConnection] = set()

    def answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """Return a page or a refusal; None lets the connection begin."""
        assert self.door is not None
        peer = str((connection.remote_address or ("",))[0])
        host, origin = (request.headers.get_all(name) for name in ("Host", "Origin"))
        refusal = self.door.refusal(peer, request.path, host, origin)
        if refusal is not None:
            return _response(refusal.status, "text/plain", f"{refusal.sentence}\n".encode())
        name = request.path.partition("?")[0].removeprefix("/").partition("/")[2]
        if name == WEBSOCKET:
            return None
        if name not in PAGES:
            return _response(404, "text/plain", b"not found\n")
        file, kind = PAGES[name]
        return _response(200, kind, (Path(__file__).parent / "page" / file).read_bytes())

    async def serve(self, connection: ServerConnection) -> None:
        """Serve one viewer until the browser or the dashboard ends."""
        with suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                size = size_of(message_of(await connection.recv())) or (80, 24)
            await self._seated(connection, size)

    async def _seated(self, connection: ServerConnection, size: tuple[int, int]) -> None:
        if len(self.viewers) >= MOST_VIEWERS:
            await connection.close(AGAIN, f"{MOST_VIEWERS} people look already")
            return
        self.viewers.add(connection)
        try:
            await self._view(connection, size)
        finally:
            self.viewers.discard(connection)

    async def _view(self, connection: ServerConnection, size: tuple[int, int]) -> None:
        outlet = Outlet()
        app = WebDashboard(Seat(self.feed), outlet, theme=self.theme)
        sides = [
            asyncio.create_task(_read(connection, app)),
            asyncio.create_task(_write(connection, outlet)),
        ]
        running = asyncio.create_task(app.run_async(size=size))
        await asyncio.wait([running, *sides], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            app.leave(Exit.OK)
        await asyncio.wait([running], timeout=FIRST_SECONDS)
        for task in (running, *sides):
            task.cancel()
        await asyncio.gather(running, *sides, return_exceptions=True)
        if outlet.overrun:
            await connection.close(TOO_SLOW, "this browser reads too slowly")
        elif app.return_code == Exit.OK:
            await connection.close(1000, "ended")
        else:
            await connection.close(FAILED, "the dashboard failed")


def _response(status: int, kind: str, body: bytes) -> Response:
    headers = Headers(SAFE)
    headers["Content-Type"] = f"{kind}; charset=utf-8"
    headers["Content-Length"] = str(len(body))
    headers["Connection"] = "close"
    return Response(status, HTTPStatus(status).phrase, headers, body)


async def _read(connection: ServerConnection, app: WebDashboard) -> None:
    async for data in connection:
        message, terminal = message_of(data), app.terminal
        if terminal is None:
            continue
        if isinstance(keys := message.get("keys"), str):
            terminal.typed(keys)
            await asyncio.sleep(len(keys) / A_SECOND)
        elif (size := size_of(message)) is not None:
            terminal.resized(*size)
            await asyncio.sleep(RESIZED_SECONDS)


async def _write(connection: ServerConnection, outlet: Outlet) -> None:
    while not outlet.overrun:
        for part in await outlet.taken():
            await connection.send(part)


def message_of(data: str | bytes) -> dict[str, Any]:
    """Return a message from a browser; empty if it is none."""
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def size_of(message: dict[str, Any]) -> tuple[int, int] | None:
    """Return columns and lines within what a terminal can have; None if the message has none."""
    match message.get("size"):
        case [int(width), int(height)]:
            given = zip((width, height), LEAST, MOST, strict=True)
            width, height = (max(least, min(cells, most)) for cells, least, most in given)
            return width, height
    return None


async def run(feed: SharedFeed, listening: Listening, theme: str, say: Say) -> None:
    """Serve until cancelled, or the feed ends. say: takes the address that people open.

    Raise UsageError, and what ended the feed.
    """
    house = House(feed, theme)
    ended = asyncio.Event()
    feed.on_end = partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set)
    # each app would put a capture of its own in their place, and the last one leave it there
    with redirect_stdout(stdout), redirect_stderr(stderr):
        async with await _listening(house, listening) as server:
            port = server.sockets[0].getsockname()[1]
            house.door = listening.door(port)
            say(listening.address(house.door, port))
            try:
                await ended.wait()
            finally:
                feed.stop()
    if feed.error is not None:
        raise feed.error


async def _listening(house: House, listening: Listening) -> Server:
    try:
        return await serve(
            house.serve,
            listening.host,
            listening.port,
            process_request=house.answer,
            ssl=_tls(listening),
            max_size=MOST_BYTES,
            compression=None,
            server_header=None,
        )
    except OSError as error:
        raise UsageError(f"cannot listen there: {error.strerror}", where="--listen") from None


def _tls(listening: Listening) -> ssl.SSLContext | None:
    if listening.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(listening.certificate, listening.key)
    except (OSError, ssl.SSLError) as error:
        words = f"cannot be read: {error.strerror or error}"
        raise UsageError(words, where="--certificate, --key") from None
    return context
