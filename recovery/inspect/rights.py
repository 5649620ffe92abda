"""The rights (Kafka ACLs) that brokers require, and how a missing one is named.

This is their only list: a refused remedy names its right, and `context test` tries all of them.
"""

from collections.abc import Collection, Iterable, Mapping

from recovery.errors import RefusedError
from recovery.quoting import some
from recovery.values import Value


class Need(Value):
    """One right that a change needs. kind: `topic`, `group` or `cluster`, which has no name."""

    kind: str
    name: str
    operation: str

    @property
    def right(self) -> str:
        where = "the cluster" if self.kind == "cluster" else f"{self.kind} {self.name}"
        return f"{self.operation} on {where}"

    @property
    def asked(self) -> str:
        """Return the right, with the one that older brokers want for the same."""
        older = " (before Kafka 3.8: CLUSTER_ACTION)" if self == WRITES_MARKERS else ""
        return self.right + older


WRITES_MARKERS = Need("cluster", "", "ALTER")
"""What WriteTxnMarkers needs (KAFKA-16513)."""


def ungranted_error(needs: Collection[Need], where: str) -> RefusedError:
    """Return the refusal of a change whose needs are reported as not granted: all are named.

    >>> print(ungranted_error([WRITES_MARKERS], "x").remedy)
    grant ALTER on the cluster (before Kafka 3.8: CLUSTER_ACTION)
    """
    lacking = sorted(needs, key=lambda need: (need.kind, need.right))
    return RefusedError(
        f"the brokers report these rights as not granted: {some([n.right for n in lacking])}",
        where=where,
        remedy=f"grant {', '.join(need.asked for need in lacking)}",
    )


def needs_of_copy(read: Iterable[str], outputs: Iterable[str], group: str) -> frozenset[Need]:
    """Return the rights of a transactional copy, as far as brokers report them.

    WRITE on its transactional id is left out: no broker reports it.

    read: the sources, and outputs that are read back; group: commits the positions.
    """
    return frozenset(
        {
            *(Need("topic", topic, "READ") for topic in read),
            *(Need("topic", topic, "WRITE") for topic in outputs),
            Need("group", group, "READ"),
        }
    )


def missing_right(error: str, name: str) -> str | None:
    """Return what to grant if a broker refused with this error; None for any other error.

    name: the transactional id, group or topic that the request would have changed.
    """
    return {
        "CLUSTER_AUTHORIZATION_FAILED": f"grant {WRITES_MARKERS.asked}",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": f"grant WRITE on transactional id {name}",
        "GROUP_AUTHORIZATION_FAILED": f"grant READ on group {name}",
        "TOPIC_AUTHORIZATION_FAILED": f"grant WRITE on topic {name}",
    }.get(error)


def and_grant(text: str, error: str, right: str) -> str:
    """Return what could not be seen, and the right to grant if a broker refused it for want of one.

    >>> and_grant("not read", "TOPIC_AUTHORIZATION_FAILED", "READ on that topic")
    'not read; grant READ on that topic'
    """
    return f"{text}; grant {right}" if error.endswith("AUTHORIZATION_FAILED") else text


TOPICS_DESCRIBE, TOPICS_READ, TOPICS_WRITE = "topics: DESCRIBE", "topics: READ", "topics: WRITE"
TOPICS_CONFIGS = "topics: DESCRIBE_CONFIGS"
STATE_READ, OFFSETS_READ = "__transaction_state: READ", "__consumer_offsets: READ"
IDS_DESCRIBE, IDS_WRITE = "transactional ids: DESCRIBE", "transactional ids: WRITE"
GROUPS_DESCRIBE, GROUPS_READ, GROUPS_DELETE = "groups: DESCRIBE", "groups: READ", "groups: DELETE"
CLUSTER_DESCRIBE, CLUSTER_ALTER = "cluster: DESCRIBE", "cluster: ALTER"
CLUSTER_CONFIGS = "cluster: DESCRIBE_CONFIGS"

_JUDGE = (TOPICS_DESCRIBE, TOPICS_READ, IDS_DESCRIBE, STATE_READ)
_COPY = (TOPICS_READ, TOPICS_WRITE, IDS_WRITE, GROUPS_READ)

