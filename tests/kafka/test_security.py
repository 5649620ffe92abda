"""Signing in at every kind of listener of a real broker, and what goes wrong there, in words."""

import asyncio
import logging
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.properties import (
    client_settings,
    librdkafka_properties,
    read_properties,
)
from eoctl.kafka.connection.wire import Connection
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from eoctl.lab.secure import client_file, passwords, secure_folder
from tests.kafka.conftest import Printed

MECHANISMS = ["SCRAM", "PLAIN", "OAUTH", "MTLS", "SCRAM_TEXT"]
SECONDS = 4.0  # the default bound for one broker's silence


async def connect(
    properties: Mapping[str, str], seconds: float = SECONDS, **more: Any
) -> Connection:
    settings = client_settings(properties, **more)
    bound = Deadline(seconds)
    return await Connection.open(*settings.bootstrap_servers[0], settings.security, bound)


async def topics_seen(connection: Connection) -> set[str]:
    question = messages.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer = await connection.ask(question, Deadline(SECONDS), most=8)
    return {topic.name for topic in answer.topics}


def topics_of(properties: Mapping[str, str], **more: Any) -> set[str]:
    """The topics that whoever signs in so may see."""

    async def look() -> set[str]:
        connection = await connect(properties, **more)
        try:
            return await topics_seen(connection)
        finally:
            connection.close()

    return asyncio.run(look())


def failure(properties: Mapping[str, str], seconds: float = SECONDS, **more: Any) -> WireError:
    """What goes wrong; within the bound, or the test fails."""
    before = time.monotonic()
    with pytest.raises(WireError) as caught:
        topics_of(properties, seconds=seconds, **more)
    assert time.monotonic() - before < seconds + 3
    return caught.value


def address(lab: Lab, listener: str) -> str:
    return f"127.0.0.1:{lab.record.nodes[0].ports[listener]}"


