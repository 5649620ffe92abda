"""How the answers of `audit` look as tables, and their closing sentences."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter

from eoctl.cli.commands.inspect import with_gaps
from eoctl.cli.emit import View
from eoctl.render.tables import Column
from eoctl.render.words import count, counted
from recovery.rows.answers import Answer
from recovery.rows.audit import (
    AuditDuplicatesRow,
    AuditSequencesRow,
    AuditTransactionsRow,
    NamedMarker,
    RecordPlace,
)
from recovery.rows.mirror import AuditMirrorRow
from recovery.times import rfc3339


def _with_engine(text: str, answer: Answer) -> str:
    """Add to a closing sentence which engine read, and why that one."""
    extra = answer.extra
    return with_gaps(f"{text}; by the {extra['engine']} engine ({extra['engine_why']})", answer)


def _sequence_cells(row: AuditSequencesRow) -> Mapping[str, object]:
    return {
        "mark": "!",
        "partition": f"{row.topic}:{row.partition}",
        "finding": row.finding,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "after_offset": row.after_offset,
        "offset": row.offset,
        "expected": row.expected,
        "found": row.found,
        "records": row.records,
    }


def _sequence_summary(answer: Answer) -> str:
    examined = answer.extra["examined"]
    assert isinstance(examined, list)
    found = _number(answer, "findings")
    records = sum(e["records"] - e["unnumbered"] for e in examined)
    text = f"{counted(found, 'finding')} in {counted(records, 'numbered record')}"
    if len(answer.rows) < found:
        text += f", {count(len(answer.rows))} shown"
    if unnumbered := sum(e["unnumbered"] for e in examined):
        text += f"; {count(unnumbered)} without sequences, not judged"
    if explained := sum(e["explained"] for e in examined):
        text += f"; {counted(explained, 'gap')} explained by compaction"
    return _with_engine(text, answer)


SEQUENCES = View(
    columns=(
        Column("mark", "", "mark"),
        Column("partition", "TOPIC:PARTITION", "partition"),
        Column("finding", "FINDING", "number", align="left"),
        Column("producer_id", "PID", "number"),
        Column("producer_epoch", "EPOCH", "number", spare="any"),
        Column("after_offset", "AFTER", "number", spare="any"),
        Column("offset", "OFFSET", "number"),
        Column("expected", "EXPECTED", "number"),
        Column("found", "FOUND", "number"),
        Column("records", "RECORDS", "number"),
    ),
    cells=_sequence_cells,
    name_keys=("topic", "partition"),
    fields=tuple(AuditSequencesRow.model_fields),
    summary=_sequence_summary,
)


def _markers(parts: Iterable[NamedMarker]) -> Iterator[str]:
    """The first one's place is a column of its own."""
    for number, part in enumerate(parts):
        where = f"{part.topic}:{part.partition} " if number else ""
        ended = "no marker" if part.marker is None else f"{part.marker} at {part.marker_offset}"
        yield f"{where}{part.first_offset}-{part.last_offset} {ended}"


def _transaction_cells(row: AuditTransactionsRow) -> Mapping[str, object]:
    wrong_first = sorted(row.partitions, key=lambda part: part.marker == row.decided)
    return {
        "mark": "!",
        "finding": row.finding,
        "transactional_id": row.transactional_id,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "decided": row.decided,
        "decided_at": rfc3339(row.decided_at),
        "partition": next((f"{part.topic}:{part.partition}" for part in wrong_first), None),
        "markers": "; ".join(_markers(wrong_first)),
    }


def _transaction_summary(answer: Answer) -> str:
    names = ("findings", "transactions", "partitions")
    found, judged, read = (_number(answer, name) for name in names)
    covered = answer.extra["covered"]
    assert isinstance(covered, list)
    text = (
        f"{counted(found, 'finding')} in {counted(judged, 'transaction')} "
        f"of {counted(len(covered), 'id')}, {counted(read, 'partition')} read"
    )
    if len(answer.rows) < found:
        text += f", {count(len(answer.rows))} shown"
    if unproven := sum(not c["whole"] for c in covered):
        text += f"; {counted(unproven, 'id')} not whole: compaction took what it decided earlier"
    return _with_engine(text, answer)


