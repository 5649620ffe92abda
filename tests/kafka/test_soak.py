"""What runs all day beside a busy cluster is flat: `make soak`, for 2 minutes or 30."""

import pytest

from benchmarks.soak import soak
from tests.conftest import Tried
from tests.share import SHARE

MINUTES = 30 if SHARE >= 1 else 2


@pytest.mark.trust
@pytest.mark.timeout(2400)
def test_dashboard_exporter_and_check_are_flat(tried: Tried) -> None:
    ran = soak(MINUTES)
    tried("minutes", round(ran.seconds / 60))
    tried("transactions", ran.transactions)
    tried("checks", len(ran.statuses))
    assert ran.faults() == []
