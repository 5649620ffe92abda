"""Tables. golden/screens_80.txt is the design's own drawing of six commands at 80 columns;
golden/screens_piped.txt the same rows off a terminal."""

import re
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from eoctl.render.tables import CellKind, Column, choose_columns, render_table, sort_rows
from eoctl.render.words import Age
from recovery.errors import UsageError

GOLDEN = Path(__file__).parents[1] / "golden"
MARK = Column("mark", "", "mark")
PARTITION = Column("partition", "TOPIC:PARTITION", "partition", min_width=15)
ID = Column("transactional_id", "TRANSACTIONAL ID", "name", min_width=19)

Rows = list[dict[str, object]]
SCREENS: list[tuple[list[Column], Rows]] = [
    (
        [
            MARK,
            Column("verdict", "VERDICT", min_width=11),
            Column("txns", "TXNS", "number"),
            Column("partitions", "PARTITIONS", "number"),
            Column("oldest", "OLDEST", "age"),
            Column("groups", "GROUPS", "number"),
            Column("worst", "WORST", "partition", min_width=14),
            Column("next", "NEXT", "command"),
        ],
        [
            {
                "mark": "!!",
                "verdict": "orphan",
                "txns": 1,
                "partitions": 2,
                "oldest": Age(14 * 60, producer_clock=True),
                "groups": 3,
                "worst": "orders:3",
                "next": "why orders:3",
            }
        ],
    ),
    (
        [
            MARK,
            PARTITION,
            Column("lso", "LSO", "number", min_width=12),
            Column("hw", "HW", "number", min_width=10),
            Column("held", "HELD", "number", min_width=8),
            Column("age", "AGE", "age", min_width=4),
            Column("held_by", "HELD BY", "name"),
        ],
        [
            {
                "mark": "!!",
                "partition": "orders:3",
                "lso": 182736450,
                "hw": 182737654,
                "held": 1204,
                "age": Age(14 * 60 + 59, producer_clock=True),
                "held_by": "pid 4001, no owner",
            }
        ],
    ),
    (
        [
            MARK,
            ID,
            Column("coordinator", "COORD", "number"),
            Column("pid", "PID", "number", min_width=6),
            Column("epoch", "EPOCH", "number"),
            Column("state", "STATE", min_width=13),
            Column("age", "AGE", "age"),
            Column("timeout", "TIMEOUT", "age"),
            Column("parts", "PARTS", "number"),
        ],
        [
            {
                "mark": "!",
                "transactional_id": "orders-enricher-0_3",
                "coordinator": 2,
                "pid": 4007,
                "epoch": 12,
                "state": "Ongoing",
                "age": 215.3,
                "timeout": 60,
                "parts": 4,
            }
        ],
    ),
    (
        [
            MARK,
            Column("verdict", "VERDICT", min_width=11),
            Column("partition", "TOPIC:PARTITION", "partition", min_width=18),
            Column("age", "AGE", "age", min_width=4),
            Column("pid", "PID", "number", min_width=6),
            Column("start", "START OFFSET", "number", min_width=14),
            Column("owner", "OWNER", "name", min_width=6),
            Column("remedy", "REMEDY"),
        ],
        [
            {
                "mark": "!!",
                "verdict": "orphan",
                "partition": "orders:3",
                "age": Age(14 * 60, producer_clock=True),
                "pid": 4001,
                "start": 182736450,
                "owner": "none",
                "remedy": "abort",
            }
        ],
    ),
    (
        [
            MARK,
            Column("group", "GROUP", "name"),
            PARTITION,
            Column("committed", "COMMITTED", "number"),
            Column("lso", "LSO", "number"),
            Column("lag", "LAG", "number"),
            Column("lag_hw", "LAG-HW", "number"),
            Column("pending", "PENDING", "name"),
        ],
        [
            {
                "mark": "!",
                "group": "orders-enricher",
                "partition": "orders:3",
                "committed": 182736450,
                "lso": 182736450,
                "lag": 0,
                "lag_hw": 1204,
                "pending": "pid 4007",
            }
        ],
    ),
    (
        [
            MARK,
            Column("input", "INPUT", "partition", min_width=12),
            Column("direction", "DIRECTION"),
            Column("records", "RECORDS", "number"),
            Column("from", "FROM", "number", min_width=10),
            Column("to", "TO", "number", min_width=10),
            Column("times", "TIMES (UTC)"),
        ],
        [
            {
                "mark": "<<",
                "input": "orders:3",
                "direction": "REWIND",
                "records": 1204,
                "from": 182737654,
                "to": 182736450,
                "times": "14:02:11 > 13:58:40",
            }
        ],
    ),
    (
        [
            MARK,
            Column("output", "OUTPUT", "partition"),
            Column("drop_first", "DROP FIRST", "number"),
            Column("counted_in", "COUNTED IN", "word", min_width=21),
            Column("leader_epoch", "LEADER EPOCH", "number"),
            Column("fed_by", "FED BY", "partition"),
        ],
        [
            {
                "mark": None,
                "output": "orders-enriched:3",
                "drop_first": 17,
                "counted_in": "[99120, 99140)",
                "leader_epoch": 7,
                "fed_by": "orders:3",
            }
        ],
    ),
]


