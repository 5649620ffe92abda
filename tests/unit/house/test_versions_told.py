"""`eoctl --version`: what is there, what is missing, and nothing is started to find out."""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from eoctl import __version__
from eoctl.cli.main import run
from eoctl.host import versions


def test_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"eoctl {__version__}" == f"eoctl {version('eoctl')}"
    assert lines[1] == f"Python {sys.version.split()[0]}"
    for name in ("confluent-kafka", "kafka-python", "pyspark"):
        assert f"{name} {version(name)}" in lines


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", absent)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    lines = versions.report().splitlines()
    assert "pyspark not installed (eoctl[spark])" in lines
    assert "confluent-kafka not installed" in lines
    assert lines[-1] == "Java not found (JAVA_HOME, PATH)"


def test_java_is_read_from_its_release_file_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert versions.java_version().startswith(f"at {program} (")
    (tmp_path / "jdk" / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.5"\n')
    assert versions.java_version() == "21.0.5"
    assert not (tmp_path / "was-run").exists()
