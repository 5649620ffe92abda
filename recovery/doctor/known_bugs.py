"""Bugs of Kafka's brokers that hurt exactly-once, and which releases have them.

Releases up to 3.9.0 are from the tags of Kafka's repository that hold the fix; later ones from
class files of the released jars, compared before and after. What a bug does and what helps is in
its entry of `eoctl/explain/bugs.md`.
"""

from collections.abc import Iterator

from recovery.doctor.versions import Version, VersionRange, next_branch
from recovery.values import Value

LAST_READ: Version = (4, 4, 0)
"""The newest release that was read: what has no fix up to it may have one later."""
READ = (VersionRange(below=(4, 3, 2)), VersionRange((4, 4, 0), (4, 4, 1)))
"""All releases that were read: the branch 4.3 may get a later one with a fix that 4.4.0 lacks."""


class KnownBug(Value):
    """One bug. first: the first release that has it; None: every release before a fix.

    fixed: the first release with the fix of each branch that got one, and the first branch that
    never had the bug again; empty: no release up to LAST_READ has the fix. tried: releases on which
    a test of this project saw it, by_hand: a person with the lab's client, beside one that has the
    fix; both empty: as read. not_seen: releases that were tried without seeing it.
    needs_few_copies: only a partition that may lose all its leaders is in danger.
    """

    number: str
    first: Version | None
    fixed: tuple[Version, ...]
    tried: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    not_seen: tuple[str, ...] = ()
    needs_few_copies: bool = False

    def affected(self) -> Iterator[VersionRange]:
        """Yield the releases that have the bug, oldest first."""
        least = self.first
        for fix in self.fixed:
            if least is None or least < fix:
                yield VersionRange(least, fix)
            least = next_branch(fix)
        if not self.fixed:
            yield VersionRange(least)


class Suspicion(Value):
    """A bug that a broker has, or perhaps has: its bounds hold releases with and without it."""

    bug: KnownBug
    certain: bool


KNOWN_BUGS: tuple[KnownBug, ...] = (
    KnownBug("KAFKA-13727", None, ((2, 8, 2), (3, 0, 2), (3, 1, 1), (3, 2, 0)), tried=("3.1.0",)),
    KnownBug("KAFKA-14055", None, ((3, 0, 2), (3, 1, 2), (3, 2, 1), (3, 3, 0)), tried=("2.8.2",)),
    KnownBug("KAFKA-14417", (3, 0, 0), ((3, 3, 2), (3, 4, 0)), tried=("3.1.0",)),
    KnownBug("KAFKA-14880", None, ((3, 4, 1), (3, 5, 0)), tried=("3.1.0",)),
    KnownBug("KAFKA-14561", None, ((3, 6, 0),), tried=("2.8.2",)),
    KnownBug("KAFKA-15449", None, ((3, 7, 0),), tried=("2.8.2",)),
    KnownBug("KAFKA-15552", (3, 4, 0), ((3, 5, 2), (3, 6, 1), (3, 7, 0)), tried=("3.6.0",)),
    KnownBug("KAFKA-15653", (3, 6, 0), ((3, 6, 1), (3, 7, 0)), not_seen=("3.6.0",)),
    KnownBug("KAFKA-16386", (3, 6, 0), ((3, 7, 1), (3, 8, 0)), tried=("3.6.0",)),
    KnownBug("KAFKA-16229", (3, 5, 0), ((3, 8, 0),), tried=("3.6.0",)),
    KnownBug("KAFKA-16352", None, ((3, 8, 0),), tried=("3.6.0",)),
    KnownBug("KAFKA-17507", None, ((3, 9, 1), (4, 0, 0)), tried=("3.6.0",)),
    KnownBug("KAFKA-14562", None, ((4, 0, 0),), tried=("3.9.1",)),
    KnownBug(
        "KAFKA-19690", (3, 6, 0), ((3, 9, 2), (4, 0, 2), (4, 1, 1), (4, 2, 0)), tried=("3.6.0",)
    ),
    KnownBug("KAFKA-19163", (4, 0, 0), ((4, 0, 1), (4, 1, 0)), by_hand=("4.0.0",)),
    KnownBug("KAFKA-19367", (4, 0, 0), ((4, 0, 1), (4, 1, 0)), by_hand=("4.0.0",)),
    KnownBug("KAFKA-20090", (4, 0, 0), ((4, 3, 0),), tried=("4.0.1",)),
    KnownBug("KAFKA-20734", (4, 3, 0), (), tried=("4.3.1",), needs_few_copies=True),
)
"""Oldest fix first. KAFKA-19999 is not here: each release of Apache Kafka that needs its fix has
it, since 4.2.0."""


def bugs_of(seen: VersionRange) -> list[Suspicion]:
    """Return the bugs that a broker of these releases has, and those that it may have."""
    found = []
    for bug in KNOWN_BUGS:
        affected = list(bug.affected())
        if any(seen.overlaps(a) for a in affected):
            certain = any(map(seen.within, READ)) and any(seen.within(a) for a in affected)
            found.append(Suspicion(bug, certain))
    return found
