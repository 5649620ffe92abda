"""The source offsets of a Flink checkpoint as a store: shown, and a group that is set to them.

The checkpoint was written by a real job; what it holds is what Flink's own classes read of it.
"""

import json
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from tests.kafka.command import eoctl
from tests.kafka.crashed import committed, producing

KEPT = Path(__file__).parent.parent / "kept" / "flink" / "incrementing-2.2"
CHECKPOINT = KEPT / "chk-2"
TOPIC = "in-incrementing-2.2"


@pytest.fixture(scope="module")
def offsets(lab1: Lab) -> dict[tuple[str, int], int]:
    """The checkpoint's offsets by Flink's own classes; its source topic, long enough, is there."""
    from confluent_kafka.admin import AdminClient, NewTopic

    loaded = json.loads((KEPT / "loaded.json").read_text())["offsets"]
    found = {(topic, partition): offset for topic, partition, offset in loaded}
    admin = AdminClient(lab1.client_properties())
    if TOPIC not in admin.list_topics(timeout=20).topics:
        [made] = admin.create_topics([NewTopic(TOPIC, len(found), 1)]).values()
        made.result(20)
        producer = producing(lab1)
        for (topic, partition), offset in found.items():
            for number in range(offset + 10):
                producer.produce(topic, str(number), partition=partition)
        assert producer.flush(30) == 0
    return found


def test_a_group_is_set_to_the_checkpoints_offsets(
    lab1: Lab, tmp_path: Path, offsets: dict[tuple[str, int], int]
) -> None:
    shown = eoctl("offsets", "show", "--store", f"flink:{CHECKPOINT}", "-o", "json", lab=lab1)
    assert shown.status == 0, shown.text
    assert {(r["topic"], r["partition"]): r["committed_offset"] for r in shown.rows} == offsets
    assert shown.json["stores"][0]["kind"] == "flink-checkpoint"

    group, plan = "afresh", tmp_path / "plan.json"
    words = ("--group", group, "--from-store", f"flink:{CHECKPOINT}#from-kafka")
    planned = eoctl("restart", "plan", *words, "--out", str(plan), "-o", "json", lab=lab1)
    assert planned.status == 0, planned.text
    [row] = planned.rows
    assert row["strategy"] == "from-store"
    said = [c["detail"] for c in row["checks"] if c["name"] == "source"]
    assert said == ["all that was read before these offsets has its results where they belong"]
    applied = eoctl("restart", "apply", str(plan), "--execute", "--yes", lab=lab1)
    assert applied.status == 0, applied.text
    assert committed(lab1, group) == offsets

    one = ("--group", "one", "--from-store", f"flink:{CHECKPOINT}", "--topic", f"{TOPIC}:1")
    planned = eoctl("restart", "plan", *one, "-o", "json", lab=lab1)
    assert [i["restart_offset"] for i in planned.rows[0]["inputs"]] == [offsets[TOPIC, 1]]


def test_what_cannot_be_meant_is_refused(lab1: Lab, tmp_path: Path) -> None:
    cases = [
        (f"flink:{CHECKPOINT}#nobody", 4, "it has no source nobody; name one of from-kafka"),
        (f"flink:{tmp_path}", 3, "_metadata: cannot be read"),
        ("chk-2", 2, "is no store"),
    ]
    for store, status, words in cases:
        ran = eoctl("restart", "plan", "--group", "g", "--from-store", store, lab=lab1)
        assert (ran.status, words in ran.text) == (status, True), ran.text
    both = ("--group", "g", "--from-store", f"flink:{CHECKPOINT}", "--to-earliest")
    ran = eoctl("restart", "plan", *both, lab=lab1)
    assert (ran.status, "goes with --group and --topic alone" in ran.text) == (2, True)