def lines_of(name: str) -> list[str]:
    return (GOLDEN / name).read_text(encoding="utf-8").splitlines()


def test_the_screens_as_designed() -> None:
    drawn = [line for columns, rows in SCREENS for line in render_table(rows, columns, width=80)]
    assert drawn == lines_of("screens_80.txt")


def test_the_same_off_a_terminal() -> None:
    drawn = [line for columns, rows in SCREENS for line in render_table(rows, columns, width=None)]
    assert drawn == lines_of("screens_piped.txt")
    for number, (columns, _) in enumerate(SCREENS):
        # Two blanks or more separate the columns and stand nowhere else: awk -F'  +' finds all.
        for line in drawn[2 * number : 2 * number + 2]:
            assert len(re.split("  +", line)) == len(columns)


LONG = "payments-settlement-" + "x" * 209 + "-eu-0_13"


def test_long_names_at_80_columns() -> None:
    rows: Rows = [
        {
            "mark": "!!",
            "partition": f"{LONG}:137",
            "lso": 182736450,
            "hw": 182737654,
            "held": 1204,
            "age": None,
            "held_by": f"pid 4001, {LONG}",
        },
        {"partition": "a:3", "lso": 0, "hw": 0, "held": 0, "held_by": "-"},
    ]
    columns = SCREENS[1][0]
    assert render_table(rows, columns, width=80) == lines_of("long_names_80.txt")
    ascii_lines = render_table(rows, columns, width=80, ascii_only=True)
    assert ascii_lines[1].startswith("!! payments..eu-0_13:137  182736450")
    # A number in a sentence goes as a whole or not at all.
    narrow = render_table(rows, columns, width=70)[1]
    assert narrow.endswith("  pid 4001,…u-0_13")
    assert render_table(rows, columns, width=66)[1].endswith("  pid …-eu-0_13")


def test_a_partition_is_whole_however_narrow() -> None:
    columns = [Column("partition", "T:P", "partition"), Column("offset", "OFFSET", "number")]
    rows: Rows = [{"partition": "orders-enriched:2147483647", "offset": 2**63 - 1}]
    assert render_table(rows, columns, width=20, headers=False) == [
        "ord…ed:2147483647  9223372036854775807"
    ]


def test_wide_never_cuts_and_shows_more() -> None:
    columns = [PARTITION, Column("leader", "LEADER", "number", wide_only=True)]
    rows: Rows = [{"partition": f"{LONG}:137", "leader": 2}]
    assert render_table(rows, columns, width=80, wide=True)[1] == f"{LONG}:137       2"
    assert "LEADER" not in render_table(rows, columns, width=80)[0]
    assert "LEADER" not in render_table(rows, columns, width=None)[0]
    assert render_table(rows, columns, width=None)[1] == f"{LONG}:137"


