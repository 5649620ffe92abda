"""What mends a Structured Streaming checkpoint: a table of cases; with real Spark: tests/spark."""

import json
from pathlib import Path
from typing import Any

import pytest

from eoctl.operations.restart.spark_checkpoint_copy import _answer
from eoctl.operations.state.spark_state import as_text
from eoctl.stores import spark_checkpoint
from recovery.formats.reader import CorruptError
from recovery.formats.spark_checkpoint import BatchOffsets, batch_offsets, commit_metadata
from recovery.restart.checkpoint_repair import (
    CheckpointDiagnosis,
    CheckpointFiles,
    Progress,
    StoreVersions,
    diagnose,
    words,
)
from recovery.values import replace


def offsets(end: int, watermark: int = 0, version: int = 1) -> BatchOffsets:
    line = f'{{"orders":{{"0":{end}}}}}'
    metadata = {"batchWatermarkMs": watermark, "batchTimestampMs": 7, "conf": {"a": "b"}}
    return BatchOffsets(version, metadata, (line if version == 1 else f"s:{line}",))


def store(*whole: int, name: str = "state/0/0") -> StoreVersions:
    return StoreVersions(name, frozenset(whole), frozenset(whole))


def commit(watermark: int = 0) -> dict[str, int]:
    return {"nextBatchWatermarkMs": watermark}


def event(batch: int, start: int, end: int, query: str = "q") -> dict[int, Progress]:
    return {
        batch: Progress(query, batch, 99, ({"orders": {"0": start}},), ({"orders": {"0": end}},))
    }


WHOLE = CheckpointFiles(
    "q",
    {5: offsets(50), 6: offsets(60), 7: offsets(70)},
    {5: commit(), 6: commit(33), 7: commit(44)},
    stores=(store(6, 7, 8),),
)
LOST = replace(WHOLE, offsets={5: offsets(50), 6: offsets(60)})


def test_a_whole_one() -> None:
    assert diagnose(WHOLE).findings == ()
    flight = replace(WHOLE, commits={5: commit(), 6: commit()})
    assert (diagnose(flight).in_flight, diagnose(flight).findings) == (True, ())


@pytest.mark.parametrize("version", [1, 2])
def test_an_event_proves_an_end(version: int) -> None:
    """Its start, its batch and its query must be this one's."""
    files = replace(LOST, offsets={n: offsets(10 * n, 1, version) for n in (5, 6)})
    [write] = diagnose(files, event(7, 60, 75)).remedy.writes  # type: ignore[union-attr]
    made = batch_offsets(write.text, "")
    assert made.sources == offsets(75, version=version).sources
    assert made.metadata == {"batchWatermarkMs": 33, "batchTimestampMs": 99, "conf": {"a": "b"}}
    assert (write.effect, "GUESSED: batchTimestampMs" in write.because) == ("proven", True)
    for wrong in (event(7, 59, 75), event(6, 60, 75), event(7, 60, 75, "other")):
        assert diagnose(files, wrong).remedy is None


def test_without_an_event_nothing_is_guessed() -> None:
    diagnosis = diagnose(LOST)
    assert diagnosis.remedy is None
    assert "where batch 7 ends is not written anywhere else" in (diagnosis.refused or "")
    assert "--rewind goes back to batch 6: batch 7 would be" in (diagnosis.refused or "")
    remedy = diagnose(LOST, rewind=True).remedy
    assert remedy is not None
    assert (remedy.way, remedy.batch, remedy.without_commits, remedy.version) == (
        "next",
        6,
        (7,),
        7,
    )
    assert "leaves rows out unless it gets a new name" in words(remedy)


def test_equal_neighbours_prove_what_is_between() -> None:
    """A batch without data: the watermark is that of the commit before, not of its neighbours."""
    between = replace(
        WHOLE,
        offsets={5: offsets(70, 11), 7: offsets(70, 55)},
        commits={5: commit(22), 6: commit(55)},
        stores=(store(6, 7),),
    )
    remedy = diagnose(between).remedy
    assert remedy is not None
    [write] = remedy.writes
    assert (remedy.way, write.file) == ("again", "offsets/6")
    assert batch_offsets(write.text, "").watermark_ms == 22
    moved = replace(between, offsets={5: offsets(69), 7: offsets(70)})
    assert diagnose(moved).remedy is None
    assert diagnose(replace(between, commits={6: commit()})).remedy is None


def test_state_decides_where_it_goes_on() -> None:
    def way(*versions: int, **changes: object) -> tuple[str, int] | None:
        files = replace(WHOLE, stores=(store(6, 7, 8), store(*versions, name="state/0/1")))
        remedy = diagnose(replace(files, **changes)).remedy  # type: ignore[arg-type]
        return None if remedy is None else (remedy.way, remedy.batch)

    assert way(6, 7) == ("again", 7)
    assert way(6) is None
    assert way(6, 7, missing_stores=("state/0/2",)) is None
    lost = replace(LOST, commits={5: commit(), 6: commit()})  # only the state is of batch 7
    diagnosis = diagnose(lost)
    assert [f.file for f in diagnosis.findings] == ["offsets/7"]
    assert diagnosis.broken


