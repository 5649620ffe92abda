"""Licences of the locked packages, as their own metadata name them (docs/dependencies.md)."""

from email.message import Message

import pytest

from docs.licences_table import NAMED, licence, licences, not_free
from release.parts import shipped


def test_each_package_names_a_licence() -> None:
    assert [name for name, licence in licences().items() if not licence] == []


def test_what_an_install_brings_asks_for_a_notice_or_is_named() -> None:
    found = {(of, name) for name, licence in licences().items() for of in not_free(licence)}
    in_installs = {(of, name) for of, name in found if name in shipped()}
    assert in_installs == {(of, name) for of, names in NAMED.items() for name in names}
    assert ("GPL-2.0-only", "codespell") in found, "developers' tools are looked at too"


SAYINGS = {
    "agpl beside mit": (("AGPL-3.0",), ("MIT License",), ""),
    "commercial beside bsd": (("Commercial",), ("BSD License",), ""),
    "two classifiers, one unknown": ((), ("MIT License", "GNU GPL v3 (GPLv3)"), ""),
    "a text of several lines": (("MIT\nThe Software shall be used for Good.",), (), ""),
    "dual, of anybody": (("Dual License",), ("BSD License",), ""),
    "proprietary": (("MIT",), ("Other/Proprietary License",), ""),
    "nothing": (("UNKNOWN",), ("DFSG approved",), ""),
    "two known": (
        ("MIT",),
        ("MIT License", "GNU General Public License v2 (GPLv2)"),
        "GPL-2.0 AND MIT",
    ),
    "wider and narrower": (("BSD 3-Clause License",), ("BSD License",), "BSD-3-Clause"),
}


@pytest.mark.parametrize("name", SAYINGS)
def test_all_that_metadata_say_counts(name: str) -> None:
    fields, classifiers, expected = SAYINGS[name]
    said = Message()
    for text in fields:
        said["License"] = text
    for text in classifiers:
        said["Classifier"] = f"License :: OSI Approved :: {text}"
    assert licence(said) == expected


def test_parentheses_are_not_taken_for_free() -> None:
    assert not_free("GPL-3.0-only AND (MIT OR BSD-3-Clause)")
    assert not_free("MIT OR GPL-3.0-only AND ISC") == set()
    assert not_free("Apache-2.0 AND MIT") == set()