def test_what_says_nothing_goes_before_a_line_is_too_long() -> None:
    columns = [
        MARK,
        Column("id", "ID", "word"),
        Column("pid", "PID", "number"),
        Column("held", "HELD", "number", spare="zero"),
        Column("steps", "STEPS", "number", spare="any"),
        Column("gone", "GONE", "number", spare="zero"),
        Column("age", "AGE", "age"),
        Column("ok", "OK", "text"),
    ]
    rows: Rows = [
        {
            "id": "j-20261122",
            "pid": 0,
            "held": 0,
            "steps": "1/2",
            "gone": 0,
            "age": None,
            "ok": False,
        },
        {
            "id": "j-20261123",
            "pid": 0,
            "held": 7,
            "steps": "2/2",
            "gone": 0,
            "age": None,
            "ok": False,
        },
    ]

    def shown(width: int | None, columns: list[Column] = columns) -> list[str]:
        first, *rest = render_table(rows, columns, width=width)
        assert len(rest) == 2
        return first.split()

    every = ["ID", "PID", "HELD", "STEPS", "GONE", "AGE", "OK"]
    # 2 + 1 mark, 10 id, six columns of 3, 4, 5, 4, 3 and 2, each with a gap of 2
    assert shown(46) == every
    assert shown(45) == ["ID", "PID", "HELD", "STEPS", "GONE", "OK"]
    assert shown(40) == ["ID", "PID", "HELD", "STEPS", "OK"]
    assert shown(33) == shown(1) == ["ID", "PID", "HELD", "OK"]
    assert shown(None) == ["-", *every]
    assert render_table([], columns, width=1)[0].split() == every
    asked = choose_columns(columns, "id,steps,gone,age")
    assert shown(1, asked) == ["ID", "STEPS", "GONE", "AGE"]


def test_a_command_stands_on_one_line_uncut() -> None:
    command = "eoctl txn fence $'a\\033[2J' --context prod-eu --cluster-id " + "5" * 60
    columns = [ID, Column("command", "COMMAND", "command")]
    rows: Rows = [{"transactional_id": LONG, "command": command}]
    assert render_table(rows, columns, width=80)[1].endswith(f"  {command}")
    # What did not come out of shell.command is not trusted.
    rows = [{"transactional_id": "a", "command": "x\x1b[2J"}]
    assert render_table(rows, columns, width=80)[1].endswith(r"  x\x1b[2J")


def test_nulls_and_odd_values() -> None:
    columns = [
        MARK,
        ID,
        Column("number", "N", "number"),
        Column("age", "AGE", "age"),
        Column("list", "LIST"),
        Column("flag", "FLAG"),
    ]
    rows: Rows = [{}, {"transactional_id": "", "number": -1, "age": 0, "list": ["a", "b"]}]
    rows[1]["flag"] = True
    assert render_table(rows, columns, width=None, headers=False) == [
        "-   -                     -   -  -     -",
        '-   ""                   -1  0s  a, b  yes',
    ]
    assert render_table(rows, columns, width=80, headers=False)[0].startswith("   -  ")
    assert render_table([], columns, width=None) == ["-   TRANSACTIONAL ID     N  AGE  LIST  FLAG"]
    assert render_table([], columns, width=None, headers=False) == []


def test_colour_is_only_of_marks_and_adds_nothing_else() -> None:
    columns, rows = SCREENS[1]
    plain = render_table(rows, columns, width=80)
    coloured = render_table(rows, columns, width=80, colour=True)
    assert coloured[0] == plain[0]
    assert coloured[1] == "\x1b[1;31m!!\x1b[0m" + plain[1].removeprefix("!!")


def test_a_name_cannot_fake_a_column() -> None:
    columns = [ID, Column("state", "STATE")]
    rows: Rows = [{"transactional_id": "a  Empty ", "state": "Ongoing"}]
    assert render_table(rows, columns, width=None)[1] == r"a \x20Empty\x20      Ongoing"


# --- choosing and sorting


def test_columns_by_key_or_title_in_any_case() -> None:
    columns = [*SCREENS[1][0], Column("leader", "LEADER", "number", wide_only=True)]
    chosen = choose_columns(columns, "HW,held by,Topic:Partition,leader")
    assert [column.key for column in chosen] == ["hw", "held_by", "partition", "leader"]
    assert render_table([], chosen, width=None)[0].split() == (
        ["HW", "HELD", "BY", "TOPIC:PARTITION", "LEADER"]
    )
    assert choose_columns(columns, None) == columns


@pytest.mark.parametrize("names", ["", "lso,", "nope", "lso,\x1b"])
def test_no_such_column(names: str) -> None:
    with pytest.raises(UsageError, match="columns are mark,partition,lso,hw,held,age") as caught:
        choose_columns(SCREENS[1][0], names)
    assert caught.value.sentence.isprintable()


def by(rows: Rows, order: str | None, key: str = "n") -> list[object]:
    columns = [
        MARK,
        Column("partition", "TOPIC:PARTITION", "partition"),
        Column("age", "AGE", "age"),
        Column("n", "N", "number"),
    ]
    return [row[key] for row in sort_rows(rows, columns, order)]


