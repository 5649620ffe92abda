"""An Answer on stdout in the format asked for; its errors and summary on stderr."""

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from eoctl.cli.options import Format
from eoctl.render import envelope as formats
from eoctl.render.columns.table import Table
from eoctl.render.sanitise import visible
from eoctl.render.tables import choose_columns, render_table, sort_rows
from eoctl.render.words import not_seen
from recovery.answers import Answer
from recovery.row import ErrorRow
from recovery.values import replace

_ROW = "(row)"  # the row itself, carried along while its cells are sorted


def emit(
    answer: Answer, view: Table, output: Format, *, prefix: Mapping[str, object] | None = None
) -> None:
    """Write one answer. prefix: {"context": name} where several clusters were asked."""
    out = sys.stdout
    kind = output.output
    lines: Iterable[str]
    if output.sort_by is not None:
        cells = [{**view.cells(row), _ROW: row} for row in answer.rows]
        rows: list[Any] = [c[_ROW] for c in sort_rows(cells, view.columns, output.sort_by)]
        answer = replace(answer, rows=rows)
    shown = formats.Envelope.of(answer, prefix or {})
    if kind == "json":
        one_line = prefix is not None or output.interval is not None
        lines = [formats.json_one_line(shown)] if one_line else formats.json_lines(shown)
    elif kind == "jsonl":
        lines = formats.jsonl_lines(shown)
    elif kind == "csv":
        lines = formats.csv_lines(
            answer.rows, view.fields, headers=not output.no_headers, safe=output.csv_safe
        )
    elif kind == "name":
        lines = formats.name_lines(answer.rows, view.names)
    else:
        lines = table(answer, view, output)
    for line in lines:
        out.write(line + "\n")
    out.flush()
    beside(answer, errors=kind not in ("json", "jsonl"))
    if kind in ("table", "wide"):
        for line in (view.summary(answer), *view.below(answer)):
            print(visible(line, spaces=False), file=sys.stderr)


def beside(answer: Answer, *, errors: bool = True) -> None:
    """Write an answer's notes to stderr. errors: and what could not be seen."""
    for note in answer.notes:
        print(f"eoctl: {visible(note, spaces=False)}", file=sys.stderr)
    for error in answer.errors if errors else ():
        print(f"? {error_line(error)}", file=sys.stderr)


def table(answer: Answer, view: Table, output: Format) -> list[str]:
    """Return the lines of the table, heading first."""
    on_terminal = sys.stdout.isatty()
    rows = [view.cells(row) for row in answer.rows]
    if output.sort_by is None and not view.in_order:
        rows = sort_rows(rows, view.columns)
    heading = view.heading(answer)
    lines = [] if heading is None or not on_terminal else [heading]
    return lines + render_table(
        rows,
        choose_columns(view.columns, output.columns),
        width=shutil.get_terminal_size().columns if on_terminal else None,
        wide=output.output == "wide",
        headers=not output.no_headers,
        colour=on_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb",
        ascii_only=not utf8(),
    )


def utf8() -> bool:
    """True if stdout takes any character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def error_line(error: ErrorRow) -> str:
    """Return as a sentence one thing that could not be seen."""
    return visible(not_seen(error), spaces=False)
