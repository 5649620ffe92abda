"""The secure lab, seen by clients that are not ours: every door opens to whom it should."""

import asyncio
import logging
import ssl
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.properties import client_settings, read_properties
from eoctl.kafka.connection.wire import Connection
from eoctl.lab import secure
from eoctl.lab.cluster import Lab
from eoctl.lab.users import USERS
from recovery.errors import UsageError
from tests.kafka.tools import kafka_tool

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
DOORS = [
    ("SCRAM", "SCRAM-SHA-256"),
    ("SCRAM", "SCRAM-SHA-512"),
    ("SCRAM_TEXT", "SCRAM-SHA-256"),
    ("SCRAM_TEXT", "SCRAM-SHA-512"),
    ("PLAIN", "PLAIN"),
    ("OAUTH", "OAUTHBEARER"),
    ("MTLS", None),
]

quiet = logging.getLogger("tests.librdkafka")
quiet.addHandler(logging.NullHandler())
quiet.propagate = False


def topics_seen(properties: dict[str, str], seconds: float = 15) -> dict[str, Any]:
    """What confluent-kafka's Metadata shows; KafkaException when it cannot connect."""
    from confluent_kafka.admin import AdminClient

    return dict(AdminClient(properties, logger=quiet).list_topics(timeout=seconds).topics)


def connects_by_wire(properties: dict[str, str]) -> bool:
    async def connect() -> None:
        settings = client_settings(properties)
        host, port = settings.bootstrap_servers[0]
        (await Connection.open(host, port, settings.security, Deadline(10))).close()

    asyncio.run(connect())
    return True


@pytest.mark.parametrize(("listener", "mechanism"), DOORS)
def test_every_mechanism_opens_its_door(
    secure_lab: Lab, topic: Callable[..., str], listener: str, mechanism: str | None
) -> None:
    name = topic(secure_lab)
    properties = secure_lab.client_properties("viewer", listener, mechanism)
    assert properties.get("sasl.mechanism") == mechanism
    # viewer may describe topics: seen as viewer, not as anybody else
    assert name in topics_seen(properties)
    assert name not in topics_seen(secure_lab.client_properties("nobody", listener, mechanism))
    assert connects_by_wire(properties)


@pytest.mark.parametrize("listener", ["SCRAM", "SCRAM_TEXT", "PLAIN"])
def test_a_wrong_password_stays_outside(secure_lab: Lab, listener: str) -> None:
    properties = secure_lab.client_properties("viewer", listener) | {"sasl.password": "wrong"}
    with pytest.raises(WireError) as caught:
        connects_by_wire(properties)
    assert caught.value.error == "AUTHENTICATION_FAILED"


def test_mtls_takes_encrypted_keys_and_java_keystores(secure_lab: Lab) -> None:
    home = secure_lab.folder / "secure"
    password = secure.passwords(secure_lab.folder)["key"]
    plain = secure_lab.client_properties("viewer", "MTLS")
    encrypted = plain | {
        "ssl.key.location": str(home / "viewer.encrypted.key.pem"),
        "ssl.key.password": password,
    }
    keystore = plain | {
        "ssl.certificate.location": str(home / "viewer.keystore.pem"),
        "ssl.key.location": str(home / "viewer.keystore.pem"),
    }
    assert topics_seen(encrypted) is not None
    assert topics_seen(keystore) is not None
    text = (home / "viewer.encrypted.key.pem").read_text()
    assert text.startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")


