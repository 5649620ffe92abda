"""Every view shows something: a table without columns is a page of empty lines."""

import pkgutil
from importlib import import_module

import pytest

import eoctl.cli
from eoctl.cli.commands.audit.views import DUPLICATES, MIRROR, SEQUENCES, TRANSACTIONS
from eoctl.cli.commands.state.look import SHOW
from eoctl.cli.emit import View
from recovery.rows.answers import Answer
from recovery.rows.audit import AuditDuplicatesRow, RecordPlace
from recovery.rows.row import Row
from recovery.rows.state import StateShowRow

OWN_LINES = {"restart.PLAN"}  # shown by eoctl.render.restart
VIEWS = {
    f"{found.name}.{name}": value
    for found in pkgutil.iter_modules(eoctl.cli.__path__)
    for name, value in vars(import_module(f"eoctl.cli.{found.name}")).items()
    if isinstance(value, View) and f"{found.name}.{name}" not in OWN_LINES
}


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_a_view_has_columns_and_names(name: str) -> None:
    view = VIEWS[name]
    assert [c.title for c in view.columns if c.title]
    assert view.fields


NOTHING: dict[str, object] = {
    "engine": "local",
    "engine_why": "as asked",
    "examined": [],
    "covered": [],
    "by": "key",
}
NUMBERS = ("transactions", "partitions", "records", "without_id", "repeats")


@pytest.mark.parametrize("view", [SEQUENCES, TRANSACTIONS, DUPLICATES, MIRROR])
def test_an_audit_says_how_many_of_its_findings_are_shown(view: View) -> None:
    for found, told in ((3, False), (4_000, True)):
        extra = NOTHING | dict.fromkeys(NUMBERS, 0) | {"findings": found}
        text = view.summary(Answer("audit", None, 0, [Row()] * 3, extra=extra))
        assert f"{found:,} " in text
        assert (", 3 " in text and " shown" in text) is told


def test_where_copies_stand_begins_with_offsets() -> None:
    at = [("a", 0, 7), ("a", 0, 12), ("a", 10, 3), ("b", 0, 1)]
    places = [RecordPlace(topic=t, partition=p, offset=o, timestamp=None) for t, p, o in at]
    row = AuditDuplicatesRow(
        id=None,
        text="k",
        copies=6,
        same_value=True,
        partitions=3,
        places=places,
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
