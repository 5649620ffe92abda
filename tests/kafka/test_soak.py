"""What runs all day beside a busy cluster is flat: the 2-minute form of `make soak`."""

import pytest

from benchmarks.soak import soak
from tests.conftest import Tried


@pytest.mark.long
def test_dashboard_exporter_and_check_are_flat(tried: Tried) -> None:
    assert soak(2.0) == []
    tried("minutes", 2)
