"""Names of headers that are no UTF-8, in a broker: what Kafka's own consumer makes of them."""

import asyncio
import time

import pytest

from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from recovery.formats.records import replaced
from tests.kafka.conftest import MakeTopic
from tests.kafka.planting import send
from tests.kafka.tools import kafka_tool
from tests.unit.formats.test_header_names import named
from tests.unit.formats_build import decoded

# Java makes one U+FFFD of half a surrogate pair, Python three
NAMES = (b"plain", "ca\u00fcf".encode(), b"caf\xe9", b"\xffa\xfe", b"a\xc0\x80b", b"\xe2\x82", b"")


def test_the_java_consumer_reads_the_same_names(
    lab1: Lab, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, now = topic(lab1), int(time.time() * 1000)  # or retention takes it

    async def fill() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            for offset, each in enumerate(NAMES):
                batch = named(each, now)
                assert await send(client, name, 0, batch) == offset

    asyncio.run(fill())
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Dstdout.encoding=UTF-8")
    done = kafka_tool(
        lab1,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", lab1.bootstrap_servers, "--topic", name, "--from-beginning"),
        *("--max-messages", str(len(NAMES)), "--timeout-ms", "60000"),
        *("--formatter-property", "print.headers=true"),
        *("--formatter-property", "print.value=false"),
    )
    assert f"Processed a total of {len(NAMES)} messages" in done.stderr, done.stderr
    found = [line.removesuffix(":content") for line in done.stdout.splitlines()]
    ours = [decoded(named(each), None).header_list(0)[0][0] for each in NAMES]
    assert [replaced(one) for one in ours] == found
