"""Ask the brokers about rights (ACLs); asking changes nothing.

Topics, groups and the cluster report their authorized operations (KIP-430); for transactional ids
only the ACLs do, if we may DESCRIBE the cluster.
"""

from collections.abc import Sequence

from eoctl.kafka.ask.groups import GroupAnswers, at_coordinators
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from recovery.facts import Missing
from recovery.inspect.rights import Acl

# org.apache.kafka.common.acl.AclOperation, .AclPermissionType, .resource.ResourceType, .PatternType
READ, WRITE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS = 3, 4, 6, 7, 8, 9, 10
_ANY, _DENY, _PREFIXED, _TRANSACTIONAL_ID = 1, 2, 4, 5
NOT_ASKED = -(2**31)
"""Authorized operations that the broker did not tell."""
NO_AUTHORIZER = "SECURITY_DISABLED"


async def cluster_operations(cluster: Cluster) -> int | None:
    """Return bits of the operations allowed on the cluster; None: DESCRIBE on it is not granted.

    Metadata 8 to 10 tells them from Kafka 2.3 on; DescribeCluster came with 2.8. Raises
    UnreachableError.
    """
    question = messages.MetadataRequest(
        topics=[],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
        include_cluster_authorized_operations=True,
    )
    bits = int((await cluster.ask_any(question, most=10)).cluster_authorized_operations)
    return None if bits in (0, NOT_ASKED) else bits


async def group_operations(
    cluster: Cluster, groups: Sequence[str]
) -> tuple[dict[str, int], list[Missing]]:
    """Return group → bits of the operations allowed on it, also for a group that does not exist."""

    async def ask(broker: int, mine: list[str]) -> GroupAnswers[int]:
        question = messages.DescribeGroupsRequest(groups=mine, include_authorized_operations=True)
        # version 6 answers with an error for a group that does not exist
        answer = await cluster.ask(broker, question, least=3, most=5)
        return {
            g.group_id: (messages.error_name(g.error_code), int(g.authorized_operations))
            for g in answer.groups
        }

    operations, missing = await at_coordinators(cluster, groups, ask)
    return {name: bits for name, (_, bits) in operations.items() if bits != NOT_ASKED}, missing


async def acls_of_ids(cluster: Cluster) -> list[Acl]:
    """List all ACLs on transactional ids. Raises WireError: NO_AUTHORIZER if all is allowed."""
    question = messages.DescribeAclsRequest(
        resource_type_filter=_TRANSACTIONAL_ID,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    answer = await cluster.ask_any(question)
    if answer.error_code:
        raise WireError(
            messages.error_name(answer.error_code),
            answer.error_message or "the ACLs could not be read",
        )
    return [
        Acl(
            name=resource.resource_name,
            prefixed=resource.pattern_type == _PREFIXED,
            principal=acl.principal,
            operation=acl.operation,
            is_deny=acl.permission_type == _DENY,
        )
        for resource in answer.resources
        for acl in resource.acls
    ]
