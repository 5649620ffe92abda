"""Import a mutant instead of its module."""

import importlib.abc
import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

from tests.mutants.sites import Mutant, mutated

ROOT = Path(__file__).parents[2]


def source(module: str) -> str:
    """Return the text of a module of this repository."""
    return (ROOT / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8")


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the mutant instead of its module; all others as they are."""

    def __init__(self, change: Mutant) -> None:
        self.mutant = change

    def find_spec(
        self, name: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.mutant.module:
            return None
        return importlib.util.spec_from_loader(name, self)

    def exec_module(self, module: ModuleType) -> None:
        tree = mutated(self.mutant, source(self.mutant.module))
        exec(compile(tree, f"<{self.mutant.name}>", "exec"), module.__dict__)
