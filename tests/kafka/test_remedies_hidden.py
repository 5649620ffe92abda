"""A fence by somebody who may not DESCRIBE a topic of the transaction: coordinators leave it out
of their answers without an error, and what is not visible is not empty."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from eoctl.lab import secure
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from tests.kafka.command import Ran, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.remedying import read_committed


@contextmanager
def hidden(lab: Lab, topic: str, user: str) -> Iterator[None]:
    """DESCRIBE on the topic is denied to the user while the block runs."""
    admin = AdminClient(lab.client_properties())
    what = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
    who = (f"User:{user}", "*", AclOperation.DESCRIBE, AclPermissionType.DENY)
    for made in admin.create_acls([AclBinding(*what, *who)]).values():
        made.result(20)
    try:
        yield
    finally:
        for gone in admin.delete_acls([AclBindingFilter(*what, *who)]).values():
            gone.result(20)


def as_operator(lab: Lab, *words: str) -> Ran:
    client = str(secure.client_file(lab.folder, "operator", "SCRAM"))
    server = ("--bootstrap-server", lab.record.bootstrap_servers("SCRAM"))
    return eoctl(*words, *server, "--command-config", client)


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
            with hidden(lab, secret, "operator"):
                end = time.monotonic() + 20
                while True:  # until the broker applies it
                    described = await asyncio.to_thread(
                        as_operator, lab, "txn", "describe", name, "-o", "json"
                    )
                    if len(described.rows[0]["partitions"]) == visible:
                        break
                    assert time.monotonic() < end, described.stdout
                refused = await asyncio.to_thread(as_operator, lab, *fence)
                assert refused.status == 4, refused.stdout + refused.stderr
                told = f"on {1 + visible} partitions and {visible} of them can be seen"
                assert told in refused.stderr
                assert secret in refused.stderr
            await owner.commit()

    asyncio.run(scenario())
    assert read_committed(lab, secret, 0) == [b"kept"]
