"""`make mutants`: each of its changes is a program, which differs from the one before."""

import ast

import pytest

from tests.mutants.sites import mutant, mutated, sites

SOURCE = """
def f(a: int, b: int = 1, *, c: bool = True) -> int:
    if a < b and not c or a == b:
        raise ValueError
    a.append(max(a, 2))
    return (a or b) + 1 if a is None else any([a in b and a != c])
"""


def test_each_mutation_is_another_program() -> None:
    names, seen = set(), {ast.unparse(ast.parse(SOURCE))}
    for number in range(len(sites(SOURCE))):
        change = mutant("m", SOURCE, number)
        tree = mutated(change, SOURCE)
        compile(tree, "m", "exec")  # else every test would fail, and none had noticed it
        names.add(change.name)
        seen.add(ast.unparse(tree))
    assert len(seen) == len(sites(SOURCE)) + 1
    assert len(names) >= 20


@pytest.mark.parametrize(
    ("a", "b", "expected"), [(0, 0, {0}), (0, 3, {0, 3}), (2, 0, {2, 0}), (2, 3, {2, 3})]
)
def test_a_condition_left_out_leaves_the_value_of_the_other(
    a: int, b: int, expected: set[int]
) -> None:
    source, found = "def f(a, b): return a and b", set()
    for number in range(len(sites(source))):
        change = mutant("m", source, number)
        if change.name.endswith((": a and b -> a", ": a and b -> b")):
            space: dict[str, object] = {}
            exec(compile(mutated(change, source), "m", "exec"), space)
            found.add(space["f"](a, b))  # type: ignore[operator]
    assert found == expected
