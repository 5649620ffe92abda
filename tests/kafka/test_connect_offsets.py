"""The store `connect` on real workers: planned, applied, undone, resumed, killed midway.

What the offsets are is read twice without eoctl: by the workers' GET, and by a plain consumer of
the offsets topic.
"""

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.connect.worker import Worker
from tests.docs.pages import ROOT, files, follows
from tests.kafka.command import Ran, eoctl, eoctl_running, unfinished
from tests.kafka.conftest import SOON, MakeTopic
from tests.kafka.crashed import committed
from tests.kafka.reading import Reading
from tests.kafka.test_connect import values

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
SOURCE = '{"database": "shop", "table": "orders"}'
ACT = ("--execute", "--yes")


@pytest.fixture(scope="module")
def lab(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    lab = start_lab(LabSpec(name="connect-offsets", settings=SOON))
    yield lab
    lab.down()


@pytest.fixture(scope="module")
def worker(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    worker = Worker(lab, tmp_path_factory.mktemp("worker"), "etl").start()
    yield worker
    worker.kill()


def in_topic(lab: Lab, topic: str, connector: str) -> dict[str, Any]:
    """Source partition to offset: the last committed value of each key, by a plain consumer."""
    found: dict[str, Any] = {}
    config = {"group.id": "oracle", "enable.partition.eof": True}
    consumer = Consumer(lab.client_properties() | config | {"isolation.level": "read_committed"})
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    left = len(partitions)
    while left:
        [message] = consumer.consume(1, 20)
        if message.error():
            left -= 1
            continue
        name, partition = json.loads(message.key() or b"null")
        if name == connector:
            value = message.value()
            found[json.dumps(partition, sort_keys=True)] = value and json.loads(value)
    consumer.close()
    return {partition: offset for partition, offset in found.items() if offset is not None}


class App:
    """An application file, and the commands on it."""

    def __init__(self, lab: Lab, folder: Path, worker: Worker, name: str, source: str) -> None:
        self.lab, self.worker, self.name = lab, worker, name
        self.file, self.plan_file = folder / f"{name}.toml", folder / f"{name}.json"
        self.write(source)

    def write(self, source: str, *, url: str | None = None, outputs: str = "") -> None:
        self.file.write_text(
            f'[app]\nname = "{self.name}"\nstrategy = "connect"\n{outputs}\n[app.store]\n'
            f'kind = "connect"\nurl = "{url or self.worker.url}"\nconnector = "{self.name}"\n'
            f'offsets_topic = "{self.worker.offsets_topic}"\n[app.source]\n{source}\n'
        )

    def plan(self) -> Ran:
        words = ("plan", str(self.file), "--out", str(self.plan_file), "-o", "json")
        return eoctl("restart", *words, lab=self.lab)

    def run(self, word: str, *words: str, **more: Any) -> Ran:
        return eoctl("restart", word, str(self.plan_file), *words, lab=self.lab, **more)

    def agreed(self, topic: str | None = None) -> Any:
        """The id that GET and the topic both say."""
        told = self.worker.offsets(self.name)
        assert told == in_topic(self.lab, topic or self.worker.offsets_topic, self.name)
        return told[SOURCE]["id"] if told else None


def given(number: int | None) -> str:
    offset = None if number is None else {"id": number, "kind": "row"}
    rows = [{"partition": {"table": "orders", "database": "shop"}, "offset": offset}]
    return f"offsets = '{json.dumps({'offsets': rows})}'"


PAGE = ROOT / "docs" / "connect.md"


@follows("docs/connect.md", "Set a source connector to another place")
def test_the_page(it: Reading, lab: Lab, worker: Worker, topic: MakeTopic) -> None:
    """Its application file and its offsets, as they stand there, without user and certificates."""
    where = topic(lab)
    worker.counting("orders", where, records="500")
    worker.until(lambda: values(lab, where).total() == 500, "not all was written")
    worker.stop("orders")
    it.lab = lab
    [(_, app)] = [block for block in files(PAGE, "toml") if block[0] == it.heading]
    kept = [
        line for line in app.splitlines() if not line.startswith(("user", "pass", "ca", "cert"))
    ]
    app = "\n".join(kept).replace("https://10.0.0.7:8083", worker.url)
    Path("orders.toml").write_text(app.replace("connect-offsets", worker.offsets_topic))
    [(_, offsets)] = [block for block in files(PAGE, "json") if block[0] == it.heading]
    named = json.loads(offsets)
    named["offsets"][0]["partition"]["database"] = "shop"  # as this source names its table
    Path("offsets.json").write_text(json.dumps(named))
    it.run("restart plan", 0)
    it.asked("restart apply")
    assert worker.offsets("orders")[SOURCE] == in_topic(lab, worker.offsets_topic, "orders")[SOURCE]
    assert worker.offsets("orders")[SOURCE]["id"] == 120
    it.run("restart verify", 0, None, "--pause", "0.2s")


@follows("docs/connect.md", "Sink connectors")
def test_the_page_on_sinks(
    it: Reading, lab: Lab, worker: Worker, topic: MakeTopic, tmp_path: Path
) -> None:
    """All records came after that instant: the group begins anew."""
    where = topic(lab, name="orders")
    worker.counting("source-of-sink", where, records="100")
    worker.create(
        "orders-sink",
        {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "topics": where,
            "file": str(tmp_path / "sunk"),
            "consumer.override.auto.offset.reset": "earliest",
        },
    )
    worker.until(lambda: (tmp_path / "sunk").exists(), "nothing came")
    worker.until(lambda: len((tmp_path / "sunk").read_text().splitlines()) == 100, "not all came")
    worker.stop("orders-sink")
    it.lab = lab
    it.names |= {"orders": where, "2026-11-20T10:00:00Z": "2020-01-01T00:00:00Z"}
    before = committed(lab, "connect-orders-sink")
    assert before[where, 0] > 0
    ran = it.run("restart plan --group", 0, None, "--out", "plan.json")
    assert "at-least-once" in ran.text
    applied = eoctl("restart", "apply", "plan.json", *ACT, lab=lab)
    assert applied.status == 0, applied.text
    status, told = worker.rest("GET", "/connectors/orders-sink/offsets")
    assert status == 200
    [now] = [o["offset"]["kafka_offset"] for o in told["offsets"]]
    assert now == committed(lab, "connect-orders-sink")[where, 0] == 0


def test_given_offsets_there_and_back(
    lab: Lab, worker: Worker, topic: MakeTopic, tmp_path: Path
) -> None:
    """Store = REST = topic: before and after plan, apply, undo; a running connector is refused."""
    where = topic(lab)
    worker.counting("there", where, records="500")
    app = App(lab, tmp_path, worker, "there", given(120))
    refused = app.plan()
    assert refused.status == 4, refused.text
    assert "the connector is RUNNING" in refused.stderr
    assert f"curl -X PUT {worker.url}/connectors/there/stop" in refused.stderr
    worker.until(lambda: values(lab, where).total() == 500, "not all was written")
    worker.stop("there")
    assert app.agreed() == 500

    planned = app.plan()
    assert planned.status == 0, planned.text
    [row] = planned.rows
    [source] = row["sources"]
    assert source["partition"] == SOURCE
    assert json.loads(source["current_offset"]) == {"id": 500, "kind": "row"}
    assert json.loads(source["restart_offset"]) == {"id": 120, "kind": "row"}
    assert row["guarantee"] == "at-most-once"
    assert "SOURCE PARTITION" in app.run("show").stdout
    assert app.agreed() == 500

    applied = app.run("apply", *ACT)
    assert applied.status == 0, applied.text
    assert app.agreed() == 120
    assert app.run("verify", "--pause", "0.2s").status == 0
    undone = app.run("undo", *ACT)
    assert undone.status == 0, undone.text
    assert app.agreed() == 500

    app.write(given(None))  # removed, and brought back
    assert app.plan().status == 0
    assert app.run("apply", *ACT).status == 0
    assert app.agreed() is None
    assert app.run("undo", *ACT).status == 0
    assert app.agreed() == 500

    app.write(given(498))
    assert app.plan().status == 0
    assert app.run("apply", *ACT).status == 0
    worker.resume("there")
    worker.until(lambda: values(lab, where).total() == 502, "it did not go on behind 498")
    again = Counter([b"499", b"500"])
    assert values(lab, where) == Counter(b"%d" % n for n in range(1, 501)) + again
    worker.stop("there")
    assert app.agreed() == 500
    moved = app.run("undo", *ACT)
    assert moved.status == 4, moved.text
    verified = app.run("verify", "--pause", "0.2s", "-o", "json")
    assert [(r["finding"], r["where"]) for r in verified.rows] == [("overwritten", SOURCE)]


@pytest.mark.parametrize("own", [False, True], ids=["shared-topic", "own-topic"])
def test_the_outputs_tell_where_it_goes_on(
    lab: Lab, worker: Worker, topic: MakeTopic, tmp_path: Path, own: bool
) -> None:
    """Offsets that fell behind come back to the number of the last output: nothing is doubled."""
    where, name = topic(lab), f"counted-{own}"
    offsets = f"{where}-offsets" if own else None
    settings = {"offsets_storage_topic": offsets} if offsets else {}
    worker.counting(name, where, records="700", **settings)
    worker.until(lambda: values(lab, where).total() > 300, "nothing is written")
    worker.stop(name)
    app = App(lab, tmp_path, worker, name, "")
    number = values(lab, where).total()
    assert app.agreed(offsets) == number
    behind = {"table": "orders", "database": "shop"}
    body = {"offsets": [{"partition": behind, "offset": {"id": 17, "kind": "row"}}]}
    assert worker.rest("PATCH", f"/connectors/{name}/offsets", body)[0] == 200

    app.write('field = "id"', outputs=f'outputs = ["{where}"]')
    planned = app.plan()
    assert planned.status == 0, planned.text
    [row] = planned.rows
    assert json.loads(row["sources"][0]["current_offset"])["id"] == 17
    assert json.loads(row["sources"][0]["restart_offset"]) == {"id": number, "kind": "row"}
    assert row["guarantee"] == "exactly-once"
    applied = app.run("apply", *ACT)
    assert applied.status == 0, applied.text
    assert app.agreed(offsets) == number
    worker.resume(name)
    worker.until(lambda: values(lab, where).total() >= 700, "it did not go on")
    assert values(lab, where) == Counter(b"%d" % n for n in range(1, 701))
    worker.stop(name)


def test_a_worker_that_cannot_find_what_its_task_wrote(
    lab: Lab, worker: Worker, topic: MakeTopic, tmp_path: Path
) -> None:
    """Keys in another order than Connect's own: GET says nothing, a PATCH would change nothing."""
    where = topic(lab)
    worker.counting("ordered", where, records="50", ordered="true")
    worker.until(lambda: values(lab, where).total() == 50, "not all was written")
    worker.stop("ordered")
    app = App(lab, tmp_path, worker, "ordered", given(10))
    refused = app.plan()
    assert refused.status == 4, refused.text
    assert f"for {SOURCE}, the worker says nothing" in " ".join(refused.stderr.split())
    body = {"offsets": [{"partition": json.loads(SOURCE), "offset": {"id": 10}}]}
    assert worker.rest("PATCH", "/connectors/ordered/offsets", body)[0] == 200
    refused = app.plan()
    assert refused.status == 4, refused.text
    assert "is stored under two keys" in refused.stderr


def test_a_sinks_offsets_are_its_groups(
    lab: Lab, worker: Worker, topic: MakeTopic, tmp_path: Path
) -> None:
    """Refused with the command that moves the group; that one moves what GET says."""
    from confluent_kafka import Producer

    where, out = topic(lab), tmp_path / "sink.txt"
    producer = Producer(lab.client_properties())
    for number in range(30):
        producer.produce(where, b"%d" % number, partition=0)
    assert producer.flush(20) == 0
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "1",
        "topics": where,
        "file": str(out),
    }
    worker.create("sink", config)
    worker.until(lambda: out.exists() and out.read_text().count("\n") == 30, "nothing sunk")
    worker.stop("sink")
    refused = App(lab, tmp_path, worker, "sink", given(1)).plan()
    assert refused.status == 4, refused.text
    assert "eoctl restart plan --group connect-sink" in " ".join(refused.stderr.split())
    plan = str(tmp_path / "group.json")
    words = ("plan", "--group", "connect-sink", "--topic", f"{where}:0", "--to-offset", "12")
    planned = eoctl("restart", *words, "--out", plan, lab=lab)
    assert planned.status == 0, planned.text
    assert eoctl("restart", "apply", plan, *ACT, lab=lab).status == 0
    told = worker.rest("GET", "/connectors/sink/offsets")[1]["offsets"]
    mine = {"kafka_topic": where, "kafka_partition": 0}
    assert [o["offset"] for o in told if o["partition"] == mine] == [{"kafka_offset": 12}]


class Relay:
    """Stands before a worker; `on_patch(forward)` is called with each PATCH, and its answer never
    comes: the connection is cut.
    """

    def __init__(self, worker: Worker, on_patch: Callable[[Callable[[], bytes]], object]) -> None:
        self._worker, self._on_patch = worker, on_patch
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client, _ = self._server.accept()
            threading.Thread(target=self._one, args=(client,), daemon=True).start()

    def _one(self, client: socket.socket) -> None:
        with client:
            request = client.recv(65536)
            if request.startswith(b"PATCH"):
                head, _, body = request.partition(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split()[0])
                while len(body) < length:
                    body += client.recv(65536)
                self._on_patch(lambda: self._ask(head + b"\r\n\r\n" + body))
            else:
                with suppress(OSError):  # the worker is dead: no answer
                    client.sendall(self._ask(request))

    def _ask(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self._worker.port), 60) as server:
            head, end, body = request.partition(b"\r\n\r\n")
            server.sendall(head + b"\r\nConnection: close" + end + body)
            answer = b""
            while more := server.recv(65536):
                answer += more
            return answer


