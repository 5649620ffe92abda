"""Which releases of Kafka a broker may be: by hand, or bounded by its answer to ApiVersions.

No request names a release, and releases of one branch speak alike, so an answer gives bounds. The
table is read from Kafka's own files: validVersions and latestVersionUnstable of each request in
`clients/src/main/resources/common/message/`, and MetadataVersion, of 2.8.0 to 4.4.0. It lacks
requests that brokers forward to the controller: for those an answer gives the older of both.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise

import msgspec

from recovery.errors import UsageError
from recovery.quoting import quoted
from recovery.values import Value

Version = tuple[int, int, int]

METADATA, TRANSACTION = "metadata.version", "transaction.version"
"""Features: what the cluster's own records may hold, and which protocol transactions speak."""


class Protocol(Value):
    """What one broker answered to ApiVersions (KIP-35, KIP-584).

    apis: API key → oldest and newest version. supported: feature → the newest level that this
    broker can do, without features that may be 0 (KAFKA-17011). finalized: feature → the level in
    force in the cluster; a feature that is absent is at level 0.
    """

    apis: Mapping[int, tuple[int, int]]
    supported: Mapping[str, int] = msgspec.field(default_factory=dict)
    finalized: Mapping[str, int] = msgspec.field(default_factory=dict)


class VersionRange(Value):
    """The releases that a broker may be: `least` or later, and before `below`. None: no bound."""

    least: Version | None = None
    below: Version | None = None

    def __str__(self) -> str:
        """Return the range as text.

        >>> str(VersionRange((4, 3, 0), (4, 4, 0))), str(VersionRange((3, 3, 0), None))
        ('4.3.x', '3.3.0 or later')
        """
        least, below = self.least, self.below
        if least is None:
            return "any release" if below is None else f"before {dotted(below)}"
        if below is None:
            return f"{dotted(least)} or later"
        if below == (*least[:2], least[2] + 1):
            return dotted(least)
        if least[2] == 0 and below == next_branch(least):
            return f"{least[0]}.{least[1]}.x"
        return f"{dotted(least)} or later, before {dotted(below)}"

    def within(self, other: "VersionRange") -> bool:
        """Return True if every release of this range is in the other."""
        above = other.least is None or (self.least is not None and self.least >= other.least)
        return above and (
            other.below is None or (self.below is not None and self.below <= other.below)
        )

    def overlaps(self, other: "VersionRange") -> bool:
        """Return True if some release is in both ranges."""
        return all(
            a.below is None or b.least is None or b.least < a.below
            for a, b in ((self, other), (other, self))
        )


def dotted(version: Version) -> str:
    """Return a release as people write it: `4.0.1`."""
    return ".".join(map(str, version))


def next_branch(version: Version) -> Version:
    """Return the first release of the branch after this one's."""
    major, minor, _ = version
    return (major + 1, 0, 0) if (major, minor) in _LAST else (major, minor + 1, 0)


_LAST = ((2, 8), (3, 9))
"""The last branches of Kafka 2 and 3."""


def by_hand(text: str) -> VersionRange:
    """Return the range of a version given by hand: `3.6.1` is one release, `3.6` a branch.

    Raise UsageError for anything else.

    >>> by_hand("3.6")
    VersionRange(least=(3, 6, 0), below=(3, 7, 0))
    """
    if (match := re.fullmatch(r"(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?", text)) is None:
        raise UsageError(
            f"{quoted(text)} is no version of Apache Kafka",
            where="--broker-version",
            remedy="write it as 4.0.1, or as 4.0",
        )
    major, minor, patch = match.groups()
    least = (int(major), int(minor), int(patch or 0))
    return VersionRange(least, next_branch(least) if patch is None else (*least[:2], least[2] + 1))


APIS: Mapping[str, int] = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "OffsetCommit": 8,
    "OffsetFetch": 9,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "LeaveGroup": 13,
    "DescribeGroups": 15,
    "ListGroups": 16,
    "ApiVersions": 18,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "WriteTxnMarkers": 27,
    "TxnOffsetCommit": 28,
    "DescribeLogDirs": 35,
    "DescribeCluster": 60,
    "DescribeProducers": 61,
    "DescribeTransactions": 65,
    "ListTransactions": 66,
}
"""Requests of the table → their API keys: those that a broker answers itself."""

