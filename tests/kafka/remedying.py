"""What tests of remedies share: the words of an abort, and what partitions hold afterwards."""

import time

from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from tests.kafka.diagnosing import judged
from tests.kafka.tools import kafka_tool


def abort_words(lab: Lab, t: GroundTruth, *more: str) -> list[str]:
    return [
        "txn",
        "abort",
        f"{t.topic}:{t.partition}",
        "--pid",
        str(t.producer_id),
        "--start-offset",
        str(t.start_offset),
        "--sample-interval",
        "0.3s",
        "--bootstrap-server",
        lab.bootstrap_servers,
        *more,
    ]


def held(lab: Lab, t: GroundTruth) -> list[str]:
    return [
        j.verdict.name
        for j in judged(lab, f"{t.topic}:{t.partition}").judged
        if j.about.producer_id == t.producer_id
    ]


def read_committed(lab: Lab, topic: str, partition: int) -> list[bytes | None]:
    """What a read_committed consumer gets, up to the high watermark: the independent oracle."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        lab.client_properties()
        | {
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
            "fetch.wait.max.ms": 20,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    got: list[bytes | None] = []
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is None:
            got.append(message.value())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            break
    consumer.close()
    return got


def markers_of(lab: Lab, t: GroundTruth) -> list[str]:
    """The control records of the producer after the start offset, by Kafka's own log dump."""
    log = lab.data_folder(t.leader or 1) / f"{t.topic}-{t.partition}"
    found: list[str] = []
    for segment in sorted(log.glob("*.log")):
        said = kafka_tool(
            lab,
            "org.apache.kafka.tools.DumpLogSegments",
            "--files",
            str(segment),
            "--print-data-log",
        ).stdout
        pid = None
        for line in said.splitlines():
            if "producerId: " in line:
                pid = int(line.split("producerId: ")[1].split()[0])
            if "endTxnMarker: " in line and pid == t.producer_id:
                found.append(line.split("endTxnMarker: ")[1].split()[0].lower())
    return found
