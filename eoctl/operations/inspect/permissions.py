"""`context test`: show what these credentials can see and not see, and the commands they allow.

For its checks of this machine see `eoctl.operations.inspect.machine`.

Topics, groups and the cluster report their authorized operations (KIP-430). For transactional ids
no request does: DESCRIBE is probed at the coordinators, WRITE is read from the ACLs. Nothing that
could change the cluster is sent; what only trying would show is `None`, with what would settle it.
"""

import uuid
from collections.abc import Mapping, Sequence
from functools import partial

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import acls, coordinators, groups
from eoctl.kafka.ask.acls import (
    ALTER,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    READ,
    WRITE,
)
from eoctl.kafka.ask.protocols import protocols
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.operations.inspect.machine import machine, row_of
from eoctl.render.doctor_words import newer_words
from eoctl.settings.context import Context
from eoctl.settings.context_rows import ContextTestRow
from recovery.answers import Answer
from recovery.doctor.versions import APIS, Protocol, newer_than_known
from recovery.facts import Missing
from recovery.inspect import rights
from recovery.plurals import counted, listed

MOST_GROUPS = 1000  # asked for their operations; of more groups, the first ones represent all
MOST_NAMED = 5
LEFT_OUT = {
    "ListTransactions": "which transactions are open, who owns what is held",
    "DescribeTransactions": "which transactions are open: no coordinator is proven without it",
    "DescribeProducers": "who holds a partition, and so every verdict on it",
    "WriteTxnMarkers": "remedies abort and resolve",
}
"""Requests that some services do not answer, nor releases before 3.0, and what each costs."""


async def test(cluster: Cluster, context: Context, schema: str) -> Answer:
    """Return a row per right that commands need, one per command, then those of this machine.

    Only reads; changes nothing.
    """
    connected = f"cluster {cluster.cluster_id}, {counted(len(cluster.brokers), 'broker')}"
    answers = await protocols(cluster)
    left_out = _left_out(answers)
    rows = [_right("connect", True, connected), *_newer(answers), *_unanswered(left_out)]
    rows += await _topics(cluster)
    rows.append(await _ids_described(cluster))
    bits = await acls.cluster_operations(cluster)
    rows.append(await _ids_written(cluster, bits))
    rows += await _groups(cluster)
    rows += _cluster_rights(bits)
    commands = [
        ContextTestRow(
            kind="command",
            check=one.command,
            sees=one.allowed,
            detail=_of_command(one),
            cannot_say=[],
        )
        for one in rights.allowed_commands({row.check: row.sees for row in rows}, left_out)
    ]
    return Answer(
        schema=schema,
        cluster_id=cluster.cluster_id,
        collected_at=now_ms(),
        rows=[*rows, *commands, *await machine(cluster)],
        extra={
            "context": context.title,
            "seen": sum(row.sees is True for row in rows),
            "accept_missing": sorted(set(context.accept_missing)),
        },
    )


def _of_command(one: rights.Allowed) -> str:
    reasons = {"not answered": one.unanswered, "not granted": one.missing}
    if any(reasons.values()):
        return "; ".join(f"{why}: {', '.join(names)}" for why, names in reasons.items() if names)
    if one.unknown:
        return f"not known, or not everywhere: {', '.join(one.unknown)}"
    return "all that it needs is granted"


_right = partial(row_of, "right")


def _on_some(
    check: str, bits: Mapping[str, int], operation: int, what: str, cannot: Sequence[str]
) -> ContextTestRow:
    """Return a right on several resources: on all, on none, or (not known for one) on some."""
    granted = sorted(name for name, mine in bits.items() if mine >> operation & 1)
    sees = None if not bits else True if len(granted) == len(bits) else None if granted else False
    detail = f"{len(granted)} of {counted(len(bits), what)}"
    if granted and not sees:
        detail += f": {', '.join(granted[:MOST_NAMED])}" + (
            "" if len(granted) <= MOST_NAMED else f" and {len(granted) - MOST_NAMED} more"
        )
    if not bits:
        detail = f"no {what} to ask about"
    return _right(check, sees, detail, cannot)


def _left_out(answers: Mapping[int, Protocol]) -> dict[str, list[int]]:
    """Return the requests of LEFT_OUT that are not answered by all, and the brokers without."""
    found = {n: [b for b, a in answers.items() if APIS[n] not in a.apis] for n in LEFT_OUT}
    return {name: sorted(brokers) for name, brokers in found.items() if brokers}


