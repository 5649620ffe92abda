"""Real workers of Kafka Connect, frozen, thawed and killed: whose an id is, and no false zombie.

What is true is what the workers' REST interface says, and what plain consumers read.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.connect.worker import Worker
from tests.kafka.command import eoctl
from tests.kafka.conftest import SOON, MakeTopic
from tests.kafka.merging import consumed

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=[2, 1], ids=["transactions-v2", "transactions-v1"])
def lab(request: pytest.FixtureRequest, start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    version = request.param
    lab = start_lab(LabSpec(name=f"connect-v{version}", transaction_version=version, settings=SOON))
    yield lab
    lab.down()


@pytest.fixture(scope="module")
def worker(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    worker = Worker(lab, tmp_path_factory.mktemp("worker"), "etl").start()
    yield worker
    worker.kill()


def values(lab: Lab, topic: str) -> Counter[bytes | None]:
    """What a read_committed consumer sees: each value and how often."""
    rows = consumed(lab, [(topic, 0)]).values()
    return Counter(copied[1] for some in rows for _, copied in some)


def test_the_holder_is_named_by_its_worker(lab: Lab, worker: Worker, topic: MakeTopic) -> None:
    where = topic(lab)
    hour = {"transaction_boundary": "interval", "transaction_boundary_interval_ms": "3600000"}
    worker.counting("orders-2", where, **hour)
    held = ("lso", f"{where}:0", "-o", "json")
    worker.until(lambda: eoctl(*held, lab=lab).rows[0]["held"] > 0, "nothing is open")
    [(_, told)] = worker.workers("orders-2")

    asked = eoctl("why", f"{where}:0", "-o", "json", lab=lab)
    assert asked.status == 0, asked.stderr
    [row] = asked.rows
    connect = row["owner"]["connect"]
    assert row["held_by"]["verdict"] == "open"
    assert (connect["group"], connect["group_exists"]) == ("etl", True)
    assert (connect["connector"], connect["task"], connect["runs"]) == ("orders-2", 0, True)
    assert connect["workers"] == [f"http://{told}/"]
    page = eoctl("why", f"{where}:0", lab=lab).text
    assert "by its name task 0 of connector orders-2 in Kafka Connect's worker group etl" in page
    assert f"its worker: http://{told}/" in page
    assert "Flink" not in page  # the id ends as one of Flink's sink would

    [task, leader] = eoctl(
        "txn", "describe", "etl-orders-2-0", "connect-cluster-etl", "-o", "json", lab=lab
    ).rows
    assert task["connect"] == connect
    assert (leader["connect"]["group"], leader["connect"]["connector"]) == ("etl", None)
    assert leader["connect"]["workers"] == [f"http://{told}/"]
    worker.rest("DELETE", "/connectors/orders-2")


def test_a_real_worker_goes_on_where_the_labs_break_ended(
    lab: Lab, tmp_path: Path, topic: MakeTopic
) -> None:
    """It takes what the lab wrote for its own: each line once, and the same keys and values."""
    where, other = topic(lab), topic(lab)
    [truth] = break_(lab, "connect", topic=where, group="gone", records=40)
    file = lab.folder / "connect" / "gone" / f"{where}.txt"
    lines = file.read_bytes().splitlines()
    topics = [("gone-configs", 0), ("gone-status", 0), ("gone-offsets", 0)]
    written = by_key(lab, topics)
    worker = Worker(lab, tmp_path / "worker", "gone").start()
    try:
        running = ("RUNNING", ["RUNNING"])
        worker.until(lambda: worker.state(where) == running, "it was not taken over")
        worker.until(lambda: values(lab, where).total() >= 80, "it did not go on")
        assert values(lab, where) == Counter(lines)
        at = {"filename": str(file)}
        worker.until(
            lambda: worker.offsets(where) == {json.dumps(at): {"position": file.stat().st_size}},
            "its offset",
        )
        copy = tmp_path / "other.txt"
        copy.write_bytes(b"".join(line + b"\n" for line in lines[:40]))
        config = json.loads(written[f"connector-{where}".encode()][0])["properties"]
        worker.create(other, {**config, "name": other, "topic": other, "file": str(copy)})
        worker.until(lambda: values(lab, other).total() == 40, "not all was written")
        worker.until(lambda: bool(worker.offsets(other)), "no offset")
    finally:
        worker.kill()

    def as_broken(text: bytes) -> bytes:
        return text.replace(str(copy).encode(), str(file).encode()).replace(
            other.encode(), where.encode()
        )

    real = {as_broken(key): list(map(as_broken, v)) for key, v in by_key(lab, topics).items()}
    for key, [mine] in written.items():
        theirs = real[key][-1]
        if key.startswith(b"status-"):  # worker, generation and time are its own
            assert shape(mine) == shape(theirs)
        else:
            assert mine == theirs
    assert truth.transactional_id == f"gone-{where}-0"


def by_key(lab: Lab, topics: list[tuple[str, int]]) -> dict[bytes, list[bytes]]:
    """The values of each key in these partitions, in their order."""
    found: dict[bytes, list[bytes]] = {}
    for rows in consumed(lab, topics).values():
        for _, (key, value, *_) in rows:
            found.setdefault(key or b"", []).append(value or b"")
    return found


def shape(value: bytes) -> object:
    """The fields of a state, and those values that are not a worker's own."""
    own = ("worker_id", "generation", "discoverTimestamp")

    def fields(told: object) -> object:
        if not isinstance(told, dict):
            return told
        return [(k, None if k in own else fields(v)) for k, v in told.items()]

    return fields(json.loads(value))


def test_a_frozen_worker_that_comes_back_is_no_zombie(
    lab: Lab, tmp_path: Path, topic: MakeTopic
) -> None:
    """The second one fences its tasks: nothing is doubled, and its older epoch merely stands."""
    where = topic(lab)
    first = Worker(lab, tmp_path / "first", "pair").start()
    second = Worker(lab, tmp_path / "second", "pair")
    try:
        first.counting("numbers", where, records="4000", batch="5", pause_ms="20")
        first.until(lambda: values(lab, where).total() > 100, "nothing is written")
        first.freeze()
        second.start()
        mine = [("RUNNING", second.url.removeprefix("http://"))]
        second.until(lambda: second.workers("numbers") == mine, "the task was not taken over")
        seen = values(lab, where).total()
        second.until(lambda: values(lab, where).total() > seen, "it does not go on")
        first.thaw()
        first.until(lambda: first.rest("GET", "/connectors")[0] == 200, "it does not come back")
        second.until(lambda: values(lab, where).total() >= 4000, "not all was written")
        assert values(lab, where) == Counter(b"%d" % n for n in range(1, 4001))

        asked = eoctl("producers", "--internal", "--resolve", "-o", "json", lab=lab)
        assert asked.status == 0, asked.stderr
        states = [r for r in asked.rows if r["transactional_id"] == "pair-numbers-0"]
        assert {r["topic"] for r in states} >= {where}
        assert not [r for r in asked.rows if r["wrote_after_fence"]]
        assert "zombie" not in eoctl("producers", "--resolve", "-o", "wide", lab=lab).text
        clean = eoctl("audit", "sequences", where, lab=lab)
        assert clean.status == 0, clean.text
    finally:
        first.kill()
        second.kill()
