"""Groups that commit offsets of the same partition in transactions and outside, by turns."""

from collections.abc import Iterator

from recovery.doctor.findings import DoctorFacts, Finding, unseen
from recovery.facts import grouped
from recovery.inspect.rights import OFFSETS_READ
from recovery.values import Reason

LEAST_TURNS = 2
"""A tool's one reset, or an application that changes its way once and back, is fewer."""


def mixed_commits(facts: DoctorFacts) -> Iterator[Finding]:
    """Find groups of which the commits of a partition change between both ways, and back."""
    mixed = {key: w for key, w in facts.commit_ways.items() if w.turns >= LEAST_TURNS}
    for group, keys in sorted(grouped((key.group, key) for key in mixed).items()):
        key = max(keys, key=lambda k: (mixed[k].turns, mixed[k].plain))
        data = {**mixed[key].as_dict(), "topic": key.topic, "partition": key.partition}
        yield Finding("group", group, (Reason("commit-ways", {**data, "partitions": len(keys)}),))
    yield from unseen(facts.missing_commits, OFFSETS_READ, "group")
