"""The columns of audit findings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from eoctl.render.columns.table import (
    FINDING,
    PARTITION,
    PID,
    TRANSACTIONAL_ID,
    Table,
    partition_name,
    plain,
    with_gaps,
)
from eoctl.render.tables import Column
from eoctl.render.words import size
from recovery.answers import Answer
from recovery.audit.audit_rows import (
    AuditDuplicatesRow,
    AuditEndToEndRow,
    AuditMirrorRow,
    AuditSequencesRow,
    AuditTransactionsRow,
    MirrorKeptRow,
    MirrorTransactionRow,
    NamedMarker,
    RecordPlace,
)
from recovery.diagnose.copied import same_and_decided
from recovery.plurals import count, counted
from recovery.quoting import some
from recovery.times import rfc3339

MOST_FOREIGN = 3  # markers that nobody decided, in the closing sentence


def _with_engine(text: str, answer: Answer) -> str:
    """Add to a closing sentence which engine read, and why that engine."""
    extra = answer.extra
    return with_gaps(f"{text}; by the {extra['engine']} engine ({extra['engine_why']})", answer)


def _shown(answer: Answer, words: str = "shown") -> str:
    """Say how many of the findings are shown, unless all are."""
    rows = len(answer.rows)
    return f", {count(rows)} {words}" if rows < answer.extra["findings"] else ""


def _sequence_summary(answer: Answer) -> str:
    examined = answer.extra["examined"]
    records = sum(e["records"] - e["unnumbered"] for e in examined)
    text = (
        f"{counted(answer.extra['findings'], 'finding')} in "
        f"{counted(records, 'numbered record')}{_shown(answer)}"
    )
    if unnumbered := sum(e["unnumbered"] for e in examined):
        text += f"; {count(unnumbered)} without sequences, not judged"
    if explained := sum(e["explained"] for e in examined):
        text += f"; {counted(explained, 'gap')} explained by compaction"
    return _with_engine(text, answer)


SEQUENCES = Table(
    AuditSequencesRow,
    (
        FINDING,
        PARTITION,
        Column("finding", "FINDING", "word"),
        PID,
        Column("producer_epoch", "EPOCH", "number", spare="any"),
        Column("after_offset", "AFTER", "number", spare="any"),
        *plain("number", offset="OFFSET", expected="EXPECTED", found="FOUND", records="RECORDS"),
    ),
    names=("topic", "partition"),
    summary=_sequence_summary,
)


def _markers(parts: Iterable[NamedMarker]) -> Iterator[str]:
    """Yield each marker, without the first one's place, which has its own column."""
    for number, part in enumerate(parts):
        where = f"{part.topic_partition} " if number else ""
        ended = "no marker" if part.marker is None else f"{part.marker} at {part.marker_offset}"
        yield f"{where}{part.first_offset}-{part.last_offset} {ended}"


def _wrong_first(row: AuditTransactionsRow) -> list[NamedMarker]:
    return sorted(row.partitions, key=lambda part: part.marker == row.decided)


def _first_wrong(row: AuditTransactionsRow) -> str | None:
    return next((partition_name(part) for part in _wrong_first(row)), None)


def _transaction_summary(answer: Answer) -> str:
    names = ("findings", "transactions", "partitions")
    findings, judged, read = (answer.extra[name] for name in names)
    covered = answer.extra["covered"]
    text = (
        f"{counted(findings, 'finding')} in {counted(judged, 'transaction')} "
        f"of {counted(len(covered), 'id')}, {counted(read, 'partition')} read"
        f"{_shown(answer)}"
    )
    if unproven := sum(not c["whole"] for c in covered):
        text += f"; {counted(unproven, 'id')} incomplete: compaction removed earlier decisions"
    if foreign := answer.extra["foreign_markers"]:
        places = some(
            [
                f"{m['outcome']} at offset {m['offset']} of {m['topic']}:{m['partition']}"
                for m in answer.extra["markers"]
            ],
            MOST_FOREIGN,
            foreign,
        )
        text += f"; {counted(foreign, 'marker')} that nobody decided: {places}"
    if ours := answer.extra["own_markers"]:
        text += f"; {counted(ours, 'marker')} written by eoctl"
    if gone := answer.extra["decisions_gone"]:
        text += f"; {counted(gone, 'marker')} whose decision is no longer in the log"
    return _with_engine(text, answer)


