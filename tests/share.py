"""How much of the full test counts to run: one setting for all seeded and large tests."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

SHARE = float(os.environ.get("EOCTL_TEST_SHARE", "0.1"))
"""1.0 = the full counts that an issue names (`make test-long`)."""


def share(full: int, least: int = 1) -> int:
    """The part of a full count that this run does, at least `least`."""
    return max(least, round(full * SHARE))


def fewer(full: int, here: int) -> int:
    """Of generated cases that are dear: at most `here` in `make test`, all in `make test-long`."""
    return full if SHARE >= 1 else min(here, share(full))


def kills(full: int, here: int = 1) -> int:
    """How many seeds of one kind of kill: `here` in `make test`, all in `make test-long`."""
    return full if SHARE >= 1 else here


def only_here(cases: Iterable[Any], *here: Any, beyond: str = "long") -> list[Any]:
    """Parameters of which `make test` tries those of `here`, and `make test-long` all.

    beyond: the mark of the others; those with `trust` are also tried by `make trust`.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if case in here else getattr(pytest.mark, beyond),
        )
        for case in cases
    ]
