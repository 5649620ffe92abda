"""Users of a secure lab with other rights than its own, while a test needs them."""

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
    for made in admin.create_acls([AclBinding(*one) for one in all_of_it]).values():
        made.result(20)
    try:
        yield
    finally:
        for gone in admin.delete_acls([AclBindingFilter(*one) for one in all_of_it]).values():
            gone.result(20)


def _kind(name: str) -> ResourceType:
    return ResourceType.BROKER if name == "CLUSTER" else ResourceType[name]


def as_user(lab: Lab, user: str, *words: str) -> Ran:
    """Run eoctl as a user of the lab."""
    client = str(secure.client_file(lab.folder, user, "SCRAM"))
    server = ("--bootstrap-server", lab.record.bootstrap_servers("SCRAM"))
    return eoctl(*words, *server, "--command-config", client)
