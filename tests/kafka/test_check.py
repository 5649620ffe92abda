"""`eoctl check` as cron runs it, against real trouble: exit status and metrics of each rule.

Expectations come from the truth of each break and from Kafka's own tool, not from eoctl.
"""

import asyncio
import fcntl
import hashlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eoctl.lab import admin
from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from eoctl.settings.folders import state_dir
from tests.kafka.command import Ran, environment, eoctl, eoctl_running
from tests.kafka.conftest import MakeTopic
from tests.kafka.tools import kafka_tool
from tests.unit.watch.test_metrics import Family, conventions, read

ABORT_CYCLE = "transaction.abort.timed.out.transaction.cleanup.interval.ms"


@pytest.fixture(scope="module")
def lab(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    spec = LabSpec(
        name="check",
        settings={
            "transaction.partition.verification.enable": "false",
            ABORT_CYCLE: "3600000",
            "transactional.id.expiration.ms": "1800000",
        },
    )
    found = start_lab(spec)
    yield found
    found.down()


@pytest.fixture(scope="module")
def two(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    """Two brokers; the last test that uses it stops one of them, and ends it."""
    return start_lab(LabSpec(name="check-two", brokers=2))


def config(folder: Path, text: str) -> dict[str, str]:
    """An environment whose config file has this [check]."""
    path = folder / "config.toml"
    path.write_text(text)
    return environment(EOCTL_CONFIG=str(path))


Families = dict[str, Family]


def rule(
    folder: Path, lab: Lab, name: str, threshold: object, *words: str
) -> tuple[Ran, dict[str, Any], Families]:
    """Run check with one rule on; its row, and the metrics it wrote."""
    keys = (
        *("held_records", "held_age", "coordinators_unavailable"),
        *("producer_id_expiry", "deadline", "two_phase_age", "contested_ids"),
    )
    lines = ["[check]", *(f"{key} = false" for key in keys if key != name)]
    verdict = name.removeprefix("verdicts.")
    if verdict == name:
        lines.append(f"{name} = {json.dumps(threshold)}")
    lines.append("[check.verdicts]")
    if verdict != name:
        lines.append(f"{verdict} = {threshold}")
    prom = folder / "eoctl.prom"
    ran = eoctl(
        *("check", "-o", "json", "--sample-interval", "300ms", "--textfile", str(prom), *words),
        lab=lab,
        env=config(folder, "\n".join(lines)),
    )
    families = read(prom.read_text())
    assert conventions(families) == []
    (row,) = ran.rows
    assert row["rule"] == name
    return ran, row, families


def value(families: Families, name: str, **labels: str) -> float:
    """The one sample of a metric with these labels."""
    (found,) = [
        number
        for known, number in families[name].samples.items()
        if labels.items() <= dict(known).items()
    ]
    return found


def stands(families: Families, name: str) -> str:
    """How a rule stands, by its metric."""
    (found,) = [
        dict(labels)["result"]
        for labels, number in families["eoctl_check_rule"].samples.items()
        if number == 1 and dict(labels)["rule"] == name
    ]
    return found


@pytest.fixture(scope="module")
def opened(lab: Lab) -> GroundTruth:
    """A transaction that a live process holds open."""
    (truth,) = break_(lab, "open")
    return truth


@pytest.fixture(scope="module")
def orphan(lab: Lab, opened: GroundTruth) -> GroundTruth:
    """An orphan whose id committed before and is known no more to be open."""
    (truth,) = break_(lab, "orphan", variant="late")
    return truth


def test_nothing_wrong(tmp_path: Path, lab: Lab) -> None:
    ran, row, families = rule(tmp_path, lab, "verdicts.orphan", 1)
    assert (ran.status, row["ok"], row["observed"]) == (0, True, 0)
    assert (value(families, "eoctl_up"), value(families, "eoctl_complete")) == (1, 1)
    assert value(families, "eoctl_held_partitions") == 0


def test_held_records(tmp_path: Path, lab: Lab, opened: GroundTruth) -> None:
    held = opened.high_watermark - opened.last_stable_offset
    ran, row, families = rule(tmp_path, lab, "held_records", held)
    assert (ran.status, row["ok"], row["observed"]) == (1, False, held)
    assert stands(families, "held_records") == "finding"
    assert value(families, "eoctl_held_offsets_worst") == held
    ran, row, families = rule(tmp_path, lab, "held_records", held + 1)
    assert (ran.status, row["ok"], row["observed"]) == (0, True, held)
    assert stands(families, "held_records") == "ok"


def test_held_age(tmp_path: Path, lab: Lab, opened: GroundTruth) -> None:
    """Against the coordinator's own duration filter, through Kafka's tool."""
    time.sleep(1)
    ran, row, families = rule(tmp_path, lab, "held_age", "1s")
    assert (ran.status, row["ok"], row["threshold"]) == (1, False, 1)
    age = value(families, "eoctl_held_age_seconds")
    assert age == row["observed"]
    for milliseconds, listed in ((int(age * 1000) - 1000, True), (int(age * 1000) + 60_000, False)):
        done = kafka_tool(
            lab,
            "org.apache.kafka.tools.TransactionsCommand",
            *("--bootstrap-server", lab.bootstrap_servers, "list"),
            *("--duration-filter", str(milliseconds)),
        )
        assert (str(opened.transactional_id) in done.stdout) is listed
    assert rule(tmp_path, lab, "held_age", "1h")[0].status == 0


def test_long(tmp_path: Path, lab: Lab, opened: GroundTruth) -> None:
    ran, row, families = rule(tmp_path, lab, "verdicts.long", 1, "--long-after", "500ms")
    assert (ran.status, row["ok"], row["observed"]) == (1, False, 1)
    assert value(families, "eoctl_transactions", verdict="long") == 1
    assert value(families, "eoctl_transactions", verdict="open") == 0
    ran, row, families = rule(tmp_path, lab, "verdicts.long", 1)
    assert (ran.status, row["observed"]) == (0, 0)
    assert value(families, "eoctl_transactions", verdict="open") == 1


def test_orphan_in_every_form(tmp_path: Path, lab: Lab, orphan: GroundTruth) -> None:
    ran, row, families = rule(tmp_path, lab, "verdicts.orphan", 1)
    assert (ran.status, row["ok"], row["observed"]) == (1, False, 1)
    assert value(families, "eoctl_transactions", verdict="orphan") == 1
    assert stands(families, "verdicts.orphan") == "finding"
    ran, row, families = rule(tmp_path, lab, "verdicts.orphan", 2)
    assert (ran.status, row["ok"], row["observed"]) == (0, True, 1)
    line = eoctl("check", "--nagios", "--sample-interval", "300ms", lab=lab)
    assert line.status == 2
    text, perfdata = line.stdout.rstrip("\n").split(" | ")
    partition = f"{orphan.topic}:{orphan.partition}"
    assert text.startswith(f"EOCTL CRITICAL - verdicts.orphan 1: {partition}; producer_id_expiry ")
    assert "'verdicts.orphan'=1;;0 " in perfdata + " "
    assert "\n" not in text + perfdata


def test_producer_id_expiry(tmp_path: Path, lab: Lab, orphan: GroundTruth) -> None:
    """The orphan's id goes 30 minutes after its last commit, and what it proves goes with it."""
    ran, row, families = rule(tmp_path, lab, "producer_id_expiry", "1h")
    assert (ran.status, row["ok"]) == (1, False)
    assert 1500 < row["observed"] <= 1800
    assert str(orphan.transactional_id) in row["detail"]
    assert value(families, "eoctl_producer_id_expiry_seconds") == row["observed"]
    ran, row, _ = rule(tmp_path, lab, "producer_id_expiry", "10m")
    assert (ran.status, row["ok"]) == (0, True)


# The lab keeps what a first attempt at the following tests left in it: they count from there.


def test_overdue(tmp_path: Path, lab: Lab) -> None:
    one_more = rule(tmp_path, lab, "verdicts.overdue", 1)[1]["observed"] + 1
    break_(lab, "overdue")
    ran, row, families = rule(tmp_path, lab, "verdicts.overdue", one_more)
    assert (ran.status, row["ok"], row["observed"]) == (1, False, one_more)
    assert value(families, "eoctl_transactions", verdict="overdue") == one_more


def test_deadline(tmp_path: Path, lab: Lab) -> None:
    """What is left until the deadline is what Kafka's own tool tells of the id that is named."""
    (truth,) = break_(lab, "overdue")
    ran, row, families = rule(tmp_path, lab, "deadline", "5m")
    assert (ran.status, row["ok"], stands(families, "deadline")) == (1, False, "finding")
    named = row["detail"].split("'")[1]
    done = kafka_tool(
        lab,
        "org.apache.kafka.tools.TransactionsCommand",
        *("--bootstrap-server", lab.bootstrap_servers, "describe", "--transactional-id", named),
    )
    header, values = (line.split("\t") for line in done.stdout.splitlines() if "\t" in line)
    told = dict(zip((h.strip() for h in header), (v.strip() for v in values), strict=False))
    due = int(told["CurrentTransactionStartTimeMs"]) + int(told["TransactionTimeoutMs"])
    assert row["observed"] == pytest.approx(due / 1000 - time.time(), abs=60)
    assert row["observed"] < 0  # it is due already
    assert truth.timeout_ms == int(told["TransactionTimeoutMs"])
    ran, row, _ = rule(tmp_path, lab, "two_phase_age", "1h")
    assert (ran.status, row["ok"], row["observed"]) == (0, True, None)


def test_groups_pending(tmp_path: Path, lab: Lab) -> None:
    ran, row, _ = rule(tmp_path, lab, "groups_pending", 1)
    before = row["observed"]
    assert (ran.status, row["ok"]) == ((1, False) if before else (0, True))
    (truth,) = break_(lab, "offsets-pending")
    ran, row, families = rule(tmp_path, lab, "groups_pending", before + 1)
    assert (ran.status, row["ok"], row["observed"]) == (1, False, before + 1)
    groups = row["detail"].split(", ")
    assert (truth.group in groups, len(groups)) == (True, before + 1)
    assert value(families, "eoctl_groups_pending") == before + 1


@pytest.mark.long
def test_marker_lost(tmp_path: Path, two: Lab) -> None:
    one_more = rule(tmp_path, two, "verdicts.marker-lost", 1)[1]["observed"] + 1
    break_(two, "marker-lost")
    ran, row, families = rule(tmp_path, two, "verdicts.marker-lost", one_more)
    assert (ran.status, row["ok"], row["observed"]) == (1, False, one_more)
    assert value(families, "eoctl_transactions", verdict="marker-lost") == one_more


@pytest.mark.long
def test_prepare_stuck(tmp_path: Path, two: Lab, topic: MakeTopic) -> None:
    """Decided, and its leader lives but has too few replicas to write the marker."""
    from confluent_kafka import Producer

    for broker in two.broker_ids:
        two.start(broker)  # where a first attempt left one stopped
    name = topic(two, replicas=2, config={"min.insync.replicas": "2"})
    producer = Producer({**two.client_properties(), "transactional.id": "stuck"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(name, b"v", partition=0)
    producer.flush(20)
    two.terminate(asyncio.run(_not_needed(two)))
    producer.commit_transaction(20)
    time.sleep(1)
    words = ("--stuck-after", "100ms", "--clock-skew", "0s")
    ran, row, families = rule(tmp_path, two, "verdicts.prepare-stuck", 1, *words)
    assert (ran.status, row["ok"], row["observed"]) == (1, False, 1)
    assert value(families, "eoctl_transactions", verdict="prepare-stuck") == 1
    ran, row, families = rule(tmp_path, two, "verdicts.prepare-stuck", 1)
    assert value(families, "eoctl_transactions", verdict="prepare") == 1
    assert row["observed"] == 0
    two.down()  # one of two voters without the other keeps a core busy with elections


async def _not_needed(lab: Lab) -> int:
    """A broker that the quorum can do without: not its leader."""
    async with Client.to(lab.bootstrap_servers) as client:
        leader = await admin.quorum_leader(client)
    return next(broker for broker in lab.broker_ids if broker != leader)


@pytest.mark.long
def test_coordinators_unavailable_and_a_finding_beats_incomplete(
    tmp_path: Path, start_lab: Callable[[LabSpec], Lab]
) -> None:
    lab = start_lab(
        LabSpec(name="frozen", brokers=3, settings={"broker.session.timeout.ms": "600000"})
    )
    try:
        break_(lab, "open", hold=False)
        done = kafka_tool(
            lab,
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", lab.bootstrap_servers),
            *("--describe", "--topic", "__transaction_state"),
        )
        led = sum("Leader: 3" in line for line in done.stdout.splitlines())
        assert led > 0
        lab.freeze(3)
        soon = ("-X", "request.timeout.ms=1000")
        ran, row, families = rule(tmp_path, lab, "coordinators_unavailable", 1, *soon)
        assert (ran.status, row["ok"], row["observed"]) == (1, False, led)
        assert ran.json["complete"] is False
        assert value(families, "eoctl_complete") == 0
        assert value(families, "eoctl_up") == 1
        assert value(families, "eoctl_coordinators_unavailable") == led
        ran, row, _ = rule(tmp_path, lab, "coordinators_unavailable", led + 1, *soon)
        assert (ran.status, row["ok"]) == (3, True)
        line = eoctl(
            "check",
            "--nagios",
            *soon,
            lab=lab,
            env=config(tmp_path, "[check]\ncoordinators_unavailable = false\n"),
        )
        assert line.status == 3
        assert line.stdout.startswith("EOCTL UNKNOWN - ")
    finally:
        lab.thaw(3)
        lab.down()


def test_a_cluster_that_is_gone(tmp_path: Path) -> None:
    prom = tmp_path / "eoctl.prom"
    nowhere = ("--bootstrap-server", "127.0.0.1:1")
    ran = eoctl("check", *nowhere, "--textfile", str(prom))
    assert ran.status == 5
    families = read(prom.read_text())
    assert (value(families, "eoctl_up"), value(families, "eoctl_complete")) == (0, 0)
    env = environment(EOCTL_STATE_DIR=str(tmp_path))  # whose journal is empty
    line = eoctl("check", *nowhere, "--nagios", env=env)
    assert (line.status, line.stderr, line.stdout.count("\n")) == (3, "", 1)
    assert line.stdout.startswith("EOCTL UNKNOWN - 127.0.0.1:1: ")


def locked(file: Path) -> bool:
    if not file.exists():
        return False
    with file.open() as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_second_one_ends_at_once_and_a_dead_one_is_no_obstacle(
    lab: Lab, orphan: GroundTruth
) -> None:
    cluster = hashlib.sha256(f"cluster {lab.record.cluster_id}".encode()).hexdigest()[:16]
    lock = state_dir() / "locks" / f"check-{cluster}.lock"
    with eoctl_running(lab, "check", "--sample-interval", "20s") as first:
        end = time.monotonic() + 30
        port = int(lab.bootstrap_servers.rpartition(":")[2])
        while not locked(lock):  # its second lock: the cluster's, once it is connected
            assert first.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        second = eoctl("check", lab=lab)
        assert (second.status, second.stdout) == (75, "")
        assert "another check for this cluster is running" in second.stderr
        # by another address of the same cluster too
        third = eoctl("check", "--bootstrap-server", f"localhost:{port}")
        assert third.status == 75
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert eoctl("check", "--sample-interval", "300ms", lab=lab).status == 1


@pytest.mark.long
def test_metrics_of_a_killed_check_are_the_whole_old_ones(
    tmp_path: Path, lab: Lab, orphan: GroundTruth
) -> None:
    prom = tmp_path / "eoctl.prom"
    words = ("--sample-interval", "100ms", "--textfile", str(prom))
    assert eoctl("check", *words, lab=lab).status == 1
    for delay in range(6):
        with eoctl_running(lab, "check", *words) as process:
            end = time.monotonic() + 0.3 + 0.25 * delay
            while time.monotonic() < end and process.poll() is None:
                assert "eoctl_transactions" in read(prom.read_text())
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert "eoctl_transactions" in read(prom.read_text())


def test_without_home(tmp_path: Path, lab: Lab, orphan: GroundTruth) -> None:
    words = ("check", "--sample-interval", "100ms")
    bare = environment(HOME=None, EOCTL_STATE_DIR=None, XDG_STATE_HOME=None)
    ran = eoctl(*words, lab=lab, env=bare)
    assert ran.status == 2
    assert "EOCTL_STATE_DIR" in ran.stderr
    assert eoctl(*words, lab=lab, env={**bare, "EOCTL_STATE_DIR": str(tmp_path)}).status == 1


def test_several_contexts_in_one_file(tmp_path: Path, lab: Lab, orphan: GroundTruth) -> None:
    prom = tmp_path / "eoctl.prom"
    path = tmp_path / "config.toml"
    path.write_text(
        f'[contexts.here]\nbootstrap_servers = "{lab.bootstrap_servers}"\n'
        '[contexts.gone]\nbootstrap_servers = "127.0.0.1:1"\n'
    )
    env = environment(EOCTL_CONFIG=str(path))
    words = ("check", "--context", "here,gone", "--sample-interval", "100ms", "-o", "json")
    ran = eoctl(*words, "--textfile", str(prom), env=env)
    assert ran.status == 5
    families = read(prom.read_text())
    assert value(families, "eoctl_up", context="here") == 1
    assert value(families, "eoctl_up", context="gone") == 0
    assert value(families, "eoctl_transactions", context="here", verdict="orphan") == 1
    assert ran.json["context"] == "here"


def test_a_wrong_threshold_is_said(tmp_path: Path, lab: Lab) -> None:
    ran = eoctl("check", lab=lab, env=config(tmp_path, "[check.verdicts]\norphn = 1\n"))
    assert ran.status == 2
    assert "no verdict 'orphn'" in ran.stderr
    folder = tmp_path / "missing" / "eoctl.prom"
    ran = eoctl("check", "--textfile", str(folder), lab=lab)
    assert ran.status == 2
    assert str(folder) in ran.stderr


def test_a_known_gap_is_a_note(tmp_path: Path, start_lab: Callable[[LabSpec], Lab]) -> None:
    """The user may describe no transactional id: only a gap that is named is accepted."""
    # a lab of its own: what other tests leave open could not be judged without that right
    secure_lab = start_lab(LabSpec(name="gap", secure=True))
    from confluent_kafka import Producer

    from eoctl.lab import secure

    # without a transaction there are no coordinators that could be hidden
    Producer({**secure_lab.client_properties(), "transactional.id": "x"}).init_transactions(20)
    path = tmp_path / "config.toml"
    client = secure.client_file(secure_lab.folder, "no-txn", "SCRAM")
    for accepted, status in (('["transactional-ids"]', 0), ("[]", 3)):
        path.write_text(
            f'[contexts.s]\nbootstrap_servers = "{secure_lab.record.bootstrap_servers("SCRAM")}"\n'
            f'command_config = "{client}"\naccept_missing = {accepted}\n'
        )
        ran = eoctl(
            "check", "--context", "s", "-o", "json", env=environment(EOCTL_CONFIG=str(path))
        )
        assert ran.status == status, ran.stdout
        assert bool(ran.json["notes"]) is (status == 0)
        row = next(r for r in ran.rows if r["rule"] == "coordinators_unavailable")
        assert row["ok"] is None
