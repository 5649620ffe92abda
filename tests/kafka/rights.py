"""Users of a secure lab with other rights than its own, while a test needs them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

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
from eoctl.lab.cluster import Lab
from tests.kafka.command import Ran, eoctl

Right = tuple[str, str, str]
"""Kind of resource, its name (`*` = all), operation."""


@contextmanager
def rights(lab: Lab, user: str, *named: Right, deny: bool = False) -> Iterator[None]:
    """Grant these to the user, or deny them, while the block runs."""
    admin = AdminClient(lab.client_properties())
    permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    all_of_it = [
        (
            *(_kind(kind), name, ResourcePatternType.LITERAL),
            *(f"User:{user}", "*", AclOperation[operation], permission),
        )
        for kind, name, operation in named
    ]
    if not all_of_it:
        yield
        return
    bindings, filters = [
        [kind(*one) for one in all_of_it] for kind in (AclBinding, AclBindingFilter)
    ]
    for made in admin.create_acls(bindings).values():
        made.result(20)
    _applied(admin, filters, True)
    try:
        yield
    finally:
        for gone in admin.delete_acls(filters).values():
            gone.result(20)
        _applied(admin, filters, False)


def _applied(admin: AdminClient, filters: list[AclBindingFilter], there: bool) -> None:
    """Wait until the broker knows: it is the controller that has answered."""
    end = time.monotonic() + 20
    for one in filters:
        while bool(admin.describe_acls(one).result(20)) != there:
            assert time.monotonic() < end, f"{one} is not applied"
            time.sleep(0.02)


def _kind(name: str) -> ResourceType:
    return ResourceType.BROKER if name == "CLUSTER" else ResourceType[name]


def as_user(lab: Lab, user: str, *words: str) -> Ran:
    """Run eoctl as a user of the lab."""
    client = str(secure.client_file(lab.folder, user, "SCRAM"))
    server = ("--bootstrap-server", lab.record.bootstrap_servers("SCRAM"))
    return eoctl(*words, *server, "--command-config", client)
