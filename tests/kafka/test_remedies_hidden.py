"""A fence by somebody who may not DESCRIBE a topic of the transaction: coordinators leave it out
of their answers without an error, and what is not visible is not empty."""

import asyncio
import time

import pytest

from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from tests.kafka.conftest import MakeTopic
from tests.kafka.remedying import read_committed
from tests.kafka.rights import as_user, rights


@pytest.mark.parametrize("visible", [0, 1])
def test_a_fence_needs_to_see_every_partition(
    secure_lab: Lab, topic: MakeTopic, visible: int
) -> None:
    lab, secret, seen = secure_lab, topic(secure_lab), topic(secure_lab)
    name = f"{secret}-id"
    fence = ("txn", "fence", name, "--owner-is-gone", "--execute", "--yes")

    async def scenario() -> None:
        async with Client.of(lab.client_properties()) as client:
            owner = await Producer.init(client, name)
            await owner.send(secret, 0, [NewRecord(b"kept")])
            if visible:
                await owner.send(seen, 0, [NewRecord(b"seen")])
            with rights(lab, "operator", ("TOPIC", secret, "DESCRIBE"), deny=True):
                end = time.monotonic() + 20
                while True:  # until the broker applies it
                    described = await asyncio.to_thread(
                        as_user, lab, "operator", "txn", "describe", name, "-o", "json"
                    )
                    if len(described.rows[0]["partitions"]) == visible:
                        break
                    assert time.monotonic() < end, described.stdout
                refused = await asyncio.to_thread(as_user, lab, "operator", *fence)
                assert refused.status == 4, refused.stdout + refused.stderr
                told = ("on 1 partition, of which 0 can", "on 2 partitions, of which 1 can")[
                    visible
                ]
                assert told in refused.stderr
                assert secret in refused.stderr
            await owner.commit()

    asyncio.run(scenario())
    assert read_committed(lab, secret, 0) == [b"kept"]
