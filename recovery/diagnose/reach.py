"""Find how far an open transaction reaches: other partitions, and groups past its first record.

A reader with isolation.level=read_committed gets no record from the LSO on, and the LSO is at or
below the first offset of every open transaction. So a group that committed an offset larger than
that first one has read undecided records (read_uncommitted), unless its offset was set by hand.
Readers that do not commit to Kafka are not seen.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import asdict

from recovery.facts import GroupFacts, Missing, TopicPartition
from recovery.values import Value

MOST_NAMED = 20  # partitions, and groups, that a plan names per transaction and partition
MOST_UNSEEN = 3
READ_COMMITTED = "read_committed"


class Beyond(Value):
    """A group past a transaction's first record, and the offset that it committed."""

    group: str
    committed_offset: int


class Reach(Value):
    """How far one transaction on one partition reaches, and what of that could not be seen.

    also_holds, groups_beyond: everything that was seen; a plan keeps only the first of them.
    """

    also_holds: Sequence[TopicPartition] = ()
    groups_beyond: Sequence[Beyond] = ()
    partitions_unseen: Sequence[Missing] = ()
    groups_unseen: Sequence[Missing] = ()

    def values(self) -> dict[str, Any]:
        """Return the fields of a plan's step: the first entries of each list, and how many more."""
        return {
            **_first("also_holds", self.also_holds, MOST_NAMED, str),
            **_first("groups_beyond", self.groups_beyond, MOST_NAMED, Beyond.as_dict),
            **_first("partitions_unseen", self.partitions_unseen, MOST_UNSEEN, asdict),
            **_first("groups_unseen", self.groups_unseen, MOST_UNSEEN, asdict),
        }


def _first(
    name: str, values: Sequence[Any], most: int, shown: Callable[[Any], object]
) -> dict[str, Any]:
    return {
        name: [shown(value) for value in values[:most]],
        f"{name}_more": max(0, len(values) - most),
    }


def also_holds(
    here: TopicPartition | None, *partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Return all partitions except this one, sorted.

    >>> also_holds(("a", 0), [("b", 1), ("a", 0)], [("a", 2), ("b", 1)])
    [('a', 2), ('b', 1)]
    """
    return sorted({partition for named in partitions for partition in named} - {here})


def is_beyond(committed_offset: int | None, start_offset: int | None) -> bool | None:
    """Return True if a group is past the record at start_offset; None if either is unknown.

    A committed offset is the next one to read: a group that is held there has not read it.

    >>> is_beyond(5, 5), is_beyond(6, 5), is_beyond(None, 5)
    (False, True, None)
    """
    if committed_offset is None or start_offset is None:
        return None
    return committed_offset > start_offset


def share_held_up(isolation: str | None, lag: int | None, held: int | None) -> bool | None:
    """Return True if a share group has read all that open transactions let it read.

    isolation: its share.isolation.level; read_uncommitted is never held. lag: Kafka's, to the high
    watermark. held: offsets from LSO to high watermark. None: the level or lag is hidden.

    >>> share_held_up("read_uncommitted", 5, 5), share_held_up("read_committed", 5, 5)
    (False, True)
    """
    if not held:
        return False
    if isolation is None or lag is None:
        return None
    return isolation == READ_COMMITTED and lag <= held


def offsets_by_partition(groups: Iterable[GroupFacts]) -> dict[TopicPartition, list[Beyond]]:
    """Return what groups committed on each partition, largest offset first, then by name."""
    by_partition: dict[TopicPartition, list[Beyond]] = {}
    for g in groups:
        for o in g.offsets:
            if o.committed_offset is not None:
                beyond = by_partition.setdefault(o.topic_partition, [])
                beyond.append(Beyond(g.group, o.committed_offset))
    for rows in by_partition.values():
        rows.sort(key=lambda b: (-b.committed_offset, b.group))
    return by_partition
