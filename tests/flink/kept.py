"""A kept checkpoint of a real Flink job, and its source's topic in a lab."""

import json
from pathlib import Path

from eoctl.lab.cluster import Lab
from tests.kafka.crashed import producing

KEPT = Path(__file__).parent.parent / "kept" / "flink" / "incrementing-2.2"
CHECKPOINT = KEPT / "chk-2"
TOPIC = "in-incrementing-2.2"


def source_topic(lab: Lab) -> dict[tuple[str, int], int]:
    """Make the checkpoint's source topic, long enough; its offsets, by Flink's own classes."""
    from confluent_kafka.admin import AdminClient, NewTopic

    loaded = json.loads((KEPT / "loaded.json").read_text())["offsets"]
    found = {(topic, partition): offset for topic, partition, offset in loaded}
    admin = AdminClient(lab.client_properties())
    if TOPIC not in admin.list_topics(timeout=20).topics:
        [made] = admin.create_topics([NewTopic(TOPIC, len(found), 1)]).values()
        made.result(20)
        producer = producing(lab)
        for (topic, partition), offset in found.items():
            for number in range(offset + 10):
                producer.produce(topic, str(number), partition=partition)
        assert producer.flush(30) == 0
    return found
