"""The users of a secure lab, their rights, and the ACLs that grant them."""

import asyncio
from collections.abc import Mapping

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.connection.wire import Connection
from recovery.errors import UnreachableError

ADMIN = "admin"

# The numbers that requests carry: Kafka's AclOperation, ResourceType, PatternType and
# AclPermissionType (org.apache.kafka.common.acl, .resource).
OPERATIONS = {
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "DESCRIBE_CONFIGS": 10,
}
RESOURCES = {"TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5}
LITERAL, ALLOW, ANY = 3, 3, 1

_READS = {
    "CLUSTER": ("DESCRIBE", "DESCRIBE_CONFIGS"),
    "TOPIC": ("DESCRIBE", "DESCRIBE_CONFIGS", "READ"),
    "GROUP": ("DESCRIBE",),
    "TRANSACTIONAL_ID": ("DESCRIBE",),
}

# user -> resource -> operations allowed on all of that kind (reference: KIP-11, KIP-664)
USERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    ADMIN: {},  # super user
    "operator": {  # all that eoctl's commands ever need
        "CLUSTER": ("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER"),
        "TOPIC": ("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE"),
        "GROUP": ("DESCRIBE", "READ", "DELETE"),
        "TRANSACTIONAL_ID": ("DESCRIBE", "WRITE"),
    },
    "viewer": _READS,
    "no-txn": _READS | {"TRANSACTIONAL_ID": ()},
    "no-topic-read": _READS | {"TOPIC": ("DESCRIBE", "DESCRIBE_CONFIGS")},
    "nobody": {},
}


def grant(properties: Mapping[str, str]) -> None:
    """Write every user's ACLs and wait until the broker applies them.

    properties: a super user's, for one broker. Raises UnreachableError.
    """
    try:
        asyncio.run(_grant(properties))
    except WireError as error:
        raise UnreachableError(f"the lab's ACLs could not be written: {error.detail}") from None


async def _grant(properties: Mapping[str, str]) -> None:
    settings, deadline = client_settings(properties), Deadline(30)
    host, port = settings.bootstrap_servers[0]
    connection = await Connection.open(host, port, settings.security, deadline)
    try:
        creations = [
            messages.CreateAclsRequest.AclCreation(
                resource_type=RESOURCES[resource],
                resource_name="kafka-cluster" if resource == "CLUSTER" else "*",
                resource_pattern_type=LITERAL,
                principal=f"User:{user}",
                host="*",
                operation=OPERATIONS[operation],
                permission_type=ALLOW,
            )
            for user, rights in USERS.items()
            for resource, operations in rights.items()
            for operation in operations
        ]
        request = messages.CreateAclsRequest(creations=creations)
        for result in (await connection.ask(request, deadline)).results:
            if result.error_code:
                raise WireError(messages.error_name(result.error_code), str(result.error_message))
        # The controller answers; the broker that we ask may learn of the ACLs later.
        while await _acls_applied(connection, deadline) < len(creations):
            if deadline.passed:
                raise WireError("TIMED_OUT", "the broker does not apply them")
            await asyncio.sleep(0.02)
    finally:
        connection.close()


async def _acls_applied(connection: Connection, deadline: Deadline) -> int:
    """Return how many ACLs the broker applies."""
    everything = messages.DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    answer = await connection.ask(everything, deadline)
    return sum(len(resource.acls) for resource in answer.resources)