TRANSACTIONS = Table(
    AuditTransactionsRow,
    (
        FINDING,
        Column("finding", "FINDING", "word"),
        TRANSACTIONAL_ID,
        PID,
        Column("producer_epoch", "EPOCH", "number", spare="any"),
        Column("decided", "DECIDED", "word"),
        Column("decided_at", "AT", "time", spare="any"),
        Column("partition", "TOPIC:PARTITION", "partition", _first_wrong),
        Column("markers", "MARKERS", "text", lambda row: "; ".join(_markers(_wrong_first(row)))),
    ),
    names=("transactional_id",),
    summary=_transaction_summary,
)


def _by_topic(records: Iterable[RecordPlace]) -> Iterator[str]:
    """Yield `0@51,148 1@84 of orders`: offsets first, since a narrow terminal cuts the end."""
    for topic, there in groupby(records, attrgetter("topic")):
        each = (
            f"{partition}@{','.join(str(copy.offset) for copy in copies)}"
            for partition, copies in groupby(there, attrgetter("partition"))
        )
        yield f"{' '.join(each)} of {topic}"


def _first_copies(row: AuditDuplicatesRow) -> str:
    shown = list(_by_topic(row.places))
    if row.copies > len(row.places):
        shown.append(f"and {count(row.copies - len(row.places))} more")
    return ", ".join(shown)


def _duplicate_summary(answer: Answer) -> str:
    names = ("findings", "repeats", "records", "without_id", "partitions")
    findings, repeats, records, without, partitions = (answer.extra[name] for name in names)
    text = (
        f"{counted(findings, 'id')} with {counted(repeats, 'repeat')} "
        f"in {counted(records, 'record')} of {counted(partitions, 'partition')}, "
        f"by {answer.extra['by']}{_shown(answer)}"
    )
    if without:
        text += f"; {counted(without, 'has', 'have')} no such id"
    return _with_engine(text, answer)


DUPLICATES = Table(
    AuditDuplicatesRow,
    (
        FINDING,
        Column("id", "ID", "text", lambda row: row.text),
        Column("copies", "COPIES", "number"),
        Column("same_value", "VALUE", "text", lambda r: "same" if r.same_value else "different"),
        *plain("number", nearest_offsets="NEAREST", farthest_offsets="FARTHEST"),
        Column("span_seconds", "SECONDS", "number"),
        Column("places", "PLACES", "text", _first_copies),
    ),
    names=("id",),
    summary=_duplicate_summary,
)


def _places(records: Sequence[RecordPlace]) -> str:
    return ", ".join(_by_topic(records)) or "none"


def _end_to_end_summary(answer: Answer) -> str:
    inputs, outputs = answer.extra["inputs"], answer.extra["outputs"]
    records = sum(p["records"] for p in inputs)
    text = (
        f"{counted(answer.extra['findings'], 'finding')} in {counted(records, 'input')} and "
        f"{counted(sum(p['records'] for p in outputs), 'output')}, by {answer.extra['by']}"
        f"{_shown(answer)}"
    )
    for name, words in (("pending", "wait in open transactions"), ("behind", "wait for an output")):
        if waiting := sum(p[name] for p in inputs):
            text += f"; {counted(waiting, 'input')} {words}"
    if begun := sum(0 < (p["log_start_offset"] or 0) == p["from"] for p in inputs):
        text += f"; older inputs of {counted(begun, 'partition')} are deleted and unknown"
    if without := sum(p["without_input"] for p in outputs):
        text += f"; {counted(without, 'output has', 'outputs have')} no input that was read"
    if aborted := sum(p["aborted"] for p in outputs):
        groups = sorted({reader["group"] for reader in answer.extra["readers"]})
        text += f"; {counted(aborted, 'output was', 'outputs were')} aborted"
        if groups:
            text += f", and came to {some(groups)} if they read with read_uncommitted"
    if map_of := answer.extra["map_of"]:
        text += f"; the map of {map_of} does not know what {answer.extra['input']} got later"
    if answer.extra["continued"]:
        text += f"; continued from a run of {rfc3339(answer.collected_at)}, up to its ends"
    return with_gaps(text, answer)


END_TO_END = Table(
    AuditEndToEndRow,
    (
        FINDING,
        Column("finding", "FINDING", "word"),
        Column("records", "RECORDS", "number"),
        Column("proven", "PROVEN", "text", lambda row: "yes" if row.proven else "no"),
        Column("inputs", "INPUTS", "text", lambda row: _places(row.inputs)),
        Column("outputs", "OUTPUTS", "text", lambda row: _places(row.outputs)),
    ),
    names=("finding",),
    summary=_end_to_end_summary,
)


def _about(row: AuditMirrorRow) -> str | None:
    first = None if row.first_copy is None else f"first at {row.first_copy}"
    return row.group or ", ".join(row.differs) or first