def test_the_last_two_must_be_there() -> None:
    """Whatever is gone below them."""
    alone = replace(WHOLE, offsets={7: offsets(70)}, commits={7: commit()})
    diagnosis = diagnose(alone)
    assert [(f.file, f.blocks) for f in diagnosis.findings] == [("offsets/6", True)]
    remedy = diagnosis.remedy
    assert remedy is not None
    assert [(w.file, w.effect) for w in remedy.writes] == [("offsets/6", "no-effect")]
    first = replace(WHOLE, offsets={0: offsets(9)}, commits={}, stores=())
    assert diagnose(first).findings == ()
    empty = replace(WHOLE, offsets={}, commits={}, stores=())
    assert (diagnose(empty).last, diagnose(empty).broken) == (None, False)


def test_ids_of_the_state_are_not_made_up() -> None:
    named = {"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": [["x"]]}}
    files = replace(
        LOST, commits={5: commit(), 6: named, 7: None}, broken={"commits/7": "is empty"}
    )
    diagnosis = diagnose(files, event(7, 60, 70), rewind=True)
    assert diagnosis.remedy is None
    assert "checkpoint format 2" in (diagnosis.refused or "")


def test_reads_what_is_cut() -> None:
    with pytest.raises(CorruptError):
        commit_metadata("v1\n", "commits/3")  # Spark takes it for a watermark of 0
    with pytest.raises(CorruptError):
        batch_offsets('v1\n{"batchWatermarkMs":0}\n', "offsets/3")
    assert batch_offsets("v1\n{}\n-\nplain text", "offsets/3").values == ("-", "plain text")


def test_finds_events_in_logs(tmp_path: Path) -> None:
    fields = {
        "id": "q",
        "batchId": 7,
        "timestamp": "2026-11-23T10:00:00.000Z",
        "durationMs": {"addBatch": 9, "commitOffsets": 3},
        "sources": [{"startOffset": '{"orders":{"0":60}}', "endOffset": {"orders": {"0": 75}}}],
    }
    ends = event(7, 60, 75)[7]
    listener = {"Event": "QueryProgressEvent", "progress": fields}
    texts = (
        json.dumps(fields),
        f"{{}}\n{json.dumps(listener)}\n",
        f"INFO Streaming query made progress: {json.dumps(fields, indent=2)}\n26/11/23 INFO x",
    )
    for text in texts:
        file = tmp_path / "log"
        file.write_text(text)
        events = spark_checkpoint.read_progress(file, "q")
        assert {n: (p.start, p.end) for n, p in events.items()} == {7: (ends.start, ends.end)}
        assert spark_checkpoint.read_progress(file, "other") == {}
    idle = {**fields, "durationMs": {"latestOffset": 2, "triggerExecution": 2}}
    file.write_text(json.dumps(idle))
    assert spark_checkpoint.read_progress(file, "q") == {}


def test_values_as_texts() -> None:
    assert as_text({"b": 5.0, "a": None, "c": [1.5, "x"]}) == b'{"b":5,"c":[1.5,"x"]}'
    assert [as_text(v) for v in ("x", 7, None, True, "\ud800")] == [
        b"x",
        b"7",
        b"null",
        b"true",
        b"\xed\xa0\x80",
    ]


def answered(
    diagnosis: CheckpointDiagnosis, made: Path | None = None
) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """What `restart checkpoint` says beside its rows, its rows by file, and if it is a finding."""
    answer = _answer(Path("/kept"), "q", diagnosis, made)
    rows = {row.file: row for row in answer.rows}  # type: ignore[attr-defined]
    return dict(answer.extra), rows, answer.finding


def test_the_answer_of_a_whole_checkpoint() -> None:
    said, rows, finding = answered(diagnose(WHOLE))
    assert (rows, finding) == ({}, False)
    assert said == {
        "checkpoint": "/kept",
        "query_id": "q",
        "batch": 7,
        "in_flight": False,
        "whole": True,
        "way": None,
        "resume_batch": None,
        "replanned": [],
        "meaning": None,
        "refused": None,
        "mended": None,
    }


def test_the_answer_of_one_that_an_event_mends() -> None:
    diagnosis = diagnose(LOST, event(7, 60, 75))
    said, rows, finding = answered(diagnosis)
    assert (said["whole"], said["mended"], finding) == (False, None, True)
    assert diagnosis.remedy is not None
    assert said["way"] == diagnosis.remedy.way
    assert said["resume_batch"] == diagnosis.remedy.batch
    assert said["meaning"] == words(diagnosis.remedy)
    row = rows["offsets/7"]
    assert (row.blocks, row.repair, row.effect) == (True, "written", "proven")
    assert row.finding is not None
    assert row.because is not None
    said, _, finding = answered(diagnosis, Path("/copy"))
    assert (said["mended"], finding) == ("/copy", False)


def test_the_answer_of_one_that_goes_back() -> None:
    said, rows, _ = answered(diagnose(LOST, rewind=True))
    assert (said["way"], said["resume_batch"]) == ("next", 6)
    assert rows["commits/7"].repair == "left-out"
    assert rows["commits/7"].finding is None
    assert not rows["commits/7"].blocks
    said, rows, finding = answered(diagnose(LOST))
    assert (said["way"], said["replanned"], finding) == (None, [], True)
    assert said["refused"]
    assert {row.repair for row in rows.values()} == {"none"}
