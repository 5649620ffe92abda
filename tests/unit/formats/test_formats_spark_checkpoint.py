"""Spark's checkpoint directory: which batch is in flight, where it begins and ends."""

from typing import Any

import pytest

from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError
from recovery.formats.spark_checkpoint import Checkpoint, read, relevant, starting_offsets

META = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{"spark.sql.shuffle.partitions":"2"}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def offsets(*sources: str) -> str:
    return "\n".join(("v1", META, *sources))


def files(**more: str | None) -> dict[str, str]:
    """Batches 4 and 5; 5 is in flight. More: name with _ for /, None = not there."""
    found: dict[str, str | None] = {
        "metadata": '{"id":"a1-b2"}',
        "offsets/4": offsets('{"orders":{"0":10,"1":20}}'),
        "offsets/5": offsets('{"orders":{"0":15,"1":20}}'),
        "commits/4": COMMIT,
        "sources/0/0": '\0v1\n{"orders":{"0":0,"1":0}}',
    }
    found |= {name.replace("_", "/"): text for name, text in more.items()}
    return {name: text for name, text in found.items() if text is not None}


def test_a_batch_in_flight() -> None:
    found = read(files())
    assert found == Checkpoint("a1-b2", 5, 4, {A: 10, B: 20}, {A: 15, B: 20})
    assert found.in_flight


def test_nothing_in_flight() -> None:
    found = read(files(commits_5=COMMIT))
    assert (found.batch, found.committed, found.in_flight) == (5, 5, False)
    assert found.end == {A: 15, B: 20}


def test_the_first_batch_begins_where_the_source_was_found() -> None:
    first = {
        "offsets_0": offsets('{"orders":{"0":3,"1":0}}'),
        "offsets_4": None,
        "offsets_5": None,
        "commits_4": None,
    }
    found = read(files(**first))
    assert found == Checkpoint("a1-b2", 0, None, {A: 0, B: 0}, {A: 3, B: 0})
    assert read(files(**first, commits_0=COMMIT)).in_flight is False


def test_no_batch_yet() -> None:
    assert read({}) == Checkpoint(None, None, None, {}, {})
    assert not read({}).in_flight


def test_version_2_names_its_sources() -> None:
    meta = '{"batchWatermarkMs":0,"sourceMetadataInfo":{"0":{},"1":{}}}'
    text = f'v2\n{meta}\n0:{{"orders":{{"0":15}}}}\n1:-\n2:{{"payments":{{"0":7}}}}'
    found = read(files(offsets_5=text, commits_4='v3\n{"nextBatchWatermarkMs":0,"x":1}'))
    assert found.end == {A: 15, ("payments", 0): 7}


def test_several_sources_and_void_ones() -> None:
    text = offsets('{"orders":{"0":15}}', "-", '{"payments":{"3":7}}', '{"logOffset":3}', "17")
    assert read(files(offsets_5=text)).end == {A: 15, ("payments", 3): 7}


def test_names_with_separators_that_are_no_line_ends() -> None:
    text = offsets('{"orders":{"0":15}}') + "\n" + '{"logOffset":"\u2028"}'
    assert read(files(offsets_5=text)).end == {A: 15}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"offsets_5": ""}, "not complete"),
        ({"offsets_5": "v1"}, "not complete"),
        ({"offsets_5": "v1x\n{}\n{}"}, "not complete"),
        ({"offsets_5": offsets('{"orders":{"0":1')}, "not JSON"),
        ({"offsets_5": 'v3\n{}\n{"orders":{"0":1}}'}, "version 3"),
        ({"offsets_5": offsets('{"orders":{"0":9,"1":20}}')}, "below its start 10"),
        ({"offsets_5": offsets('{"orders":{"0":-2}}')}, "-2"),
        ({"offsets_4": None}, "offsets/4 is missing"),
        ({"commits_4": None}, "no commit at all"),
        ({"commits_4": None, "commits_3": COMMIT}, "more than one batch"),
        ({"commits_4": ""}, "not complete"),
        ({"commits_6": COMMIT}, "commits/6 is there, offsets/6 is not"),
        ({"metadata": "{}"}, "no id"),
        ({"metadata": "x"}, "not JSON"),
        ({"offsets_5": None, "offsets_4": None, "commits_4": COMMIT}, "offsets/4 is not"),
    ],
)
def test_directories_that_do_not_fit(change: dict[str, Any], what: str) -> None:
    with pytest.raises(CorruptError) as caught:
        read(files(**change))
    assert what in caught.value.sentence


def test_files_that_matter() -> None:
    assert all(relevant(name) for name in files())
    for name in ("offsets/.5.crc", "offsets/.5.tmp", "offsets/05", "state/0/1", "sources/0/1"):
        assert not relevant(name)


def test_starting_offsets() -> None:
    assert starting_offsets(
        {TopicPartition("b", 1): 2, TopicPartition("a", 10): 3, TopicPartition("a", 2): 0}
    ) == ('{"a":{"2":0,"10":3},"b":{"1":2}}')
