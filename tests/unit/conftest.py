"""Unit tests come last and need no broker: idle ones would slow them down."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.conftest import RUN_FOLDER, take_labs_down

NUMBERS = count()


def empty_state(patch: pytest.MonkeyPatch) -> None:
    """EOCTL_STATE_DIR is a folder that is not there yet; what others left has no say."""
    name = f"unit-{os.getpid()}-{next(NUMBERS)}"
    patch.setenv("EOCTL_STATE_DIR", str(Path(os.environ[RUN_FOLDER], name)))


@pytest.fixture(scope="session", autouse=True)
def no_brokers() -> Iterator[None]:
    """Tests with brokers ran before, on this worker, and may have left changes unfinished."""
    take_labs_down()
    with pytest.MonkeyPatch.context() as patch:
        empty_state(patch)
        yield


@pytest.fixture(autouse=True)
def state_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    empty_state(monkeypatch)
