"""Decide which lost transactions can be salvaged: exactly their aborted records must still exist.

A transaction is identified by transactional id, producer id and epoch. Its records are copied if
the outcome is proven to be an abort, if every partition that its coordinator named still holds all
of them (a producer's epoch begins with sequence 0 in each partition, and no sequence is missing),
and if producer id and epoch identify this transaction alone.
"""

import hashlib
from collections.abc import Collection, Mapping

from recovery.facts import TopicPartition
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS
from recovery.formats.flink_checkpoint import Committable
from recovery.plurals import counted
from recovery.quoting import some
from recovery.values import Value


class Written(Value):
    """One transaction's records in one partition. first, last: offsets of its records.

    outcome: `commit` or `abort` of the marker at offset `marker` that ended it here, appended at
    `ended_at` (epoch ms, the broker's clock); None = no marker was read. lacking: missing records,
    by their sequences: the first of a producer epoch is 0, and each record has its own. next: the
    sequence that follows. behind: records of the same producer id and epoch after that marker, so
    these two identify more than one transaction.
    """

    records: int
    first: int
    last: int
    outcome: str | None = None
    marker: int | None = None
    ended_at: int | None = None
    lacking: int = 0
    next: int = 0
    behind: int = 0


MARGIN_MS = 3_600_000
"""Margin by which an abort must be younger than offsets.retention: clocks differ, plans wait."""


def _named(partitions: Collection[TopicPartition]) -> str:
    return some([str(tp) for tp in sorted(partitions)])


Pieces = Mapping[TopicPartition, Written]


def refused(
    pieces: Pieces,
    recorded: Collection[TopicPartition],
    topics: Collection[str],
    *,
    by_flink: bool,
) -> tuple[str, str] | None:
    """Say why a lost transaction cannot be salvaged, and what to do; None if it can.

    recorded: the partitions that `__transaction_state` names; empty = no longer known, so the
    topics that the operator named are used. topics: those names. by_flink: a Flink checkpoint
    promised it; Flink's sinks put no offsets of groups in their transactions, others may.
    """
    records = sum(p.records for p in pieces.values())
    there = f"{counted(records, 'of its records is', 'of its records are')} in {_named(pieces)}"
    if not pieces:
        return "none of its records are left in a log", "write them again from their source"
    if not_ended := [p for p, piece in pieces.items() if piece.outcome != "abort"]:
        return (
            f"no abort marker follows its records in {_named(not_ended)}",
            f"eoctl why {_named([min(not_ended)])}",
        )
    if offsets := [p for p in {*pieces, *recorded} if p.topic == CONSUMER_OFFSETS]:
        return (
            (
                f"offsets of groups were in it ({_named(offsets)}): its application may read that "
                "input again, and write these records again itself"
            ),
            (
                "start its application; if a group was moved past that input since (eoctl offsets "
                "history GROUP), write them again from their source"
            ),
        )
    if gone := [p for p in recorded if p not in pieces]:
        return (
            (
                f"its coordinator named {_named(gone)}, and none of its records are there: the "
                f"topic was recreated, or the records were deleted; {there}"
            ),
            "write them again from their source",
        )
    if not recorded and not by_flink:
        return (
            (
                "which partitions it was on is no longer recorded, so whether offsets of groups "
                f"were in it is not known; {there}"
            ),
            "if a Flink checkpoint promised it, name that; else write them again from their source",
        )
    if not recorded and not topics:
        return (
            f"which partitions it was on is no longer recorded; {there}",
            "name all topics that its sink writes with --topic",
        )
    if lacking := sum(p.lacking for p in pieces.values()):
        return (
            (
                f"of {counted(lacking + records, 'record')} it lacks {lacking}: deleted, or of "
                f"another transaction of its producer id and epoch; {there}"
            ),
            "write them again from their source",
        )
    if any(p.behind for p in pieces.values()):
        return (
            (
                "its producer id and epoch belong to more than one transaction: which of their "
                "records are meant is not known"
            ),
            "write them again from their source",
        )
    return None


def forgotten(aborted_at: int, now: int, retention_ms: int) -> bool:
    """Return True if the position of an earlier salvage may have expired with its group.

    An earlier salvage came after the abort. aborted_at, now: epoch ms; retention_ms: the brokers'
    shortest offsets.retention.minutes, in ms.
    """
    return now - aborted_at > retention_ms - MARGIN_MS


def name(one: Committable, to: str | None) -> str:
    """Return the transactional id of a salvage, which is also its group, equal in every run.

    to: the other topic that its records are copied to.
    """
    words = f"{one.transactional_id}\0{one.producer_id}\0{one.producer_epoch}\0{to or ''}"
    digest = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()
    return f"eoctl-salvage-{digest[:16]}"
