"""What commands leave on the disk: readable by their user alone, and without a password in it."""

import os
from pathlib import Path

import pytest

from eoctl.lab import secure
from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from tests.conftest import Tried
from tests.kafka.command import FAST, environment, eoctl
from tests.kafka.remedying import abort

OPEN_TO_OTHERS = 0o077


@pytest.fixture
def _ordinary_umask() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_ordinary_umask")
def test_files_are_their_users_alone_and_hold_no_password(
    secure_lab: Lab, tmp_path: Path, tried: Tried
) -> None:
    [orphan] = break_(secure_lab, "orphan", hold=False)
    client = secure.client_file(secure_lab.folder, "operator", "SCRAM")
    password = next(
        line.partition("=")[2] for line in client.read_text().splitlines() if "password" in line
    )
    server = ("--bootstrap-server", secure_lab.record.bootstrap_servers("SCRAM"))
    as_operator = (*server, "--command-config", str(client))
    env = environment(
        EOCTL_STATE_DIR=str(tmp_path / "state"), EOCTL_CACHE_DIR=str(tmp_path / "cache")
    )
    printed = []
    for words in (
        ("status", *FAST),
        ("why", orphan.topic, *FAST),
        ("check", *FAST),
        ("producers", orphan.topic, "--resolve"),
        ("txn", "hanging", orphan.topic, *FAST, "--plan", f"{tmp_path}/plan.json"),
        ("bundle", "create", f"{tmp_path}/incident.eoctl", *FAST),
        (*abort(orphan), "--execute", "--yes"),
        ("journal", "list"),
        ("report", f"{tmp_path}/incident.eoctl", "--output", f"{tmp_path}/report.html"),
    ):
        local = words[0] in ("journal", "report")
        ran = eoctl(*words, *(() if local else as_operator), env=env, process=True)
        assert ran.status in (0, 1), (words, ran.stdout, ran.stderr)
        printed.append(ran.stdout + ran.stderr)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    tried("files", len(files))
    assert any(path.is_relative_to(tmp_path / "state" / "journal") for path in files)
    assert any(path.is_relative_to(tmp_path / "cache" / "transaction-state") for path in files)
    assert {"plan.json", "incident.eoctl", "report.html"} <= {path.name for path in files}
    assert [p for p in files if p.stat().st_mode & OPEN_TO_OTHERS] == []
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert [p for p in folders if p.stat().st_mode & OPEN_TO_OTHERS] == []
    assert [p for p in files if password.encode() in p.read_bytes()] == []
    assert password not in "".join(printed)
