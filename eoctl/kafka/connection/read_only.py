"""The requests that a read-only context may send: a list, since a new one may change something."""

from recovery.errors import RefusedError

READING = frozenset(
    {
        "ConsumerGroupDescribe",
        "DescribeConfigs",
        "DescribeGroups",
        "DescribeLogDirs",
        "DescribeProducers",
        "DescribeQuorum",
        "DescribeShareGroupOffsets",
        "DescribeTransactions",
        "Fetch",
        "FindCoordinator",
        "ListGroups",
        "ListOffsets",
        "ListTransactions",
        "Metadata",
        "OffsetFetch",
        "OffsetForLeaderEpoch",
        "ShareGroupDescribe",
        "StreamsGroupDescribe",
    }
)


def refuse_writing(question: object) -> None:
    """Raise RefusedError for a request that could change something, by its class's name."""
    name = type(question).__name__.removesuffix("Request").removeprefix("Raw")
    if name not in READING:
        raise RefusedError(f"{name} is not sent: the context is read-only")
