"""The lab against real brokers: it starts, it is what was asked for, it ends without a trace."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from eoctl.lab import brokers, handle
from eoctl.lab.cluster import Lab, lab_names, load, up
from eoctl.lab.record import LabSpec, read_record
from recovery.errors import RefusedError, UnreachableError, UsageError
from recovery.values import replace
from tests.kafka.tools import kafka_tool, run_storage_tool
from tests.started import started

StartLab = Callable[[LabSpec], Lab]
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"


@pytest.fixture(autouse=True)
def formatted_by_the_lab_itself(lab_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here alone each lab is formatted as `eoctl lab up` does it, in a JVM of its own."""
    monkeypatch.setattr(brokers, "run_storage_tool", run_storage_tool)


def brokers_of(lab: Lab) -> dict[int, int]:
    """Broker ids and ports as confluent-kafka sees them."""
    from confluent_kafka.admin import AdminClient

    seen = AdminClient(lab.client_properties()).list_topics(timeout=20).brokers
    return {broker.id: broker.port for broker in seen.values()}


def until(look: Callable[[], object], wanted: object) -> None:
    """It looks so within half a minute: a busy machine may answer too late for the first look."""
    end = time.monotonic() + 30
    while (seen := look()) != wanted:
        assert time.monotonic() < end, seen
        time.sleep(0.1)


def processes_below(folder: Path) -> list[int]:
    """The processes of this machine whose command line names the folder (man proc_pid_cmdline)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(folder) in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def test_one_broker(lab1: Lab) -> None:
    assert brokers_of(lab1) == {1: int(lab1.bootstrap_servers.rpartition(":")[2])}
    status = lab1.status()
    assert [(broker.broker, broker.state) for broker in status.brokers] == [(1, "ready")]
    assert status.brokers[0].pid in processes_below(lab1.folder)
    assert "Kafka Server started" in lab1.broker_log(1).read_text()


def test_it_keeps_records_and_kafkas_own_tools_run(lab1: Lab, topic: Callable[..., str]) -> None:
    from confluent_kafka import Producer

    name = topic(lab1, partitions=2)
    producer = Producer(lab1.client_properties())
    for number in range(5):
        producer.produce(name, str(number).encode(), partition=number % 2)
    assert producer.flush(20) == 0
    told = kafka_tool(
        lab1, GET_OFFSETS, "--bootstrap-server", lab1.bootstrap_servers, "--topic", name
    )
    assert (told.returncode, told.stdout.split()) == (0, [f"{name}:0:3", f"{name}:1:2"])
    assert (lab1.data_folder(1) / f"{name}-0").is_dir()


def test_everything_listens_on_loopback_only(lab1: Lab) -> None:
    """/proc/net/tcp: local address 0100007F is 127.0.0.1, state 0A is LISTEN."""
    ports = set(lab1.record.nodes[0].ports.values())
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            address, state = line.split()[1], line.split()[3]
            host, _, port = address.rpartition(":")
            if state == "0A" and int(port, 16) in ports:
                listening.append((int(port, 16), host))
    assert {port for port, _ in listening} == ports
    assert {host for _, host in listening} <= {"0100007F", "0000000000000000FFFF00000100007F"}


def test_three_brokers_are_one_quorum(lab3: Lab) -> None:
    assert sorted(brokers_of(lab3)) == [1, 2, 3]
    told = kafka_tool(
        lab3, QUORUM, "--bootstrap-server", lab3.bootstrap_servers, "describe", "--status"
    )
    assert told.returncode == 0, told.stderr
    voters = next(line for line in told.stdout.splitlines() if "CurrentVoters" in line)
    assert voters.count('"id"') == 3
    assert f"ClusterId:              {lab3.record.cluster_id}" in told.stdout


def test_a_broker_is_frozen_stopped_killed_and_comes_back(lab3: Lab) -> None:
    def states() -> list[str]:
        return [broker.state for broker in lab3.status().brokers]

    lab3.freeze(2)
    try:
        until(states, ["ready", "frozen", "ready"])
        lab3.thaw(2)
        lab3.terminate(2)
        assert states()[1] == "stopped"
        until(states, ["ready", "stopped", "ready"])
        with pytest.raises(UsageError, match="broker 2 of lab 'three' does not run"):
            lab3.kill(2)
        lab3.start(2)
        lab3.kill(3)
        assert states()[2] == "stopped"
        until(states, ["ready", "ready", "stopped"])
        lab3.start(3)
        until(states, ["ready", "ready", "ready"])
        until(lambda: sorted(brokers_of(lab3)), [1, 2, 3])
    except BaseException:
        for broker in (2, 3):  # the lab is everybody's; one that is frozen or ending is no use
            with suppress(UsageError):
                lab3.kill(broker)
            lab3.start(broker)
        raise
    with pytest.raises(UsageError, match="has no broker 4, only 1, 2, 3"):
        lab3.kill(4)


def test_a_second_up_returns_the_lab_or_refuses(start_lab: StartLab, lab1: Lab) -> None:
    before = lab1.record
    again = start_lab(before.spec)
    assert again.record == before
    with pytest.raises(RefusedError, match=r"a lab 'one' already, but with Kafka 4.*lab down"):
        start_lab(replace(before.spec, brokers=2))
    with pytest.raises(RefusedError, match="lab 'one' already"):
        start_lab(LabSpec(name="one", settings={"num.partitions": "2"}))
    assert lab1.record == before


@pytest.mark.long
def test_settings_port_version_and_a_life_to_its_end(start_lab: StartLab) -> None:
    """What was asked for arrives; a stopped lab keeps its data; down ends it."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    spec = LabSpec(
        name="life", port=port, transaction_version=1, settings={"log.retention.hours": "7"}
    )
    lab = start_lab(spec)
    try:
        _live_to_the_end(start_lab, spec, lab, port)
    finally:
        with suppress(UsageError):  # it has come to its end already
            lab.down()


