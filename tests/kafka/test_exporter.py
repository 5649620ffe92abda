"""`eoctl exporter` on real brokers, scraped over HTTP and read by prometheus_client's own parser.

Lags are expected from Kafka's own kind of clients (tests/kafka/offsets_oracle.py), not from eoctl.
"""

import json
import math
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from eoctl.lab import secure
from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from eoctl.render.watch_words import HELP, SERIES_HELP
from tests.kafka.command import EOCTL, FAST, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import commit
from tests.kafka.offsets_oracle import look
from tests.kafka.test_base_install import without_data
from tests.kafka.test_check import Families as Written
from tests.started import started
from tests.unit.watch.test_metrics import read

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Scrape:
    """What one scrape gave, as prometheus_client's parser read it."""

    samples: dict[str, dict[Labels, float]]

    def value(self, name: str, **labels: str) -> float:
        """The one sample of a metric with these labels."""
        (number,) = self.all(name, **labels)
        return number

    def all(self, name: str, **labels: str) -> list[float]:
        return [
            number
            for known, number in self.samples.get(name, {}).items()
            if labels.items() <= dict(known).items()
        ]


class Exporter:
    """An exporter that runs: the address of its metrics, and its process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("eoctl: metrics at http://"), line
        self.url = line.split()[3].rstrip(",")

    def get(self, path: str = "/metrics", accept: str = "text/plain") -> str:
        request = urllib.request.Request(
            self.url.removesuffix("/metrics") + path, headers={"Accept": accept}
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            text: str = answer.read().decode()
            return text

    def scrape(self) -> Scrape:
        samples: dict[str, dict[Labels, float]] = {}
        families: Iterable[Metric] = text_string_to_metric_families(self.get())
        for family in families:
            for s in family.samples:
                assert s.name in {**HELP, **SERIES_HELP}, s.name
                mine = samples.setdefault(s.name, {})
                assert frozenset(s.labels.items()) not in mine
                mine[frozenset(s.labels.items())] = s.value
        return Scrape(samples)

    def looked(self, result: str = "complete", times: int = 1) -> Scrape:
        """Scrape until so many looks ended so."""
        end = time.monotonic() + 30
        while True:
            scrape = self.scrape()
            if sum(scrape.all("eoctl_exporter_looks_total", result=result)) >= times:
                return scrape
            assert time.monotonic() < end, scrape.samples.get("eoctl_exporter_looks_total")
            time.sleep(0.1)


@contextmanager
def exporting(*words: str) -> Iterator[Exporter]:
    """`eoctl exporter WORDS` on a free port, while it runs."""
    with started(
        [*EOCTL, "exporter", "--listen", "127.0.0.1:0", "--interval", "1s", *FAST, *words],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield Exporter(process)


@pytest.fixture(scope="module")
def lab(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    """A lab of its own: what others leave in theirs may be unknown, and a look then incomplete."""
    return start_lab(LabSpec(name="exporter"))


@dataclass(frozen=True)
class World:
    """Two groups on one topic with aborted records, behind a live transaction, beside an orphan."""

    topic: str
    groups: dict[str, dict[int, int]]  # group → partition → committed offset
    orphan_id: str
    orphan_topic: str


@pytest.fixture
def world(lab: Lab, topic: MakeTopic) -> World:
    name, other = topic(lab, 2), topic(lab)
    for partition in (0, 1):
        producer = Producer({**lab.client_properties(), "transactional.id": f"{name}-{partition}"})
        producer.init_transactions(20)
        for number in range(6):
            producer.begin_transaction()
            for _ in range(7):
                producer.produce(name, b"v", partition=partition)
            producer.flush(20)
            (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(20)
    break_(lab, "open", topic=name, partition=1, hold=False, timeout_ms=600_000)
    [orphan] = break_(lab, "orphan", topic=other, partition=0, hold=False)
    groups = {f"{name}-a": {0: 5, 1: 12}, f"{name}-b": {0: 48}}
    for group, committed in groups.items():
        consumer = Consumer({**lab.client_properties(), "group.id": group})
        consumer.commit(
            offsets=[TopicPartition(name, p, at) for p, at in committed.items()],
            asynchronous=False,
        )
        consumer.close()
    assert orphan.transactional_id is not None
    return World(name, groups, orphan.transactional_id, other)


def doctors(scrape: Scrape) -> dict[str, str]:
    """The state of each of doctor's rules."""
    rules = [dict(labels) for labels, on in scrape.samples["eoctl_check_rule"].items() if on]
    return {r["rule"]: r["result"] for r in rules if r["rule"].startswith("doctor.")}


