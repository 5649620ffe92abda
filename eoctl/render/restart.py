"""A restart plan for eyes: which way, how far, since when; then what is dropped, and why."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from eoctl.render.sanitise import visible
from eoctl.render.tables import Column, render_table
from eoctl.render.words import hanging
from recovery.rows.restart import RestartCheck, RestartInput, RestartOutput, RestartPlanRow

TEXT_WIDTH = 80  # of sentences where there is no terminal
_MARKS = {"rewind": "<<", "skip": ">>"}

INPUTS = (
    Column("mark", "", "mark"),
    Column("input", "INPUT", "partition"),
    Column("direction", "DIRECTION", "number", align="left"),
    Column("records", "RECORDS", "number"),
    Column("from", "FROM", "number"),
    Column("to", "TO", "number"),
    Column("times", "TIMES (UTC)", "number", align="left"),
)
OUTPUTS = (
    Column("mark", "", "mark"),
    Column("output", "OUTPUT", "partition"),
    Column("drop_first", "DROP FIRST", "number"),
    Column("counted_in", "COUNTED IN", "number", align="left"),
    Column("leader_epoch", "LEADER EPOCH", "number"),
    Column("fed_by", "FED BY", "name"),
)


def lines(row: RestartPlanRow, *, width: int | None, wide: bool, headers: bool) -> Iterator[str]:
    """The plan's lines: inputs, outputs, the sum, the guarantee, what is checked and assumed.

    width: of the terminal, None where there is none.
    """
    inputs = [_input(i) for i in row.inputs]
    yield from render_table(inputs, INPUTS, width=width, wide=wide, headers=headers)
    if row.outputs:
        outputs = [_output(o) for o in row.outputs]
        yield from render_table(outputs, OUTPUTS, width=width, wide=wide, headers=headers)
    for head, text in _rest(row):
        told = visible(text, spaces=False)
        whole = head == "spark"  # JSON to be copied
        yield from (
            [f" {head:<13}{told}"] if whole else hanging(f" {head:<13}", told, width or TEXT_WIDTH)
        )


def _rest(row: RestartPlanRow) -> Iterator[tuple[str, str]]:
    for o in row.outputs:
        if o.drop_first:
            yield "sum", sum_of(o)
    for s in row.state:
        yield "state", f"replay {s.topic}:{s.partition} up to {s.end_offset}"
    if row.starting_offsets is not None:
        yield "spark", f"startingOffsets {row.starting_offsets}"
    yield "guarantee", f"{row.guarantee}: {row.because}"
    for held, word in ((False, "!  not so"), (None, "   ASSUMED"), (True, "   checked")):
        for check in row.checks:
            if check.held is held:
                yield word, _check(check)


def sum_of(o: RestartOutput) -> str:
    """The output offset minus n."""
    between = o.end_offset - o.start
    others = between - o.drop_first
    of_these = "" if not others else f" ({others} offsets in between are no data)"
    return (
        f"{o.topic}:{o.partition} ends at {o.end_offset}; {o.drop_first} records before that is "
        f"{o.start}{of_these}"
    )


def _check(check: RestartCheck) -> str:
    return f"{check.name}: {check.detail}" + (f" ({check.where})" if check.where else "")


def _input(i: RestartInput) -> Mapping[str, object]:
    return {
        "mark": _MARKS.get(i.direction),
        "input": f"{i.topic}:{i.partition}",
        "direction": i.direction.upper(),
        "records": i.records,
        "from": i.current_offset,
        "to": i.restart_offset,
        "times": _times(i.from_time, i.to_time) if i.direction != "none" else None,
    }


def _output(o: RestartOutput) -> Mapping[str, object]:
    return {
        "output": f"{o.topic}:{o.partition}",
        "drop_first": o.drop_first,
        "counted_in": f"[{o.start}, {o.end_offset})",
        "leader_epoch": o.leader_epoch,
        "fed_by": ",".join(f"{f.topic}:{f.partition}" for f in o.fed_by),
    }


def _times(first: int | None, second: int | None) -> str | None:
    """`14:02:11 > 13:58:40`, with dates where these differ or one is not known."""
    if first is None and second is None:
        return None
    at = [None if t is None else datetime.fromtimestamp(t / 1000, UTC) for t in (first, second)]
    days = {None if t is None else t.date() for t in at}
    form = "%H:%M:%S" if len(days) == 1 else "%Y-%m-%dT%H:%M:%S"
    return " > ".join("?" if t is None else t.strftime(form) for t in at)
