"""Every table shows something, and every cell can be made of a row of its model."""

import pkgutil
import types
from importlib import import_module
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from msgspec import structs

import eoctl.render.columns
from eoctl.cli.commands.lab.kafka import TRUTHS
from eoctl.cli.emit import emit
from eoctl.cli.options import Format
from eoctl.lab import lab_tables
from eoctl.render.columns.audit import DUPLICATES, MIRROR, SEQUENCES, TRANSACTIONS
from eoctl.render.columns.diagnose import STATUS
from eoctl.render.columns.growth import TXN_SUMMARY
from eoctl.render.columns.inspect import OFFSETS, PRODUCERS
from eoctl.render.columns.state import SHOW
from eoctl.render.columns.table import Table
from recovery.answers import Answer
from recovery.audit.audit_rows import AuditDuplicatesRow, RecordPlace
from recovery.inspect.cluster_rows import OffsetsShowRow, ProducerRow
from recovery.inspect.growth.growth_rows import GrowthRow, InternalTopicRow, TxnSummaryRow
from recovery.row import Row
from recovery.state.state_rows import StateShowRow
from recovery.values import replace

OWN_LINES = {"restart.PLAN", "change.PLAN", "diagnose.WHY"}  # shown as pages
TABLES = {
    f"{module.name}.{name}": value
    for module in pkgutil.iter_modules(eoctl.render.columns.__path__)
    for name, value in vars(import_module(f"eoctl.render.columns.{module.name}")).items()
    if isinstance(value, Table)
}
TABLES |= {"lab.TRUTHS": TRUTHS}
TABLES |= {f"lab.{n}": t for n, t in vars(lab_tables).items() if isinstance(t, Table)}


def example(annotation: Any, *, full: bool) -> Any:
    """A value of a field's type; full: not None where there is another choice."""
    if isinstance(annotation, type) and issubclass(annotation, Row):
        fields = structs.fields(annotation)
        return annotation(**{field.name: example(field.type, full=full) for field in fields})
    origin, choices = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return example(choices[0], full=full)
    if origin is Literal:
        return choices[0]
    if origin in (Union, types.UnionType):
        some = [choice for choice in choices if choice is not type(None)]
        return example(some[0], full=full) if full or len(some) == len(choices) else None
    if origin in (list, tuple):
        return [example(choices[0], full=full)] if full else []
    if origin is dict:
        return {}
    return None if annotation is Any else annotation()


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_cell_is_made_of_a_row(name: str, full: bool) -> None:
    table = TABLES[name]
    cells = table.cells(example(table.model, full=full))
    assert list(cells) == [column.key for column in table.columns]


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_table_has_columns_and_fields(name: str) -> None:
    table = TABLES[name]
    assert bool([c.title for c in table.columns if c.title]) is (name not in OWN_LINES)
    assert table.fields


NOTHING: dict[str, object] = {
    "engine": "local",
    "engine_why": "as asked",
    "examined": [],
    "covered": [],
    "by": "key",
}
NUMBERS = (
    *("transactions", "partitions", "records", "without_id", "repeats"),
    *("foreign_markers", "own_markers", "decisions_gone"),
)


@pytest.mark.parametrize("view", [SEQUENCES, TRANSACTIONS, DUPLICATES, MIRROR])
def test_an_audit_says_how_many_of_its_findings_are_shown(view: Table) -> None:
    for found, told in ((3, False), (4_000, True)):
        extra = NOTHING | dict.fromkeys(NUMBERS, 0) | {"findings": found}
        text = view.summary(Answer("audit", None, 0, [Row()] * 3, extra=extra))
        assert f"{found:,} " in text
        assert (", 3 " in text and " shown" in text) is told


def test_where_copies_stand_begins_with_offsets() -> None:
    at = [("a", 0, 7), ("a", 0, 12), ("a", 10, 3), ("b", 0, 1)]
    copies = [RecordPlace(topic=t, partition=p, offset=o, timestamp=None) for t, p, o in at]
    row = AuditDuplicatesRow(
        id=None,
        text="k",
        copies=6,
        same_value=True,
        partitions=3,
        places=copies,
        nearest_offsets=5,
        farthest_offsets=5,
        span_seconds=None,
    )
    assert DUPLICATES.cells(row)["places"] == "0@7,12 10@3 of a, 0@1 of b, and 2 more"