_CHANGES: Mapping[Version, Mapping[str, int]] = {
    (2, 8, 0): {
        "Produce": 9,
        "Fetch": 12,
        "ListOffsets": 6,
        "Metadata": 11,
        "OffsetCommit": 8,
        "OffsetFetch": 7,
        "FindCoordinator": 3,
        "JoinGroup": 7,
        "LeaveGroup": 4,
        "DescribeGroups": 5,
        "ListGroups": 4,
        "ApiVersions": 3,
        "InitProducerId": 4,
        "AddPartitionsToTxn": 3,
        "AddOffsetsToTxn": 3,
        "EndTxn": 3,
        "WriteTxnMarkers": 1,
        "TxnOffsetCommit": 3,
        "DescribeLogDirs": 2,
        "DescribeCluster": 0,
        "DescribeProducers": 0,
    },
    (3, 0, 0): {
        "ListOffsets": 7,
        "OffsetFetch": 8,
        "FindCoordinator": 4,
        "DescribeTransactions": 0,
        "ListTransactions": 0,
    },
    (3, 1, 0): {"Fetch": 13, "Metadata": 12},
    (3, 2, 0): {"JoinGroup": 9, "LeaveGroup": 5, "DescribeLogDirs": 3},
    (3, 3, 0): {"DescribeLogDirs": 4, METADATA: 7},
    (3, 4, 0): {METADATA: 8},
    (3, 5, 0): {"Fetch": 15, "ListOffsets": 8, METADATA: 11},
    (3, 6, 0): {"AddPartitionsToTxn": 4, METADATA: 14},
    (3, 7, 0): {
        "Produce": 10,
        "Fetch": 16,
        "OffsetCommit": 9,
        "OffsetFetch": 9,
        "DescribeCluster": 1,
        METADATA: 19,
    },
    (3, 8, 0): {
        "Produce": 11,
        "FindCoordinator": 5,
        "ListGroups": 5,
        "InitProducerId": 5,
        "AddPartitionsToTxn": 5,
        "AddOffsetsToTxn": 4,
        "EndTxn": 4,
        "TxnOffsetCommit": 4,
        "ListTransactions": 1,
        METADATA: 20,
    },
    (3, 9, 0): {
        "Fetch": 17,
        "ListOffsets": 9,
        "FindCoordinator": 6,
        "ApiVersions": 4,
        METADATA: 21,
    },
    (4, 0, 0): {
        "Produce": 12,
        "ListOffsets": 10,
        "Metadata": 13,
        "DescribeGroups": 6,
        "EndTxn": 5,
        "TxnOffsetCommit": 5,
        "DescribeCluster": 2,
        METADATA: 25,
    },
    (4, 0, 1): {},
    (4, 1, 0): {"Produce": 13, "Fetch": 18, "ListTransactions": 2, METADATA: 27},
    (4, 2, 0): {
        "ListOffsets": 11,
        "OffsetCommit": 10,
        "OffsetFetch": 10,
        "WriteTxnMarkers": 2,
        METADATA: 29,
    },
    (4, 3, 0): {"DescribeLogDirs": 5, METADATA: 30},
    (4, 4, 0): {"ApiVersions": 5, "TxnOffsetCommit": 6, METADATA: 33},
}
"""Release → newest version of each request, or level of metadata.version, that it changed."""

_UNSTABLE: Mapping[tuple[str, int], Version] = {
    ("AddPartitionsToTxn", 4): (3, 5, 0),
    ("OffsetCommit", 9): (3, 6, 0),
    ("OffsetCommit", 10): (4, 1, 0),
    ("OffsetFetch", 10): (4, 1, 0),
    ("InitProducerId", 6): (4, 1, 0),
}
"""Versions that brokers answer earlier, with `unstable.api.versions.enable`: since when."""

NEXT: Version = (4, 5, 0)
"""The first release that was not read: MetadataVersion of 4.4.0 calls level 34 `4.5-IV0`."""


@cache
def releases() -> Mapping[Version, Mapping[str, int]]:
    """Return for each release of the table everything that it has, oldest release first."""
    every: dict[Version, Mapping[str, int]] = {}
    so_far: dict[str, int] = {}
    for version, changed in _CHANGES.items():
        so_far = {**so_far, **changed}
        every[version] = so_far
    return every


def newer_than_known(protocol: Protocol) -> dict[str, int]:
    """Return requests, and metadata.version, that are newer than in every release of the table."""
    newest = list(releases().values())[-1]
    return {
        name: number
        for name, number in _answered(protocol)
        if number > newest.get(name, number) and (name, number) not in _UNSTABLE
    }


def bounds(protocol: Protocol) -> VersionRange | None:
    """Return the releases of Apache Kafka that answer so; None: no release of the table does.

    Another product that speaks Kafka's protocol may answer like a release, or like none.
    """
    table = releases()
    if newer_than_known(protocol):
        return VersionRange(least=list(table)[-1])
    first, oldest = next(iter(table.items()))
    known = [(number, oldest.get(name, number)) for name, number in _answered(protocol)]
    if all(number <= then for number, then in known) and any(n < then for n, then in known):
        return VersionRange(below=first)
    ends = dict(pairwise([*table, NEXT]))
    fitting = [version for version in table if _fits(version, protocol)]
    return VersionRange(fitting[0], ends[fitting[-1]]) if fitting else None


def _answered(protocol: Protocol) -> Iterator[tuple[str, int]]:
    """Yield what the table knows of an answer: requests with their newest versions."""
    for name, key in APIS.items():
        if key in protocol.apis:
            yield name, protocol.apis[key][1]
    if METADATA in protocol.supported:
        yield METADATA, protocol.supported[METADATA]


def _fits(version: Version, protocol: Protocol) -> bool:
    """Return True if this release may answer so. Requests that are absent may be blocked."""
    has = releases()[version]
    for name, number in _answered(protocol):
        since = _UNSTABLE.get((name, number))
        if number != has.get(name, -1) and (since is None or since > version):
            return False
    if protocol.finalized.get(METADATA, 0) > has.get(METADATA, 0):
        return False
    join = protocol.apis.get(APIS["JoinGroup"])  # 4.0.1 took its versions 0 and 1 back
    return join is None or (join[0] == 2) == (version == (4, 0, 0))
