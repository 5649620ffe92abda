"""Every view shows something: a table without columns is a page of empty lines."""

import pkgutil
from importlib import import_module

import pytest

import eoctl.cli
from eoctl.cli.audit_views import DUPLICATES, MIRROR, SEQUENCES, TRANSACTIONS
from eoctl.cli.emit import View
from recovery.answers import Answer
from recovery.rows import Row

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
