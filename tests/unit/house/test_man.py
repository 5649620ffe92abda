"""The man page: every command and status is on it, and man's own formatter finds no fault."""

import shutil
import subprocess

import pytest

from docs.man import page
from eoctl.cli.topics import STATUSES
from eoctl.cli.tree import TREE
from recovery.errors import Exit


def test_every_exit_status_and_command_is_on_it() -> None:
    assert set(STATUSES) == set(Exit)
    text = page()
    for name in TREE.commands:
        assert f'.SS "eoctl {name}' in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="NOT RUN: there is no groff")
def test_it_is_sound_troff() -> None:
    argv = ["groff", "-man", "-ww", "-Tutf8", "-P-cbou"]
    done = subprocess.run(argv, input=page(), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "eoctl txn abort orders:3" in done.stdout