def _unanswered(left_out: Mapping[str, Sequence[int]]) -> list[ContextTestRow]:
    """Return a row for the requests that are missing, if any are."""
    if not left_out:
        return []
    each = (f"{name} ({listed(brokers, 'broker')})" for name, brokers in left_out.items())
    detail = f"not answered: {', '.join(each)}; a service, or a release before 3.0"
    return [_right("requests", False, detail, [LEFT_OUT[name] for name in left_out])]


def _newer(answers: Mapping[int, Protocol]) -> list[ContextTestRow]:
    newer: dict[str, int] = {}
    for answer in answers.values():
        for name, version in newer_than_known(answer).items():
            newer[name] = max(version, newer.get(name, version))
    if not newer:
        return []
    cannot = ["what came with that release (eoctl explain newer-protocol)"]
    return [_right("protocol", None, f"{newer_words(newer)}; upgrade eoctl", cannot)]


async def _topics(cluster: Cluster) -> list[ContextTestRow]:
    operations = await cluster.topic_operations()
    own = {name: bits for name, bits in operations.items() if not name.startswith("__")}
    visible = counted(len(own), "topic")
    rows = [
        _right(
            rights.TOPICS_DESCRIBE,
            True if own else None,
            f"{visible} visible; topics without DESCRIBE are hidden silently",
        ),
        _on_some(
            rights.TOPICS_READ, own, READ, "visible topic", ["who holds the others", "orphan"]
        ),
        _on_some(
            rights.TOPICS_WRITE,
            own,
            WRITE,
            "visible topic",
            ["whether copies and states can be written there"],
        ),
        _on_some(
            rights.TOPICS_CONFIGS,
            own,
            DESCRIBE_CONFIGS,
            "visible topic",
            ["settings of topics that can lose what is committed (doctor)"],
        ),
    ]
    for check, name, cannot in (
        (
            rights.STATE_READ,
            "__transaction_state",
            ["txn history", "marker-lost", "orphan", "contested-id"],
        ),
        (
            rights.OFFSETS_READ,
            "__consumer_offsets",
            ["which group a pending transaction holds", "when groups committed (group_expiry)"],
        ),
    ):
        bits = operations.get(name)
        sees = None if bits is None else bool(bits >> READ & 1)
        detail = {None: "not visible, or not made yet", True: "granted", False: "not granted"}[sees]
        rows.append(_right(check, sees, detail, cannot))
    return rows


async def _ids_described(cluster: Cluster) -> ContextTestRow:
    """Return DESCRIBE on transactional ids: a coordinator that does not answer did not refuse."""
    listed = await coordinators.transactions(cluster)
    denied = [m for m in listed.missing if m.error.endswith("_AUTHORIZATION_FAILED")]
    missing = next(iter((*denied, *listed.missing)), None)
    answered = sum(c.seen for c in listed.coordinators)
    detail = coordinators.NONE_VISIBLE
    if missing is not None:
        detail = missing.detail
    elif listed.coordinators:
        detail = (
            f"{answered} of {counted(len(listed.coordinators), 'coordinator partition')} answered"
        )
    proven = listed.complete and bool(listed.coordinators)
    return _right(
        rights.IDS_DESCRIBE,
        False if denied else True if proven else None,
        detail,
        [] if listed.complete else ["owner of a transaction", "orphan"],
        None if missing is None else missing.error,
    )


