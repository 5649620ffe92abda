"""A worker's REST interface, as far as it misbehaves: real HTTP servers that answer wrongly.

What workers answer when all is well is in tests/kafka/test_connect_offsets.py.
"""

import base64
import json
import shlex
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from eoctl.lab.certificates import Authority, write_certificate, write_key
from eoctl.stores.offsets.bounded import BlockingCall, LostError
from eoctl.stores.offsets.connect_rest import ConnectRest
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnreachableError, UsageError
from recovery.shared.store_tables import ConnectStore

Answer = Callable[[BaseHTTPRequestHandler], None]
WELL = {
    "/": {"kafka_cluster_id": "K"},
    "/connectors/orders/config": {"name": "orders"},
    "/connectors/orders/status": {
        "type": "source",
        "connector": {"state": "STOPPED"},
        "tasks": [],
    },
    "/connectors/orders/offsets": {"offsets": []},
}


@contextmanager
def server(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of a server that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        do_PATCH = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *args: object) -> None:
            pass

    http = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        http.socket = context.wrap_socket(http.socket, server_side=True)
    thread = threading.Thread(target=http.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield http.server_port
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def well(handler: BaseHTTPRequestHandler) -> None:
    say(200, json.dumps(WELL[handler.path]))(handler)


def say(status: int, text: str, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(text.encode())

    return answer


def cut(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{")
    handler.close_connection = True


def rest(port: int, scheme: str = "http", **more: str) -> ConnectRest:
    described = ConnectStore(
        kind="connect",
        url=f"{scheme}://127.0.0.1:{port}",
        connector="orders",
        offsets_topic="offsets",
        **more,  # type: ignore[arg-type]
    )
    return ConnectRest(described, 5)


def message(text: str) -> str:
    return json.dumps({"error_code": 1, "message": text})


ANSWERS = [
    (say(401, ""), UnreachableError, "wants a user and a password (HTTP 401)"),
    (say(403, "{}"), UnreachableError, "does not accept these credentials (HTTP 403)"),
    (
        say(404, message("Connector orders not found")),
        RefusedError,
        "knows no connector 'orders'",
    ),
    (say(404, message("HTTP 404 Not Found")), RefusedError, "is it an older worker?"),
    (say(405, ""), RefusedError, "has no such path (HTTP 405)"),
    (say(409, message("rebalance")), IncompleteError, "its workers rebalance"),
    (say(302, "", Location="http://127.0.0.1:9/"), RefusedError, "which is not followed"),
    (say(400, message("must be in the STOPPED state")), RefusedError, "must be in the STOPPED"),
    (say(503, "<h1>busy</h1>"), IncompleteError, "HTTP 503: "),
    (say(200, "<h1>hello</h1>"), IncompleteError, "is not what a worker of Kafka Connect sends"),
    (say(200, "[]"), IncompleteError, "is not what a worker of Kafka Connect sends"),
    (cut, UnreachableError, "no answer ("),
]


@pytest.mark.parametrize(("answer", "kind", "text"), ANSWERS)
def test_every_answer_is_one_sentence(answer: Answer, kind: type[EoctlError], text: str) -> None:
    with server(answer) as port, pytest.raises(kind) as raised:
        rest(port).connector()
    assert text in raised.value.sentence
    assert "\n" not in raised.value.sentence


def test_a_change_that_was_refused_and_one_that_is_not_known() -> None:
    refused = pytest.raises(RefusedError, match="nothing was written")
    with server(say(409, message("rebalance"))) as port, refused:
        rest(port).patch(BlockingCall(), [])
    for answer in (cut, say(500, message("Request timed out"))):
        with server(answer) as port, pytest.raises(LostError):
            rest(port).patch(BlockingCall(), [])


def test_nobody_listens() -> None:
    with server(well) as port:
        pass
    with pytest.raises(UnreachableError, match="cannot be reached"):
        rest(port).connector()
    job = BlockingCall()
    with pytest.raises(UnreachableError, match="cannot be reached"):
        rest(port).patch(job, [])
    assert not job.sent


def test_basic_authentication(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECT_PASSWORD", "päss:word")
    expected = base64.b64encode("operator:päss:word".encode()).decode()

    def asks(handler: BaseHTTPRequestHandler) -> None:
        given = handler.headers["Authorization"]
        (well if given == f"Basic {expected}" else say(401, ""))(handler)

    with server(asks) as port:
        found = rest(port, user="operator", password="env:CONNECT_PASSWORD").connector()
        assert (found.cluster_id, found.state, found.tasks) == ("K", "STOPPED", 0)
        with pytest.raises(UnreachableError, match="does not accept these credentials"):
            rest(port, user="stranger", password="env:CONNECT_PASSWORD").connector()
    with pytest.raises(UsageError, match="go together"):
        rest(1, user="operator")
    with pytest.raises(UsageError, match="a user's name holds no colon"):
        rest(1, user="opera:tor", password="env:CONNECT_PASSWORD")


def test_a_secret_that_is_sent_back_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECT_PASSWORD", "päss:word")

    def echoes(handler: BaseHTTPRequestHandler) -> None:
        text = f"sent: {handler.headers['Authorization']}, that is päss:word"
        say(500, message(text))(handler)

    with server(echoes) as port, pytest.raises(IncompleteError) as raised:
        rest(port, user="operator", password="env:CONNECT_PASSWORD").connector()
    assert "sent: Basic ***, that is ***" in raised.value.sentence


def test_the_command_that_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for what it needs, shows no secret, and a shell reads it as it is meant."""
    monkeypatch.setenv("CONNECT_PASSWORD", "päss:word")
    url = "http://127.0.0.1:8083/connectors/orders/stop"
    assert rest(8083).stop_command() == f"curl -X PUT {url}"
    command = rest(8083, user="it's me", password="env:CONNECT_PASSWORD").stop_command()
    assert shlex.split(command) == ["curl", "-X", "PUT", "-u", "it's me", url]


def pems(folder: Path, name: str, authority: Authority) -> dict[str, str]:
    certificate, key = authority.issue(name, hosts=["127.0.0.1"])
    paths = {
        "certificate": write_certificate(folder / f"{name}.pem", certificate),
        "key": write_key(folder / f"{name}.key", key, "secret"),
    }
    return {word: str(path) for word, path in paths.items()}


def test_tls_with_a_certificate_of_ours(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    authority = Authority.make("authority")
    ca = str(write_certificate(tmp_path / "ca.pem", authority.certificate))
    theirs, ours = pems(tmp_path, "worker", authority), pems(tmp_path, "operator", authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(theirs["certificate"], theirs["key"], "secret")
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    password = f"file:{tmp_path / 'password'}"
    with server(well, context) as port:
        whole = rest(port, "https", ca=ca, **ours, key_password=password)
        assert whole.connector().state == "STOPPED"
        told = {
            "wants a client certificate": {"ca": ca},
            "not signed by a CA that we trust": {**ours, "key_password": password},
        }
        for text, less in told.items():
            with pytest.raises(UnreachableError, match=text):
                rest(port, "https", **less).connector()
        with pytest.raises(UnreachableError, match="speaks TLS"):
            rest(port).connector()
        with pytest.raises(UsageError, match=r"\[app.store\] key: the private key is encrypted"):
            rest(port, "https", ca=ca, **ours)
    with (
        server(well) as port,
        pytest.raises(UnreachableError, match="it may be a plaintext listener"),
    ):
        rest(port, "https", ca=ca).connector()
    with pytest.raises(UsageError, match="for https:// only"):
        rest(port, ca=ca)
