"""OAUTHBEARER tokens from an HTTPS endpoint or a command, accepted by a real broker."""

import asyncio
import base64
import http.server
import json
import shlex
import socket
import ssl
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.properties import ClientSettings, client_settings
from eoctl.kafka.connection.sasl import OAuthBearer
from eoctl.kafka.connection.wire import Connection
from eoctl.lab.certificates import Authority, write_certificate, write_keystore
from eoctl.lab.cluster import Lab
from tests.kafka.conftest import Printed

SECRET = "client-secret+/&of eve"


def unsecured(subject: str, seconds: float = 60) -> str:
    """A token as the broker's unsecured validator takes it (RFC 7515 appendix A.5)."""

    def encode(part: Mapping[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")

    now = time.time()
    claims = {"sub": subject, "iat": now, "exp": now + seconds}
    return f"{encode({'alg': 'none'})}.{encode(claims)}."


@dataclass
class Endpoint:
    """A token endpoint on this machine: what it was asked, and how it is to answer."""

    url: str = ""
    ca: str = ""
    asked: list[tuple[Mapping[str, str], Mapping[str, list[str]]]] = field(default_factory=list)
    status: int = 200
    body: bytes = b""
    location: str | None = None
    pause: float = 0.0
    raw: bytes = b""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("idp")
    authority = Authority.make("idp CA")
    write_certificate(folder / "ca.pem", authority.certificate)
    write_keystore(folder / "idp.pem", *authority.issue("idp", hosts=("127.0.0.1", "localhost")))
    return folder


@pytest.fixture
def endpoint(certificates: Path) -> Iterator[Endpoint]:
    here = Endpoint(ca=str(certificates / "ca.pem"))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            here.asked.append((dict(self.headers), urllib.parse.parse_qs(form)))
            time.sleep(here.pause)
            if here.raw:
                self.wfile.write(here.raw)
                return
            self.send_response(here.status)
            if here.location:
                self.send_header("Location", here.location)
            self.end_headers()
            self.wfile.write(
                here.body or json.dumps({"access_token": unsecured("viewer")}).encode()
            )

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "idp.pem")
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    here.url = f"https://localhost:{server.server_port}/token"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def settings(lab: Lab, more: Mapping[str, str]) -> ClientSettings:
    given = lab.client_properties("viewer", "OAUTH")
    for key in ("enable.sasl.oauthbearer.unsecure.jwt", "sasl.oauthbearer.config"):
        del given[key]
    return client_settings(given | dict(more))


def oidc(endpoint: Endpoint) -> dict[str, str]:
    return {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "sasl.oauthbearer.client.id": "eve",
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.scope": "kafka read",
        "https.ca.location": endpoint.ca,
    }


def java(endpoint: Endpoint) -> dict[str, str]:
    options = {
        "clientId": "eve",
        "clientSecret": SECRET,
        "scope": "kafka read",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": endpoint.ca,
    }
    line = " ".join(f'{key}="{value}"' for key, value in options.items())
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    return {
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "sasl.jaas.config": f"{module} required {line};",
    }


def brokers_seen(given: ClientSettings, seconds: float = 4.0, connections: int = 1) -> int:
    """Brokers in Metadata, asked over several connections made at once."""

    async def look() -> int:
        connection = await Connection.open(
            *given.bootstrap_servers[0], given.security, Deadline(seconds)
        )
        question = messages.MetadataRequest(topics=[], allow_auto_topic_creation=False)
        answer = await connection.ask(question, Deadline(seconds), most=8)
        connection.close()
        return len(answer.brokers)

    async def all_at_once() -> int:
        return min(await asyncio.gather(*(look() for _ in range(connections))))

    return asyncio.run(all_at_once())


def failure(given: ClientSettings, seconds: float = 4.0) -> WireError:
    before = time.monotonic()
    with pytest.raises(WireError) as caught:
        brokers_seen(given, seconds)
    assert time.monotonic() - before < seconds + 3
    assert caught.value.error == "AUTHENTICATION_FAILED"
    assert SECRET not in f"{caught.value!r} {caught.value.detail}"
    return caught.value


@pytest.mark.parametrize("spelling", [oidc, java])
def test_client_credentials_become_a_token_that_the_broker_takes(
    secure_lab: Lab,
    endpoint: Endpoint,
    spelling: "type[object]",
) -> None:
    given = settings(secure_lab, spelling(endpoint))  # type: ignore[call-arg,arg-type]
    assert brokers_seen(given, connections=4) == 1
    ((headers, form),) = endpoint.asked  # one token serves all connections
    basic = base64.b64encode(f"eve:{SECRET}".encode()).decode()
    assert headers["Authorization"] == f"Basic {basic}"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}