async def _ids_written(cluster: Cluster, cluster_bits: int | None) -> ContextTestRow:
    """Return WRITE on transactional ids: no broker reports it, ACLs do if readable."""
    settle = "an administrator can settle it: kafka-acls.sh --list --transactional-id '*'"
    cannot = ["whether fence is allowed, and abort under an idle id"]

    def row(sees: bool | None, detail: str, error: str | None = None) -> ContextTestRow:
        return _right(rights.IDS_WRITE, sees, detail, cannot, error)

    try:
        bindings = await acls.acls_of_ids(cluster)
    except WireError as error:
        if error.error == acls.NO_AUTHORIZER:
            return row(True, "the brokers have no authorizer: all is granted")
        detail = error.detail
        if error.error == "CLUSTER_AUTHORIZATION_FAILED":
            detail = "the ACLs cannot be read without DESCRIBE on the cluster"
        return row(None, f"{detail}; {settle}", error.error)
    user = getattr(cluster.settings.sasl, "username", None)
    if not user:
        return row(None, f"no request shows as which principal the brokers know you; {settle}")
    principal = f"User:{user}"
    by_acls = rights.by_acls(bindings, principal, WRITE)
    if by_acls.everywhere:
        return row(True, f"granted on all by the ACLs of {principal}")
    some = ", ".join(by_acls.some[:MOST_NAMED])
    denied = f"; denied on {', '.join(by_acls.denied[:MOST_NAMED])}" if by_acls.denied else ""
    if by_acls.some:
        return row(None, f"by the ACLs of {principal} granted on {some} only{denied}")
    # a super user may do everything without an ACL, CLUSTER_ACTION too
    if cluster_bits is not None and not cluster_bits >> CLUSTER_ACTION & 1:
        return row(False, f"no ACL grants it to {principal}{denied}")
    return row(None, f"no ACL grants it to {principal}, but a super user needs none; {settle}")


async def _groups(cluster: Cluster) -> list[ContextTestRow]:
    """Return the rights on the listed groups; without groups, on a made-up one."""
    cannot = {
        rights.GROUPS_DESCRIBE: ["groups held up (those without DESCRIBE are hidden)"],
        rights.GROUPS_READ: ["whether restart apply can write its offsets"],
        rights.GROUPS_DELETE: ["whether restart undo can remove what apply made"],
    }
    home = await groups.offsets_partitions(cluster)
    if isinstance(home, Missing):
        # not requested: a broker that searches a coordinator creates this topic if it is missing
        detail = "unknown without DESCRIBE on __consumer_offsets: grant that, then ask again"
        if not home.error.endswith("AUTHORIZATION_FAILED"):
            detail = home.detail
        return [_right(check, None, detail, why, home.error) for check, why in cannot.items()]
    listed, missing = await groups.list_groups(cluster)
    denied = [m for m in missing if m.error == "GROUP_AUTHORIZATION_FAILED"]
    names = [g.group for g in listed[:MOST_GROUPS]]
    what = "listed group" if names else "made-up group"
    names = names or [f"eoctl-context-test-{uuid.uuid4().hex[:12]}"]
    bits, refused = await acls.group_operations(cluster, names)
    bits |= {m.id: 0 for m in refused if m.id and m.error == "GROUP_AUTHORIZATION_FAILED"}
    reasons = (*denied, *missing)
    return [
        _right(
            rights.GROUPS_DESCRIBE,
            False if denied else None if missing else True,
            counted(len(listed), "group")
            + " listed"
            + (f"; {reasons[0].detail}" if reasons else ""),
            cannot[rights.GROUPS_DESCRIBE],
            reasons[0].error if reasons else None,
        ),
        _on_some(rights.GROUPS_READ, bits, READ, what, cannot[rights.GROUPS_READ]),
        _on_some(rights.GROUPS_DELETE, bits, DELETE, what, cannot[rights.GROUPS_DELETE]),
    ]


def _cluster_rights(bits: int | None) -> list[ContextTestRow]:
    def row(check: str, operations: tuple[int, ...], cannot: list[str]) -> ContextTestRow:
        if bits is None:
            described = check == rights.CLUSTER_DESCRIBE
            detail = (
                "not granted"
                if described
                else "hidden without DESCRIBE on the cluster: grant that, then ask again"
            )
            return _right(check, False if described else None, detail, cannot)
        sees = any(bits >> operation & 1 for operation in operations)
        return _right(check, sees, "granted" if sees else "not granted", cannot)

    return [
        row(
            rights.CLUSTER_DESCRIBE,
            (DESCRIBE,),
            ["groups held up (those without DESCRIBE are hidden)"],
        ),
        # CLUSTER_ACTION suffices for markers; before Kafka 3.8 it is the only one (KIP-1037)
        row(rights.CLUSTER_ALTER, (ALTER, CLUSTER_ACTION), ["remedies abort and resolve"]),
        row(rights.CLUSTER_CONFIGS, (DESCRIBE_CONFIGS,), ["retention and timeouts in force"]),
    ]
