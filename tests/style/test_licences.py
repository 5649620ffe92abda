"""Licences of the locked packages, as their own metadata name them (docs/dependencies.md)."""

from docs.licences_table import NAMED, licences, not_free
from release.parts import shipped


def test_each_package_names_a_licence() -> None:
    assert [name for name, licence in licences().items() if not licence] == []


def test_what_an_install_brings_asks_for_a_notice_or_is_named() -> None:
    found = {(of, name) for name, licence in licences().items() for of in not_free(licence)}
    in_installs = {(of, name) for of, name in found if name in shipped()}
    assert in_installs == {(of, name) for of, names in NAMED.items() for name in names}
    assert ("GPL-2.0-only", "codespell") in found, "developers' tools are looked at too"
