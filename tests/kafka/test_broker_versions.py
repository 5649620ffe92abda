"""The bounds of a broker's release, on brokers of which we know it: the lab started them.

And what `doctor` makes of them: the feature that is low, the bugs of a release given by hand.
"""

import asyncio
from collections.abc import Callable

import pytest

from eoctl.kafka.ask.protocols import protocols
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA
from eoctl.lab.record import LabSpec
from recovery.doctor.versions import (
    METADATA,
    TRANSACTION,
    Protocol,
    VersionRange,
    bounds,
    newer_than_known,
    told,
)
from tests.kafka.command import Ran, eoctl


def answered(lab: Lab) -> dict[int, Protocol]:
    async def asked() -> dict[int, Protocol]:
        async with Cluster(client_settings(lab.client_properties()), Deadline(30)) as cluster:
            return await protocols(cluster)

    return asyncio.run(asked())


def seen(lab: Lab) -> VersionRange:
    """The bounds of the lab's brokers, which all run one release."""
    found = {bounds(protocol) for protocol in answered(lab).values()}
    [one] = found
    assert one is not None
    return one


def rows(ran: Ran) -> list[tuple[str, str, list[str]]]:
    return [(r["rule"], r["state"], r["sources"]) for r in ran.rows]


def test_the_lab_s_own_release(lab1: Lab, lab3: Lab) -> None:
    for lab in (lab1, lab3):
        assert told(KAFKA).within(seen(lab))
        assert str(seen(lab)) == KAFKA.rpartition(".")[0] + ".x"
        assert [newer_than_known(p) for p in answered(lab).values()] == [{}] * len(lab.broker_ids)
        assert {p.finalized[TRANSACTION] for p in answered(lab).values()} == {2}
        assert all(p.supported[METADATA] >= p.finalized[METADATA] for p in answered(lab).values())


def test_a_low_feature_of_the_newest_release(start_lab: Callable[[LabSpec], Lab]) -> None:
    """Its brokers answer the same requests, and `doctor` names Kafka's own command."""
    lab = start_lab(LabSpec(name="low", transaction_version=1))
    assert told(KAFKA).within(seen(lab))
    ran = eoctl("doctor", "-o", "json", lab=lab)
    [low] = [r for r in ran.rows if r["rule"] == "transaction-version-low"]
    assert ran.status == 1
    assert low["evidence"][0]["data"] == {
        "feature": "transaction.version",
        "level": 1,
        "possible": 2,
    }
    assert low["command"] == (
        f"kafka-features.sh --bootstrap-server {lab.bootstrap_servers} upgrade "
        "--feature transaction.version=2"
    )


def test_a_version_by_hand_is_held_against_the_answers(lab1: Lab) -> None:
    wrong = eoctl("doctor", "--broker-version", "3.6.1", lab=lab1)
    assert wrong.status == 2
    assert "they answer like 4.3.x" in wrong.stderr
    assert eoctl("doctor", "--broker-version", "latest", lab=lab1).status == 2
    right = eoctl("doctor", "--broker-version", KAFKA, "-o", "json", lab=lab1)
    assert "known-bug" not in [r["rule"] for r in right.rows]


@pytest.mark.long
@pytest.mark.parametrize("version", ["4.0.1", "3.9.1", "2.8.2"])
def test_older_releases(start_lab: Callable[[LabSpec], Lab], version: str) -> None:
    lab = start_lab(LabSpec(name="v" + version.replace(".", ""), kafka_version=version))
    try:
        assert told(version).within(seen(lab))
        assert seen(lab).within(told(version.rpartition(".")[0]))
        perhaps = eoctl("doctor", "-o", "json", lab=lab)
        by_hand = eoctl("doctor", "--broker-version", version, "-o", "json", lab=lab)
    finally:
        lab.down()
    of_any = {bug for rule, _, bugs in rows(perhaps) if rule == "known-bug" for bug in bugs}
    certain = [bugs for rule, _, bugs in rows(by_hand) if rule == "known-bug"]
    assert {state for rule, state, _ in rows(by_hand) if rule == "known-bug"} == {"finding"}
    assert {bug for bugs in certain for bug in bugs} <= of_any
    assert ("KAFKA-19690" in of_any) is (version != "2.8.2")  # fixed in 4.0.2 and 3.9.2
    assert not {"mixed-versions", "newer-protocol", "transaction-version-low"} & {
        rule for rule, *_ in rows(perhaps)
    }