def _mirror_summary(answer: Answer) -> str:
    examined = answer.extra["examined"]
    findings = answer.extra["findings"]
    same = sum(e["same"] for e in examined)
    text = (
        f"{counted(findings, 'finding')}, {counted(same, 'record')} the same "
        f"in {counted(len(examined), 'partition')}{_shown(answer, 'rows shown')}"
    )
    if behind := sum(e["behind"] for e in examined):
        text += f"; the mirror is {counted(behind, 'record')} behind"
    return with_gaps(text, answer)


MIRROR = Table(
    AuditMirrorRow,
    (
        FINDING,
        Column("partition", "PARTITION", "number"),
        Column("finding", "FINDING", "text"),
        *plain("number", source_offset="SOURCE", mirror_offset="MIRROR", records="RECORDS"),
        Column("key", "KEY", "text", lambda row: row.text),
        Column("about", "ABOUT", "text", _about),
    ),
    names=("partition",),
    summary=_mirror_summary,
)


def _cut_parts(row: MirrorTransactionRow) -> str:
    absent = [f"{a.topic_partition} missing, from {a.from_offset} on" for a in row.absent]
    parts = [
        f"{p.topic_partition} {p.first_offset}-{p.last_offset} "
        + ("there" if p.missing_from is None else f"missing from {p.missing_from}")
        for p in sorted(row.partitions, key=lambda p: p.missing_from is None)
    ]
    return "; ".join([*absent, *parts])


def _cut_summary(answer: Answer) -> str:
    findings, partitions = answer.extra["findings"], answer.extra["partitions"]
    text = (
        f"{counted(findings, 'transaction is', 'transactions are')} only partly in the mirror, "
        f"{counted(partitions, 'partition')} compared{_shown(answer)}"
    )
    if until := answer.extra["decisions_until"]:
        text += f", by decisions until {until}"
    return with_gaps(text, answer)


def _open_below(answer: Answer) -> Iterable[str]:
    for o in answer.extra["open"]:
        where = f"{o['mirror_topic']}:{o['partition']} producer id {o['producer_id']}"
        yield f"open in the mirror: {where}: {_why_open(o)}"
        if o["command"] is not None:
            yield f"  {o['command']}"
    if any(o["proven"] for o in answer.extra["open"]):
        yield (
            "The link may simply be late: stop it, or promote the topic. Then add "
            "--link-is-stopped."
        )


def _why_open(o: Mapping[str, Any]) -> str:
    outcome, name = o["outcome"], o["transactional_id"]
    if not o["proven"]:
        return (
            f"the bundle says: {name} decided {outcome} for this producer id and epoch here. Only "
            "the source's log can prove that these are its records"
        )
    counts = (o["same_batches"], o["missing_records"], o["marker_offset"])
    return same_and_decided(f"from offset {o['start_offset']} on", outcome, name, *counts)


MIRROR_TRANSACTIONS = Table(
    MirrorTransactionRow,
    (
        FINDING,
        TRANSACTIONAL_ID,
        PID,
        Column("producer_epoch", "EPOCH", "number", spare="any"),
        Column("decided_at", "AT", "time", spare="any"),
        Column("partitions", "PARTITIONS", "text", _cut_parts),
    ),
    names=("transactional_id",),
    summary=_cut_summary,
    below=_open_below,
)


def _kept_summary(answer: Answer) -> str:
    names = ("pairs", "new_pairs", "unread", "unseen")
    pairs, new, unread, unseen = (sum(getattr(r, name) for r in answer.rows) for name in names)
    commits, groups, stored = (answer.extra[name] for name in ("commits", "groups", "bytes"))
    text = (
        f"{counted(pairs, 'pair')}, {count(new)} of them new, and {counted(commits, 'commit')} "
        f"of {counted(groups, 'group')} in {size(stored)}"
    )
    if unread:
        text += f"; {counted(unread, 'offset')} are too far ahead of the mirror"
    if unseen:
        text += f"; the mirror deleted {counted(unseen, 'offset')} that no run has seen"
    return with_gaps(text, answer)


MIRROR_KEEP = Table(
    MirrorKeptRow,
    (
        Column("partition", "PARTITION", "number"),
        *plain(
            "number",
            source_end="SOURCE",
            mirror_end="MIRROR",
            pairs="PAIRS",
            new_pairs="NEW",
            steps="RUNS",
            waiting="NOT MIRRORED",
        ),
    ),
    names=("partition",),
    summary=_kept_summary,
)
