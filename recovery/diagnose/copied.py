"""Judge an open transaction that a mirror holds as a byte copy, by the log it was copied from.

A cluster link copies batches as they are: offset, producer id, epoch, sequences and content. So
the marker that ended the transaction in the source's log is the next batch of that producer that
the mirror would have got. It counts only after the very batches that the mirror holds: a replaced
log, a recreated topic or a producer of the mirror's own cluster with an equal id has others.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from recovery.inspect.history import Marker
from recovery.inspect.observation import OpenTransaction
from recovery.plurals import counted
from recovery.values import Value

CopyDoubt = Literal[
    "start-not-there",
    "not-the-same",
    "ended-before",
    "epochs-differ",
    "open-in-source",
    "foreign-marker",
    "decision-gone",
    "decisions-not-read",
]


class CopiedBatch(NamedTuple):
    """A data batch of one producer. digest: of all its bytes after offset, length and epoch."""

    base_offset: int
    last_offset: int
    producer_epoch: int
    records: int
    digest: bytes


class Copied(Value):
    """What the source's log proves of an open transaction of its mirror.

    outcome: commit or abort, None = nothing is proven, because of `doubt`. at: the offset at which
    the doubt arises, None = at none. compared: equal batches. missing: records that the source has
    before its marker, and the mirror does not. marker: the source's, None = none was found.
    """

    outcome: str | None
    doubt: CopyDoubt | None = None
    at: int | None = None
    compared: int = 0
    missing: int = 0
    marker: Marker | None = None


def judge_copy(
    start_offset: int,
    mine: Sequence[CopiedBatch],
    theirs: Sequence[CopiedBatch],
    marker: Marker | None,
) -> Copied:
    """Return what the source proves of the mirror's open transaction.

    mine: the producer's batches in the mirror from start_offset to the log's end. theirs: those in
    the source from the same offset up to `marker`, which is the producer's first one after it, with
    its origin; None: the log has none.
    """
    if not mine or mine[0].base_offset != start_offset:
        return Copied(None, "start-not-there", start_offset)
    for number, batch in enumerate(mine):
        if marker is not None and marker.offset < batch.base_offset:
            return Copied(None, "ended-before", marker.offset, number, marker=marker)
        if number == len(theirs) or theirs[number] != batch:
            return Copied(None, "not-the-same", batch.base_offset, number)
    missing = sum(batch.records for batch in theirs[len(mine) :])
    epochs = {batch.producer_epoch for batch in theirs}
    doubt: CopyDoubt | None = "epochs-differ" if len(epochs) > 1 else _doubt(marker)
    outcome = None if doubt or marker is None else marker.outcome
    at = None if marker is None else marker.offset
    return Copied(outcome, doubt, at, len(mine), missing, marker)


def _doubt(marker: Marker | None) -> CopyDoubt | None:
    if marker is None:
        return "open-in-source"
    if marker.origin == "foreign":
        return "foreign-marker"
    if marker.origin == "decision-gone":
        return "decision-gone"
    return None if marker.origin in ("decided", "ours") else "decisions-not-read"


_ELSEWHERE = "if its outcome is known from elsewhere: `txn resolve --without-proof`"
_WHY: Mapping[CopyDoubt, str] = {
    "start-not-there": "its first batch, at offset {at}, is no longer in the mirror's log",
    "not-the-same": "the source's log does not hold the same batch at offset {at}: this is no "
    "byte copy of it, one of the topics was recreated, or the source has deleted it",
    "ended-before": "the source's log ended it at offset {at}, before records of it in the mirror",
    "epochs-differ": "its records bear several producer epochs: they are of several transactions",
    "open-in-source": "it is open in the source too: its own coordinator decides it",
    "foreign-marker": "no coordinator decided the source's marker at offset {at}: another tool "
    "wrote it",
    "decision-gone": "the source's log ends it with a marker at offset {at}, and the decision is "
    "no longer in its __transaction_state",
    "decisions-not-read": "who decided the source's marker at offset {at} could not be read",
}
_REMEDIES: Mapping[CopyDoubt, str] = {
    "ended-before": "compare the two logs with `eoctl audit mirror`",
    "open-in-source": "see `eoctl why` there, and end it there first",
    "decisions-not-read": "grant READ on __transaction_state there, or wait until each of its "
    "partitions has a leader",
}


def why_unproven(copied: Copied) -> tuple[str, str]:
    """Return why the outcome is not proven, and what to do. Only without an outcome."""
    assert copied.doubt is not None
    return _WHY[copied.doubt].format(at=copied.at), _REMEDIES.get(copied.doubt, _ELSEWHERE)


def why_proven(about: OpenTransaction, copied: Copied) -> str:
    """Return what proves the outcome, as a sentence."""
    assert copied.marker is not None
    batches = counted(copied.compared, "batch", "batches")
    text = (
        f"{batches} of producer id {about.producer_id} from offset {about.start_offset} on are "
        f"the same in the source's log, which ends them at offset {copied.marker.offset} with the "
        f"{copied.outcome} that its coordinator decided"
    )
    if copied.missing:
        text += f", after {counted(copied.missing, 'more record')} that the mirror lacks"
    return text