@pytest.mark.long
def test_doctors_rules_are_served_by_every_look(lab: Lab, world: World) -> None:
    assert world  # ids and groups: else a look is incomplete
    checked = eoctl("check", "--doctor", *FAST, "-o", "json", lab=lab)
    states = {True: "ok", False: "finding", None: "unknown"}
    expected = {
        row["rule"]: states[row["ok"]] for row in checked.rows if row["rule"].startswith("doctor.")
    }
    assert len(expected) > 10
    with exporting("--bootstrap-server", lab.bootstrap_servers, "--doctor") as exporter:
        end = time.monotonic() + 60  # a rule that is unknown at first is asked again soon
        while (served := doctors(exporter.looked())) != expected and time.monotonic() < end:
            time.sleep(0.5)
        assert served == expected
    with exporting("--bootstrap-server", lab.bootstrap_servers) as exporter:
        rules = {dict(labels)["rule"] for labels in exporter.looked().samples["eoctl_check_rule"]}
        assert not rules & expected.keys()


def test_what_is_served_is_what_clients_see(lab: Lab, world: World) -> None:
    chosen = [word for group in world.groups for word in ("--group", group)]
    with exporting("--bootstrap-server", lab.bootstrap_servers, *chosen) as exporter:
        scrape = exporter.looked()
        offsets = look(lab, [(world.topic, 0), (world.topic, 1)])
        for group, committed in world.groups.items():
            lags, records = 0, 0
            for partition, at in committed.items():
                one = offsets[world.topic, partition]
                own_labels = {"group": group, "topic": world.topic, "partition": str(partition)}
                visible = sum(at <= offset < one.stable for offset in one.visible)
                lag = scrape.value("eoctl_group_partition_lag_offsets", **own_labels)
                assert lag == one.stable - at
                assert scrape.value("eoctl_group_partition_lag_records", **own_labels) == visible
                lags, records = lags + one.stable - at, records + visible
            assert records < lags or not lags  # of the second, nothing waits
            assert scrape.value("eoctl_group_lag_offsets", group=group) == lags
            assert scrape.value("eoctl_group_lag_records", group=group) == records
        assert offsets[world.topic, 1].high > offsets[world.topic, 1].stable
        assert scrape.value("eoctl_groups") == 2
        orphan = {"verdict": "orphan", "topic": world.orphan_topic, "partition": "0"}
        labels = {**orphan, "transactional_id": world.orphan_id}
        assert scrape.value("eoctl_finding_age_seconds", **labels) > 0
        for name in ("eoctl_up", "eoctl_complete", "eoctl_groups_complete"):
            assert scrape.value(name) == 1
        assert {*scrape.all("eoctl_exporter_left_out")} == {0}
        assert time.time() - scrape.value("eoctl_check_timestamp_seconds") < 30
        assert 0 <= scrape.value("eoctl_exporter_snapshot_age_seconds") < 30
        # the other format, which Prometheus asks for first
        text = exporter.get(accept="application/openmetrics-text; version=1.0.0")
        parsed = openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
        names = {family.name for family in parsed}
        assert {"eoctl_up", "eoctl_exporter_looks"} <= names
        assert exporter.get("/healthy") == "this exporter runs\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            exporter.get("/other")


