"""Compute which partition of `__transaction_state` or `__consumer_offsets` a name belongs to.

The leader of that partition is the coordinator of the transactional id or the group.
Source: Kafka's TransactionStateManager.partitionFor, GroupCoordinatorService.partitionFor,
Utils.abs; java.lang.String.hashCode.
"""

DEFAULT_PARTITIONS = 50
"""`transaction.state.log.num.partitions` and `offsets.topic.num.partitions` by default."""


def java_hash(text: str) -> int:
    """Return Java's String.hashCode: signed 32 bits, over UTF-16 code units (an emoji is two)."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def coordinator_partition(name: str, partitions: int = DEFAULT_PARTITIONS) -> int:
    """Return the coordinator's partition of a transactional id or group id, in [0, partitions).

    partitions: the topic's number of them; a cluster may have been set up with other than 50.
    """
    # Utils.abs, not Utils.toPositive: the absolute value, except that Integer.MIN_VALUE becomes 0.
    return (abs(java_hash(name)) & 0x7FFFFFFF) % partitions