NEEDS: Mapping[str, tuple[str, ...]] = {
    "lso": (TOPICS_DESCRIBE,),
    "producers": (TOPICS_READ,),
    "txn list, txn describe": (TOPICS_DESCRIBE, IDS_DESCRIBE),
    "txn list --summary": (TOPICS_DESCRIBE, IDS_DESCRIBE, CLUSTER_DESCRIBE),
    "txn history": (STATE_READ,),
    "status, txn hanging": (*_JUDGE, OFFSETS_READ, GROUPS_DESCRIBE),
    "why": (*_JUDGE, TOPICS_CONFIGS, OFFSETS_READ, GROUPS_DESCRIBE),
    "check": (*_JUDGE, OFFSETS_READ, GROUPS_DESCRIBE, CLUSTER_CONFIGS),
    "doctor": (
        TOPICS_DESCRIBE,
        TOPICS_CONFIGS,
        IDS_DESCRIBE,
        STATE_READ,
        OFFSETS_READ,
        GROUPS_DESCRIBE,
        CLUSTER_CONFIGS,
    ),
    "txn abort, txn resolve": (*_JUDGE, CLUSTER_ALTER),
    "txn abort, txn resolve under an idle id": (*_JUDGE, CLUSTER_ALTER, IDS_WRITE),
    "txn fence": (*_JUDGE, IDS_WRITE),
    "offsets show": (TOPICS_DESCRIBE, GROUPS_DESCRIBE),
    "offsets show --lag-seconds": (TOPICS_READ, TOPICS_CONFIGS, GROUPS_DESCRIBE),
    "offsets history": (TOPICS_DESCRIBE, GROUPS_DESCRIBE, OFFSETS_READ, IDS_DESCRIBE),
    "offsets count, audit, state rebuild": (TOPICS_READ,),
    "restart plan": (TOPICS_READ, GROUPS_DESCRIBE),
    "restart apply": (TOPICS_READ, GROUPS_DESCRIBE, GROUPS_READ),
    "restart undo": (TOPICS_READ, GROUPS_DESCRIBE, GROUPS_READ, GROUPS_DELETE),
    "state deliver": (TOPICS_READ, TOPICS_WRITE, TOPICS_CONFIGS, IDS_WRITE, GROUPS_READ),
    "dedup": _COPY,
    "merge replay": _COPY,
}
"""Commands that need rights of their own, and which. Topics, groups and ids: those that the command
is about."""


def requests_of(command: str) -> tuple[str, ...]:
    """Return which of the requests that some services leave out a row of NEEDS sends."""
    needed = set(NEEDS[command])
    return (
        *(("ListTransactions", "DescribeTransactions") if IDS_DESCRIBE in needed else ()),
        *(("DescribeProducers",) if needed.issuperset(_JUDGE) or command == "producers" else ()),
        *(("WriteTxnMarkers",) if CLUSTER_ALTER in needed else ()),
    )


class Allowed(Value):
    """One command and whether it is allowed; None: a right is unknown or not granted everywhere.

    missing, unknown: the rights that are the reason. unanswered: the requests that are.
    """

    command: str
    allowed: bool | None
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()


def allowed_commands(
    rights: Mapping[str, bool | None], unanswered: Collection[str] = ()
) -> list[Allowed]:
    """Return for each command whether these rights allow it.

    rights: right → granted; None and absent = unknown. unanswered: requests that a broker leaves
    out.

    >>> [(a.command, a.allowed) for a in allowed_commands({TOPICS_DESCRIBE: True})][:2]
    [('lso', True), ('producers', None)]
    """
    commands = []
    for command, needed in NEEDS.items():
        missing = tuple(right for right in needed if rights.get(right) is False)
        unknown = tuple(right for right in needed if rights.get(right) is None)
        left_out = tuple(name for name in requests_of(command) if name in unanswered)
        allowed = False if missing or left_out else None if unknown else True
        commands.append(Allowed(command, allowed, missing, unknown, left_out))
    return commands


class Acl(Value):
    """One access control entry. name: of the resource, `*` = all; prefixed: name is a prefix."""

    name: str
    prefixed: bool
    principal: str
    operation: int
    is_deny: bool


class ByAcls(Value):
    """What ACLs allow for one operation: on all resources of a kind, on some names, or on none."""

    everywhere: bool
    some: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()


ACL_ALL = 2  # org.apache.kafka.common.acl.AclOperation


def by_acls(acls: Iterable[Acl], principal: str, operation: int) -> ByAcls:
    """Read the ACLs of one principal (`User:name`) and of `User:*` as Kafka's authorizer does.

    A DENY wins over every ALLOW for the names it covers.
    """
    mine = [
        a
        for a in acls
        if a.principal in (principal, "User:*") and a.operation in (operation, ACL_ALL)
    ]
    names = {False: set[str](), True: set[str]()}
    for a in mine:
        everything = a.name == "*" and not a.prefixed
        names[a.is_deny].add("*" if everything else f"{a.name}*" if a.prefixed else a.name)
    allowed, denied = names[False], names[True]
    return ByAcls(
        everywhere="*" in allowed and not denied,
        some=() if "*" in denied else tuple(sorted(allowed)),
        denied=tuple(sorted(denied)),
    )