def test_what_check_writes_is_served(lab: Lab, world: World, tmp_path: object) -> None:
    prom = f"{tmp_path}/eoctl.prom"
    eoctl("check", *FAST, "--textfile", prom, lab=lab)
    with open(prom) as file:  # noqa: PTH123
        written: Written = read(file.read())
    with exporting("--bootstrap-server", lab.bootstrap_servers) as exporter:
        scrape = exporter.looked("complete")
    for name, family in written.items():
        assert {frozenset(labels) for labels in family.samples} == set(scrape.samples[name]), name


def test_limits_and_what_they_leave_out(lab: Lab, world: World) -> None:
    chosen = [word for group in world.groups for word in ("--group", group)]
    limits = ("--max-groups", "1", "--max-partitions", "1", "--max-findings", "0")
    words = ("--bootstrap-server", lab.bootstrap_servers, *chosen, *limits, "--max-count", "9")
    with exporting(*words) as exporter:
        scrape = exporter.looked()
    offsets = look(lab, [(world.topic, 0), (world.topic, 1)])
    first, second = sorted(world.groups)
    ends = {p: offsets[world.topic, p].stable for p in (0, 1)}
    lag = sum(ends[p] - at for p, at in world.groups[first].items())
    assert scrape.value("eoctl_group_lag_offsets") == lag  # of all its partitions
    assert scrape.value("eoctl_group_partition_lag_offsets", partition="0") == ends[0] - 5
    # no log is shorter than 9 offsets: what was not counted is not 0
    assert math.isnan(scrape.value("eoctl_group_lag_records", group=first))
    assert scrape.all("eoctl_group_lag_offsets", group=second) == []
    assert scrape.all("eoctl_finding_age_seconds") == []
    left = {k: scrape.value("eoctl_exporter_left_out", kind=k) for k in ("group", "partition")}
    assert left == {"group": 1, "partition": 2}
    assert scrape.value("eoctl_exporter_left_out", kind="finding") >= 1
    counted = scrape.value("eoctl_exporter_left_out", kind="record-count")
    assert counted == (2 if ends[0] == 48 else 3)


