"""Labs for the dashboard's tests, and the settings that make a screen the same everywhere."""

import pytest

from tests.kafka.conftest import lab_state, start_lab
from tests.spark.jvm import environment

__all__ = ["lab_state", "start_lab"]


def pytest_configure(config: pytest.Config) -> None:
    """As in tests/kafka: kafka-python reads its schemas in a way Python 3.11 warns about."""
    config.addinivalue_line(
        "filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning"
    )


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No colours forced or forbidden by whoever runs the tests."""
    for name in ("NO_COLOR", "COLORTERM", "TEXTUAL_THEME", "TEXTUAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def swift_jvms(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in tests/spark, for a test that starts a job of Spark."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
