"""An application file as a restart takes it: paths, and passwords that no plan may keep."""

import sys
from pathlib import Path

import pytest

from eoctl.operations.restart.restart_request import read_app_file
from recovery.errors import UsageError

APP = """[app]
name = "enricher"
strategy = "{strategy}"
inputs = ["orders"]
outputs = {outputs}
[app.store]
{store}
"""

URLS = (  # with {word} as the password, or a part of it
    "postgresql://ops:pa#{word}@db/app",
    "postgresql://ops:pa/{word}@db/app",
    "postgresql://ops:pa?{word}@db/app",
    "postgresql://ops:pa@{word}@db/app",
    "postgresql://:{word}@db/app",
    "postgresql://db/app?passwd={word}",
    "mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3D{word}",
    "mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3Bpassword%3d{word}",
    "postgresql://db/app?sslpassword={word}",
    "postgresql://db/app?dsn=host%3Ddb%20password%3D{word}",
    "postgresql://ops:pa]{word}@[db/app",
    "postgresql://db/app?%70assword={word}",
)


def asked(folder: Path, store: str, strategy: str = "output-end") -> Path:
    path = folder / "app.toml"
    outputs = "[]" if strategy.endswith("-checkpoint") else '["out"]'
    path.write_text(APP.format(strategy=strategy, store=store, outputs=outputs))
    return path


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("offsets.json", "{folder}/offsets.json"),
        ("/var/offsets.json", "/var/offsets.json"),
    ],
)
def test_a_files_path_is_relative_to_the_application_file(
    tmp_path: Path, written: str, found: str
) -> None:
    store = read_app_file(asked(tmp_path, f'kind = "file"\npath = "{written}"')).store
    assert store is not None
    assert store.kind == "file"
    assert store.path == found.format(folder=tmp_path)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("checkpoint", "{folder}/checkpoint"),
        ("file:///data/checkpoint", "file:///data/checkpoint"),
        ("file:/data/checkpoint", "file:/data/checkpoint"),
        ("hdfs://nn/checkpoint", "hdfs://nn/checkpoint"),
    ],
)
@pytest.mark.parametrize("kind", ["spark-checkpoint", "flink-checkpoint"])
def test_a_checkpoints_address_stays(tmp_path: Path, kind: str, written: str, found: str) -> None:
    described = f'kind = "{kind}"\npath = "{written}"'
    store = read_app_file(asked(tmp_path, described, kind)).store
    assert store is not None
    assert store.kind in ("spark-checkpoint", "flink-checkpoint")
    assert store.path == found.format(folder=tmp_path)


@pytest.mark.parametrize(
    "store",
    [
        'kind = "zookeeper"\nconnect = "ops:{word}@zk1:2181"\npath = "/offsets"',
        'kind = "sql"\nurl = "postgresql://ops:{word}@db/app"\ntable = "offsets"',
        'kind = "sql"\nurl = "postgresql://db/app?password={word}"\ntable = "offsets"',
        *(f'kind = "sql"\nurl = "{url}"\ntable = "offsets"' for url in URLS),
    ],
)
@pytest.mark.parametrize("installed", [True, False])
def test_a_password_would_stand_in_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, installed: bool
) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "sqlalchemy.engine", None)
    with pytest.raises(UsageError, match=r"\[app\.store\].*holds a password") as refusal:
        read_app_file(asked(tmp_path, store.format(word="hunter2")))
    assert "hunter2" not in refusal.value.sentence


@pytest.mark.parametrize(
    "store",
    [
        'kind = "zookeeper"\nconnect = "ops:env:ZK@zk1:2181"\npath = "/offsets"',
        'kind = "zookeeper"\nconnect = "ops:file:/etc/zk@zk1:2181/app"\npath = "/offsets"',
        'kind = "zookeeper"\nconnect = "zk1:2181,zk2:2181"\npath = "/offsets"',
        'kind = "sql"\nurl = "env:DB"\ntable = "offsets"',
        'kind = "sql"\nurl = "postgresql://ops@db/app"\ntable = "offsets"',
        'kind = "sql"\nurl = "postgresql://ops@db:5432/app?sslmode=require"\ntable = "offsets"',
        'kind = "sql"\nurl = "sqlite:////var/lib/app.db"\ntable = "offsets"',
    ],
)
@pytest.mark.parametrize("installed", [True, False])
def test_where_a_password_is_kept_may_stand_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, installed: bool
) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "sqlalchemy.engine", None)
    assert read_app_file(asked(tmp_path, store)).store is not None
