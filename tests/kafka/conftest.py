"""Real brokers for the tests: each lab starts when a test first asks for it.

State lives in a folder of this run (two runs never meet); the jars are the user's own cache.
"""

import asyncio
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.connection.wire import Connection
from eoctl.lab import brokers
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab, lab_names, up
from eoctl.lab.drills.catalogue import CYCLE
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec, Node
from recovery.facts import TopicPartition
from recovery.values import replace
from tests.conftest import RUN_FOLDER, take_labs_down
from tests.docs.pages import ROOT, commands
from tests.kafka.tools import run_storage_tool_here

if TYPE_CHECKING:
    from tests.kafka.reading import Reading


def pytest_configure(config: pytest.Config) -> None:
    """kafka-python reads its schemas in a way that Python 3.11 warns about and 3.13 took back."""
    config.addinivalue_line(
        "filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning"
    )


@pytest.fixture(scope="session")
def lab_state() -> Iterator[Path]:
    """EOCTL_STATE_DIR of a folder's tests; at the end every lab in it is taken down.

    The folders come one after the other: the labs of the one before are taken down first.
    """
    before = os.environ.get("EOCTL_STATE_DIR")
    take_labs_down()
    folder = Path(tempfile.mkdtemp(dir=os.environ[RUN_FOLDER]))
    os.environ["EOCTL_STATE_DIR"] = str(folder)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(brokers, "run_storage_tool", run_storage_tool_here)
            yield folder
    finally:
        os.environ["EOCTL_STATE_DIR"] = str(folder)
        take_labs_down()
        if before is None:
            del os.environ["EOCTL_STATE_DIR"]
        else:
            os.environ["EOCTL_STATE_DIR"] = before


STATE_PARTITIONS = 10
SMALL = {
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "offsets.topic.num.partitions": "10",
    "num.io.threads": "3",
    "num.network.threads": "1",
    "metadata.max.idle.interval.ms": "10000",
    "min.insync.replicas": "1",
}
"""A broker that starts, and idles, in half of the processor time.

Kafka's own topics have 10 partitions instead of 50: each lab makes them on first use, and a broker
that was killed checks them all. Few threads wake. Where nothing is to be written, a controller
writes a record of nothing each 500 ms by default.

One copy suffices, as by Kafka's default: some tests write while two of three brokers are away.
"""


@pytest.fixture(scope="module")
def start_lab(lab_state: Path) -> Iterator[Callable[[LabSpec], Lab]]:
    """Start a SMALL lab that the file's end takes down, if the test does not.

    Idle brokers cost time.
    """
    before = set(lab_names())
    yield lambda spec: up(replace(spec, settings={**SMALL, **spec.settings}))
    take_labs_down(set(lab_names()) - before - SHARED)


SHARED = {"one", "two", "three", "secure", "tui-one"}
REBALANCE = {
    "leader.imbalance.check.interval.seconds": "2",
    "leader.imbalance.per.broker.percentage": "0",
}
"""A broker that was stopped takes its partitions back within seconds."""


SOON = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
}
"""Transactions past their timeout are aborted, and logs compacted, within 1 s, not 10 or 15."""


@pytest.fixture(scope="session")
def lab1(lab_state: Path) -> Lab:
    """One broker, open listener. Shared: leave its settings as they are."""
    return up(LabSpec(name="one", settings=SMALL | SOON))


@pytest.fixture(scope="session")
def lab2(lab_state: Path) -> Lab:
    """Two brokers whose coordinators end nothing by themselves. Shared: nothing is left open."""
    return up(LabSpec(name="two", brokers=2, settings=SMALL | CYCLE))


@pytest.fixture(scope="session")
def lab3(lab_state: Path) -> Lab:
    """Three brokers, open listener. Shared: a test that stops one starts it again.

    Which then takes its partitions back within seconds, for the tests that follow.
    """
    return up(LabSpec(name="three", brokers=3, settings=SMALL | REBALANCE))