@pytest.mark.long
def test_nobody_answers_at_the_start() -> None:
    """It serves that, and a scrape does not wait for the broker that is silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nowhere = f"127.0.0.1:{silent.getsockname()[1]}"
        with exporting("--bootstrap-server", nowhere, "--timeout", "4s") as exporter:
            begin = time.monotonic()
            scrape = exporter.scrape()
            assert time.monotonic() - begin < 1
            assert scrape.all("eoctl_up") == []  # not known yet
            scrape = exporter.looked("failed")
            assert (scrape.value("eoctl_complete"), scrape.all("eoctl_partitions")) == (0, [])
            begin = time.monotonic()
            assert exporter.scrape().value("eoctl_up") in (0, 1)
            assert time.monotonic() - begin < 1
    with exporting("--bootstrap-server", "127.0.0.1:1") as exporter:
        scrape = exporter.looked("failed", 2)
        assert (scrape.value("eoctl_up"), scrape.value("eoctl_complete")) == (0, 0)
        assert scrape.all("eoctl_held_offsets") == scrape.all("eoctl_groups") == []
        exporter.process.send_signal(signal.SIGTERM)
        assert exporter.process.wait(20) == 130
        assert exporter.process.stderr is not None
        lines = exporter.process.stderr.read()
        assert lines.count("127.0.0.1:1: ") == 2  # its name and its address, once, not every second
        assert "Traceback" not in lines


def test_a_port_in_use_and_other_mistakes(lab: Lab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = eoctl("exporter", "--listen", f"127.0.0.1:{port}", lab=lab, process=True)
    assert ran.status == 2
    assert f"--listen 127.0.0.1:{port}: cannot be listened on: Address already in use" in ran.stderr
    for address in ("9465", ":9465", "127.0.0.1:x", "::1:9465", "127.0.0.1:70000"):
        ran = eoctl("exporter", "--listen", address, lab=lab)
        assert (ran.status, "is not an address" in ran.stderr) == (2, True)
    assert eoctl("exporter", "--interval", "0s", lab=lab).status == 2
    assert eoctl("exporter", "--from", "x.eoctl").status == 4


def test_without_the_right_to_see_ids(secure_lab: Lab) -> None:
    """What may not be seen is incomplete; a lag that could not be seen is no 0."""
    Producer({**secure_lab.client_properties(), "transactional.id": "x"}).init_transactions(20)
    client = secure.client_file(secure_lab.folder, "no-txn", "SCRAM")
    server = secure_lab.record.bootstrap_servers("SCRAM")
    words = ("--bootstrap-server", server, "--command-config", str(client), "--group", "no-such")
    with exporting(*words) as exporter:
        scrape = exporter.looked("incomplete")
    assert (scrape.value("eoctl_up"), scrape.value("eoctl_complete")) == (1, 0)
    assert scrape.value("eoctl_groups_complete") == 0
    assert scrape.all("eoctl_group_lag_offsets") == []


COUNTER = """
import json, sys, threading, time, urllib.request
from tests.kafka.base_only import Blocker
sys.meta_path.insert(0, Blocker())
from eoctl.cli.main import run
run(json.loads(sys.argv[1]))
"""


def test_without_the_extra_data(lab: Lab, world: World) -> None:
    """Lags in offsets are there; that no record is counted is said, and NaN."""
    import sys

    group = next(iter(world.groups))
    words = ["exporter", "--bootstrap-server", lab.bootstrap_servers, "--group", group, *FAST]
    words += ["--listen", "127.0.0.1:0", "--interval", "1s"]
    with started(
        [sys.executable, "-W", "ignore", "-c", COUNTER, json.dumps(words)],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        exporter = Exporter(process)
        assert process.stderr is not None
        assert "pip install 'eoctl[data]'" in process.stderr.readline()
        scrape = exporter.looked()
    assert scrape.value("eoctl_exporter_counts_records") == 0
    assert scrape.value("eoctl_group_lag_offsets", group=group) > 0
    assert math.isnan(scrape.value("eoctl_group_lag_records", group=group))
    assert without_data([["exporter", "--listen", "x"]])[0][0] == 2


def test_lags_in_seconds_are_those_of_the_timestamps(lab: Lab, topic: MakeTopic) -> None:
    """Records of 10 min and of 1 min ago, retention of an hour; the group has read the first."""
    name = topic(lab, config={"retention.ms": "3600000"})
    now = int(time.time() * 1000)
    producer = Producer(lab.client_properties())
    for age in (600, 60):
        producer.produce(name, b"v", partition=0, timestamp=now - age * 1000)
    assert producer.flush(20) == 0
    for group, offset in ((f"{name}-all", 0), (f"{name}-one", 1), (f"{name}-none", 2)):
        commit(lab, group, {(name, 0): offset})
    words = [word for group in ("all", "one", "none") for word in ("--group", f"{name}-{group}")]
    with exporting("--bootstrap-server", lab.bootstrap_servers, *words, "--lag-seconds") as e:
        scrape = e.looked()
    passed = time.time() - now / 1000
    for group, age in (("all", 600), ("one", 60)):
        lag = scrape.value("eoctl_group_lag_seconds", group=f"{name}-{group}")
        assert age <= lag <= age + passed
        margin = scrape.value("eoctl_group_retention_margin_seconds", group=f"{name}-{group}")
        assert 3600 - age - passed <= margin <= 3600 - age
    assert scrape.value("eoctl_group_partition_lag_seconds", group=f"{name}-none") == 0
    assert scrape.all("eoctl_group_retention_margin_seconds", group=f"{name}-none") == []
    with exporting("--bootstrap-server", lab.bootstrap_servers, *words) as e:
        assert e.looked().all("eoctl_group_lag_seconds") == []