def _live_to_the_end(start_lab: StartLab, spec: LabSpec, lab: Lab, port: int) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource

    assert brokers_of(lab) == {1: port}
    told = kafka_tool(lab, FEATURES, "--bootstrap-server", lab.bootstrap_servers, "describe")
    line = next(line for line in told.stdout.splitlines() if "transaction.version" in line)
    assert "FinalizedVersionLevel: 1" in line
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient(lab.client_properties())
    config = admin.describe_configs([broker])[broker].result(20)
    assert config["log.retention.hours"].value == "7"
    assert config["auto.create.topics.enable"].value == "false"
    del admin

    context = lab.folder.parents[1] / "contexts" / "lab-life.json"
    assert lab.bootstrap_servers in context.read_text()

    # as after a reboot: the brokers are gone, their data are not
    cluster_id = lab.record.cluster_id
    lab.kill(1)
    assert [broker.state for broker in lab.status().brokers] == ["stopped"]
    assert start_lab(spec).record.cluster_id == cluster_id
    assert brokers_of(lab) == {1: port}

    lab.down(keep_data=True)
    assert processes_below(lab.folder) == []
    assert [broker.state for broker in load("life").status().brokers] == ["stopped"]

    lab.down()
    assert not lab.folder.exists()
    assert not context.exists()
    assert "life" not in lab_names()
    with pytest.raises(UsageError, match="there is no lab 'life' any more"):
        lab.status()


def test_a_port_that_is_taken_is_named(start_lab: StartLab) -> None:
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} is taken"):
            start_lab(LabSpec(name="taken", port=port))
    assert "taken" not in lab_names()


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num.io.threads": "0"}, r"--set: .*Invalid value 0 for configuration num\.io\.threads"),
        ({"metric.reporters": "no.such.Class"}, r"broker 1 .* Class no\.such\.Class cannot be"),
    ],
    ids=["refused at format", "crash at start"],
)
def test_a_broker_that_cannot_start_says_why(
    start_lab: StartLab, lab_state: Path, settings: dict[str, str], sentence: str
) -> None:
    with pytest.raises((UsageError, UnreachableError), match=sentence) as caught:
        start_lab(LabSpec(name="crash", settings=settings))
    assert "\n" not in caught.value.sentence
    if isinstance(caught.value, UnreachableError):
        log = Path(str(caught.value.remedy).removeprefix("see "))
        assert "no.such.Class" in log.read_text()
    assert "crash" not in lab_names()
    assert processes_below(lab_state / "lab" / "crash") == []


