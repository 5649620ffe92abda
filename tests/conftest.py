"""For all tests: processes started here can be interrupted, however the run itself was started."""

import signal


def pytest_configure() -> None:
    """A run in the background (`nohup`, CI) ignores SIGINT, and its children would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
