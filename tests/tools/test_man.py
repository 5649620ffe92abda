"""The man page, by man-db: it is set without a warning, and `whatis` finds it."""

import shutil
from pathlib import Path

from docs.man import page as man_page
from tests.tools.conftest import Program, Run


def written(folder: Path) -> Path:
    path = folder / "man1" / "eoctl.1"
    path.parent.mkdir()
    path.write_text(man_page(), encoding="utf-8")
    return path


def test_man_sets_the_page_without_a_warning(program: Program, run: Run, tmp_path: Path) -> None:
    text = run([program("man"), "--warnings", "-l", written(tmp_path)])
    assert "EXIT STATUS" in text
    assert "eoctl txn abort" in text
    assert "warning" not in text


def test_mandb_finds_its_name(program: Program, run: Run, tmp_path: Path) -> None:
    mandb = program("mandb")
    written(tmp_path)
    run([mandb, "--quiet", "--create", "--user-db", tmp_path])
    whatis = shutil.which("whatis")
    assert run([whatis, "-M", tmp_path, "eoctl"]).startswith("eoctl (1)            - find and fix")
