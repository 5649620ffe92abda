"""The rooms of the product: small, without circles, and as docs/development.md shows them."""

import ast
import re
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from docs.house import BEGIN, END, FIGURES, PAGE, ROOT, arrows, circle, file_arrows, modules

BELOW = {"eoctl", "recovery"}
"""Folders whose own modules stand below their rooms: the version, errors, facts."""


def test_no_room_has_more_than_twenty_modules() -> None:
    rooms = Counter(room for room, path in modules() if path.name != "__init__.py")
    assert {room: count for room, count in rooms.items() if count > 20} == {}


def test_there_is_no_circle_of_rooms() -> None:
    """`eoctl/__main__.py` starts the command line, which is what its folder's own module is for."""
    found = {room: {o for o in others if o not in BELOW} for room, others in arrows().items()}
    assert len(list(TopologicalSorter(found).static_order())) > 40


def test_there_is_no_circle_of_files() -> None:
    """Counted from all imports: those in functions and those for type checking too."""
    found = file_arrows()
    assert circle(found) == []
    assert "eoctl/cli/runner.py" in found["eoctl/cli/commands/inspect.py"]
    assert "tui/feed/frame.py" in found["tui/layout.py"]  # for type checking
    assert "tui/screens/groups.py" in found["tui/screens/views.py"]  # in a function


def test_a_circle_of_files_is_found_and_named_in_the_order_of_its_imports() -> None:
    found = circle({"a": {"b", "d"}, "b": {"c"}, "c": {"a"}, "d": set()})
    assert sorted(found[1:]) == ["a", "b", "c"]
    assert found[0] == found[-1]
    assert f"{found[0]}{found[1]}" in ("ab", "bc", "ca")


def test_import_contracts_count_all_imports_and_say_why_they_are_there() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "exclude_type_checking_imports" not in text
    contracts = text.split("[[tool.importlinter.contracts]]\n")[1:]
    assert len(contracts) >= 10
    assert [c.splitlines()[0] for c in contracts if not c.startswith("# why: ")] == []


def test_every_room_says_what_is_in_it() -> None:
    for path in {path.parent / "__init__.py" for _, path in modules()}:
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert text.endswith("."), path
        assert "TODO" not in text, path


@pytest.mark.parametrize("page", FIGURES, ids=lambda page: page.stem)
def test_what_is_made_from_the_code_is_current(page: Path) -> None:
    """Else: `make figures`."""
    text = page.read_text(encoding="utf-8")
    assert [BEGIN + made() + END in text for made in FIGURES[page]] == [True] * text.count(BEGIN)


def test_where_is_what_names_files_that_exist() -> None:
    named = set(
        re.findall(r"`((?:eoctl|recovery|tui|spark_jobs)/[\w/]*)(?:\.py)?`", PAGE.read_text())
    )
    assert len(named) > 20
    assert [n for n in named if not (ROOT / n).exists() and not (ROOT / f"{n}.py").exists()] == []


def test_where_is_what_names_a_file_alone_beside_one_of_its_folder() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    alone = 0
    for row in rows:
        folders = re.findall(r"`((?:eoctl|recovery|tui|spark_jobs)/(?:\w+/)*)", row)
        for name in re.findall(r"`(\w+\.py)`", row):
            alone += 1
            assert any((ROOT / folder / name).exists() for folder in folders), row
    assert alone > 5


def test_docstrings_ask_no_questions() -> None:
    """A first sentence says what a thing is or does; a question leaves the answer to the reader."""
    asking = [
        f"{path}:{node.body[0].lineno}"
        for _, path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and re.search(r"\w\?", ast.get_docstring(node) or "")
    ]
    assert asking == []


IMPORT = re.compile(
    r"^\s*from ((?:eoctl|recovery|spark_jobs|tui)[\w.]*) import \(?([\w, \n]+?)\)?$", re.M
)


def test_programs_that_stand_as_text_import_what_there_is() -> None:
    """Of those that tests run, docs show and jobs read at their start (a sitecustomize, whose error
    ends nothing); whoever moves a module sees only imports of Python."""
    texts = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]
    lost = [
        f"{path.relative_to(ROOT)}: {module}.{name}"
        for path in texts
        for module, names in IMPORT.findall(path.read_text(encoding="utf-8"))
        for name in (word.split(" as ")[0].strip() for word in names.split(","))
        if name and not _holds(module, name)
    ]
    assert lost == []


def _holds(module: str, name: str) -> bool:
    """Return True if a module has a name at its top, or a package a module of that name."""
    folder = ROOT.joinpath(*module.split("."))
    if (folder / f"{name}.py").exists() or (folder / name).is_dir():
        return True
    found = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return found.exists() and bool(re.search(rf"\b{name}\b", found.read_text(encoding="utf-8")))


def test_where_is_names_what_is_there() -> None:
    """Each path of that table; a bare name lies in the folder that was named before it."""
    table = PAGE.read_text(encoding="utf-8").split("Where is …")[1].split("\n## ")[0]
    gone, folder = [], ROOT
    for name in re.findall(r"`([^`]+)`", table):
        if "/" in name:
            path = ROOT / name
            folder = path if path.is_dir() else path.parent
        elif name.endswith(".py"):
            path = folder / name
        else:
            continue
        gone += [] if path.exists() else [name]
    assert gone == []


def test_no_value_is_defined_in_a_module_that_runs_as_main() -> None:
    """Spark pickles a class of `__main__` by value, which msgspec's structs do not survive."""
    for _, path in modules():
        text = path.read_text(encoding="utf-8")
        if "spark_jobs" in path.parts and 'if __name__ == "__main__"' in text:
            assert not re.search(r"^class \w+\(.*\b(Value|Row)\b.*\):", text, re.MULTILINE), path


def test_replace_is_that_of_values() -> None:
    """The standard library's fails on a Value, and mypy does not see it."""
    for _, path in modules():
        text = path.read_text(encoding="utf-8")
        if path.name != "values.py":
            assert not re.search(r"from dataclasses import .*\breplace\b", text), path
            assert "dataclasses.replace(" not in text, path
