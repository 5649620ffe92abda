"""The house as the code has it: `make size` prints lines of code per room, `make figures` draws it.

A room is a folder of the four packages. A line of code is one that is not blank, no comment and no
docstring. The drawing in docs/development.md is made from all imports, those in functions and for
type checking too; `make figures` fails where files import each other in a circle.
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from docs import bugs_table, doctor_table, licences_table, permissions_table, works_with

ROOT = Path(__file__).parents[1]
PACKAGES = ("eoctl", "tui", "recovery", "spark_jobs")
PAGE = ROOT / "docs" / "development.md"
DOCTOR = ROOT / "docs" / "doctor.md"
COMPATIBILITY = ROOT / "docs" / "compatibility.md"
PERMISSIONS = ROOT / "docs" / "permissions.md"
DEPENDENCIES = ROOT / "docs" / "dependencies.md"
BEGIN, END = "<!-- made by `make figures` -->\n", "<!-- end -->\n"


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the product as its room and its file."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.parent.relative_to(ROOT)), path


def code_lines(text: str) -> int:
    """Lines that hold code: no blank ones, no comments, no docstrings."""
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            value = node.value
            if isinstance(value.value, str) and value.end_lineno is not None:
                prose.update(range(value.lineno, value.end_lineno + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(1 for n, line in lines if n not in prose and line.strip()[:1] not in ("", "#"))


def sizes() -> str:
    """A table: lines of code and modules of each room, and in all."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for room, path in modules():
        lines[room] += code_lines(path.read_text(encoding="utf-8"))
        files[room] += path.name != "__init__.py"
    rows = [f"{lines[room]:6,d}  {files[room]:3d}  {room}/" for room in sorted(lines)]
    head = " lines  modules  room"
    return "\n".join([head, *rows, f"{sum(lines.values()):6,d}  {sum(files.values()):3d}  in all"])


def _imported(tree: ast.Module) -> Iterator[str]:
    """Dotted names that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _room_of(name: str) -> str | None:
    """The room in which a dotted name's module stands; None: not of the product."""
    parts = name.split(".")
    if parts[0] not in PACKAGES:
        return None
    folder = ROOT
    for part in parts:
        if not (folder / part).is_dir():
            break
        folder = folder / part
    return str(folder.relative_to(ROOT))


@cache
def arrows() -> dict[str, set[str]]:
    """The rooms that each room's modules import."""
    found: dict[str, set[str]] = defaultdict(set)
    for room, path in modules():
        for name in _imported(ast.parse(path.read_text(encoding="utf-8"))):
            other = _room_of(name)
            if other is not None and other != room:
                found[room].add(other)
    return found


def file_arrows() -> dict[str, set[str]]:
    """The files that each file imports, by their paths from the root."""
    files = {str(path.relative_to(ROOT)): path for _, path in modules()}
    found: dict[str, set[str]] = {}
    for file, path in files.items():
        names = _imported(ast.parse(path.read_text(encoding="utf-8")))
        found[file] = {o for name in names if (o := _file_of(name, files)) is not None} - {file}
    return found


def _file_of(name: str, files: Container[str]) -> str | None:
    """The file in which a dotted name is: a module, a package or what one of them holds."""
    whole = name.replace(".", "/")
    for stem in (whole, whole.rpartition("/")[0]):
        for file in (f"{stem}.py", f"{stem}/__init__.py"):
            if file in files:
                return file
    return None


def circle(arrows: Mapping[str, Collection[str]]) -> list[str]:
    """Return one circle of imports, its first file again at its end; empty where there is none."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def drawing() -> str:
    """The operations' rooms and the rooms of other floors, each with what it imports."""
    found = arrows()
    lines = ["```"]
    for room in sorted(found):
        floor, name = room.rsplit("/", 1) if "/" in room else (room, "")
        beside = sorted(
            o.removeprefix(f"{floor}/") for o in found[room] if o.startswith(f"{floor}/")
        )
        if name and beside and floor not in PACKAGES[1:2]:
            lines.append(f"{room + '/':32} → {', '.join(beside)}")
    return "\n".join([*lines, "```", ""])


FIGURES: Mapping[Path, Sequence[Callable[[], str]]] = {
    PAGE: [drawing],
    DOCTOR: [doctor_table.table],
    COMPATIBILITY: [works_with.brokers, bugs_table.table, works_with.here],
    PERMISSIONS: [permissions_table.table],
    DEPENDENCIES: [licences_table.table],
}
"""Page → what `make figures` writes between its marks, in their order."""


def main() -> None:
    """`size` prints the table; `figures` writes the drawing and what else pages have from the code.

    Exit status 1 where files import each other in a circle: nothing is drawn then.
    """
    if sys.argv[1:] == ["size"]:
        print(sizes())
        return
    if found := circle(file_arrows()):
        sys.exit(f"a circle of files: {' imports '.join(found)}")
    for page, made in FIGURES.items():
        before, *parts = page.read_text(encoding="utf-8").split(BEGIN)
        after = [part.partition(END)[2] for part in parts]
        drawn = [BEGIN + one() + END + rest for one, rest in zip(made, after, strict=True)]
        page.write_text(before + "".join(drawn), encoding="utf-8")


if __name__ == "__main__":
    main()
