"""docs/compatibility.md: a row is tried where the tests that it names have passed."""

from pathlib import Path

from docs.works_with import keep, named, rows, said

LONG = "tests/kafka/test_broker_versions.py::test_other_releases[4.0.1]"
ROW = {"name": "4.0.1", "tests": [LONG, "tests/kafka/test_wheel.py"]}


def test_a_row_is_tried_where_all_its_tests_have_passed() -> None:
    assert said({"name": "ARM"}, {}) == "not tried"
    assert said({"name": "x", "each": True, "tests": ["tests/unit/"]}, {}) == "tried, each test"
    assert said(ROW, {LONG: "2026-11-28"}) == "long tests; no run is kept here"
    both = {LONG: "2026-11-28", "tests/kafka/test_wheel.py::test_pip[None]": "2026-11-02"}
    assert said(ROW, both) == "tried, long tests, 2026-11-02"


def test_what_fails_is_no_longer_tried(tmp_path: Path) -> None:
    file = tmp_path / "tried.txt"
    keep([LONG, "tests/kafka/test_check.py::test_x"], [], "2026-11-27", file)
    assert file.read_text() == f"2026-11-27 {LONG}\n"
    keep([], [LONG], "2026-11-28", file)
    assert file.read_text() == ""


def test_the_tests_that_rows_name_exist() -> None:
    root = Path(__file__).parents[3]
    for table in rows().values():
        for test in (test for row in table for test in row.get("tests", ())):
            path, _, name = test.partition("::")
            found = [p for p in root.glob(f"{path}*") if p.suffix == ".py" or p.is_dir()]
            assert found, test
            assert f"def {name.partition('[')[0]}(" in found[0].read_text() if name else True, test
    assert not named("tests/unit/house/test_works_with.py::test_x")
