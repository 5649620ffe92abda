"""A plan on the command line: whole sentences in lines of 80 columns."""

from eoctl.cli.dialog.acting import plan_lines
from eoctl.render.plans import plan_facts
from tests.unit.test_plan import make

WIDEST = 80


def test_every_line_fits_and_no_word_is_lost() -> None:
    told = make(summary="orders:3 pid 4001; " + "records that wait behind it, " * 12)
    lines = plan_lines(told)
    assert max(map(len, lines)) <= WIDEST
    assert " ".join(" ".join(lines[1:]).split()) == " ".join(
        " ".join(f"{label} {text}".split()) for label, text in plan_facts(told)
    )
    [what, second, *_] = lines[1:]
    assert what.startswith(" what     orders:3 pid 4001")
    assert second.startswith(" " * 10)


def test_a_word_is_never_broken() -> None:
    long = "t-" + "x" * 120 + ":0"
    assert any(long in line for line in plan_lines(make(summary=f"one {long} two")))
