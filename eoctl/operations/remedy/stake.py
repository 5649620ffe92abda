"""Find the records at stake if an outcome is written without proof, and each outcome's cost."""

from collections.abc import Mapping
from typing import Any

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.fetch import Range, read_all
from eoctl.render.verdicts.evidence_words import evidence_words
from recovery.diagnose.diagnosis import Judged
from recovery.formats.batches import batch_headers
from recovery.plurals import counted

CHUNKS = 16  # of 4 MiB


async def of(cluster: Cluster, judged: Judged, above: int | None = None) -> dict[str, Any]:
    """Return the records of the open transaction, and who was asked for its outcome.

    above: only the batches of a later producer epoch than this one. at_stake: records,
    first_offset, last_offset, whole: all of them were read. keys: none, since plans and journal
    keep no record's content (`txn records` shows it). questions: sentences.
    """
    about, end = judged.about, judged.partition.high_watermark
    assert about.start_offset is not None
    assert end is not None
    start = max(about.start_offset, judged.partition.log_start_offset or 0)  # what is not deleted
    held_range = Range(about.topic, about.partition, start, end)
    chunks, ended = await read_all(cluster, [held_range], most_chunks=CHUNKS)
    count, first, last = 0, None, None
    for chunk in chunks[about.topic_partition]:
        for h in batch_headers(chunk.records):
            if h.producer_id != about.producer_id or h.is_control or not h.is_transactional:
                continue
            if h.base_offset < about.start_offset:
                continue
            if above is not None and h.producer_epoch <= above:
                continue
            count += h.records_count
            first = h.base_offset if first is None else first
            last = h.last_offset
    sample = judged.newest
    owners = [t.transactional_id for t in sample.live(about.producer_id or 0)]
    questions = [
        f"{counted(len(sample.transactions.coordinators), 'coordinator partition')}: "
        + (f"owned by {', '.join(owners)}" if owners else "none owns it"),
        *map(evidence_words, judged.verdict.evidence),
    ]
    return {
        "at_stake": {
            "records": count,
            "first_offset": first,
            "last_offset": last,
            "keys": [],
            "whole": ended[about.topic_partition].error is None,
        },
        "asked": questions,
    }


def costs(values: Mapping[str, Any], outcome: str) -> tuple[str, ...]:
    """Return what is lost if the outcome is wrong, then what the other one would lose."""
    stake = values["at_stake"]
    records = f"{'' if stake['whole'] else 'at least '}{counted(stake['records'], 'record')}"
    if stake["records"]:
        records += f" (offsets {stake['first_offset']} to {stake['last_offset']})"
    lost = (
        f"abort drops {records} for read_committed readers for good: a loss if the owner committed"
    )
    doubled = (
        f"commit delivers {records}: if the owner aborted, or wrote the same again elsewhere, "
        "readers get what nobody committed"
    )
    mine, other = (lost, doubled) if outcome == "abort" else (doubled, lost)
    return mine, f"the other outcome: {other}"