TRANSACTIONS = View(
    columns=(
        Column("mark", "", "mark"),
        Column("finding", "FINDING", "number", align="left"),
        Column("transactional_id", "TRANSACTIONAL ID", "name"),
        Column("producer_id", "PID", "number"),
        Column("producer_epoch", "EPOCH", "number", spare="any"),
        Column("decided", "DECIDED", "number", align="left"),
        Column("decided_at", "AT", "number", align="left", spare="any"),
        Column("partition", "TOPIC:PARTITION", "partition"),
        Column("markers", "MARKERS", "text"),
    ),
    cells=_transaction_cells,
    name_keys=("transactional_id",),
    fields=tuple(AuditTransactionsRow.model_fields),
    summary=_transaction_summary,
)


def _by_topic(places: Iterable[RecordPlace]) -> Iterator[str]:
    """`0@51,148 1@84 of orders`: offsets first, as a narrow terminal shows only the beginning."""
    for topic, there in groupby(places, attrgetter("topic")):
        each = (
            f"{partition}@{','.join(str(place.offset) for place in copies)}"
            for partition, copies in groupby(there, attrgetter("partition"))
        )
        yield f"{' '.join(each)} of {topic}"


def _duplicate_cells(row: AuditDuplicatesRow) -> Mapping[str, object]:
    places = list(_by_topic(row.places))
    if row.copies > len(row.places):
        places.append(f"and {count(row.copies - len(row.places))} more")
    return {
        "mark": "!",
        "id": row.text,
        "copies": row.copies,
        "same_value": "same" if row.same_value else "different",
        "nearest_offsets": row.nearest_offsets,
        "farthest_offsets": row.farthest_offsets,
        "span_seconds": row.span_seconds,
        "places": ", ".join(places),
    }


def _duplicate_summary(answer: Answer) -> str:
    names = ("findings", "repeats", "records", "without_id", "partitions")
    found, repeats, records, without, partitions = (_number(answer, name) for name in names)
    text = (
        f"{counted(found, 'id')} with {counted(repeats, 'repeat')} in {counted(records, 'record')} "
        f"of {counted(partitions, 'partition')}, by {answer.extra['by']}"
    )
    if len(answer.rows) < found:
        text += f", {count(len(answer.rows))} shown"
    if without:
        text += f"; {count(without)} have no such id"
    return _with_engine(text, answer)


def _number(answer: Answer, name: str) -> int:
    found = answer.extra[name]
    assert isinstance(found, int)
    return found


DUPLICATES = View(
    columns=(
        Column("mark", "", "mark"),
        Column("id", "ID", "text"),
        Column("copies", "COPIES", "number"),
        Column("same_value", "VALUE", "text"),
        Column("nearest_offsets", "NEAREST", "number"),
        Column("farthest_offsets", "FARTHEST", "number"),
        Column("span_seconds", "SECONDS", "number"),
        Column("places", "PLACES", "text"),
    ),
    cells=_duplicate_cells,
    name_keys=("id",),
    fields=tuple(AuditDuplicatesRow.model_fields),
    summary=_duplicate_summary,
)


def _mirror_cells(row: AuditMirrorRow) -> Mapping[str, object]:
    return {
        "mark": "!",
        "partition": row.partition,
        "finding": row.finding,
        "source_offset": row.source_offset,
        "mirror_offset": row.mirror_offset,
        "records": row.records,
        "key": row.text,
        "about": row.group
        or ", ".join(row.differs)
        or (None if row.first_copy is None else f"first at {row.first_copy}"),
    }


def _mirror_summary(answer: Answer) -> str:
    examined = answer.extra["examined"]
    assert isinstance(examined, list)
    found = _number(answer, "findings")
    same = sum(e["same"] for e in examined)
    text = (
        f"{counted(found, 'finding')}, {counted(same, 'record')} the same "
        f"in {counted(len(examined), 'partition')}"
    )
    if len(answer.rows) < found:
        text += f", {count(len(answer.rows))} rows shown"
    if behind := sum(e["behind"] for e in examined):
        text += f"; the mirror is {counted(behind, 'record')} behind"
    return with_gaps(text, answer)


MIRROR = View(
    columns=(
        Column("mark", "", "mark"),
        Column("partition", "PARTITION", "number"),
        Column("finding", "FINDING", "text"),
        Column("source_offset", "SOURCE", "number"),
        Column("mirror_offset", "MIRROR", "number"),
        Column("records", "RECORDS", "number"),
        Column("key", "KEY", "text"),
        Column("about", "ABOUT", "text"),
    ),
    cells=_mirror_cells,
    name_keys=("partition",),
    fields=tuple(AuditMirrorRow.model_fields),
    summary=_mirror_summary,
)
