"""Numbers of things in a sentence. Expected texts are written by hand."""

import pytest

from recovery.plurals import counted, listed


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 partitions"), (1, "1 partition"), (1204, "1,204 partitions"), (-1, "-1 partitions")],
)
def test_counted(number: int, text: str) -> None:
    assert counted(number, "partition") == text


def test_names_and_their_noun() -> None:
    assert listed(["billing"], "group") == "group billing"
    assert listed([1, 2], "broker") == "brokers 1, 2"
    assert listed([7, 8], "process", "processes") == "processes 7, 8"


def test_words_that_agree_with_the_number() -> None:
    assert counted(1, "retry is", "retries are") == "1 retry is"
    assert counted(2, "retry is", "retries are") == "2 retries are"
