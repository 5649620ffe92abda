"""Which rights (Kafka ACLs) the brokers ask for, and how one that is missing is named.

Kept here once: a refused remedy names its right, `context test` tries all of them.
"""

ALTER_CLUSTER = "grant ALTER on the cluster (before Kafka 3.8: CLUSTER_ACTION)"
"""What WriteTxnMarkers needs (KAFKA-16513)."""


def missing_right(error: str, name: str) -> str | None:
    """Say what to grant where a broker refused with this error; None for any other error.

    name: the transactional id, group or topic that was asked to be changed.
    """
    return {
        "CLUSTER_AUTHORIZATION_FAILED": ALTER_CLUSTER,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": f"grant WRITE on transactional id {name}",
        "GROUP_AUTHORIZATION_FAILED": f"grant READ on group {name}",
        "TOPIC_AUTHORIZATION_FAILED": f"grant WRITE on topic {name}",
    }.get(error)
