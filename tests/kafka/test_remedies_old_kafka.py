"""Remedies on brokers before Kafka 4.0: WriteTxnMarkers v1, no EndTxn v5, no transactions v2."""

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from eoctl.kafka.connection.failures import WireError
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from tests.kafka.command import FAST, Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.relay import END_TXN, INIT_PRODUCER_ID, WRITE_TXN_MARKERS, relayed
from tests.kafka.remedying import dumped_markers, read_committed


@pytest.mark.long
def test_abort_and_fence_on_an_older_broker(
    start_lab: Callable[[LabSpec], Lab], topic: MakeTopic, tmp_path: Path
) -> None:
    """The stray of an idle id, and an overdue transaction, on Kafka 3.9."""
    settings = {
        "transaction.partition.verification.enable": "false",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    }
    lab = start_lab(LabSpec(name="old", kafka_version="3.9.1", settings=settings))
    name = topic(lab, 2)

    async def scenario() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            owner = await Producer.init(client, f"{name}-id")
            await owner.send(name, 1, [NewRecord(b"home")])
            late = Producer(client, owner.producer_id, owner.epoch, owner.transactional_id)
            await owner.commit()
            await owner.completed()
            start = await late.write(name, 0, [NewRecord(b"stray 1"), NewRecord(b"stray 2")])
            await client.plain(name, 0, [NewRecord(b"after")])
            with relayed(lab) as relay:
                env = environment(EOCTL_CONFIG=relay.config(tmp_path))

                def run(*words: str) -> Ran:
                    relay.requests.clear()
                    act = (*FAST, "--execute", "--yes", "-o", "json", "--context", "relayed")
                    return eoctl(*words, *act, env=env)

                which = ("--pid", str(owner.producer_id), "--start-offset", str(start))
                done = await asyncio.to_thread(run, "txn", "abort", f"{name}:0", *which)
                assert done.status == 0, done.stderr
                # until no owner can have seen an epoch that is not refused: SHUT_OUT
                raises = [INIT_PRODUCER_ID] * 3
                assert [key for _, key in relay.changing] == [*raises, WRITE_TXN_MARKERS]
                [frame] = [f for _, key, f in relay.requests if key == WRITE_TXN_MARKERS]
                assert struct.unpack_from(">hh", frame, 4) == (WRITE_TXN_MARKERS, 1)
                assert dumped_markers(lab, name, 0, owner.producer_id) == [("abort", owner.epoch)]
                assert read_committed(lab, name, 0) == [b"after"]
                with pytest.raises(WireError) as refused:
                    await owner.send(name, 0, [NewRecord(b"too late")])
                assert refused.value.error in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")

                overdue = await Producer.init(client, f"{name}-late", 500)
                await overdue.send(name, 1, [NewRecord(b"never")])
                await asyncio.sleep(1)
                done = await asyncio.to_thread(run, "txn", "fence", f"{name}-late")
                assert done.status == 0, done.stderr
                keys = [key for _, key in relay.changing]
                assert (keys[0], set(keys[1:])) == (END_TXN, {INIT_PRODUCER_ID})
            assert read_committed(lab, name, 1) == [b"home"]
            with pytest.raises(WireError) as refused:
                await overdue.end(commit=True)
            assert refused.value.error in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")

    asyncio.run(scenario())
    lab.down()
