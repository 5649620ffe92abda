"""Inspection on older Kafka: what a version cannot answer is said, the rest is answered."""

from collections.abc import Callable

import pytest

from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.kafka.command import eoctl

SCRIPT = """
import os, sys
from confluent_kafka import Producer
p = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": "t1"})
p.init_transactions(30)
p.begin_transaction()
p.produce(sys.argv[2], b"x", partition=0)
p.flush()
os._exit(0)
"""


def _open_transaction(lab: Lab, topic: str) -> None:
    import subprocess
    import sys

    subprocess.run([sys.executable, "-c", SCRIPT, lab.bootstrap_servers, topic], check=True)


@pytest.mark.long
@pytest.mark.parametrize("version", ["4.4.0", "4.0.1", "3.9.1", "2.8.2"])
def test_other_brokers_are_read_as_far_as_they_answer(
    start_lab: Callable[[LabSpec], Lab], topic: Callable[..., str], version: str
) -> None:
    old = version == "2.8.2"
    lab = start_lab(LabSpec(name="v" + version.replace(".", ""), kafka_version=version))
    try:
        name = topic(lab, 2)
        _open_transaction(lab, name)
        lso = eoctl("lso", name, "-o", "json", lab=lab)
        assert lso.status == (3 if old else 0)
        row = next(r for r in lso.rows if r["partition"] == 0)
        assert (row["last_stable_offset"], row["high_watermark"]) == (0, 1)
        assert row["blocking"]["start_offset"] == 0
        assert row["blocking"]["transactional_id"] == (None if old else "t1")
        producers = eoctl("producers", f"{name}:0", "-o", "json", lab=lab)
        assert producers.status == 0
        assert [r["current_txn_start_offset"] for r in producers.rows] == [0]
        listed = eoctl("txn", "list", "-o", "json", lab=lab)
        judged = eoctl("txn", "hanging", name, "-o", "json", lab=lab)
        if old:
            assert listed.status == 3
            assert "Kafka 3.0" in listed.json["errors"][0]["detail"]
            assert [r["verdict"] for r in judged.rows] == ["unknown"]
            assert judged.status == 3
        else:
            assert listed.status == 0
            assert [r["transactional_id"] for r in listed.rows] == ["t1"]
            assert [r["verdict"] for r in judged.rows] == ["open"]
            assert judged.status == 0
        history = eoctl("txn", "history", "t1", "-o", "json", lab=lab)
        assert [r["state"] for r in history.rows] == ["Empty", "Ongoing"]
    finally:
        lab.down()