@contextmanager
def up_to_a_broker(name: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`up` in another process, given in the middle of its work: the broker runs, not ready."""
    script = (
        "from eoctl.lab.cluster import up\nfrom eoctl.lab.record import LabSpec\n"
        f"up(LabSpec(name={name!r}))\nprint('up')\n"
    )
    with started(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            record = read_record(folder)
            if record and record.processes and record.processes[0].alive:
                yield process
                return
            time.sleep(0.01)
        process.kill()
        raise AssertionError(process.communicate())


@pytest.mark.long
def test_interrupting_up_leaves_nothing(lab_state: Path) -> None:
    folder = lab_state / "lab" / "interrupted"
    with up_to_a_broker("interrupted", folder) as process:
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (out, process.returncode) == (b"", -signal.SIGINT), error
    assert not folder.exists()
    assert processes_below(folder) == []


@pytest.mark.long
def test_a_half_started_lab_is_cleared_by_the_next_up(lab_state: Path) -> None:
    folder = lab_state / "lab" / "half"
    with up_to_a_broker("half", folder) as process:
        process.kill()  # leaves no chance to clear up
        process.communicate(timeout=60)
    abandoned = processes_below(folder)
    assert abandoned
    lab = up(LabSpec(name="half"))
    try:
        now = processes_below(folder)
        assert len(now) == 1
        assert not set(now) & set(abandoned)
        assert list(brokers_of(lab)) == [1]
    finally:
        lab.down()
    assert processes_below(folder) == []


@pytest.mark.long
def test_down_needs_neither_java_nor_jars(
    start_lab: StartLab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lab = start_lab(LabSpec(name="bare"))
    monkeypatch.setenv("EOCTL_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    lab.down()
    assert processes_below(lab.folder) == []
    assert not (tmp_path / "empty").exists()


@pytest.mark.long
def test_the_first_broker_leaves_a_class_archive_for_the_next(
    start_lab: StartLab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With an empty cache of classes; the jars are the user's, by a link."""
    from eoctl.settings.context import cache_dir

    (tmp_path / "jars").symlink_to(cache_dir() / "jars")
    monkeypatch.setenv("EOCTL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(handle, "ARCHIVE_SECONDS", 60.0)  # a busy machine writes it slowly
    lab = start_lab(LabSpec(name="archive"))
    try:
        argv = (Path("/proc") / str(lab.status().brokers[0].pid) / "cmdline").read_bytes()
        assert b"-XX:ArchiveClassesAtExit=" in argv
    finally:
        lab.down()
    (archive,) = (tmp_path / "classes").iterdir()
    lab = start_lab(LabSpec(name="archive"))
    try:
        argv = (Path("/proc") / str(lab.status().brokers[0].pid) / "cmdline").read_bytes()
        mapped = (Path("/proc") / str(lab.status().brokers[0].pid) / "maps").read_text()
    finally:
        lab.down()
    assert f"-XX:SharedArchiveFile={archive}".encode() in argv
    assert str(archive) in mapped  # the JVM took it


@pytest.mark.long
@pytest.mark.parametrize("version", ["4.4.0", "4.0.1", "3.9.1", "2.8.2"])
def test_other_kafkas_start_keep_records_and_end(
    start_lab: StartLab, topic: Callable[..., str], version: str
) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    lab = start_lab(LabSpec(name=f"kafka-{version}", kafka_version=version, brokers=3))
    assert sorted(brokers_of(lab)) == [1, 2, 3]
    name = topic(lab, replicas=3)
    producer = Producer(lab.client_properties() | {"transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"record")
    producer.commit_transaction(30)
    consumer = Consumer(
        lab.client_properties() | {"group.id": "g", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(name, 0, 0)])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.value() == b"record"
    assert (lab.data_folder(1) / f"{name}-0").is_dir()
    lab.down()
    assert processes_below(lab.folder) == []