@pytest.fixture(scope="module")
def seen(secure_lab: Lab) -> str:
    """A topic that viewer may see and nobody may not."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(secure_lab.client_properties())
    admin.create_topics([NewTopic("seen", 1, 1)], operation_timeout=10)["seen"].result(20)
    return "seen"


# -- signing in --------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".properties", ".conf"])  # Java's spelling, librdkafka's
@pytest.mark.parametrize("listener", MECHANISMS)
def test_who_signs_in_is_who_the_broker_sees(
    secure_lab: Lab, seen: str, listener: str, suffix: str
) -> None:
    for user, sees in (("viewer", True), ("nobody", False)):
        path = client_file(secure_lab.folder, user, listener).with_suffix(suffix)
        properties = read_properties(path.read_text(), str(path))
        assert (seen in topics_of(properties)) is sees


def test_scram_sha_256(secure_lab: Lab, seen: str) -> None:
    properties = secure_lab.client_properties("viewer", "SCRAM", "SCRAM-SHA-256")
    assert seen in topics_of(properties)


def test_keys_that_are_encrypted_and_keystores(secure_lab: Lab, seen: str) -> None:
    home = secure_folder(secure_lab.folder)
    plain = secure_lab.client_properties("viewer", "MTLS")
    del plain["ssl.key.location"], plain["ssl.certificate.location"]
    for more in (
        {
            "ssl.certificate.location": f"{home}/viewer.cert.pem",
            "ssl.key.location": f"{home}/viewer.encrypted.key.pem",
            "ssl.key.password": passwords(secure_lab.folder)["key"],
        },
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": f"{home}/viewer.keystore.pem"},
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": (home / "viewer.cert.pem").read_text(),
            "ssl.keystore.key": (home / "viewer.key.pem").read_text(),
        },
    ):
        assert seen in topics_of(plain | more)


# -- what goes wrong ---------------------------------------------------------------------------

Change = Mapping[str, str | None]

# (user's listener, what is changed, error, words of the sentence, words of the remedy)
# In values, {home} is the folder of certificates and {NAME} the address of a listener.
WRONG: dict[str, tuple[str, Change, str, str, str]] = {
    "wrong password, SCRAM": (
        *("SCRAM", {"sasl.password": "wrong-secret"}, "AUTHENTICATION_FAILED"),
        *("invalid credentials with SASL mechanism SCRAM-SHA-512", "password"),
    ),
    "wrong password, PLAIN": (
        *("PLAIN", {"sasl.password": "wrong-secret"}, "AUTHENTICATION_FAILED"),
        *("Authentication failed: Invalid username or password", "password"),
    ),
    "unknown user": (
        *("SCRAM", {"sasl.username": "who"}, "AUTHENTICATION_FAILED"),
        *("invalid credentials", "user name"),
    ),
    "wrong mechanism": (
        *("SCRAM", {"sasl.mechanism": "PLAIN"}, "AUTHENTICATION_FAILED"),
        *("does not offer PLAIN; it offers SCRAM-SHA-256, SCRAM-SHA-512", "sasl.mechanism"),
    ),
    "unknown CA": (
        *("SCRAM", {"ssl.ca.location": "{home}/other-ca.pem"}, "TLS_FAILED"),
        *("not signed by a CA that we trust", "ssl.ca.location"),
    ),
    "the system's CAs": (
        *("SCRAM", {"ssl.ca.location": None}, "TLS_FAILED"),
        *("not signed by a CA that we trust", "ssl.ca.location"),
    ),
    "wrong host name": (
        *("WRONG_HOST", {}, "TLS_FAILED"),
        *("certificate is for kafka.example, not for 127.0.0.1", "one of its names"),
    ),
    "expired": ("EXPIRED", {}, "TLS_FAILED", "certificate has expired", "renewed"),
    "PLAINTEXT client, TLS port": (
        *("PLAINTEXT", {"bootstrap.servers": "{MTLS}"}, "NOT_KAFKA"),
        *("the port speaks TLS", "SSL or SASL_SSL"),
    ),
    "PLAINTEXT client, SASL_SSL port": (
        *("PLAINTEXT", {"bootstrap.servers": "{SCRAM}"}, "NOT_KAFKA"),
        *("the port speaks TLS", "SSL or SASL_SSL"),
    ),
    "PLAINTEXT client, SASL_PLAINTEXT port": (
        *("PLAINTEXT", {"bootstrap.servers": "{SCRAM_TEXT}"}, "CONNECTION_CLOSED"),
        *("it may want SASL", "security.protocol=SASL_PLAINTEXT"),
    ),
    "TLS client, plaintext port": (
        *("SCRAM", {"bootstrap.servers": "{PLAINTEXT}"}, "TLS_FAILED"),
        *("may be a plaintext listener", "PLAINTEXT or SASL_PLAINTEXT"),
    ),
    "SASL client, PLAINTEXT port": (
        *("SCRAM_TEXT", {"bootstrap.servers": "{PLAINTEXT}"}, "AUTHENTICATION_FAILED"),
        *("it offers no mechanism", "PLAINTEXT or SSL"),
    ),
    "SSL client, SASL_SSL port": (
        *("MTLS", {"bootstrap.servers": "{SCRAM}"}, "CONNECTION_CLOSED"),
        *("it may want SASL", "security.protocol=SASL_SSL"),
    ),
    "mTLS without certificate": (
        *("MTLS", {"ssl.certificate.location": None, "ssl.key.location": None}, "TLS_FAILED"),
        *("wants a client certificate", "ssl.keystore.location"),
    ),
    "mTLS with a stranger's certificate": (
        "MTLS",
        {
            "ssl.certificate.location": "{home}/stranger.cert.pem",
            "ssl.key.location": "{home}/stranger.key.pem",
        },
        *("TLS_FAILED", "does not accept our certificate", "a CA that the broker trusts"),
    ),
    "mTLS with an expired certificate": (
        "MTLS",
        {
            "ssl.certificate.location": "{home}/expired.cert.pem",
            "ssl.key.location": "{home}/expired.key.pem",
        },
        *("TLS_FAILED", "does not accept our certificate", "not expired"),
    ),
    "a controller's port": (
        *("MTLS", {"bootstrap.servers": "{CONTROLLER}"}, "UNSUPPORTED_VERSION"),
        *("KRaft controller", "broker's listener"),
    ),
    "no such name": (
        *("PLAINTEXT", {"bootstrap.servers": "no-such-host.invalid:9092"}, "RESOLVE_FAILED"),
        *("no-such-host.invalid has no address", "check the name"),
    ),
    "no name at all": (
        *("PLAINTEXT", {"bootstrap.servers": "a..b:9092"}, "RESOLVE_FAILED"),
        *("a..b has no address", "check the name"),
    ),
}


def wrong(lab: Lab, case: str) -> dict[str, str]:
    """The properties of a client for whom something is wrong."""
    listener, changed, *_ = WRONG[case]
    home = secure_folder(lab.folder)
    names = {name: address(lab, name) for name in lab.record.nodes[0].ports}
    properties = lab.client_properties("viewer", listener)
    for key, value in changed.items():
        properties.pop(key, None)
        if value is not None:
            properties[key] = value.format(home=home, **names)
    return properties


@pytest.mark.parametrize("case", WRONG)
def test_what_goes_wrong_is_told(secure_lab: Lab, case: str) -> None:
    _, _, error, said, remedy = WRONG[case]
    found = failure(wrong(secure_lab, case))
    assert (found.error, said in found.detail) == (error, True), found
    assert remedy in (found.remedy or "")
    for secret in ("wrong-secret", passwords(secure_lab.folder)["viewer"]):
        assert secret not in f"{found} {found!r} {found.detail} {found.remedy}"


def test_names_are_not_checked_when_told_so(secure_lab: Lab, seen: str) -> None:
    properties = secure_lab.client_properties("viewer", "WRONG_HOST")
    properties["ssl.endpoint.identification.algorithm"] = "none"
    assert seen in topics_of(properties)


def test_librdkafka_checks_the_name_in_the_certificate_too(secure_lab: Lab) -> None:
    """What reads and writes records signs in by itself: the settings must reach it."""
    for algorithm, wrong in (("https", True), ("none", False)):
        properties = secure_lab.client_properties("viewer", "WRONG_HOST")
        properties["ssl.endpoint.identification.algorithm"] = algorithm
        told: list[str] = []
        client = AdminClient(
            librdkafka_properties(client_settings(properties))
            | {"error_cb": lambda error, told=told: told.append(str(error))}
        )
        if wrong:
            with pytest.raises(KafkaException):
                client.list_topics(timeout=3)
            client.poll(0)
            assert any("certificate verify failed" in text for text in told), told
        else:
            assert client.list_topics(timeout=SECONDS).brokers
            assert not told


CERTIFICATES = ("unknown CA", "wrong host name", "expired")


@pytest.mark.parametrize("case", CERTIFICATES)
def test_librdkafka_refuses_what_our_own_connection_refuses(secure_lab: Lab, case: str) -> None:
    assert "certificate verify failed" in librdkafka_failure(wrong(secure_lab, case))


def librdkafka_failure(properties: Mapping[str, str]) -> str:
    """What librdkafka says of a server that it must not talk to."""
    said: list[str] = []
    settings = librdkafka_properties(client_settings(properties))
    client = AdminClient(settings | {"error_cb": lambda error: said.append(str(error))})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)
    client.poll(0)
    return " ".join(said)


def with_old_protocols(
    context: ssl.SSLContext, newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
) -> ssl.SSLContext:
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_1, newest
    return context


@pytest.fixture
def old_server(secure_lab: Lab) -> Iterator[str]:
    """A server with the broker's certificate that speaks TLS 1.1 at most, and its address.

    No broker: Java 17 has no such protocol to offer.
    """
    context = with_old_protocols(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.TLSVersion.TLSv1_1)
    context.load_cert_chain(secure_folder(secure_lab.folder) / "broker.keystore.pem")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    asked, _ = server.accept()
                    with suppress(OSError), context.wrap_socket(asked, server_side=True) as line:
                        line.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def old_properties(lab: Lab, server: str) -> dict[str, str]:
    return lab.client_properties("viewer", "SCRAM") | {"bootstrap.servers": server}


def test_an_old_protocol_is_refused(secure_lab: Lab, old_server: str) -> None:
    host, _, port = old_server.partition(":")
    authority = secure_folder(secure_lab.folder) / "ca.pem"
    context = with_old_protocols(ssl.create_default_context(cafile=authority))
    with (  # who takes old protocols is served
        socket.create_connection((host, int(port))) as line,
        context.wrap_socket(line, server_hostname=host) as old,
    ):
        assert old.version() == "TLSv1.1"
    properties = old_properties(secure_lab, old_server)
    assert failure(properties).error == "TLS_FAILED"
    assert "SSL handshake failed" in librdkafka_failure(properties)


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SCRAM_TEXT", "SCRAM"])
def test_a_closed_port(secure_lab: Lab, closed_port: int, listener: str) -> None:
    for host in ("127.0.0.1", "localhost"):
        servers = {"bootstrap.servers": f"{host}:{closed_port}"}
        found = failure(secure_lab.client_properties("viewer", listener) | servers)
        assert (found.error, found.detail) == (
            "CONNECTION_REFUSED",
            "no connection: Connection refused",
        )


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SCRAM_TEXT", "SCRAM", "MTLS"])
def test_a_peer_that_never_answers(secure_lab: Lab, listener: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        servers = {"bootstrap.servers": f"127.0.0.1:{port}"}
        properties = secure_lab.client_properties("viewer", listener) | servers
        found = failure(properties, seconds=1.0)
    assert found.error == "TIMED_OUT"
    assert "accepted the connection but did not answer" in found.detail
    assert ("TLS handshake" in found.detail) is (listener in ("SCRAM", "MTLS"))


def answering(said: bytes) -> Callable[..., Any]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(said)
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    return answer


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "NOT_KAFKA", "speaks HTTP"),
        (b"220 smtp.example ESMTP\r\n", "NOT_KAFKA", "which no Kafka broker sends"),
        (b"", "CONNECTION_CLOSED", "the port may speak TLS"),
    ],
)
def test_a_peer_that_is_no_broker(said: bytes, error: str, words: str) -> None:
    async def ask() -> WireError:
        server = await asyncio.start_server(answering(said), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            with pytest.raises(WireError) as caught:
                await connect({"bootstrap.servers": f"127.0.0.1:{port}"})
        return caught.value

    found = asyncio.run(ask())
    assert (found.error, words in found.detail) == (error, True), found


# -- secrets -----------------------------------------------------------------------------------


def test_nothing_is_logged_or_printed(
    secure_lab: Lab, caplog: pytest.LogCaptureFixture, printed: Printed
) -> None:
    """kafka-python and asyncio have loggers; the secrets and SASL messages must not reach them."""
    caplog.set_level(logging.DEBUG)
    for listener in MECHANISMS:
        properties = secure_lab.client_properties("viewer", listener)
        topics_of(properties)
        if "sasl.password" in properties:
            failure(properties | {"sasl.password": "wrong-secret"})
    secrets = ["wrong-secret", passwords(secure_lab.folder)["viewer"], "n=viewer", "Bearer"]
    assert [secret for secret in secrets if secret in caplog.text] == []
    assert "kafka" not in {record.name.split(".")[0] for record in caplog.records}
    assert printed(secure_lab) == ""


# -- KIP-368 -----------------------------------------------------------------------------------

LIFETIME = 10.0  # seconds, connections.max.reauth.ms below


@pytest.mark.trust
def test_sessions_are_renewed_before_they_end(start_lab: Callable[[LabSpec], Lab]) -> None:
    """Questions go on, several at once, past the session's end; not renewed, they are cut off."""
    lab = start_lab(
        LabSpec(name="reauth", secure=True, settings={"connections.max.reauth.ms": "10000"})
    )
    try:
        asyncio.run(_outlive(lab))
    finally:
        lab.down()


