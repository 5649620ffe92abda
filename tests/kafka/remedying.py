"""What tests of remedies share: the words of an abort, and what partitions hold afterwards."""

import time

from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from tests.kafka.command import FAST
from tests.kafka.diagnosing import judged
from tests.kafka.tools import kafka_tool


def abort(t: GroundTruth) -> tuple[str, ...]:
    """The words that abort this transaction, without those that say where."""
    which = ("--pid", str(t.producer_id), "--start-offset", str(t.start_offset))
    return ("txn", "abort", f"{t.topic}:{t.partition}", *which, *FAST)


def abort_words(lab: Lab, t: GroundTruth, *more: str) -> list[str]:
    return [*abort(t), "--bootstrap-server", lab.bootstrap_servers, *more]


def held(lab: Lab, t: GroundTruth) -> list[str]:
    return [
        j.verdict.name
        for j in judged(lab, f"{t.topic}:{t.partition}").judged
        if j.about.producer_id == t.producer_id
    ]


def end(lab: Lab, truth: GroundTruth) -> int:
    """The high watermark, as a plain consumer sees it: a marker is one offset."""
    from confluent_kafka import Consumer, TopicPartition

    isolation = {"isolation.level": "read_uncommitted"}  # else it tells the last stable offset
    consumer = Consumer({**lab.client_properties(), "group.id": "oracle", **isolation})
    try:
        partition = TopicPartition(truth.topic, truth.partition)
        return int(consumer.get_watermark_offsets(partition, 20)[1])
    finally:
        consumer.close()


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


DUMP = {False: "org.apache.kafka.tools.DumpLogSegments", True: "kafka.tools.DumpLogSegments"}
"""Kafka's log dump; True: before 4.0."""


def markers_of(lab: Lab, t: GroundTruth) -> list[str]:
    """The producer's control records by Kafka's own log dump: `commit` or `abort` of each."""
    found = dumped_markers(lab, t.topic, t.partition, t.producer_id or 0, t.leader or 1)
    return [outcome for outcome, _ in found]


def dumped_markers(
    lab: Lab, topic: str, partition: int, producer_id: int, broker: int = 1
) -> list[tuple[str, int]]:
    """Outcome and producer epoch of the producer's control records, by Kafka's own log dump."""
    log = lab.data_folder(broker) / f"{topic}-{partition}"
    found: list[tuple[str, int]] = []
    for segment in sorted(log.glob("*.log")):
        said = kafka_tool(
            lab,
            DUMP[lab.record.spec.kafka_version.startswith("3.")],
            "--files",
            str(segment),
            "--print-data-log",
        ).stdout
        pid, epoch = None, -1
        for line in said.splitlines():
            if "producerId: " in line:
                pid = int(line.split("producerId: ")[1].split()[0])
                epoch = int(line.split("producerEpoch: ")[1].split()[0])
            if "endTxnMarker: " in line and pid == producer_id:
                found.append((line.split("endTxnMarker: ")[1].split()[0].lower(), epoch))
    return found
