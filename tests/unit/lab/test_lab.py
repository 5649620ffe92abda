"""The lab's rules that need no broker: specs, ports, processes, records, folders, logs."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from eoctl.host.java import Java
from eoctl.host.processes import Process, end, spawn, wait_ended
from eoctl.kafka.connection.properties import read_properties
from eoctl.lab import brokers
from eoctl.lab.brokers import choose_ports, reason, write_settings
from eoctl.lab.cluster import lab_names, load, up
from eoctl.lab.handle import only_one
from eoctl.lab.jars import read_lock, versions
from eoctl.lab.owner_processes import adopt
from eoctl.lab.record import LabRecord, LabSpec, Node, new_uuid, read_record
from recovery.errors import BusyError, EoctlError, RefusedError, UsageError


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (LabSpec(name="../x"), "no name for a lab"),
        (LabSpec(name=""), "no name for a lab"),
        (LabSpec(brokers=4), "1, 2 or 3 brokers, not 4"),
        (LabSpec(brokers=0), "1, 2 or 3 brokers, not 0"),
        (LabSpec(port=0), "0 is no port"),
        (LabSpec(port=70000), "70000 is no port"),
        (LabSpec(transaction_version=3), "0, 1 or 2, not 3"),
        (LabSpec(settings={"log.dirs": "/"}), "the lab itself sets log.dirs"),
        (LabSpec(settings={"a b": "1"}), "'a b' is no broker setting"),
        (LabSpec(settings={"a": "1\nlog.dirs=/"}), "'a' is no broker setting"),
        (LabSpec(kafka_version="2.8.2", secure=True), r"Kafka 2\.8\.2 has no --secure"),
        (LabSpec(kafka_version="3.6.0", secure=True), r"Kafka 3\.6\.0 has no --secure"),
        (LabSpec(kafka_version="2.8.2", transaction_version=1), "has no --transaction-version"),
        (LabSpec(kafka_version="trunk"), r"cannot start Kafka trunk; choose .*4\.3\.1"),
        (LabSpec(kafka_version="9.9.9"), r"cannot start Kafka 9\.9\.9; choose .*4\.3\.1"),
    ],
)
def test_impossible_labs_are_refused_in_one_sentence(
    state: Path, spec: LabSpec, sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        up(spec)
    assert "\n" not in caught.value.sentence
    assert lab_names() == []


def test_a_given_port_that_is_taken_is_named() -> None:
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {taken} is taken"):
            choose_ports(1, 1, taken)


def test_chosen_ports_are_free_and_differ() -> None:
    ports = choose_ports(8, 4, None)
    assert len(set(ports)) == 12
    for port in ports:
        with closing(socket.create_server(("127.0.0.1", port))) as server:
            assert server.getsockname()[1] == port


def test_a_process_is_known_by_more_than_its_pid(tmp_path: Path) -> None:
    process = spawn([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log")
    assert process.state == "running"
    impostor = Process(process.pid, process.started + "0")
    assert impostor.state == "ended"
    assert not impostor.send(signal.SIGKILL)
    end([impostor], 0)
    assert process.alive
    process.send(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert process.state == "frozen"
    end([process], 5)  # SIGTERM reaches a frozen process once it is woken
    assert process.state == "ended"


def test_end_kills_what_ignores_sigterm(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = "trap '' TERM; echo deaf; while :; do sleep 0.05; done"
    process = spawn(["/bin/sh", "-c", script], log)
    while "deaf" not in log.read_text():
        assert process.alive
    end([process], 0.2)
    assert not process.alive
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def made_up_lab(state: Path, process: Process | None) -> Path:
    """What an `up` in another life left behind."""
    folder = state / "lab" / "old"
    folder.mkdir(parents=True)
    node = Node(id=1, ports={"PLAINTEXT": 1, "CONTROLLER": 2}, directory_id=new_uuid())
    node = node.model_copy(update={"process": process})
    LabRecord(spec=LabSpec(name="old"), state="up", cluster_id=new_uuid(), nodes=(node,)).save(
        folder
    )
    return folder


def test_down_leaves_alone_whoever_has_the_pid_now(state: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        # the same pid, started at another moment: as after a reboot
        folder = made_up_lab(state, Process(bystander.pid, "another boot 4711"))
        lab = load("old")
        assert [broker.state for broker in lab.status().brokers] == ["stopped"]
        with pytest.raises(UsageError, match="does not run"):
            lab.kill(1)
        lab.down()
        assert bystander.poll() is None
        bystander.communicate(b"\n")
    assert bystander.returncode == 0
    assert not folder.exists()
    assert lab_names() == []


def test_down_ends_the_owners_that_break_left(state: Path) -> None:
    folder = made_up_lab(state, None)
    owner = spawn(["/bin/sleep", "60"], folder / "owner.log")
    adopt(folder, "owner-1", owner)
    load("old").down()
    assert owner.state == "ended"


def test_an_unknown_lab_lists_the_known_ones(state: Path) -> None:
    with pytest.raises(UsageError, match="there is no lab 'x'; start one with"):
        load("x")
    made_up_lab(state, None)
    with pytest.raises(UsageError, match="there is no lab 'x'; labs here: old"):
        load("x")


def test_a_broken_description_is_refused(state: Path) -> None:
    folder = made_up_lab(state, None)
    (folder / "lab.json").write_text("{}")
    with pytest.raises(RefusedError, match="not a lab's description"):
        load("old")


def test_up_and_down_of_one_lab_exclude_each_other(state: Path) -> None:
    folder = made_up_lab(state, None)
    with only_one(folder):
        with pytest.raises(BusyError, match="another eoctl takes lab 'old' up or down"):
            up(LabSpec(name="old"))
        with pytest.raises(BusyError):
            load("old").down()
    assert lab_names() == ["old"]


def test_a_lab_that_exists_is_not_furnished(state: Path) -> None:
    """Of two twins that are made at once under one name, the second would get the first's lab."""
    there = load(made_up_lab(state, None).name).record.spec
    with pytest.raises(RefusedError, match="a lab 'old' already"):
        up(there, furnish=lambda lab: pytest.fail("it was furnished"))


