"""`state rebuild` and the sink where the executors' disk is full: one sentence, nothing half there,
then done."""

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.kafka.connection.access import Access
from eoctl.lab.cluster import Lab
from recovery.errors import IncompleteError
from spark_jobs.sink.write import write_exactly_once
from tests.kafka.state_oracle import dict_state, digest, producer
from tests.kafka.test_state_disk import small_disk
from tests.spark.rebuilding import on_session, plain
from tests.spark.sinking import staged_values, values
from tests.spark.test_rebuild import KEPT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
@pytest.mark.parametrize("most", [10**9, pytest.param(150, marks=pytest.mark.long)])
def test_a_full_disk(spark: "SparkSession", lab1: Lab, tmp_path: Path, most: int) -> None:
    """Whole, and in ranges whose runs are spilt first."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"full-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(lab1.client_properties())
    admin.create_topics([NewTopic(name, 1, 1, config=KEPT)])[name].result(30)
    writer = producer(lab1)
    writer.begin_transaction()
    for number in range(400):
        writer.produce(name, os.urandom(2_000), b"key-%d" % number)
    writer.commit_transaction(30)
    with small_disk(tmp_path / "disk", "300k") as disk:
        output = disk.seen / "state"
        wanted = plain(name, output, range_offsets=most)
        with pytest.raises(IncompleteError, match="No space left on device; make space there"):
            on_session(spark, lab1, wanted)
        assert not (output / "manifest.json").exists()
        disk.resize("4m")
        found = on_session(spark, lab1, wanted)
        assert found.digest == digest(dict_state(lab1, name, found.ends)[0])
        listed = {Path(f.path).name for p in found.manifest.partitions for f in p.files}
        assert {path.name for path in output.glob("data/*/*")} == listed


@pytest.mark.long
def test_a_full_disk_while_a_sink_stages(spark: "SparkSession", lab1: Lab, tmp_path: Path) -> None:
    """What could not be staged whole takes no room, however often it is tried; nothing is sent."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"full-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(lab1.client_properties())
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    # a small partition, which fits, and a large one
    frame = spark.range(0, 20_000, 1, 2).selectExpr(
        "case when id < 10000 then uuid() else concat(uuid(), uuid(), uuid(), uuid()) end value"
    )
    with small_disk(tmp_path / "disk", "700k") as disk:

        def write() -> int:
            report = write_exactly_once(
                frame,
                topic=name,
                job=name,
                batch=0,
                staging_folder=disk.seen,
                access=Access(lab1.client_properties()),
            )
            return int(report["rows_sent_now"])

        folder = disk.seen / name / "batch-0"
        for _ in range(2):
            with pytest.raises(IncompleteError, match="No space left on device; make space there"):
                write()
            assert list(folder.iterdir()) == []
        disk.resize("4m")
        assert write() == 20_000
        assert values(lab1, name) == staged_values(folder)
