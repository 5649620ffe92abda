"""An S3 for tests: moto's server, a fake, and a proxy before it that fails as networks do.

`python -m tests.object_store` serves on a free port, which it prints, until its input ends.
"""

import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

Fault = str | None
"""A status such as 503: answered so without asking the server; cut: neither asked nor answered;
lost: done, and the answer is lost; overwrite: passed on without the condition, as a service does
that knows none."""
CODES = {"403": "AccessDenied", "409": "ConditionalRequestConflict", "503": "SlowDown"}


@contextmanager
def s3_server() -> Iterator[int]:
    """Yield the port of a server without any bucket."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.object_store"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def make_bucket(port: int, name: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{name}", method="PUT")
    urllib.request.urlopen(request, timeout=20).close()


def put_object(port: int, path: str, content: bytes) -> None:
    """Write an object, BUCKET/KEY, without obstore."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{path}",
        content,
        {"Authorization": "AWS anybody", "Content-Type": "application/octet-stream"},
        method="PUT",
    )
    urllib.request.urlopen(request, timeout=20).close()


def environment(port: int) -> dict[str, str]:
    """The variables that lead to a server, and to no other credentials."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "of-tests",
        "AWS_SECRET_ACCESS_KEY": "s3cret-of-tests",
        "AWS_REGION": "us-east-1",
        "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9",
    }


class Faulty:
    """Passes requests on to a port, one a connection; `fault` says what befalls each.

    fault: called with the request's line (`PUT /bucket/key HTTP/1.1`) under a lock.
    faults: those that were made.
    """

    def __init__(self, port: int, fault: Callable[[str], Fault]) -> None:
        self._target, self._fault = port, fault
        self._lock = threading.Lock()
        self.faults: list[tuple[str, str]] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with closing(client), suppress(OSError, ValueError):
            head, body = _request(client)
            line = head.partition(b"\r\n")[0].decode("latin-1")
            with self._lock:
                fault = self._fault(line)
                if fault is not None:
                    self.faults.append((fault, line))
            if fault == "cut":
                return
            if fault in CODES:
                said = f"<Error><Code>{CODES[fault]}</Code></Error>"
                client.sendall(
                    f"HTTP/1.1 {fault} Said\r\nContent-Length: {len(said)}\r\n"
                    f"Connection: close\r\n\r\n{said}".encode()
                )
                return
            lines = [
                line
                for line in head.split(b"\r\n")
                if not line.lower().startswith(b"connection:")
                and not (fault == "overwrite" and line.lower().startswith(b"if-none-match:"))
            ]
            lines.append(b"Connection: close")
            with closing(socket.create_connection(("127.0.0.1", self._target))) as server:
                server.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + body)
                answer = b""
                while data := server.recv(65536):
                    answer += data
            if fault != "lost":
                client.sendall(answer)


def _request(client: socket.socket) -> tuple[bytes, bytes]:
    """A request's head, without the empty line, and its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := client.recv(65536)):
            raise ValueError("no request")
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    size = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            size = int(value)
    while len(body) < size:
        if not (more := client.recv(1 << 20)):
            raise ValueError("half a request")
        body += more
    return head, body


def _serve() -> None:
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = DomainDispatcherApplication(create_backend_app)
    one = threading.Lock()

    def at_once(environ: Any, start_response: Any) -> Any:
        """A request as a whole: moto looks whether an object is there, and then writes it."""
        with one:
            return list(app(environ, start_response))

    server = make_server("127.0.0.1", 0, at_once, threaded=True)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    _serve()