def test_an_answer_that_is_lost_is_looked_for(
    lab: Lab, worker: Worker, topic: MakeTopic, tmp_path: Path
) -> None:
    where = topic(lab)
    worker.counting("lost", where, records="60")
    worker.until(lambda: values(lab, where).total() == 60, "not all was written")
    worker.stop("lost")
    app = App(lab, tmp_path, worker, "lost", "")
    app.write(given(20), url=Relay(worker, lambda forward: forward()).url)
    assert app.plan().status == 0
    applied = app.run("apply", *ACT)
    assert applied.status == 0, applied.text
    assert app.agreed() == 20


def test_a_worker_killed_midway(lab: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """Not known, and said; the same command again ends it once a worker answers."""
    where = topic(lab)
    worker = Worker(lab, tmp_path / "worker", "dies").start()
    try:
        worker.counting("dies", where, records="60")
        worker.until(lambda: values(lab, where).total() == 60, "not all was written")
        worker.stop("dies")
        app = App(lab, tmp_path, worker, "dies", "")
        patches: list[bytes] = []
        before = unfinished("restart")

        def kill_first(forward: Callable[[], bytes]) -> None:
            patches.append(b"" if patches else b"killed")
            if patches[-1]:
                worker.kill()
            else:
                forward()

        app.write(given(20), url=Relay(worker, kill_first).url)
        assert app.plan().status == 0
        applied = app.run("apply", *ACT)
        assert applied.status == 6, applied.text
        worker.start()
        worker.until(lambda: worker.state("dies") == ("STOPPED", []), "it is not known again")
        assert app.agreed() == 60
        assert unfinished("restart") > before
        again = app.run("apply", *ACT)
        assert again.status == 0, again.text
        assert unfinished("restart") == before
        assert len(patches) == 2
        assert app.agreed() == 20
        assert app.run("undo", *ACT).status == 0
        assert app.agreed() == 60

    finally:
        worker.kill()


def test_eoctl_killed_midway(lab: Lab, worker: Worker, topic: MakeTopic, tmp_path: Path) -> None:
    """The PATCH was taken, eoctl died before it heard so: the same command again ends it."""
    where = topic(lab)
    worker.counting("killed", where, records="60")
    worker.until(lambda: values(lab, where).total() == 60, "not all was written")
    worker.stop("killed")
    app = App(lab, tmp_path, worker, "killed", "")
    reached = threading.Event()

    def hold(forward: Callable[[], bytes]) -> None:
        forward()
        reached.set()
        threading.Event().wait(30)

    app.write(given(20), url=Relay(worker, hold).url)
    assert app.plan().status == 0
    with eoctl_running(lab, "restart", "apply", str(app.plan_file), *ACT) as apply:
        assert reached.wait(60)
        apply.kill()
        apply.wait(20)
    assert app.agreed() == 20
    again = app.run("apply", *ACT)
    assert again.status == 0, again.text
    assert app.run("undo", *ACT).status == 0
    assert app.agreed() == 60
