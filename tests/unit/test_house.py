"""The rooms of the product: small, without circles, and as docs/development.md shows them."""

import ast
import re
from collections import Counter
from graphlib import TopologicalSorter

from docs.house import BEGIN, PAGE, ROOT, arrows, drawing, modules

BELOW = {"eoctl", "recovery"}
"""Folders whose own modules stand below their rooms: the version, errors, facts."""


def test_no_room_has_more_than_twenty_modules() -> None:
    rooms = Counter(room for room, path in modules() if path.name != "__init__.py")
    assert {room: count for room, count in rooms.items() if count > 20} == {}


def test_there_is_no_circle_of_rooms() -> None:
    """`eoctl/__main__.py` starts the command line, which is what its folder's own module is for."""
    found = {room: {o for o in others if o not in BELOW} for room, others in arrows().items()}
    assert len(list(TopologicalSorter(found).static_order())) > 40


def test_every_room_says_what_is_in_it() -> None:
    for path in {path.parent / "__init__.py" for _, path in modules()}:
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert text.endswith("."), path
        assert "TODO" not in text, path


def test_the_drawing_is_current() -> None:
    """Else: `make figures`."""
    assert BEGIN + drawing() in PAGE.read_text(encoding="utf-8")


def test_where_is_what_names_files_that_exist() -> None:
    named = set(
        re.findall(r"`((?:eoctl|recovery|tui|spark_jobs)/[\w/]*)(?:\.py)?`", PAGE.read_text())
    )
    assert len(named) > 20
    assert [n for n in named if not (ROOT / n).exists() and not (ROOT / f"{n}.py").exists()] == []


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
