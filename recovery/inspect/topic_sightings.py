"""Which ids a topic's name had, and when: this tells a topic from a recreated one of that name.

A decision in `__transaction_state` names a topic but not its id. "When" is an offset of a partition
of `__transaction_state`, so no clock is needed: a record was written before or after the offset was
read.
"""

from collections.abc import Mapping, Sequence

from recovery.values import Value


class Sighting(Value):
    """One id that the name had.

    after: partition of `__transaction_state` → an end read after the id was first seen. before: an
    end read before the id was last seen.
    """

    topic_id: str
    after: Mapping[int, int]
    before: Mapping[int, int]


class Named(Value):
    """Which topic a decision means, by its offset in one partition of `__transaction_state`.

    since: decisions from this offset on mean the present topic; None = unknown. before: decisions
    below this offset mean an earlier topic of that name; 0 = none is known.
    """

    since: int | None
    before: int


class Sightings(Value):
    """All sightings of one topic's name.

    present: its id now; None = the broker gives no ids. seen: in the order in which the ids were
    first seen; a broker that lags may have reported an old id after a newer one.
    """

    present: str | None
    seen: Sequence[Sighting] = ()

    def of(self, partition: int) -> Named:
        """Return which topic decisions in this partition of `__transaction_state` mean.

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
        # After its first sighting, records mean the present topic, whatever a lagging broker says.
        return Named(since=since, before=before if since is None else min(before, since))
