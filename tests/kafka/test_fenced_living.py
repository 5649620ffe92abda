"""A fence of an application that lives: nothing of it is committed after "fenced"."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.kafka.command import eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.living import Living, java_client, librdkafka_client, said
from tests.kafka.remedying import read_committed

FAST = ("--sample-interval", "0.3s")
LONG_ENOUGH = 4.0
"""Seconds in which a client that may write on has begun and committed again many times."""

Start = Callable[[Lab, str, str, str], AbstractContextManager[Living]]


@pytest.fixture(scope="module", params=[2, 1], ids=["tv2", "tv1"])
def lab(start_lab: Callable[[LabSpec], Lab], request: pytest.FixtureRequest) -> Iterator[Lab]:
    made = start_lab(LabSpec(name=f"living{request.param}", transaction_version=request.param))
    yield made
    made.down()


@pytest.mark.parametrize("start", [java_client, librdkafka_client], ids=["java", "librdkafka"])
def test_after_a_fence_that_is_held_nothing_of_a_living_owner_is_committed(
    lab: Lab, topic: MakeTopic, start: Start
) -> None:
    where = topic(lab)
    name = f"{where}-id"
    with start(lab, name, where, "owner-") as owner:
        words = ("txn", "fence", name, "--owner-is-gone", *FAST, "--execute", "--yes")
        refused = eoctl(*words, lab=lab)
        assert refused.status == 4, (refused.stdout, refused.stderr)
        first = refused.stderr.splitlines()[1]
        assert re.search(r"WRITES +IT WROTE \d+ RECORDS? BETWEEN TWO LOOKS", first), refused.stderr
        assert "--although-it-writes" in refused.text
        assert owner.running
        assert said(owner, "error") == 0, "a plan that was refused changed something"
        done = eoctl(*words, "--although-it-writes", "-o", "json", lab=lab)
        assert done.status == 0, (done.stdout, done.stderr)
        end = time.monotonic() + LONG_ENOUGH
        while owner.running and time.monotonic() < end:
            time.sleep(0.1)
        assert read_committed(lab, where, 0) == [], owner.events[-10:]
