"""How much of the full test counts to run: one setting for all seeded and large tests."""

import os

SHARE = float(os.environ.get("EOCTL_TEST_SHARE", "0.2"))
"""1.0 = the full counts that an issue names (`make test-long`)."""


def share(full: int, least: int = 1) -> int:
    """The part of a full count that this run does, at least `least`."""
    return max(least, round(full * SHARE))
