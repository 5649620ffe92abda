"""What is shipped: the packages of an install, its SBOM, an audit's words, the bytes of a wheel."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from docs.works_with import TRIED, dates, rows, said
from release import all as release_all
from release import audit, deb, old_debian, supply
from release.audit import judged
from release.binary import libraries
from release.parts import PYTHONS, ROOT, shipped
from release.sbom import kept
from release.version import CHANGELOG, PLACES, declared, notes, unready, write

CONTAINERFILE = ROOT / "docs/deploy/Containerfile"


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


def test_what_runs_is_said_alike() -> None:
    """By the classifiers and by docs/compatibility.md; the image's Python is one of the pex."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name = "Programming Language :: Python :: "
    known = dates(TRIED.read_text())
    tried = [row["name"] for row in rows()["here"] if said(row, known).startswith("tried")]
    versions = [n.removeprefix("Python ") for n in tried if n.startswith("Python ")]
    assert [c.removeprefix(name) for c in table["classifiers"] if name in c] == versions
    image = re.search(r"PYTHON=python:([\d.]+)-slim", CONTAINERFILE.read_text())
    assert image is not None
    assert image[1] in PYTHONS


def test_the_formula_has_the_steps_of_the_image() -> None:
    """Installing the builder, building the wheel, and installing that: the same options."""

    def options(text: str) -> list[str]:
        words = re.findall(r"(?<![\w-])--?[a-z][a-z-]*|requirements[\w-]*\.lock", text)
        return [w for w in words if w not in ("--mkdir", "-p")]

    steps = "\n".join(
        re.findall(r"(?m)^RUN (?:python|/opt).*(?:\\\n.*)?", CONTAINERFILE.read_text())
    )
    formula = (ROOT / "release/eoctl.rb").read_text()
    made = formula[formula.index("def install") : formula.index("docs.man")]
    assert options(steps) == options(made)[: len(options(steps))]


def test_no_module_in_the_package_names_an_interpreter(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("#!/usr/bin/env python\nx = 1\n")
    (tmp_path / "b.py").write_text("x = 1\n")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    deb.without_interpreters(tmp_path)
    assert (tmp_path / "a.py").read_text() == "# /usr/bin/env python\nx = 1\n"
    assert (tmp_path / "b.py").read_text() == "x = 1\n"
    assert (tmp_path / "run.sh").read_text() == "#!/bin/sh\n"


def test_a_package_of_other_sources_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the wheel that was packed, beside the one that the tree makes."""
    monkeypatch.setattr(deb, "WORK", tmp_path)
    monkeypatch.setattr(deb, "build_wheel", lambda to: (to / "eoctl-1.whl").write_bytes(b"new"))
    assert not deb.is_of_these_sources()
    (tmp_path / "wheel").mkdir()
    (tmp_path / "wheel/eoctl-1.whl").write_bytes(b"old")
    assert not deb.is_of_these_sources()
    (tmp_path / "wheel/eoctl-1.whl").write_bytes(b"new")
    assert deb.is_of_these_sources()


def test_the_sbom_lists_shared_libraries(tmp_path: Path) -> None:
    (tmp_path / "_internal").mkdir()
    (tmp_path / "_internal/libssl.so.3").write_bytes(b"x")
    (tmp_path / "_internal/libssl.so").symlink_to("libssl.so.3")
    [found] = libraries(tmp_path)
    assert (found["type"], found["name"]) == ("file", "_internal/libssl.so.3")


def test_a_release_that_cannot_be_built_keeps_what_is_in_dist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_all, "unready", list)
    monkeypatch.setattr(release_all, "DIST", tmp_path)
    monkeypatch.setattr(release_all, "tool", lambda name: Path(name))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["all", "--debian", ""])
    (tmp_path / "eoctl.pex").touch()
    with pytest.raises(SystemExit, match="no release: no dpkg-deb here"):
        release_all.main()
    assert (tmp_path / "eoctl.pex").exists()
    assert "no debootstrap here" in release_all.lacking("bullseye")


def test_a_debian_made_by_another_recipe_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_debian, "ROOT", tmp_path)
    made = tmp_path / "build/debian-bullseye"

    def bootstrap(folder: Path, *_: object) -> None:
        (folder / "etc/apt").mkdir(parents=True)
        (folder / "etc/apt/sources.list").write_text("deb http://mirror bullseye main\n")

    monkeypatch.setattr(old_debian, "bootstrap", bootstrap)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    ran: list[Path] = []
    monkeypatch.setattr(old_debian, "inside", lambda folder, *_: ran.append(folder))
    for _ in range(2):
        assert old_debian.debian("bullseye") == made
    assert ran == [made]
    (made / "opt/built").write_text("")
    shutil.rmtree(made / "etc")
    shutil.rmtree(made / "opt/source")
    old_debian.debian("bullseye")
    assert ran == [made, made]

    def fails(*_: object) -> None:
        raise subprocess.CalledProcessError(1, "sh")

    (made / "opt/built").unlink()
    shutil.rmtree(made / "etc")
    shutil.rmtree(made / "opt/source")
    monkeypatch.setattr(old_debian, "inside", fails)
    with pytest.raises(old_debian.NotBuiltError, match=r"opt/build.log says why"):
        old_debian.debian("bullseye")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files of this tree that say its version."""
    for name in (*PLACES, CHANGELOG):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    text = "# Changelog\n\n## [Unreleased]\n\n### Added\n- x\n\n## [0.2.0] - 2026-11-22\n- y\n"
    (tmp_path / CHANGELOG).write_text(text)
    return tmp_path


def test_a_version_is_written_in_all_its_places(tree: Path) -> None:
    assert unready(tree) == [
        "CHANGELOG.md has entries under [Unreleased]: make version VERSION=..."
    ]
    write("0.3.0", tree)
    assert unready(tree) == []
    assert (declared(tree), notes("0.3.0", tree)) == ("0.3.0", "### Added\n- x")
    assert notes("0.2.0", tree) == "- y"
    (tree / "eoctl/__init__.py").write_text('__version__ = "0.2.0"\n')
    assert unready(tree) == ["eoctl/__init__.py does not say 0.3.0, which pyproject.toml has"]
    for wrong in ("0.3.0", "1.0"):
        with pytest.raises(SystemExit):
            write(wrong, tree)


def test_a_tree_that_is_no_release_is_refused() -> None:
    """This one has unreleased entries, or else it says its version everywhere."""
    assert all("[Unreleased]" in problem for problem in unready())
