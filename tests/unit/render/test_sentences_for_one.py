"""Sentences in which a number is 1, a family each. Expected texts are written by hand."""

import pytest

from eoctl.operations.dedup.copying import _words as dedup_words
from eoctl.operations.remedy import remedy_plan, stake
from eoctl.stores.state.state_table import refuse_others
from recovery.dedup.repeats import Tally
from recovery.errors import RefusedError, UsageError
from recovery.formats.reader import CorruptError, Reader
from recovery.merge.log import CoastFormat
from recovery.restart.plan_output import import_csv


def test_the_amounts_of_a_plan() -> None:
    about = {"dropped": 1, "freed": 0, "counted_whole": False}
    assert remedy_plan.amounts(about) == "at least 1 record dropped, at least 0 freed"


def test_what_is_at_stake() -> None:
    at_stake = {"records": 1, "whole": True, "first_offset": 5, "last_offset": 5}
    drops, delivers = stake.costs({"at_stake": at_stake}, "abort")
    assert drops.startswith("abort drops 1 record (offsets 5 to 5) for read_committed readers")
    assert "commit delivers 1 record (offsets 5 to 5): if the owner aborted" in delivers


def test_the_tally_of_a_dedup() -> None:
    tally = Tally(records=1, copied=0, duplicates=1)
    assert dedup_words(tally) == "0 of 1 record copied, 1 repeat left out"


def test_rows_of_another_state() -> None:
    with pytest.raises(RefusedError, match=r"^table: it holds 1 row that this state has not;"):
        refuse_others(1, "table")


def test_bytes_of_a_file() -> None:
    reader = Reader(b"a", "f")
    with pytest.raises(CorruptError, match=r"^f, byte 0: 1 byte follows$"):
        reader.ends()
    assert reader.int8() == ord("a")
    with pytest.raises(CorruptError, match=r"^f, byte 1: 1 byte expected, 0 left$"):
        reader.int8()


def test_a_key_in_a_merge_log() -> None:
    with pytest.raises(CorruptError, match=r"its key has 1 byte$"):
        CoastFormat().decode(b"k", b"")


def test_a_line_of_one_cell() -> None:
    with pytest.raises(UsageError, match=r"1 column;"):
        import_csv("orders\n", "offsets.csv", "g")
