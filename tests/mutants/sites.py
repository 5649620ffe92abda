"""Single mutations of a module's source: where one is possible, and the changed tree.

Compared, combined and negated conditions, whole numbers, True and False, sums, any/all, min/max,
the branches of `x if c else y`, a `raise` or a call whose answer nobody uses. Words, annotations
and decorators stay as they are.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_CALLED = {"any": "all", "all": "any", "min": "max", "max": "min"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mutation: the `number`-th of its module. name: `MODULE FUNCTION: before -> after`."""

    module: str
    number: int
    line: int
    name: str


def sites(source: str) -> list[str]:
    """Each single mutation of a module, by what stands there: other changes leave it its name."""
    seen: Counter[str] = Counter()
    found = []
    for where, _, node, _ in _changes(ast.parse(source)):
        site = f"{where}: {_short(node)}"
        seen[site] += 1
        found.append(f"{site} #{seen[site]}")
    return found


def mutant(module: str, source: str, number: int) -> Mutant:
    """The `number`-th of them, in the order of its source."""
    return _changed(module, source, number)[0]


def mutated(mutant: Mutant, source: str) -> ast.Module:
    """Its module's tree with this one place changed."""
    return _changed(mutant.module, source, mutant.number)[1]


def _changed(module: str, source: str, number: int) -> tuple[Mutant, ast.Module]:
    tree = ast.parse(source)
    where, line, _, change = next(c for i, c in enumerate(_changes(tree)) if i == number)
    before, after = change()
    ast.fix_missing_locations(tree)
    return Mutant(module, number, line, f"{module} {where}: {before} -> {after}"), tree


Change = Callable[[], tuple[str, str]]
"""Makes the change; what stood there, and what stands there now."""


def _changes(tree: ast.Module) -> Iterator[tuple[str, int, ast.AST, Change]]:
    yield from _below(tree, "")


def _below(node: ast.AST, where: str) -> Iterator[tuple[str, int, ast.AST, Change]]:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for number, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            inside = where
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = f"{where}.{child.name}".strip(".")
            for change in _of(child):
                yield inside, child.lineno, child, partial(_told, child, change)  # type: ignore[attr-defined]
            if isinstance(child, ast.Raise) or (
                isinstance(child, ast.Expr) and isinstance(child.value, ast.Call | ast.Await)
            ):
                yield inside, child.lineno, child, partial(_forgotten, value, number)
            yield from _below(child, inside)


def _told(node: ast.AST, change: Callable[[], object]) -> tuple[str, str]:
    before = _short(node)
    left = change()
    return before, _short(left if isinstance(left, ast.AST) else node)


def _forgotten(body: list[ast.stmt], number: int) -> tuple[str, str]:
    before = _short(body[number])
    body[number] = ast.Pass(lineno=body[number].lineno, col_offset=0)
    return before, "pass"


def _short(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _of(node: ast.AST) -> Iterator[Callable[[], object]]:
    match node:
        case ast.Compare():
            for number, op in enumerate(node.ops):
                if type(op) in _COMPARED:
                    yield partial(node.ops.__setitem__, number, _COMPARED[type(op)]())
        case ast.BoolOp():
            yield partial(setattr, node, "op", _other(node.op, ast.And, ast.Or))
            for number in range(len(node.values)):
                yield partial(_without, node, number)
        case ast.UnaryOp(op=ast.Not()):  # becomes `not not x`
            twice = ast.UnaryOp(op=ast.Not(), operand=node.operand)
            yield partial(setattr, node, "operand", twice)
        case ast.Constant(value=bool()):
            yield partial(setattr, node, "value", not node.value)
        case ast.Constant(value=int(value)):
            yield partial(setattr, node, "value", value + 1)
        case ast.BinOp(op=ast.Add() | ast.Sub()) if not (_words(node.left) or _words(node.right)):
            yield partial(setattr, node, "op", _other(node.op, ast.Add, ast.Sub))
        case ast.Call(func=ast.Name(id=name)) if name in _CALLED:
            yield partial(setattr, node.func, "id", _CALLED[name])
        case ast.IfExp():
            yield lambda: _swap(node)


def _without(node: ast.BoolOp, number: int) -> ast.AST:
    """Leave one condition out. Return what is left: Python compiles no `and` of a single one."""
    del node.values[number]
    if len(node.values) > 1:
        return node
    [left] = node.values
    node.values.insert(0, ast.Constant(isinstance(node.op, ast.And)))
    return left


def _other(op: ast.AST, one: type[ast.AST], two: type[ast.AST]) -> ast.AST:
    return two() if isinstance(op, one) else one()


def _words(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return _words(node.left) or _words(node.right)
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _swap(node: ast.IfExp) -> None:
    node.body, node.orelse = node.orelse, node.body
