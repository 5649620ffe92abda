"""The ids that a topic's name had, and when: they tell a topic from one recreated under its name.

A decision in `__transaction_state` names a topic and not its id. "When" is an offset of a partition
of `__transaction_state`, so that no clock is asked: what stands there was written before a look, or
after it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sighting:
    """One id that the name had.

    after: ends of partitions of `__transaction_state`, read after the id was first seen. before:
    ends read before the id was last seen.
    """

    topic_id: str
    after: Mapping[int, int]
    before: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Named:
    """The decisions on the name by their offset in one partition of `__transaction_state`.

    since: from this offset on it is about the present topic (None = not known). before: below
    this offset it is about an earlier topic of that name (0 = none is known).
    """

    since: int | None
    before: int


@dataclass(frozen=True, slots=True)
class Sightings:
    """All sightings of one topic's name.

    present: its id now; None = the broker gives no ids. seen: in the order in which the ids were
    first seen. A broker that lags behind may have reported an old id after a newer one.
    """

    present: str | None
    seen: Sequence[Sighting] = ()

    def of(self, partition: int) -> Named:
        """Return what offsets of this partition of `__transaction_state` say.

        >>> Sightings("B", [Sighting("A", {0: 3}, {0: 9}), Sighting("B", {0: 20}, {})]).of(0)
        Named(since=20, before=9)
        """
        since: int | None = None
        earlier = 0
        for s in self.seen:
            if s.topic_id == self.present:
                since = s.after.get(partition)
                break
            earlier = max(earlier, s.before.get(partition, 0))
        before = earlier if self.present is not None else 0
        # what stands behind the present topic's first sighting is about it, whoever told otherwise
        return Named(since=since, before=before if since is None else min(before, since))
