"""confluent-kafka with the same settings: it works, it is silent, its errors are ours."""

import asyncio
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from eoctl.kafka.connection import confluent
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.connection.properties import client_settings, read_properties
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from eoctl.lab.secure import client_file
from recovery.errors import UnreachableError, UsageError
from tests.kafka.conftest import Printed


@pytest.mark.parametrize("suffix", [".properties", ".conf"])
@pytest.mark.parametrize("listener", ["SCRAM", "PLAIN", "OAUTH", "MTLS", "SCRAM_TEXT"])
def test_records_go_out_and_come_back(
    secure_lab: Lab,
    printed: Printed,
    listener: str,
    suffix: str,
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import NewTopic

    path = client_file(secure_lab.folder, "operator", listener).with_suffix(suffix)
    settings = client_settings(read_properties(path.read_text(), str(path)))
    name = f"records-{uuid.uuid4().hex[:8]}"
    admin = confluent.admin(settings)
    admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=10)[name].result(20)
    producer = confluent.producer(settings)
    producer.produce(name, b"value", b"key")
    assert producer.flush(20) == 0
    assert name in admin.list_topics(timeout=10).topics
    consumer = confluent.consumer(settings)
    consumer.assign([TopicPartition(name, 0, 0)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert (message.key(), message.value()) == (b"key", b"value")
    assert printed(secure_lab) == ""


def test_what_is_wrong_is_told_by_the_wire_connection(secure_lab: Lab) -> None:
    right = secure_lab.client_properties("viewer")
    with pytest.raises(UnreachableError, match="invalid credentials with SASL mechanism"):
        confluent.producer(client_settings(right | {"sasl.password": "wrong"}))
    other = str(Path(right["ssl.ca.location"]).with_name("other-ca.pem"))
    with pytest.raises(UnreachableError, match="not signed by a CA that we trust"):
        confluent.consumer(client_settings(right | {"ssl.ca.location": other}))
    with pytest.raises(UsageError, match=r'No such configuration property: "no\.such"'):
        confluent.admin(client_settings(right), {"no.such": 1})
    mapped = client_settings(right, hosts={"a:1": "b:2"})
    with pytest.raises(UsageError, match="host map or a SOCKS proxy"):
        confluent.producer(mapped)


def test_it_can_be_made_in_a_thread_beside_a_loop(secure_lab: Lab) -> None:
    async def make() -> int:
        settings = client_settings(secure_lab.client_properties("viewer"))
        admin = await asyncio.to_thread(confluent.admin, settings)
        return len(admin.list_topics(timeout=10).brokers)

    assert asyncio.run(make()) == 1


@pytest.mark.long
def test_a_broker_that_dies_is_reported_and_nothing_is_printed(
    start_lab: Callable[[LabSpec], Lab], printed: Printed
) -> None:
    lab = start_lab(LabSpec(name="dies"))
    told: list[WireError] = []
    heard = confluent.producer(client_settings(lab.client_properties()), on_error=told.append)
    unheard = confluent.consumer(client_settings(lab.client_properties()))
    lab.kill(1)
    end = time.monotonic() + 20
    while "_ALL_BROKERS_DOWN" not in {error.error for error in told}:
        assert time.monotonic() < end, told
        heard.poll(0.1)
        unheard.poll(0.1)
    unheard.close()
    assert printed(lab) == ""
    lab.down()


@pytest.mark.long
def test_a_token_that_is_not_renewed(secure_lab: Lab, tmp_path: Path, printed: Printed) -> None:
    """The command gives a token to the wire connection and fails when librdkafka asks."""
    counter = tmp_path / "count"
    command = tmp_path / "token"
    script = f"""\
        #!{sys.executable}
        import base64, json, pathlib, sys, time
        counter = pathlib.Path({str(counter)!r})
        if counter.exists():
            sys.exit("no more tokens")
        counter.touch()
        claims = {{"sub": "viewer", "iat": time.time(), "exp": time.time() + 60}}
        parts = [json.dumps(part).encode() for part in ({{"alg": "none"}}, claims)]
        token = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
        print(json.dumps({{"token": token + ".", "expirationTimestamp": "2000-01-01T00:00:00Z"}}))
        """
    command.write_text(textwrap.dedent(script))
    command.chmod(0o755)
    properties = secure_lab.client_properties("viewer", "OAUTH")
    for key in ("enable.sasl.oauthbearer.unsecure.jwt", "sasl.oauthbearer.config"):
        del properties[key]
    settings = client_settings(properties | {"token_command": str(command)})
    with pytest.raises(UnreachableError, match="ended with status 1"):
        confluent.producer(settings)
    assert counter.exists()
    assert printed(secure_lab) == ""


def test_plaintext_needs_no_tls_sasl_or_tokens() -> None:
    """What a PLAINTEXT command imports; each of these costs start-up time."""
    script = (
        "import sys; import eoctl.kafka.connection.wire;"
        "from eoctl.kafka.connection.properties import *;"
        "client_settings({'bootstrap.servers': 'a:1'});"
        "below = 'eoctl.kafka.connection.';"
        "own = [below + m for m in ('tls', 'sasl', 'oauth', 'jaas', 'socks')];"
        "print([m for m in (*own, 'hmac', 'urllib.request', 'confluent_kafka')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
