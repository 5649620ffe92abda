"""Every view shows something: a table without columns is a page of empty lines."""

import pkgutil
from importlib import import_module

import pytest

import eoctl.cli
from eoctl.cli.emit import View

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
