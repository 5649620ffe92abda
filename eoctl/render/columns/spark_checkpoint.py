"""The columns of a Structured Streaming checkpoint's files."""

from eoctl.render.columns.table import Table, marked
from eoctl.render.tables import Column
from recovery.answers import Answer
from recovery.restart.verify_rows import CheckpointFileRow


def _repair(row: CheckpointFileRow) -> str | None:
    if row.repair == "none":
        return None
    return f"written: {row.because}" if row.repair == "written" else "left out of the copy"


def _summary(answer: Answer) -> str:
    extra = answer.extra
    if extra["batch"] is None:
        return "no batch was planned yet"
    flight = ", in flight" if extra["in_flight"] else ""
    last = f"batch {extra['batch']} is the last{flight}"
    if extra["whole"]:
        return f"{last}; the query goes on as it would have"
    if extra["refused"] is not None:
        return f"{last}; NO COPY: {extra['refused']}"
    if extra["mended"] is not None:
        return f"{last}; repaired copy: {extra['mended']}; from it {extra['meaning']}"
    return f"{last}; from a repaired copy (--copy NEW --execute) {extra['meaning']}"


CHECKPOINT = Table(
    CheckpointFileRow,
    (
        marked(lambda row: "!" if row.blocks else None),
        Column("file", "FILE", "name"),
        Column("finding", "FINDING", "text"),
        Column("spark", "SPARK", "text"),
        Column("settles", "SETTLED-BY", "text"),
        Column("because", "COPY", "text", _repair),
    ),
    summary=_summary,
)
