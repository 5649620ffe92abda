"""A coordinator that reloads sends markers again that are written: refused, it never finishes.

KAFKA-19999 is about that. 4.1.0 does not refuse them (tried), 4.2.0 has the fix (read); 4.3.1
refuses them still while something is open with the marker's own epoch.
"""

import asyncio
import time
from collections.abc import Callable

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.stage import batch
from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from eoctl.render.verdicts.evidence_words import evidence_words
from recovery.diagnose.diagnosis import JudgedId
from tests.kafka.diagnosing import judged
from tests.kafka.test_silence import AT_ONCE

SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


@pytest.mark.long
def test_a_reload_while_all_markers_are_written(start_lab: Callable[[LabSpec], Lab]) -> None:
    lab = start_lab(LabSpec(name="livelock", brokers=3, settings=SETTINGS))
    [truth] = break_(lab, "prepare-holds-nothing")
    name, stopped = truth.transactional_id or "", truth.stopped_broker
    assert stopped is not None
    assert truth.coordinator is not None
    before = standing(lab, name)
    assert before is not None
    assert (before.verdict.rule, before.verdict.remedy.action) == (
        "markers-all-written",
        "restore-leader",
    )
    assert "restart-coordinator" in dict(before.verdict.remedy.refused)

    # what it says not to do, and then what it says to do
    lab.kill(truth.coordinator)
    lab.start(truth.coordinator)
    lab.start(stopped)
    assert after_a_while(lab, name) is None
    lab.down()


@pytest.mark.long
def test_a_marker_that_is_refused_again_since_somebody_wrote_with_its_epoch(
    start_lab: Callable[[LabSpec], Lab],
) -> None:
    """KAFKA-19999 on 4.3.1: the marker stands, a stray lies above it, the coordinator reloads."""
    unverified = {"transaction.partition.verification.enable": "false"}
    lab = start_lab(LabSpec(name="refused", brokers=3, settings=SETTINGS | unverified))
    [truth] = break_(lab, "prepare-holds-nothing")
    assert truth.producer_id is not None
    assert truth.current_producer_epoch is not None
    assert truth.stopped_broker is not None
    assert truth.coordinator is not None

    async def stray() -> None:
        async with Client.of(lab.client_properties()) as client:
            pid, epoch = truth.producer_id or 0, truth.current_producer_epoch or 0
            producer = Producer(client, pid, epoch, truth.transactional_id)
            await producer.write(truth.topic, truth.partition, batch(1, "stray"))

    asyncio.run(stray())
    for stopped in (truth.stopped_broker, None):  # reloaded once more, it is refused once more
        lab.kill(truth.coordinator)
        lab.start(truth.coordinator)
        if stopped is not None:
            lab.start(stopped)
        deadline = time.monotonic() + 60
        while True:  # a coordinator that has just loaded its log is still writing: `prepare`
            found = judged(lab, truth.topic, settings=AT_ONCE, sample_interval=0.5).judged
            if [j.verdict.name for j in found] not in ([], ["prepare"]):
                break
            assert time.monotonic() < deadline, found
            time.sleep(0.5)
        [held] = found
        verdict = held.verdict
        assert (verdict.name, verdict.rule) == ("coordinator-fenced", "producer-epoch-above")
        assert verdict.remedy.action == "none"
        assert "restart-coordinator" in dict(verdict.remedy.refused)
        assert "KAFKA-19999" in " ".join(evidence_words(e) for e in verdict.evidence)
    lab.down()


def after_a_while(lab: Lab, name: str) -> JudgedId | None:
    """The verdict once the id's log takes records again for longer than a coordinator tries (30 s).

    None: the id is at rest.
    """
    restored, deadline = None, time.monotonic() + 120
    while (left := standing(lab, name)) is not None:
        if (left.second or left.first).too_few_in_sync is False:
            restored = restored or time.monotonic()
            if time.monotonic() > restored + 45:
                break
        assert time.monotonic() < deadline, left.verdict
        time.sleep(0.5)
    return left


def standing(lab: Lab, name: str) -> JudgedId | None:
    """The verdict on the id, once it could be judged; None: it is at rest."""
    deadline = time.monotonic() + 60
    while (found := judged(lab, settings=AT_ONCE, sample_interval=0.5)).missing:
        assert time.monotonic() < deadline, found.missing
        time.sleep(0.5)
    return next((j for j in found.ids if j.name == name), None)
