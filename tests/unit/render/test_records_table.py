"""How records are shown: the columns, hostile content, and what is said about the others."""

from typing import Any

from eoctl.render.columns.records import notes_of, record_lines, records_table
from recovery.answers import Answer
from recovery.inspect.cluster_rows import BesideRow, HeaderRow, RecordRow
from recovery.values import replace

ROW = RecordRow(
    topic="orders",
    partition=0,
    which="held",
    offset=7,
    timestamp=1_700_000_000_000,
    producer_id=4001,
    key="YQ==",
    key_decoded="a",
    key_format="text",
    value="eyJhIjogMX0=",
    value_decoded={"a": 1},
    value_format="json",
    value_bytes=8,
)
EXTRA = {
    "start_offset": 7,
    "log_start_offset": 0,
    "high_watermark": 20,
    "read_to": 20,
    "held_records": 1,
    "waiting_records": 2,
    "aborted_records": 0,
    "other_open_records": 0,
    "ended": None,
    "beside": None,
}


def answer(*rows: RecordRow, **extra: Any) -> Answer:
    return Answer("txn-records", "c", 0, rows, extra={**EXTRA, **extra})


def titles(*rows: RecordRow) -> list[str]:
    return [c.title for c in records_table(answer(*rows)).columns if not c.wide_only]


def test_columns_are_those_with_content() -> None:
    always = ["WHICH", "OFFSET", "TIME", "KEY"]
    assert titles(ROW) == [*always, "VALUE"]
    tombstone = replace(ROW, value=None, value_decoded=None, value_bytes=None)
    assert titles(tombstone) == always
    header = HeaderRow(name="h", value=None, value_decoded=None)
    full = replace(ROW, headers=[header], beside=BesideRow(found="no-key"), problem="value: bad")
    assert titles(full) == [*always, "VALUE", "HEADERS", "IN THE OUTPUT", "NOT DECODED"]


def test_content_is_on_one_line_and_harmless() -> None:
    hostile = "\x1b[31mred\nnext [/x] \u202eevil"
    [heading, line] = record_lines(
        [replace(ROW, key_decoded=hostile, value_decoded={"k": hostile})], None, ascii_only=False
    )
    assert heading.split() == ["WHICH", "OFFSET", "TIME", "KEY", "VALUE"]
    assert line.isprintable()
    assert "\\x1b[31mred\\nnext [/x] \\u202eevil" in line


def test_long_values_are_cut_on_a_terminal_only() -> None:
    long = replace(ROW, value_decoded="v" * 1_000_000)
    cut = record_lines([long], 80, ascii_only=False)
    assert max(map(len, cut)) <= 80
    assert "v" * 1_000_000 in record_lines([long], None, ascii_only=False)[1]


def beside(found: Any, offset: int | None = None) -> RecordRow:
    row = BesideRow(found=found, topic="out", partition=1, offset=offset)
    return replace(ROW, beside=row)


def test_what_the_output_has() -> None:
    shown = [
        (beside("same-value", 5), "out:1 offset 5, same value"),
        (beside("same-key", 6), "out:1 offset 6, same key, other value"),
        (beside("not-in-range"), "not found"),
        (beside("no-key"), "no key"),
    ]
    for row, words in shown:
        assert record_lines([row], None, ascii_only=False)[1].endswith(words)


def test_notes() -> None:
    assert notes_of(answer(ROW)) == ["the transaction has 1 record; 2 records wait"]
    [early] = notes_of(answer(ROW, read_to=12, held_records=5, waiting_records=1))
    assert early == "the transaction has at least 5 records; at least 1 record waits"
    [mixed] = notes_of(answer(ROW, other_open_records=3, aborted_records=1))
    assert "3 records of other open transactions not shown" in mixed
    assert "1 aborted record, which readers never get, not shown" in mixed
    over = notes_of(answer(ROW, ended={"offset": 9, "outcome": "commit"}, read_to=10))
    assert over == [
        "the transaction is over: its COMMIT marker is at offset 9; nothing waits for it",
        "the transaction has 1 record",
    ]
    gone = notes_of(answer(log_start_offset=9, held_records=0))
    assert gone[0] == (
        "offsets 7 to 8 were deleted, by retention or DeleteRecords: the log begins at 9; "
        "nothing of the transaction is left in the log"
    )
    assert notes_of(answer(read_to=None)) == [], "the partition was not seen"


def test_notes_on_the_range_of_an_output() -> None:
    r = {
        "topic": "out",
        "partition": 1,
        "from": 3,
        "to": 9,
        "last_stable_offset": 12,
        "from_timestamp": "2026-11-24T09:00:00.000Z",
        "complete": False,
    }
    row = beside("not-in-range")
    _, searched, elsewhere, *rest = notes_of(answer(row, beside("no-key"), beside=[r]))
    assert searched == (
        "out:1 was searched from offset 3 (2026-11-24T09:00:00.000Z) to 9, not on to its last "
        "stable offset 12"
    )
    assert elsewhere == "what was not found there may be elsewhere in the output: --beside-from"
    assert rest == ["records without a key cannot be looked for"]
