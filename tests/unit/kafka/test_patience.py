"""How long a broker may be silent depends on the time that the command has."""

import pytest

from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.patience import Patience


async def _nobody(_broker: int, _deadline: Deadline) -> bool:
    return False


@pytest.mark.parametrize(
    ("least", "command", "seconds"),
    [
        (3.0, 30.0, 3.0),
        (3.0, 160.0, 8.0),
        (3.0, 3600.0, 10.0),
        (3.0, None, 3.0),
        (12.0, 60.0, 12.0),
    ],
)
def test_who_gives_more_time_waits_longer(
    least: float, command: float | None, seconds: float
) -> None:
    deadline = Deadline(command)
    patience = Patience(_nobody, lambda: deadline, least)
    assert patience.silence().seconds_left == pytest.approx(seconds, abs=0.1)