async def _outlive(lab: Lab) -> None:
    short_token = lab.client_properties("viewer", "OAUTH")
    short_token["sasl.oauthbearer.config"] = "principal=viewer lifeSeconds=6"
    kept = [
        await connect(lab.client_properties("viewer", "SCRAM")),
        await connect(lab.client_properties("viewer", "PLAIN")),
        await connect(short_token),
    ]
    idle = await connect(lab.client_properties("viewer", "SCRAM"))
    control = await connect(lab.client_properties("viewer", "SCRAM"))
    assert control.renew_at is not None
    assert 0.7 * LIFETIME < control.renew_at - time.monotonic() <= 0.8 * LIFETIME
    control.renew_at = None
    begin = time.monotonic()
    while time.monotonic() < begin + LIFETIME + 2:
        await asyncio.gather(*(topics_seen(connection) for connection in kept * 8))
        await asyncio.sleep(0.2)
    assert all(not connection.closed and connection.renew_at for connection in kept)
    await topics_seen(idle)  # its session has ended meanwhile; renewing still works
    with pytest.raises(WireError) as cut_off:
        await topics_seen(control)
    assert cut_off.value.error == "CONNECTION_CLOSED"
    for connection in [*kept, idle, control]:
        connection.close()


# -- host maps ---------------------------------------------------------------------------------


def test_a_host_map_reaches_elsewhere_and_checks_the_advertised_name(
    secure_lab: Lab, seen: str
) -> None:
    hosts = {"kafka.example:9093": address(secure_lab, "WRONG_HOST")}
    properties = secure_lab.client_properties("viewer", "WRONG_HOST")
    properties["bootstrap.servers"] = "kafka.example:9093"
    assert seen in topics_of(properties, hosts=hosts)

    hosts = {"kafka.example:9093": address(secure_lab, "SCRAM")}
    found = failure(properties, hosts=hosts)
    assert found.error == "TLS_FAILED"
    assert "certificate is for 127.0.0.1, localhost, not for kafka.example" in found.detail