def test_sorted_by_urgency_then_oldest_first() -> None:
    rows: Rows = [
        {"n": 1, "mark": None, "age": 900},
        {"n": 2, "mark": "?", "age": 5},
        {"n": 3, "mark": "!", "age": 10},
        {"n": 4, "mark": "!!", "age": None},
        {"n": 5, "mark": "!", "age": Age(20, producer_clock=True)},
        {"n": 6, "mark": "!!", "age": 1},
        {"n": 7, "mark": "!", "age": 20},
        {"n": 8, "mark": "<<"},
    ]
    assert by(rows, None) == [6, 4, 5, 7, 3, 2, 8, 1]


def test_sorted_by_a_column() -> None:
    rows: Rows = [
        {"n": i, "partition": name}
        for i, name in enumerate(["b:2", "a:10", "a:9", None, "a.b:0", "a:9", "a"])
    ]
    assert by(rows, "partition") == [6, 2, 5, 1, 4, 0, 3]
    assert by(rows, "-topic:partition") == [0, 4, 1, 2, 5, 6, 3]
    assert by(rows, "-N") == [6, 5, 4, 3, 2, 1, 0]
    with pytest.raises(UsageError, match="--sort-by: there is no column 'x'"):
        by(rows, "-x")


@given(st.lists(st.integers(0, 3) | st.none(), max_size=30), st.booleans())
def test_sorting_keeps_the_order_of_equals(values: list[int | None], descending: bool) -> None:
    rows: Rows = [{"n": value, "at": at} for at, value in enumerate(values)]
    columns = [Column("n", "N", "number")]
    ordered = sort_rows(rows, columns, "-n" if descending else "n")
    # An independent way: pick the rows of each value in turn.
    turns = [3, 2, 1, 0, None] if descending else [0, 1, 2, 3, None]
    assert ordered == [row for turn in turns for row in rows if row["n"] == turn]


# --- what holds for any text

HOSTILE = st.text(
    st.sampled_from("ab \\\x1b\n\t\r\x00\x7f\x9b\u202e\u200b\ufeff\ud800\u2028ä漢😀\u0301[/]:0")
    | st.characters(),
    max_size=260,
)
KINDS: list[CellKind] = ["name", "partition", "text"]


@given(
    st.lists(st.tuples(HOSTILE, st.integers(0, 2**31 - 1), HOSTILE, HOSTILE), max_size=5),
    st.integers(66, 200),
    st.booleans(),
)
@example([("漢" * 60, 0, "漢" * 60, "漢" * 60)], 66, False)
@example([("漢" * 60, 0, "漢" * 60, "漢" * 60)], 67, True)
def test_no_line_is_too_long_and_no_control_gets_out(
    found: list[tuple[str, int, str, str]], width: int, ascii_only: bool
) -> None:
    columns = [
        MARK,
        PARTITION,
        Column("offset", "OFFSET", "number", min_width=30),
        ID,
        Column("owner", "OWNER", "text"),
    ]
    rows: Rows = [
        {
            "mark": "!!",
            "partition": f"{topic}:{partition}",
            "offset": 2**31 - 1 - partition,
            "transactional_id": name,
            "owner": owner,
        }
        for topic, partition, name, owner in found
    ]
    # At the narrowest: 2 + 1 mark, 17 partition, 10 offset, 16 title, 8 text, three gaps of 2.
    lines = render_table(rows, columns, width=width, ascii_only=ascii_only)
    assert len(lines) == len(rows) + 1
    for line in lines:
        assert line.isprintable()
        assert cell_len(line) <= width
        assert line.isascii() or not ascii_only
    for line, (_, partition, _, _) in zip(lines[1:], found, strict=True):
        assert re.search(rf":{partition} +{2**31 - 1 - partition}  ", line)


@given(st.lists(st.tuples(HOSTILE, HOSTILE), max_size=4))
def test_nothing_is_cut_off_a_terminal(found: list[tuple[str, str]]) -> None:
    columns = [ID, Column("owner", "OWNER", "text")]
    rows: Rows = [{"transactional_id": name, "owner": owner} for name, owner in found]
    lines = render_table(rows, columns, width=None)
    assert len(lines) == len(rows) + 1
    for line in lines:
        assert line.isprintable()
        assert len(re.split("  +", line)) == 2


def test_ten_thousand_rows_are_quick() -> None:
    columns, rows = SCREENS[1]
    many = [dict(rows[0], partition=f"orders-{n}:3") for n in range(10_000)]
    started = time.perf_counter()
    assert len(render_table(many, columns, width=80)) == 10_001
    assert time.perf_counter() - started < 3
