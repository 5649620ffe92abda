"""Judge an open transaction that a mirror holds as a byte copy, by the log it was copied from.

A cluster link copies batches as they are: offset, producer id, epoch, sequences and content. So
the marker that ended the transaction in the source's log is the next batch of that producer that
the mirror would have got. It counts only after the very batches that the mirror holds: a replaced
log, a recreated topic or a producer of the mirror's own cluster with an equal id has others.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from recovery.inspect.history import Decision, Marker
from recovery.inspect.observation import OpenTransaction
from recovery.plurals import counted
from recovery.values import Value, replace

CopyDoubt = Literal[
    "start-not-there",
    "not-the-same",
    "ended-before",
    "epochs-differ",
    "open-in-source",
    "decisions-not-read",
    "order-unclear",
    "ours",
    "foreign-marker",
    "decision-gone",
]


class CopiedBatch(NamedTuple):
    """A data batch of one producer. timestamp: the newest record's, ms. digest: of all its bytes
    after offset, length and leader epoch."""

    base_offset: int
    last_offset: int
    producer_epoch: int
    records: int
    timestamp: int
    digest: bytes


class Copied(Value):
    """What the source's log proves of an open transaction of its mirror.

    outcome: commit or abort, None = nothing is proven, because of `doubt`. at: the offset at which
    the doubt arises, None = at none. compared: equal batches. missing: records that the source has
    before its marker, and the mirror does not. marker, decision: the source's, None = none found.
    """

    outcome: str | None
    doubt: CopyDoubt | None = None
    at: int | None = None
    compared: int = 0
    missing: int = 0
    marker: Marker | None = None
    decision: Decision | None = None


class Comparison:
    """Compares one producer's batches of two logs, in their order, and keeps none of them.

    newest: time of the newest batch in the source, ms.
    """

    def __init__(self, start_offset: int) -> None:
        self._start = start_offset
        self._epoch: int | None = None
        self._epochs_differ = False
        self._compared = self._missing = self.newest = 0

    def differs(self, mine: CopiedBatch, theirs: CopiedBatch | Marker | None) -> Copied | None:
        """Take the next of both logs; return the doubt if they are not the same.

        theirs: the source's next batch or marker from the same offset on; None = its log ends.
        """
        if not self._compared and mine.base_offset != self._start:
            return Copied(None, "start-not-there", self._start)
        if isinstance(theirs, Marker) and theirs.offset < mine.base_offset:
            return Copied(None, "ended-before", theirs.offset, self._compared, marker=theirs)
        if theirs != mine:
            return Copied(None, "not-the-same", mine.base_offset, self._compared)
        self._compared += 1
        self._see(mine)
        return None

    def goes_on(self, theirs: CopiedBatch) -> None:
        """Take a batch of the source after all that the mirror has."""
        self._missing += theirs.records
        self._see(theirs)

    def ended(self, marker: Marker | None) -> Copied:
        """Return the result without a decision: the source's marker, or why it proves nothing."""
        if not self._compared:
            return Copied(None, "start-not-there", self._start)
        if marker is None:
            return Copied(None, "open-in-source", None, self._compared, self._missing)
        marker = replace(marker, data_epoch=self._epoch)
        doubt: CopyDoubt = "epochs-differ" if self._epochs_differ else "decisions-not-read"
        return Copied(None, doubt, marker.offset, self._compared, self._missing, marker)

    def _see(self, batch: CopiedBatch) -> None:
        self._epochs_differ |= self._epoch not in (None, batch.producer_epoch)
        self._epoch = batch.producer_epoch
        self.newest = max(self.newest, batch.timestamp)


def decided(copied: Copied, decision: Decision) -> Copied:
    """Return the comparison as proven by the decision on the source's marker."""
    return replace(copied, outcome=decision.outcome, doubt=None, decision=decision)


_ELSEWHERE = "if its outcome is known from elsewhere: `txn resolve --without-proof`"
_COMPARE = "compare the two logs with `eoctl audit mirror`: first learn whose records these are"
_WHY: Mapping[CopyDoubt, str] = {
    "start-not-there": "its first batch, at offset {at}, is no longer in the mirror's log",
    "not-the-same": "the source's log does not hold the same batch at offset {at}: this is no "
    "byte copy of it, one of the topics was recreated, or the source has deleted it",
    "ended-before": "the source's log ended it at offset {at}, before records of it in the mirror",
    "epochs-differ": "its records bear several producer epochs: they are of several transactions",
    "open-in-source": "it is open in the source too: its own coordinator decides it",
    "decisions-not-read": "who decided the source's marker at offset {at} could not be read",
    "order-unclear": "which decision the source's marker at offset {at} is of is not certain: "
    "another one may be on these records",
    "ours": "eoctl on this host wrote the source's marker at offset {at}; which decision it "
    "followed is not certain",
    "foreign-marker": "no coordinator decided the source's marker at offset {at}: somebody wrote "
    "it with a tool, perhaps with eoctl (this host's journal does not show it, or was not read)",
    "decision-gone": "the source's log ends it with a marker at offset {at}, and no decision on it "
    "was found in its __transaction_state: it may be compacted away, or that log was replaced",
}
_REMEDIES: Mapping[CopyDoubt, str] = {
    "not-the-same": _COMPARE,
    "ended-before": _COMPARE,
    "epochs-differ": _COMPARE,
    "open-in-source": "see `eoctl why` there, and end it there first",
    "decisions-not-read": "grant READ on __transaction_state there, or wait until each of its "
    "partitions has a leader",
    "order-unclear": "see `eoctl txn history --pid` there; if the brokers' clocks differ less than "
    "--clock-skew says, lower it; " + _ELSEWHERE,
}


def why_unproven(copied: Copied) -> tuple[str, str]:
    """Return why the outcome is not proven, and what to do. Only without an outcome."""
    assert copied.doubt is not None
    return _WHY[copied.doubt].format(at=copied.at), _REMEDIES.get(copied.doubt, _ELSEWHERE)


def why_proven(about: OpenTransaction, copied: Copied) -> str:
    """Return what proves the outcome, as a sentence. Only with an outcome."""
    assert copied.marker is not None
    assert copied.decision is not None
    text = f"of producer id {about.producer_id} from offset {about.start_offset} on"
    return same_and_decided(
        text,
        copied.decision.outcome,
        copied.decision.transactional_id,
        copied.compared,
        copied.missing,
        copied.marker.offset,
    )


def same_and_decided(
    whose: str, outcome: str, transactional_id: str, batches: int, missing: int, marker_offset: int
) -> str:
    """Return what proves an outcome, as a sentence. whose: the batches."""
    text = (
        f"{counted(batches, 'batch', 'batches')} {whose} are the same in the source's log, which "
        f"ends them at offset {marker_offset} with the {outcome} that its coordinator decided for "
        f"{transactional_id}"
    )
    if missing:
        text += f", after {counted(missing, 'more record')} that the mirror lacks"
    return text
