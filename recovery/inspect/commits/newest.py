"""The newest commits of a group, and all that stand out."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, TypeVar

from recovery.facts import TopicPartition


class _Commit(Protocol):
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def event(self) -> object: ...
    @property
    def outcome(self) -> object: ...


Kept = TypeVar("Kept", bound=_Commit)


def newest_of(rows: Sequence[Kept], most: int | None) -> list[Kept]:
    """Return so many of each partition, the newest, and all with an event or not decided.

    most: None is all. rows: in the order of the log, and so is what is returned.
    """
    if most is None:
        return list(rows)
    seen: Counter[TopicPartition] = Counter()
    result = []
    for row in reversed(rows):
        seen[row.topic_partition] += 1
        spared = row.event is not None or row.outcome == "pending"
        if spared or seen[row.topic_partition] <= most:
            result.append(row)
    return result[::-1]
