"""The units of docs/deploy/systemd, by systemd itself."""

import shutil
import sys
from pathlib import Path

from tests.tools.conftest import Program, Run
from tests.unit.house.test_deploy import DEPLOY


def test_the_units_are_valid(program: Program, run: Run, tmp_path: Path) -> None:
    """Their program is named where it is installed; here it is Python's own folder."""
    verify = program("systemd-analyze")
    eoctl = Path(sys.executable).with_name("eoctl")
    units = []
    for unit in sorted((DEPLOY / "systemd").iterdir()):
        copy = Path(shutil.copy(unit, tmp_path))
        copy.write_text(copy.read_text().replace("/usr/local/bin/eoctl", str(eoctl)))
        units.append(copy)
    printed = run([verify, "verify", "--man=no", *units])
    assert [line for line in printed.splitlines() if "eoctl" in line] == []
