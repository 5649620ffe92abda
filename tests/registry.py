"""A schema registry on loopback: a real HTTP server with the two paths that readers use.

Schemas are given as a registry has them; what they mean is left to the libraries that wrote the
test's records.
"""

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Schemas = Mapping[str, Mapping[str, Any]]
"""Path, with its query → the answer's JSON."""


@contextmanager
def registry(schemas: Schemas, login: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """Serve these; yield the address, and the list that gets each path asked for."""
    asked: list[str] = []
    wanted = None if login is None else f"Basic {base64.b64encode(login.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            status, found = 200, schemas.get(self.path)
            if wanted is not None and self.headers.get("Authorization") != wanted:
                status, found = 401, None
            body = json.dumps(found or {"error_code": 40403, "message": "not found"}).encode()
            self.send_response(status if found or status != 200 else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def framed(number: int, content: bytes) -> bytes:
    """Content as the registry's serializers write it: a zero byte and the schema's number first."""
    return b"\x00" + number.to_bytes(4) + content
