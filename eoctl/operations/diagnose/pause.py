"""The pause between two checks, which a command's `--timeout` must leave room for."""

from eoctl.kafka.connection.failures import Deadline
from recovery.errors import IncompleteError
from recovery.times import format_duration

LOOK_SECONDS = 1.0
"""What the second look itself needs at least."""


def refuse_pause(deadline: Deadline, wait: float, pause: float, of: str = "") -> None:
    """Raise IncompleteError if the second check does not fit into the deadline.

    wait: seconds until that check; pause: seconds between both. of: what is checked, in words.
    """
    left = deadline.seconds_left
    if left is not None and left < wait + LOOK_SECONDS:
        raise IncompleteError(
            f"the second look{of}, {format_duration(pause)} after the first, does not fit into the "
            "time",
            remedy="give more time with --timeout",
        )
