"""The scorecard counts what the tests of a line say that they tried."""

from tests.conftest import Tried
from tests.trust.__main__ import run

HERE = "unit/house/test_trust.py::test_something"


def test_something(tried: Tried) -> None:
    tried("things", 3)


def test_a_line_has_the_counts_of_its_tests_and_finds_nothing() -> None:
    made = run("0", {"title": "a line", "tests": [HERE]}, long=False)
    assert made.good, made.found
    assert made.tried == {"tests": 1, "things": 3}
