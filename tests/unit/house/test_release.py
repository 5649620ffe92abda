"""What is shipped: the packages of an install, its SBOM, an audit's words, the bytes of a wheel."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from release import audit, supply
from release.audit import judged
from release.parts import ROOT, shipped
from release.sbom import kept


def test_an_install_brings_its_extras_and_what_they_need() -> None:
    base, sql = shipped(()), shipped(("sql",))
    assert {"kafka-python", "crc32c", "pydantic-core"} <= base  # pydantic needs the last
    assert sql - base >= {"sqlalchemy", "psycopg", "psycopg-binary"}
    assert {"pyspark", "py4j", "boto3"} <= shipped() - sql
    assert shipped().isdisjoint({"pytest", "mypy", "pyinstaller", "moto"})


def test_an_sbom_has_no_tools_of_developers() -> None:
    parts = [{"name": name, "bom-ref": f"{name}==1"} for name in ("Flask_Cors", "crc32c", "pytest")]
    whole = {
        "metadata": {"component": {"bom-ref": "root"}},
        "components": parts,
        "dependencies": [
            {"ref": "root", "dependsOn": ["crc32c==1", "pytest==1"]},
            {"ref": "pytest==1", "dependsOn": ["crc32c==1"]},
            {"ref": "crc32c==1"},
        ],
    }
    found = kept(whole, {"crc32c", "flask-cors"})
    assert [part["name"] for part in found["components"]] == ["Flask_Cors", "crc32c"]
    assert found["dependencies"] == [
        {"ref": "root", "dependsOn": ["crc32c==1"]},
        {"ref": "crc32c==1", "dependsOn": []},
    ]


def test_an_audit_that_could_not_ask_finds_nothing_and_says_so() -> None:
    good = {"name": "idna", "version": "3.20", "vulns": []}
    hidden = {"name": "kazoo", "skip_reason": "Dependency not found on PyPI"}
    flaw = {"id": "PYSEC-1", "fix_versions": ["3.21"]}
    assert judged([good]) == (["Looked up: 1 packages."], 0)
    assert judged([])[1] == 3
    lines, status = judged([good, hidden])
    assert status == 3
    assert lines == ["NOT AUDITED: 1 of 2 packages: their advisories could not be reached here."]
    lines, status = judged([good | {"vulns": [flaw]}, hidden])
    assert (status, lines[0]) == (1, "idna 3.20: PYSEC-1, fixed in 3.21")


def test_an_audit_without_its_tools_is_no_finding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No registry: uv fails. A pip-audit that prints other JSON, or a text."""
    lock = tmp_path / "requirements-supply.lock"
    lock.write_text("pip-audit==0 --hash=sha256:0\n")
    monkeypatch.setattr(supply, "LOCK", lock)
    monkeypatch.setattr(supply, "FOLDER", tmp_path / "supply")
    monkeypatch.setattr(supply, "_install", lambda: subprocess.run(["false"], check=True))
    assert audit.main() == 3
    assert "NOT AUDITED: the tools of requirements-supply.lock" in capsys.readouterr().err
    answers = tmp_path / "answers"
    answers.write_text("#!/bin/sh\necho '{}'\necho 'no route to host' >&2\n")
    answers.chmod(0o755)
    monkeypatch.setattr(audit, "tool", lambda name: answers)
    assert audit.main() == 3
    assert capsys.readouterr().err == "NOT AUDITED: pip-audit: no route to host\n"


def test_a_wheel_built_twice_is_the_same_bytes(tmp_path: Path) -> None:
    """By another user's mask, in another time zone, after a file was touched."""
    uv = str(Path(sys.executable).with_name("uv"))
    argv = [uv, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable]
    built = []
    for number, mask in enumerate((0o022, 0o077)):
        (ROOT / "LICENSE").touch()
        out = tmp_path / str(number)
        env = os.environ | {"TZ": f"UTC{number * 5}"}
        subprocess.run([*argv, "--out-dir", out, ROOT], env=env, umask=mask, check=True)
        [wheel] = out.glob("*.whl")
        built.append(wheel.read_bytes())
    assert built[0] == built[1]
