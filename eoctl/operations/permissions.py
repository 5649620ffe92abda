"""`context test`: what these credentials see, what they do not, and what follows for verdicts.

Topic and cluster rights come from the brokers' own `authorized operations` (KIP-430); rights on
transactional ids have no such question, so the coordinators are probed.
"""

from eoctl.config import Context
from eoctl.kafka import coordinators, messages
from eoctl.kafka.cluster import Cluster
from eoctl.kafka.failures import WireError
from eoctl.operations.session import now_ms
from recovery.answers import Answer
from recovery.rows import ContextTestRow

# org.apache.kafka.common.acl.AclOperation
READ, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS = 3, 7, 8, 9, 10
NOT_ASKED = -(2**31)


async def test(cluster: Cluster, context: Context) -> Answer:
    """One row per thing that verdicts and remedies need. Asks only; changes nothing."""
    rows = [
        ContextTestRow(
            check="connect",
            sees=True,
            detail=f"cluster {cluster.cluster_id}, {len(cluster.brokers)} brokers",
            cannot_say=[],
        )
    ]
    rows += await _topics(cluster)
    rows.append(await _transactional_ids(cluster))
    rows += await _cluster_rights(cluster)
    accepted = set(context.accept_missing)
    return Answer(
        schema="context-test",
        cluster_id=cluster.cluster_id,
        collected_at=now_ms(),
        rows=rows,
        extra={
            "context": context.title,
            "seen": sum(row.sees is True for row in rows),
            "accept_missing": sorted(accepted),
        },
    )


async def _topics(cluster: Cluster) -> list[ContextTestRow]:
    operations = await cluster.topic_operations()
    own = {name: bits for name, bits in operations.items() if not name.startswith("__")}
    readable = [name for name, bits in own.items() if bits >> READ & 1]
    rows = [
        ContextTestRow(
            check="topics: DESCRIBE",
            sees=True if own else None,
            detail=f"{len(own)} topics visible; topics without DESCRIBE are hidden silently",
            cannot_say=[],
        ),
        ContextTestRow(
            check="topics: READ",
            sees=len(readable) == len(own) if own else None,
            detail=f"{len(readable)} of {len(own)} visible topics",
            cannot_say=[] if len(readable) == len(own) else ["who holds the others", "orphan"],
        ),
    ]
    for name, cannot in (
        ("__transaction_state", ["txn history", "marker-lost", "orphan"]),
        ("__consumer_offsets", ["which group a pending transaction holds"]),
    ):
        bits = operations.get(name)
        sees = None if bits is None else bool(bits >> READ & 1)
        rows.append(
            ContextTestRow(
                check=f"{name}: READ",
                sees=sees,
                detail="not visible, or not made yet"
                if bits is None
                else "granted"
                if sees
                else "not granted",
                cannot_say=[] if sees else cannot,
            )
        )
    return rows


async def _transactional_ids(cluster: Cluster) -> ContextTestRow:
    listed = await coordinators.transactions(cluster)
    seen = sum(c.seen for c in listed.coordinators)
    return ContextTestRow(
        check="transactional ids: DESCRIBE",
        sees=listed.complete if listed.coordinators or listed.missing else None,
        detail=listed.missing[0].detail
        if listed.missing
        else f"{seen} of {len(listed.coordinators)} coordinator partitions answered"
        if listed.coordinators
        else "no transaction was ever begun here",
        cannot_say=[] if listed.complete else ["owner of a transaction", "orphan"],
        error=listed.missing[0].error if listed.missing else None,
    )


async def _cluster_rights(cluster: Cluster) -> list[ContextTestRow]:
    request = messages.DescribeClusterRequest(include_cluster_authorized_operations=True)
    try:
        answer = await cluster.ask_any(request)
        bits = answer.cluster_authorized_operations
    except WireError as error:
        return [
            ContextTestRow(
                check="cluster",
                sees=None,
                detail=error.detail,
                cannot_say=["whether remedies are allowed"],
                error=error.error,
            )
        ]

    def row(check: str, wanted: tuple[int, ...], cannot: list[str]) -> ContextTestRow:
        sees = None if bits == NOT_ASKED else any(bits >> operation & 1 for operation in wanted)
        return ContextTestRow(
            check=check,
            sees=sees,
            detail="granted" if sees else "not granted, or hidden without DESCRIBE on the cluster",
            cannot_say=[] if sees else cannot,
        )

    return [
        row(
            "cluster: DESCRIBE", (DESCRIBE,), ["groups held up (those without DESCRIBE are hidden)"]
        ),
        row("cluster: ALTER", (ALTER, CLUSTER_ACTION), ["remedies abort and resolve"]),
        row("cluster: DESCRIBE_CONFIGS", (DESCRIBE_CONFIGS,), ["retention and timeouts in force"]),
    ]
