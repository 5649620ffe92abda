"""The HTTP endpoint of `exporter`: serve the last snapshots in prometheus_client's formats.

A scrape only reads memory; it never waits for a cluster.
"""

import ipaddress
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from eoctl.render.watch_words import families
from recovery.errors import UsageError
from recovery.watch.metrics import Sample

if TYPE_CHECKING:
    from prometheus_client import Metric

PAGE = b'<a href="/metrics">metrics</a> of eoctl\n'


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT or [IPV6]:PORT. Raises UsageError."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or (":" in bare) != (host != bare) or not port.isdecimal() or int(port) > 65535:
        raise UsageError(
            f"{text!r} is not an address",
            where="--listen",
            remedy="write 127.0.0.1:9465 or [::1]:9465",
        )
    return bare, int(port)


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def served(address: tuple[str, int], samples: Callable[[], Iterable[Sample]]) -> Iterator[str]:
    """Serve samples while the block runs, and yield the address of the metrics.

    Raises UsageError if the address cannot be listened on.
    """
    host, port = address
    try:
        family, _, _, _, bound = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server = _server(family)((str(bound[0]), port), _Handler)
    except OSError as error:
        raise UsageError(
            f"cannot be listened on: {error.strerror or error}",
            where=f"--listen {_url(host, port)}",
            remedy="name another address or port, or stop what listens there",
        ) from None
    server.set_app(_app(samples))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{_url(host, server.server_port)}/metrics"
    finally:
        server.shutdown()
        server.server_close()


def _url(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Handler(WSGIRequestHandler):
    timeout = 10.0  # seconds for a client that asks nothing, or does not read

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's
        """Log no requests."""


def _server(family: int) -> type[WSGIServer]:
    class Server(socketserver.ThreadingMixIn, WSGIServer):
        address_family = family
        daemon_threads = True

        def server_bind(self) -> None:
            socketserver.TCPServer.server_bind(self)  # HTTPServer's asks DNS for our name
            self.server_name, self.server_port = str(self.server_address[0]), self.socket_port()
            self.setup_environ()

        def socket_port(self) -> int:
            return int(self.socket.getsockname()[1])

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore a client that has gone away."""

    return Server


def _app(samples: Callable[[], Iterable[Sample]]) -> Any:
    from prometheus_client import CollectorRegistry, make_wsgi_app

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(samples))
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            text: Iterable[bytes] = metrics(environ, start)
            return text
        status, kind, body = {
            "/": ("200 OK", "text/html", PAGE),
            "/healthy": ("200 OK", "text/plain", b"this exporter runs\n"),
        }.get(path, ("404 Not Found", "text/plain", b"metrics are at /metrics\n"))
        start(status, [("Content-Type", kind)])
        return [body]

    return answer


class _Collector:
    """Samples as prometheus_client takes them."""

    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client import Metric

        for family in families(self._samples()):
            metric = Metric(family.name.removesuffix("_total"), family.help, family.kind)
            for sample in family.samples:
                metric.add_sample(sample.name, dict(sample.labels), sample.value)
            yield metric
