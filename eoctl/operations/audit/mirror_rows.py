"""The rows of `audit mirror` with their keys as text, and those of `mirror-transactions`."""

import base64
from collections.abc import Mapping

from recovery.audit.audit_rows import (
    AuditMirrorRow,
    MirrorAbsentPart,
    MirrorCutPart,
    MirrorTransactionRow,
)
from recovery.audit.mirror_cut import CutTransaction, UnprovenPart, WhyUnproven
from recovery.facts import Missing
from recovery.plurals import counted
from recovery.values import replace


def with_text(row: AuditMirrorRow) -> AuditMirrorRow:
    """Return the row with its key as readable text too."""
    from eoctl.render.sanitise import readable

    if row.key is None:
        return row
    return replace(row, text=readable(base64.b64decode(row.key)))


_WHY: Mapping[WhyUnproven, str] = {
    "decision-gone": "the mirror lacks what {} wrote here, and the decisions, which name the other "
    "partitions, are compacted away: whether it has other parts of them is not known; compare "
    "their other topics with `audit mirror`",
    "not-compared": "{} of the other topics wrote here, too, and it was not compared: whether they "
    "are cut is not known; name its topic, and its mirror with --map",
    "no-data": "the mirror lacks other parts of {} that may have written here, of which nothing is "
    "left: they wrote nothing, or retention deleted it; look for it in the mirror",
    "no-marker": "{} may hold data that lost its marker, or a later one that is open: whether the "
    "mirror lacks it is not known; see `audit transactions`",
    "own-producer": "{} may be of the mirror's own producers: its coordinators gave out that "
    "producer id or may have, or its marker is not of the decision's time, as `txn resolve` writes "
    "it; whose these records are only the source's log shows",
    "no-copies": "{} that the source committed wrote here, and nothing in the mirror bears their "
    "producer ids, as copies by MirrorMaker do not: whether they are cut only the source's log "
    "shows; compare by an id in the records, `audit end-to-end --by`",
    "after-bundle": "{} ended here after the bundle was made: which other partitions they wrote "
    "to only a later bundle or the source shows",
    "undecided": "{} open in the mirror, and the bundle has no decision that can only be theirs: a "
    "later bundle may show it, or the source or the application whose records these are",
}


def unproven(part: UnprovenPart) -> Missing:
    """Return a part that was not judged as what could not be seen."""
    text = _WHY[part.why].format(counted(part.transactions, "transaction"))
    return Missing("partition", "UNPROVEN", text, None, *part.topic_partition)


def cut_row(one: CutTransaction, names: Mapping[str, str]) -> MirrorTransactionRow:
    """Return a row of `audit mirror-transactions`. names: the mirror of each topic."""
    return MirrorTransactionRow(
        transactional_id=one.decision.transactional_id if one.decision else None,
        producer_id=one.producer_id,
        producer_epoch=one.epoch,
        decided_at=one.decision.timestamp if one.decision else None,
        partitions=[
            MirrorCutPart(
                topic=p.topic,
                partition=p.partition,
                mirror_topic=names[p.topic],
                first_offset=p.first,
                last_offset=p.last,
                missing_from=p.missing_from,
            )
            for p in one.parts
        ],
        absent=[
            MirrorAbsentPart(
                topic=a.topic,
                partition=a.partition,
                mirror_topic=names[a.topic],
                from_offset=a.from_offset,
            )
            for a in one.absent
        ],
    )
