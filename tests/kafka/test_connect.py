"""Real workers of Kafka Connect, frozen, thawed and killed: whose an id is, and no false zombie.

What is true is what the workers' REST interface says, and what plain consumers read.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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

    [task, leader] = eoctl(
        "txn", "describe", "etl-orders-2-0", "connect-cluster-etl", "-o", "json", lab=lab
    ).rows
    assert task["connect"] == connect
    assert (leader["connect"]["group"], leader["connect"]["connector"]) == ("etl", None)
    assert leader["connect"]["workers"] == [f"http://{told}/"]
    worker.rest("DELETE", "/connectors/orders-2")


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
