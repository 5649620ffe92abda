"""What scripts read. Oracles: the json and csv modules, and golden/envelope.*."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.render.envelope import (
    Envelope,
    Fields,
    csv_lines,
    json_line,
    json_lines,
    json_one_line,
    jsonl_lines,
    name_lines,
)
from eoctl.render.sanitise import visible
from recovery.row import FROM, Row

GOLDEN = Path(__file__).parents[1] / "golden"


class Blocking(Row):
    producer_id: int
    transactional_id: str | None


class Lso(Row):
    topic: str
    partition: int
    last_stable_offset: int | None
    blocking: Blocking | None
    start: Annotated[int | None, FROM] = None


ROWS: list[Row | Fields] = [
    Lso(
        topic="orders",
        partition=3,
        last_stable_offset=182736450,
        blocking=Blocking(producer_id=4001, transactional_id="a,\x1b[2J\u202e\"b'"),
    ),
    {"topic": "", "partition": 0, "last_stable_offset": None, "blocking": None, "from": 7},
]
FIELDS = ["topic", "partition", "last_stable_offset", "blocking", "from"]
ANSWER = Envelope(
    "lso",
    "5L6g3nShT-eMCtK--X86sw",
    1_795_270_580_123,
    complete=False,
    rows=ROWS,
    errors=[{"scope": "broker", "broker": 2, "error": "TIMEOUT", "detail": "2\u2028\x7f"}],
    extra={"scanned": 1204},
)
EMPTY = Envelope("txn-list", None, -1, complete=True, rows=[])


def golden(name: str) -> list[str]:
    return (GOLDEN / name).read_text(encoding="ascii").splitlines()


def test_json_as_kept() -> None:
    assert list(json_lines(ANSWER)) == golden("envelope.json")
    assert list(jsonl_lines(ANSWER)) == golden("envelope.jsonl")
    assert list(csv_lines(ROWS, FIELDS)) == golden("envelope.csv")


def test_the_contract() -> None:
    read = json.loads("\n".join(json_lines(ANSWER)))
    assert json.loads(json_one_line(ANSWER)) == read
    assert list(read) == [
        *("schema", "cluster_id", "collected_at", "complete", "scanned", "rows", "errors")
    ]
    assert read["schema"] == "eoctl.lso/v1"
    assert read["collected_at"] == "2026-11-21T14:16:20.123Z"
    assert read["complete"] is False
    assert read["rows"][0]["blocking"]["transactional_id"] == "a,\x1b[2J\u202e\"b'"
    assert read["rows"][0]["from"] is None
    assert read["errors"][0]["detail"] == "2\u2028\x7f"
    *rows, last = map(json.loads, jsonl_lines(ANSWER))
    assert rows == read["rows"]
    assert last == {key: value for key, value in read.items() if key != "rows"}


def test_an_empty_answer() -> None:
    assert json.loads("\n".join(json_lines(EMPTY))) == {
        "schema": "eoctl.txn-list/v1",
        "cluster_id": None,
        "collected_at": None,
        "complete": True,
        "rows": [],
        "errors": [],
    }
    assert len(list(jsonl_lines(EMPTY))) == 1
    assert list(csv_lines([], FIELDS)) == [",".join(FIELDS)]
    assert list(csv_lines([], FIELDS, headers=False)) == []


# Any text, and the surrogates by which Python carries undecodable bytes.
TEXT = st.text(
    st.characters(exclude_categories=["Cs"])
    | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF)
)
NUMBERS = st.integers(-(2**63), 2**64) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
)


@given(st.lists(st.dictionaries(TEXT, st.none() | st.integers() | TEXT), max_size=4), TEXT)
def test_json_round_trips_and_is_printable_ascii(
    rows: list[dict[str, object]], cluster: str
) -> None:
    answer = Envelope("lso", cluster, 0, True, rows, errors=rows)
    for lines in (list(json_lines(answer)), [json_one_line(answer)]):
        assert all(line.isascii() and line.isprintable() for line in lines)
        read = json.loads("\n".join(lines))
        assert (read["rows"], read["errors"], read["cluster_id"]) == (rows, rows, cluster)
    assert [json.loads(line) for line in jsonl_lines(answer)][:-1] == rows


@given(VALUES)
def test_a_json_line_is_one_line(value: object) -> None:
    line = json_line(value)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == value


def test_a_number_that_json_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        json_line(float("nan"))


@given(st.lists(st.lists(st.none() | st.integers() | TEXT, min_size=3, max_size=3), max_size=5))
def test_csv_is_read_back(table: list[list[object]]) -> None:
    fields = ["a", "b,c", "d"]
    rows = [dict(zip(fields, line, strict=True)) for line in table]
    lines = list(csv_lines(rows, fields))
    assert all(line.isprintable() for line in lines)
    shown = [
        [
            "" if cell is None else visible(cell) if isinstance(cell, str) else str(cell)
            for cell in line
        ]
        for line in table
    ]
    assert list(csv.reader(lines, strict=True)) == [fields, *shown]
    # null and the empty text differ
    assert all(
        line.endswith(',""') == (last == "") and line.endswith(",") == (last is None)
        for line, (_, _, last) in zip(lines[1:], table, strict=True)
        if last in (None, "")
    )


def test_a_row_of_one_null_is_still_a_row() -> None:
    assert list(csv.reader(csv_lines([{"a": None}, {"a": "x"}], ["a"]))) == [["a"], [""], ["x"]]


def test_names() -> None:
    rows: Sequence[Row | Fields] = [
        *ROWS[:1],
        {"topic": "a\nb", "partition": 0},
        {"topic": None, "partition": 1},
        {"partition": 2},
    ]
    assert list(name_lines(rows, ["topic", "partition"])) == ["orders:3", r"a\nb:0"]
    assert list(name_lines(rows, ["topic"])) == ["orders", r"a\nb"]


def test_csv_for_a_spreadsheet() -> None:
    """Names are somebody's text: `=HYPERLINK(...)` runs where the file is opened."""
    hostile = ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\uff1d1", "a=b", "", "'"]
    rows = [{"a": text, "b": -5} for text in hostile]
    exact, safe = (list(csv_lines(rows, ["a", "b"], safe=on)) for on in (False, True))
    assert [line.split(",")[0].strip('"') for line in exact[1:]] == hostile
    expected = [f"'{text}" for text in hostile[:6]] + hostile[6:]
    assert [line.split(",")[0].strip('"') for line in safe[1:]] == expected
    assert all(line.endswith(",-5") for line in safe[1:])
