"""What `why` says is at stake, held against what was written and against Kafka's own log dump."""

import re

from confluent_kafka import Consumer, Producer, TopicPartition

from eoctl.lab.cluster import Lab
from tests.kafka.command import FAST, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.remedying import DUMP
from tests.kafka.tools import kafka_tool


def test_what_an_outcome_costs_and_whom_it_concerns(lab1: Lab, topic: MakeTopic) -> None:
    """Three records here and one beside are open; two plain ones wait; one group is beyond."""
    name = topic(lab1, 2)
    properties = lab1.client_properties()
    plain = Producer(properties)
    plain.produce(name, b"before", partition=0)
    plain.flush(20)
    open_ = Producer({**properties, "transactional.id": f"{name}-writer"})
    open_.init_transactions(20)
    open_.begin_transaction()
    for _ in range(3):
        open_.produce(name, b"open", partition=0)
    open_.produce(name, b"open", partition=1)
    open_.flush(20)
    for _ in range(2):
        plain.produce(name, b"behind", partition=0)
    plain.flush(20)
    for group, at in ((f"{name}-held", 1), (f"{name}-beyond", 5)):
        consumer = Consumer({**properties, "group.id": group})
        consumer.commit(offsets=[TopicPartition(name, 0, at)], asynchronous=False)
        consumer.close()
    try:
        ran = eoctl("why", f"{name}:0", "-o", "json", *FAST, lab=lab1)
        page = eoctl("why", f"{name}:0", *FAST, lab=lab1)
    finally:
        open_.abort_transaction(20)
    [row] = ran.rows
    waiting = row["waiting"]
    assert (waiting["records"], waiting["mine"], waiting["freed"]) == (5, 3, 2)
    assert waiting["mine_bytes"] == dumped_bytes(lab1, name, row["held_by"]["producer_id"])
    assert row["also_holds"] == [f"{name}:1"]
    assert {g["group"]: g["beyond"] for g in row["groups"]} == {
        f"{name}-held": False,
        f"{name}-beyond": True,
    }
    words = " ".join(page.stdout.split())
    size = f"3 records ({waiting['mine_bytes']} B) here"
    assert (
        f"at stake {size}: an abort drops, a commit delivers them; either frees 2 others" in words
    )
    assert f"also holds {name}:1" in words


def dumped_bytes(lab: Lab, topic: str, producer_id: int) -> int:
    """The size of a producer's data batches on partition 0, by Kafka's own log dump."""
    files = ",".join(map(str, sorted((lab.data_folder(1) / f"{topic}-0").glob("*.log"))))
    lines = kafka_tool(lab, DUMP[False], "--files", files).stdout.splitlines()
    batches = [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines]
    return sum(
        int(b["size"])
        for b in batches
        if b.get("producerId") == str(producer_id) and b["isControl"] == "false"
    )