def test_without_home_the_folders_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "EOCTL_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EoctlError, match="EOCTL_STATE_DIR") as caught:
        up(LabSpec())
    assert caught.value.exit_status == 2


def test_settings_are_read_back_as_written(tmp_path: Path) -> None:
    told = {
        "a": "plain",
        "b": r"back\slash and = : # !",
        "c": "  leading blanks",
        "d": "ключ \U0001f511 é",
        "e": "",
        "listener.name.x.jaas": 'a required user="p\\"w";',
    }
    path = tmp_path / "server.properties"
    write_settings(path, told)
    assert dict(read_properties(path.read_text("latin-1"), str(path))) == told
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("", None),
        ("[2026-01-01 00:00:00,000] INFO fine (kafka.Kafka$)", None),
        (
            'Exception in thread "main" org.apache.kafka.common.config.ConfigException: Bad\n\tat',
            "ConfigException: Bad",
        ),
        ("Error: Could not find or load main class x\n", "Could not find or load main class x"),
        ("[t] ERROR Exiting (k)\njava.lang.NullPointerException\n\tat a", "NullPointerException"),
        ("[t] FATAL It broke (k)\n[t] INFO bye (k)", "It broke (k)"),
        (  # the first trouble is the cause, and an exception that was only informative is none
            """[t] INFO x (k)\njava.io.IOException: harmless
[t] ERROR first (k)\norg.a.KafkaException: outer\n\tat x
Caused by: java.net.BindException: inner\n[t] ERROR second (k)\na.b.CError: later""",
            "KafkaException: outer",
        ),
        (  # an earlier start's troubles are not this one's
            "[t] ERROR old (k)\na.OldException: old\n[eoctl] start\n[t] ERROR new (k)",
            "new (k)",
        ),
    ],
)
def test_why_a_broker_ended(log: str, said: str | None) -> None:
    assert reason(log) == said


@pytest.mark.parametrize("version", versions())
def test_lock_files_pin_every_jar(version: str) -> None:
    jars = read_lock(version)
    assert f"kafka_2.13-{version}.jar" in {jar.file_name for jar in jars}
    assert len({jar.file_name for jar in jars}) == len(jars)
    for jar in jars:
        assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256)
        assert jar.size > 0


def test_the_record_survives_its_file(tmp_path: Path) -> None:
    made_up_lab(tmp_path, Process(1, "x y"))
    spec = LabSpec(name="n", brokers=3, port=9, settings={"a": "b"}, transaction_version=1)
    node = Node(id=1, ports={"P": 1}, directory_id="d", process=Process(2, "boot 3"))
    record = LabRecord(spec=spec, state="starting", cluster_id="c", nodes=(node,))
    record.save(tmp_path)
    assert read_record(tmp_path) == record
    assert json.loads((tmp_path / "lab.json").read_text())["nodes"][0]["process"] == [2, "boot 3"]


def test_uuids_are_kafka_uuids() -> None:
    made = {new_uuid() for _ in range(500)}
    assert len(made) == 500
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", text) for text in made)


def test_waiting_ends_at_its_deadline(tmp_path: Path) -> None:
    process = spawn(["/bin/sleep", "60"], tmp_path / "log")
    assert wait_ended([process], 0.1) == [process]
    end([process], 5)
    assert wait_ended([process], 0) == []


def test_a_lost_log_is_no_second_failure(tmp_path: Path) -> None:
    saved = brokers.save_log(tmp_path / "gone", 1)
    assert saved.read_text() == ""


def test_a_class_archive_replaces_those_of_its_own_java_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two Javas used in turn would otherwise each make theirs anew, time after time."""
    monkeypatch.setenv("EOCTL_CACHE_DIR", str(tmp_path))
    jar, java = tmp_path / "kafka.jar", Path("/usr/bin/java")
    jar.touch()

    def archive_of(banner: str) -> Path:
        target = brokers.Runtime(Java(java, banner, banner), (jar,), "4.3.1").class_archive
        fresh = tmp_path / "classes.jsa"
        fresh.write_text(banner)
        brokers.keep_class_archive(fresh, target)
        return target

    old, other = archive_of("17"), archive_of("21")
    os.utime(jar, (1, 1))
    new = archive_of("17")
    assert set((tmp_path / "classes").iterdir()) == {other, new}
    assert old not in (other, new)
