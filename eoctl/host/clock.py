"""This machine's clock."""

import time


def now_ms() -> int:
    """Return epoch milliseconds."""
    return time.time_ns() // 1_000_000