def test_id_and_secret_are_encoded_when_told_so(secure_lab: Lab, endpoint: Endpoint) -> None:
    more = {"sasl.oauthbearer.header.urlencode": "true"}
    assert brokers_seen(settings(secure_lab, oidc(endpoint) | more)) == 1
    encoded = base64.b64encode(b"eve:client-secret%2B%2F%26of+eve").decode()
    assert endpoint.asked[0][0]["Authorization"] == f"Basic {encoded}"


def test_a_token_that_the_broker_refuses(secure_lab: Lab, endpoint: Endpoint) -> None:
    endpoint.body = json.dumps({"access_token": unsecured("viewer", -100)}).encode()
    found = failure(settings(secure_lab, oidc(endpoint)))
    assert found.detail.startswith("the broker refused: ")
    assert "token's source" in (found.remedy or "")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            {
                "status": 401,
                "body": json.dumps(
                    {"error": "invalid_client", "error_description": f"no {SECRET} here"}
                ).encode(),
            },
            "answered HTTP 401: invalid_client: no *** here",
        ),
        ({"status": 500, "body": b"<html>"}, "answered HTTP 500"),
        ({"status": 302, "location": "https://localhost:1/elsewhere"}, "answered HTTP 302"),
        ({"body": b"{}"}, "answered without an access_token"),
        ({"body": b"<html>"}, "answered without an access_token"),
        ({"raw": b"220 smtp\r\n"}, "did not answer: 220 smtp"),
        ({"raw": b"HTTP/1.1 401 No\r\nContent-Length: 9\r\n\r\nx"}, "HTTP 401"),
        ({"pause": 8.0}, "in time"),
    ],
)
def test_an_endpoint_that_gives_no_token(
    secure_lab: Lab, endpoint: Endpoint, answer: dict[str, object], said: str
) -> None:
    for name, value in answer.items():
        setattr(endpoint, name, value)
    found = failure(settings(secure_lab, oidc(endpoint)))
    assert said in found.detail or ("pause" in answer and "timed out" in found.detail)
    assert len(endpoint.asked) == 1


def test_an_endpoint_whose_certificate_is_not_trusted(secure_lab: Lab, endpoint: Endpoint) -> None:
    given = oidc(endpoint)
    del given["https.ca.location"]
    found = failure(settings(secure_lab, given))
    assert "unable to get local issuer certificate" in found.detail
    assert "https.ca.location" in (found.remedy or "")
    assert endpoint.asked == []


@contextmanager
def connect_proxy() -> Iterator[tuple[str, list[str]]]:
    """An HTTP proxy that knows CONNECT: its address, and what it was asked to connect to."""
    asked: list[str] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        target = head.split()[1].decode()
        asked.append(target)
        host, _, port = target.partition(":")
        there, back = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pump(reader, back), pump(there, writer))

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(asyncio.sleep(0.05))
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def test_proxies_of_the_environment(
    secure_lab: Lab, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect_proxy() as (address, asked):
        monkeypatch.setenv("HTTPS_PROXY", address)
        assert brokers_seen(settings(secure_lab, oidc(endpoint))) == 1
        assert asked == [endpoint.url.split("/")[2]]
        monkeypatch.setenv("NO_PROXY", "localhost")
        assert brokers_seen(settings(secure_lab, oidc(endpoint))) == 1
        assert len(asked) == 1


def test_an_endpoint_that_accepts_and_never_answers(secure_lab: Lab, endpoint: Endpoint) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        given = oidc(endpoint)
        url = f"https://localhost:{silent.getsockname()[1]}/token"
        given["sasl.oauthbearer.token.endpoint.url"] = url
        found = failure(settings(secure_lab, given), seconds=1.0)
    assert "token endpoint" in found.detail


def test_a_command_gives_a_token_that_the_broker_takes(secure_lab: Lab) -> None:
    credential = {
        "kind": "ExecCredential",
        "status": {"token": unsecured("viewer"), "expirationTimestamp": "2100-01-01T00:00:00Z"},
    }
    script = f"print({json.dumps(credential)!r})"
    command = shlex.join([sys.executable, "-c", script])
    assert brokers_seen(settings(secure_lab, {"token_command": command})) == 1


def test_the_same_token_serves_confluent_kafka(
    secure_lab: Lab, endpoint: Endpoint, printed: Printed
) -> None:
    from eoctl.kafka.connection import confluent

    given = settings(secure_lab, oidc(endpoint))
    admin = confluent.admin(given)
    assert len(admin.list_topics(timeout=10).brokers) == 1
    assert len(endpoint.asked) == 1
    assert isinstance(given.sasl, OAuthBearer)
    assert printed(secure_lab) == ""
