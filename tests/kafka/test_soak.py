"""What runs all day beside a busy cluster is flat: the 2-minute form of `make soak`."""

import pytest

from benchmarks.soak import soak


@pytest.mark.long
def test_dashboard_exporter_and_check_are_flat() -> None:
    assert soak(2.0) == []
