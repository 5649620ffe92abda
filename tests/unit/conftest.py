"""Unit tests come last and need no broker: idle ones would slow them down."""

import pytest

from tests.conftest import take_labs_down


@pytest.fixture(scope="session", autouse=True)
def no_brokers() -> None:
    take_labs_down()