def mtls_answer(lab: Lab, who: str | None) -> bytes:
    """The first bytes of the broker's answer to ApiVersions v0 from this certificate's owner."""
    home = lab.folder / "secure"
    context = ssl.create_default_context(cafile=home / "ca.pem")
    if who:
        context.load_cert_chain(home / f"{who}.cert.pem", home / f"{who}.key.pem")

    async def ask() -> bytes:
        port = lab.record.nodes[0].ports["MTLS"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            writer.write(b"\0\0\0\x11\0\x12\0\0\0\0\0\1\0\7eoctl-1")
            return await reader.read(4)
        finally:
            writer.transport.abort()

    return asyncio.run(asyncio.wait_for(ask(), 10))


@pytest.mark.parametrize("who", ["expired", "stranger", None])
def test_mtls_refuses_wrong_certificates(secure_lab: Lab, who: str | None) -> None:
    assert len(mtls_answer(secure_lab, "nobody")) == 4
    # TLS 1.3: the refusal comes after the handshake, in place of an answer
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        mtls_answer(secure_lab, who)


@pytest.mark.parametrize(
    ("listener", "ca", "said"),
    [
        ("EXPIRED", "ca", "certificate has expired"),
        ("WRONG_HOST", "ca", "IP address mismatch"),
        ("SCRAM", "other-ca", "unable to get local issuer certificate|self-signed certificate"),
    ],
)
def test_the_wrong_listeners_are_wrong_in_the_way_they_say(
    secure_lab: Lab, listener: str, ca: str, said: str
) -> None:
    context = ssl.create_default_context(cafile=secure_lab.folder / "secure" / f"{ca}.pem")
    port = secure_lab.record.nodes[0].ports[listener]
    with pytest.raises(ssl.SSLCertVerificationError, match=said):
        asyncio.run(asyncio.open_connection("127.0.0.1", port, ssl=context))


@pytest.mark.parametrize("listener", sorted({name for name, _ in DOORS} | {"PLAINTEXT"}))
def test_javas_own_client_takes_the_properties_file(secure_lab: Lab, listener: str) -> None:
    file = secure.client_file(secure_lab.folder, "operator", listener)
    told = kafka_tool(
        secure_lab,
        TRANSACTIONS,
        "--bootstrap-server",
        secure_lab.record.bootstrap_servers(listener),
        "--command-config",
        str(file),
        "list",
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("TransactionalId")


def test_both_spellings_mean_the_same(secure_lab: Lab) -> None:
    for user in USERS:
        for listener in secure.LISTENERS:
            java = secure.client_file(secure_lab.folder, user, listener)
            librdkafka = java.with_suffix(".conf")
            read = [
                client_settings(read_properties(file.read_text(), str(file)))
                for file in (java, librdkafka)
            ]
            assert read[0].bootstrap_servers == read[1].bootstrap_servers
            assert read[0].protocol == read[1].protocol
            assert (read[0].sasl is None) == (read[1].sasl is None)
            assert (read[0].tls is None) == (read[1].tls is None)


def test_the_acls_are_the_table(secure_lab: Lab) -> None:
    """Against Kafka's own AclCommand."""
    file = secure.client_file(secure_lab.folder, "admin")
    told = kafka_tool(
        secure_lab,
        ACLS,
        "--bootstrap-server",
        secure_lab.bootstrap_servers,
        "--command-config",
        str(file),
        "--list",
    )
    assert told.returncode == 0, told.stderr
    seen, resource = set(), ""
    for line in told.stdout.splitlines():
        if "resourceType=" in line:
            resource = line.partition("resourceType=")[2].partition(",")[0]
        elif "principal=" in line:
            assert "permissionType=ALLOW" in line
            user = line.partition("principal=User:")[2].partition(",")[0]
            seen.add((user, resource, line.partition("operation=")[2].partition(",")[0]))
    assert seen == {
        (user, resource, operation)
        for user, rights in USERS.items()
        for resource, operations in rights.items()
        for operation in operations
    }


def test_a_user_without_read_reads_nothing(secure_lab: Lab, topic: Callable[..., str]) -> None:
    from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

    name = topic(secure_lab)
    producer = Producer(secure_lab.client_properties("operator"), logger=quiet)
    producer.produce(name, b"record")
    assert producer.flush(20) == 0

    def first(user: str) -> Any:
        consumer = Consumer(
            secure_lab.client_properties(user)
            | {"group.id": "none", "enable.auto.commit": "false"},
            logger=quiet,
        )
        try:
            consumer.assign([TopicPartition(name, 0, 0)])
            return consumer.poll(20)
        finally:
            consumer.close()

    assert first("viewer").value() == b"record"
    assert first("no-topic-read").error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_secrets_are_for_their_owner(secure_lab: Lab) -> None:
    home = secure_lab.folder / "secure"
    assert stat.S_IMODE(secure_lab.folder.stat().st_mode) == 0o700
    private = [
        home / "passwords.json",
        *home.glob("*key*.pem"),
        *home.glob("*keystore.pem"),
        *(home / "clients").iterdir(),
        secure_lab.broker_folder(1) / "server.properties",
    ]
    assert len(private) > 60
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    passwords = secure.passwords(secure_lab.folder)
    assert len(set(passwords.values())) == len(passwords) == len(USERS) + 1
    context = secure_lab.folder.parents[1] / "contexts" / "lab-secure.json"
    arguments = b"".join(
        path.read_bytes()
        for broker in secure_lab.status().brokers
        for path in [Path(f"/proc/{broker.pid}/cmdline")]
    )
    for password in passwords.values():
        assert password not in context.read_text()
        assert password.encode() not in arguments


def test_what_a_secure_lab_lacks_is_said(secure_lab: Lab) -> None:
    with pytest.raises(UsageError, match="no user 'root'; one of admin"):
        secure_lab.client_properties("root")
    with pytest.raises(UsageError, match="no listener 'KERBEROS'; one of SCRAM"):
        secure_lab.client_properties("admin", "KERBEROS")
