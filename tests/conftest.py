"""For all tests: interruptible processes, and a second try for tests on real brokers."""

import signal

import pytest

TRIED_AGAIN = ("tests/kafka/", "tests/tui/", "tests/spark/")


def pytest_configure() -> None:
    """A run in the background (`nohup`, CI) ignores SIGINT, and its children would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Brokers that are killed and a crowded machine miss deadlines: once more, reported as R."""
    for item in items:
        if item.nodeid.startswith(TRIED_AGAIN):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=5))
