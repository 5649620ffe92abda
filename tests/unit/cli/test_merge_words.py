"""What `merge` refuses of its own words, before any broker is asked."""

from pathlib import Path
from typing import Any

import pytest

from eoctl.cli.commands.merge import MergeLogOptions
from recovery.errors import UsageError

GOOD: dict[str, Any] = {
    "merge_log": "m",
    "format": "json",
    "input": ["a", "b"],
    "output_topic": "o",
}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"merge_log": None}, "--merge-log: is missing"),
        ({"format": None}, "--format: is missing"),
        ({"format": "avro"}, "write coast or json"),
        ({"input": []}, "--input: is missing"),
        ({"input": ["a", "m"]}, "m is named twice"),
        ({"isolation": "serial"}, "not an isolation level"),
        ({"partition": [-1]}, "a partition is 0 or above"),
        ({"from_merge_offset": ["3"]}, "names no partition"),
        ({"partition": [0, 1], "from_merge_offset": ["3"]}, "names no partition"),
        ({"from_merge_offset": ["0:3"]}, "a commit is a pair"),
        ({"from_merge_offset": ["0:3"], "output_offset": ["1:3"]}, "a commit is a pair"),
        ({"from_merge_offset": ["0:3", "0:4"], "output_offset": ["0:3"]}, "is named twice"),
        ({"from_merge_offset": ["0:-3"], "output_offset": ["0:3"]}, "not P:OFFSET"),
        ({"from_merge_offset": ["x:3"], "output_offset": ["0:3"]}, "not P:OFFSET"),
    ],
)
def test_words_that_do_not_fit(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        MergeLogOptions(**GOOD | given).merge(None)


def test_commits_of_partitions() -> None:
    one = MergeLogOptions(
        **GOOD, partition=[2], from_merge_offset=["7"], output_offset=["2:5"]
    ).merge(None)
    assert (one.partitions, one.bases) == ((2,), {2: (7, 5)})
    several = MergeLogOptions(
        **GOOD, from_merge_offset=["0:7", "3:1"], output_offset=["3:2", "0:9"]
    )
    assert several.merge(None).bases == {0: (7, 9), 3: (1, 2)}
    assert one.transactional_id(2) != one.transactional_id(0)


def test_a_file_names_everything(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the application file names"):
        MergeLogOptions(**GOOD).merge(tmp_path / "app.toml")
    app = tmp_path / "app.toml"
    text = """[app]
name = "x"
strategy = "merge-log"
inputs = ["a", "b"]
outputs = ["o"]
[app.store]
kind = "file"
path = "s"
[app.merge]
topic = "m"
format = "coast"
"""
    app.write_text(text)
    found = MergeLogOptions(partition=[1]).merge(app)
    assert (found.topic, found.format, found.inputs, found.output) == (
        "m",
        "coast",
        ("a", "b"),
        "o",
    )
    assert found.partitions == (1,)
    app.write_text(text + '[app.mapping]\n"a:0" = ["o:1"]\n')
    with pytest.raises(UsageError, match="the same number"):
        MergeLogOptions().merge(app)
    app.write_text(text.replace('["o"]', '["o", "p"]'))
    with pytest.raises(UsageError, match="one output"):
        MergeLogOptions().merge(app)
