"""The bounds of a broker's release, on brokers of which we know it: the lab started them.

And what `doctor` makes of them: the feature that is low, the bugs of a release given by hand.
"""

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Producer as ConfluentProducer

from eoctl.kafka.ask.protocols import protocols
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from recovery.doctor import versions
from recovery.doctor.versions import (
    METADATA,
    TRANSACTION,
    Protocol,
    VersionRange,
    bounds,
    by_hand,
    newer_than_known,
)
from tests.kafka.command import Ran, eoctl
from tests.kafka.conftest import MakeTopic


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
        assert by_hand(KAFKA).within(seen(lab))
        assert str(seen(lab)) == KAFKA.rpartition(".")[0] + ".x"
        assert [newer_than_known(p) for p in answered(lab).values()] == [{}] * len(lab.broker_ids)
        assert {p.finalized[TRANSACTION] for p in answered(lab).values()} == {2}
        assert all(p.supported[METADATA] >= p.finalized[METADATA] for p in answered(lab).values())


def test_brokers_newer_than_eoctl_knows(lab1: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """`context test` and `doctor` say so: of an eoctl made before the lab's own release."""
    right = [r["check"] for r in eoctl("context", "test", "-o", "json", lab=lab1).rows]
    newest = by_hand(KAFKA).least
    assert newest is not None
    older = {v: has for v, has in versions.releases().items() if v[:2] < newest[:2]}
    monkeypatch.setattr(versions, "releases", lambda: older)
    newer = eoctl("context", "test", "-o", "json", lab=lab1)
    assert [r["check"] for r in newer.rows] == [right[0], "protocol", *right[1:]]
    assert newer.rows[1]["sees"] is None
    assert newer.rows[1]["detail"] == (
        "newer than eoctl knows: DescribeLogDirs 5, metadata.version 30; upgrade eoctl"
    )
    found = eoctl("doctor", "-o", "json", lab=lab1)
    assert "newer-protocol" in [r["rule"] for r in found.rows]


def test_a_low_feature_of_the_newest_release(start_lab: Callable[[LabSpec], Lab]) -> None:
    """Its brokers answer the same requests, and `doctor` names Kafka's own command."""
    lab = start_lab(LabSpec(name="low", transaction_version=1))
    assert by_hand(KAFKA).within(seen(lab))
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


def test_ids_that_still_speak_version_1(lab1: Lab, topic: MakeTopic) -> None:
    """Beside one that speaks 2, one whose old transaction times out, and librdkafka's producer."""
    name = topic(lab1, 1)

    async def scenario() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            for version in (1, 2):
                producer = await Producer.init(client, f"{name}-v{version}", version=version)
                await producer.send(name, 0, [NewRecord(b"x")])
                await producer.commit()
            late = await Producer.init(client, f"{name}-late", 1_000, version=1)
            await late.send(name, 0, [NewRecord(b"x")])
            await late.completed()  # the coordinator aborts it, with a record of version 2

    asyncio.run(scenario())
    old = ConfluentProducer(
        {"bootstrap.servers": lab1.bootstrap_servers, "transactional.id": f"{name}-librdkafka"}
    )
    old.init_transactions(30)
    old.begin_transaction()
    old.produce(name, b"x", partition=0)
    old.commit_transaction(30)

    def spoken(*names: str) -> list[str]:
        ran = eoctl("doctor", *names, "-o", "json", lab=lab1)
        found = [r for r in ran.rows if r["rule"] == "speaks-v1"]
        return [n for r in found for e in r["evidence"] for n in e["data"]["names"]]

    assert spoken(f"{name}-v1") == [f"{name}-v1"]
    assert spoken(f"{name}-v2") == []
    assert spoken(f"{name}-late") == [f"{name}-late"]
    assert spoken(f"{name}-librdkafka") == [f"{name}-librdkafka"]


@pytest.mark.long
@pytest.mark.parametrize("version", ["4.4.0", "4.0.1", "3.9.1", "2.8.2"])
def test_other_releases(start_lab: Callable[[LabSpec], Lab], version: str) -> None:
    lab = start_lab(LabSpec(name="v" + version.replace(".", ""), kafka_version=version))
    try:
        assert by_hand(version).within(seen(lab))
        assert seen(lab).within(by_hand(version.rpartition(".")[0]))
        perhaps = eoctl("doctor", "-o", "json", lab=lab)
        exact = eoctl("doctor", "--broker-version", version, "-o", "json", lab=lab)
    finally:
        lab.down()
    of_any = {bug for rule, _, bugs in rows(perhaps) if rule == "known-bug" for bug in bugs}
    certain = [bugs for rule, _, bugs in rows(exact) if rule == "known-bug"]
    states = {state for rule, state, _ in rows(exact) if rule == "known-bug"}
    assert states == (set() if version == "4.4.0" else {"finding"})  # it has one of few copies
    assert {bug for bugs in certain for bug in bugs} <= of_any
    assert ("KAFKA-19690" in of_any) is (version in ("3.9.1", "4.0.1"))  # fixed in .2
    assert not {"mixed-versions", "newer-protocol", "transaction-version-low"} & {
        rule for rule, *_ in rows(perhaps)
    }