@pytest.fixture(scope="session")
def secure_lab(lab_state: Path) -> Lab:
    """One broker, a listener per mechanism, ACLs, users."""
    return up(LabSpec(name="secure", secure=True, settings=SMALL))


Printed = Callable[..., str]


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str]) -> Printed:
    """Return what this process has printed since the last call.

    A producer that an earlier test left behind prints when its own broker has gone: librdkafka's
    lines are left out unless they name a broker of the labs given.
    """

    def text(*labs: Lab) -> str:
        out, err = capfd.readouterr()
        ports = [port for lab in labs for node in lab.record.nodes for port in node.ports.values()]
        return out + "".join(
            line
            for line in err.splitlines(keepends=True)
            if "|rdkafka#" not in line or any(f":{port}" in line for port in ports)
        )

    return text


@pytest.fixture
def it(
    section: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator["Reading"]:
    """A page's commands below a heading that need a world, for a test with `@follows`.

    They run in an empty folder, `tmp_path`; in the end all must have run.
    """
    from tests.kafka.reading import Reading

    monkeypatch.chdir(tmp_path)
    below = [shown for shown in commands(ROOT / section[0]) if shown.where == section]
    reading = Reading([shown for shown in below if not shown.runs], {})
    yield reading
    reading.end()


MakeTopic = Callable[..., str]


def made_topic(
    lab: Lab,
    partitions: int = 1,
    replicas: int = 1,
    config: dict[str, str] | None = None,
    name: str = "t",
) -> str:
    """Make a topic; its unique name."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"{name}-x{uuid.uuid4().hex[:7]}"  # digits alone would be a number of Flink's
    admin = AdminClient(lab.client_properties())
    new = NewTopic(name, partitions, replicas, config=config or {})
    admin.create_topics([new], operation_timeout=10)[name].result(20)
    asyncio.run(known_everywhere(lab, name, partitions))
    return name


@pytest.fixture(scope="session")
def topic() -> MakeTopic:
    """topic(lab, partitions=1, replicas=1, config=None, name=None): make one; its unique name."""
    return made_topic


@pytest.fixture
def used(secure_lab: Lab, topic: MakeTopic) -> str:
    """A topic where an id has committed, also a group's offsets: the internal topics are there."""
    name = topic(secure_lab)

    async def scenario() -> None:
        async with Client.of(secure_lab.client_properties()) as client:
            owner = await Producer.init(client, f"{name}-id")
            await owner.send(name, 0, [NewRecord(b"1")])
            await owner.send_offsets(f"{name}-group", {TopicPartition(name, 0): 1})
            await owner.commit()

    asyncio.run(scenario())
    return name


async def known_everywhere(lab: Lab, topic: str, partitions: int) -> None:
    """Until each broker that runs knows the topic: it may hear of it later than its maker does.

    To one that does not yet, a commit for it is UNKNOWN_TOPIC_OR_PARTITION.
    """
    settings = client_settings(lab.client_properties())
    asked = [messages.MetadataRequest.MetadataRequestTopic(name=topic)]
    question = messages.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    bound = Deadline(20)

    async def known_by(node: Node, host: str, port: int) -> None:
        if node.process is None or node.process.state != "running":
            return
        connection = await Connection.open(host, port, settings.security, bound)
        try:
            while True:
                found = (await connection.ask(question, bound, most=8)).topics[0]
                led = [p for p in found.partitions if p.leader_id >= 0 and not p.error_code]
                if not found.error_code and len(led) == partitions:
                    return
                assert not bound.passed, f"broker {node.id} does not know {topic}: {found}"
                await asyncio.sleep(0.005)
        finally:
            connection.close()

    async def unless_it_ends(node: Node, host: str, port: int) -> None:
        try:
            await known_by(node, host, port)
        except WireError as error:
            if error.error not in ("CONNECTION_REFUSED", "CONNECTION_CLOSED"):
                raise

    nodes = zip(lab.record.nodes, settings.bootstrap_servers, strict=True)
    await asyncio.gather(*(unless_it_ends(node, *address) for node, address in nodes))