def test_an_entrys_time_is_told_as_a_time() -> None:
    row = StateShowRow(
        topic="t",
        partition=0,
        offset=1,
        timestamp=1_700_000_000_123,
        key="aw==",
        key_decoded="k",
        value=None,
        value_decoded=None,
        extra={},
    )
    assert SHOW.cells(row)["timestamp"] == "2023-11-14T22:13:20.123Z"


@pytest.mark.parametrize(
    ("known", "cell"),
    [
        ({}, None),
        ({"pending": True}, "yes"),
        ({"pending": True, "pending_producer_id": 4007}, "pid 4007"),
        ({"pending": True, "pending_producer_id": 4007, "pending_offset": 0}, "0 by pid 4007"),
        ({"error": "NOT_COORDINATOR"}, "NOT_COORDINATOR"),
    ],
)
def test_a_pending_offset_and_who_holds_it(known: dict[str, Any], cell: str | None) -> None:
    row = replace(example(OffsetsShowRow, full=False), **({"pending": False} | known))
    assert OFFSETS.cells(row)["pending"] == cell


def growth_row(topic: str) -> dict[str, Any]:
    """A large log of a topic, with a prefix that would fake a line."""
    row = GrowthRow(
        kind="internal-topic",
        topic=topic,
        partition=3,
        limit=1 << 30,
        bytes=2 << 30,
        prefix="a\nfake\x1b",
        transactional_ids=5,
    )
    return row.json_values()


def test_each_thing_that_grows_has_its_own_line_after_the_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    numbers = ("held_back", "scanned", "open_transactions", "brokers_up", "brokers_known")
    said = {"context": "c", "read_only": False, "protected": False, "verdicts": {}}
    grown = [growth_row("__transaction_state"), growth_row("x")]
    extra = {**dict.fromkeys(numbers, 0), **said, "growth": grown}
    emit(Answer("status", "c", 0, [], extra=extra), STATUS, Format())
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "nothing held back; 0 open transactions, all within limits"
    name = r"'a\\nfake\\x1b*'"
    assert lines == [
        f"{topic}:3 has 2.0 GiB, over the limit of 1.0 GiB: prefix {name} has 5 transactional ids "
        "(`eoctl txn list --summary`)"
        for topic in ("__transaction_state", "x")
    ]


def test_prefixes_are_shown_with_the_most_ids_first(capsys: pytest.CaptureFixture[str]) -> None:
    row = example(TxnSummaryRow, full=True)
    many = replace(row, prefix="many-", transactional_ids=9, oldest_idle_seconds=1.0)
    old = replace(row, prefix="old-", transactional_ids=2, oldest_idle_seconds=9_999.0)
    numbers = ("transactional_ids", "prefixes", "open", "coordinators_seen", "coordinators")
    extra = {**dict.fromkeys(numbers, 2), "left_out": 0, "pause_seconds": None}
    answer = Answer("txn-list-summary", "c", 0, [many, old], extra=extra | {"internal_topics": []})
    emit(answer, TXN_SUMMARY, Format(no_headers=True))
    emit(answer, TXN_SUMMARY, Format(no_headers=True, sort_by="-oldest_idle"))
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["many-*", "old-*", "old-*", "many-*"]


def test_each_internal_topic_has_its_own_line_after_the_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    topics = [
        InternalTopicRow(
            topic=name,
            partitions=50,
            offsets=10,
            bytes=None,
            largest_partition=None,
            largest_bytes=None,
            held=0,
            logs=[],
        ).json_values()
        for name in ("__consumer_offsets", "__transaction_state")
    ]
    numbers = ("transactional_ids", "prefixes", "open", "coordinators_seen", "coordinators")
    extra = {**dict.fromkeys(numbers, 2), "left_out": 0, "pause_seconds": None}
    answer = Answer("txn-list-summary", "c", 0, [], extra={**extra, "internal_topics": topics})
    emit(answer, TXN_SUMMARY, Format())
    assert capsys.readouterr().err.splitlines() == [
        "2 transactional ids with 2 prefixes, 2 open; 2 of 2 coordinator partitions answered",
        "__consumer_offsets: 50 partitions, 10 offsets, sizes not known",
        "__transaction_state: 50 partitions, 10 offsets, sizes not known",
    ]


def test_what_older_does_not_prove_is_a_line_that_80_columns_hold(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = replace(example(ProducerRow, full=False), older_epoch=True)
    emit(Answer("producers", "c", 0, [row]), PRODUCERS, Format())
    summary, note = capsys.readouterr().err.splitlines()
    assert summary.endswith(", 1 older")
    assert "does not prove" in note
    assert len(note) <= 80
