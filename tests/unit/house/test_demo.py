"""What `eoctl lab demo` says of a step that leaves something behind."""

import time
from pathlib import Path

import pytest

from eoctl.cli.commands.lab import demo
from recovery.errors import UnverifiedError


def test_a_step_that_leaves_something_or_shows_it_to_others_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, temporary = tmp_path / "state", tmp_path / "temporary"
    for folder in (state, temporary):
        folder.mkdir(mode=0o700)
    monkeypatch.setenv("EOCTL_STATE_DIR", str(state))
    began = time.time() - 5
    (state / "keys").touch(0o600)
    demo._refuse_left("eoctl status", temporary, began)
    (state / "keys").chmod(0o640)
    with pytest.raises(UnverifiedError, match=r"`eoctl status` made something .* read: .*/keys"):
        demo._refuse_left("eoctl status", temporary, began)
    demo._refuse_left("eoctl status", temporary, time.time() + 5)  # it was there before
    (temporary / "eoctl-code-x").touch()
    with pytest.raises(UnverifiedError, match="left eoctl-code-x in the temporary folder"):
        demo._refuse_left("eoctl status", temporary, time.time() + 5)
