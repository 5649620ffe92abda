"""docs/compatibility.md: a row is tried where the tests that it names have passed."""

from pathlib import Path

from docs.works_with import dates, failures, keep, named, rows, said, wanted

LONG = "tests/kafka/test_broker_versions.py::test_other_releases[4.0.1]"
ROW = {"name": "4.0.1", "tests": [LONG, "tests/kafka/test_wheel.py"]}


def test_a_row_is_tried_where_all_its_tests_have_passed() -> None:
    assert said({"name": "ARM"}, {}) == "not tried"
    assert said({"name": "x", "each": True, "tests": ["tests/unit/"]}, {}) == "tried, each test"
    assert said(ROW, {LONG: "2026-11-28"}) == "long tests; no run is kept here"
    both = {LONG: "2026-11-28"} | {
        f"{test}[x]": "2026-11-02" for test in wanted("tests/kafka/test_wheel.py")
    }
    assert said(ROW, both) == "tried, long tests, 2026-11-02"
    for one in both:
        assert said(ROW, {t: d for t, d in both.items() if t != one}).endswith(
            "no run is kept here"
        )
    similar = {LONG.replace("4.0.1]", "4.0.1-x]"): "2026-11-28"}
    assert said(ROW, both | similar, ["tests/kafka/test_wheel.py::test_x"]).startswith("tried")


def test_one_parameter_that_failed_spoils_its_row() -> None:
    test = wanted("tests/kafka/test_wheel.py")[0]
    row = {"name": "x", "tests": [test]}
    assert said(row, {f"{test}[a]": "2026-11-28"}).startswith("tried")
    text = said(row, {f"{test}[a]": "2026-11-28"}, [f"{test}[b]"])
    assert text == "long tests; failed when they last ran"


def test_what_fails_is_no_longer_tried(tmp_path: Path) -> None:
    file = tmp_path / "tried.txt"
    keep([LONG, "tests/kafka/test_check.py::test_x"], [], "2026-11-27", file)
    assert file.read_text() == f"2026-11-27 {LONG}\n"
    keep([], [LONG], "2026-11-28", file)
    assert file.read_text() == f"2026-11-28 failed {LONG}\n"
    assert (dates(file.read_text()), failures(file.read_text())) == ({}, [LONG])
    keep([LONG], [], "2026-11-29", file)
    assert file.read_text() == f"2026-11-29 {LONG}\n"


def test_the_tests_that_rows_name_exist() -> None:
    root = Path(__file__).parents[3]
    for table in rows().values():
        for test in (test for row in table for test in row.get("tests", ())):
            path, _, name = test.partition("::")
            found = [p for p in root.glob(f"{path}*") if p.suffix == ".py" or p.is_dir()]
            assert found, test
            assert f"def {name.partition('[')[0]}(" in found[0].read_text() if name else True, test
    assert not named("tests/unit/house/test_works_with.py::test_x")
