"""A second look that does not fit into `--timeout` is refused before it is waited for."""

import pytest

from eoctl.kafka.connection.failures import Deadline
from eoctl.operations.diagnose.pause import refuse_pause
from recovery.errors import IncompleteError


@pytest.mark.parametrize("seconds", [None, 30.0])
def test_a_pause_that_fits_is_not_refused(seconds: float | None) -> None:
    refuse_pause(Deadline(seconds), 5.0, 5.0)


def test_a_pause_that_does_not_fit_names_the_option() -> None:
    with pytest.raises(IncompleteError) as caught:
        refuse_pause(Deadline(5.5), 5.0, 5.0, " at its producer")
    assert "the second look at its producer, 5s after the first, does not fit" in caught.value.what
    assert "--timeout" in (caught.value.remedy or "")
