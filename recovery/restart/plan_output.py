"""Write a restart plan for people and scripts: rows, variables for a wrapper, CSV of offsets."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Literal

from recovery.errors import RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.plurals import counted
from recovery.quoting import quoted
from recovery.restart.decision import (
    FedBy,
    RestartCheck,
    RestartInput,
    RestartOutput,
    RestartPlan,
    RestartPlanRow,
)
from recovery.selectors import MAX_PARTITION, parse_selector
from recovery.shared.app_file import named
from recovery.shared.offset_bounds import MAX_OFFSET


def restart_plan_row(plan: RestartPlan) -> RestartPlanRow:
    """Return the plan as people and scripts read it."""
    return RestartPlanRow.of(
        plan,
        inputs=[RestartInput.of(i) for i in plan.inputs],
        outputs=[
            RestartOutput.of(
                o, fed_by=[FedBy(topic=topic, partition=number) for topic, number in o.fed_by]
            )
            for o in plan.outputs
        ],
        checks=[RestartCheck.of(c) for c in plan.checks],
    )


def env_name(what: Literal["RESTART", "DROP"], topic_partition: TopicPartition) -> str:
    """Return a variable's name, such as `EOCTL_RESTART_ORDERS_3`: upper case, `_` for the rest."""
    topic = re.sub("[^A-Z0-9]", "_", topic_partition[0].upper())
    return f"EOCTL_{what}_{topic}_{topic_partition[1]}"


def restart_env(plan: RestartPlan) -> dict[str, int]:
    """Return the variables that a wrapper script needs, for every input and output partition.

    For an output: n, and with `_FROM`, `_END`, `_LEADER_EPOCH` the range and epoch for which n
    holds. Raises RefusedError if two topics give one name.
    """
    variables: dict[str, int] = {}
    owners: dict[str, TopicPartition] = {}

    def put(name: str, partition: TopicPartition, values: Iterable[tuple[str, int | None]]) -> None:
        other = owners.setdefault(name, partition)
        if other != partition:
            raise RefusedError(
                f"{named(other)} and {named(partition)} would both be {name}",
                where="--env",
                remedy="use --env-json",
            )
        variables.update((name + suffix, value) for suffix, value in values if value is not None)

    for i in plan.inputs:
        partition = i.topic_partition
        put(env_name("RESTART", partition), partition, [("", i.restart_offset)])
    for o in plan.outputs:
        partition = o.topic_partition
        values = [("", o.drop_first), ("_FROM", o.start), ("_END", o.end_offset)]
        put(env_name("DROP", partition), partition, [*values, ("_LEADER_EPOCH", o.leader_epoch)])
    return variables


def env_lines(plan: RestartPlan) -> Iterator[str]:
    """Yield `NAME=number`, sorted; numbers need no quoting. Raises RefusedError on a collision."""
    for name, value in sorted(restart_env(plan).items()):
        yield f"{name}={value}"


def env_json(plan: RestartPlan) -> str:
    """Return the values under the topics' own names: {restart: {topic: {partition: offset}}, drop:
    {topic: {partition: {drop_first, from, end_offset, leader_epoch}}}}, on one line."""
    restart: dict[str, dict[str, int]] = {}
    drop: dict[str, dict[str, dict[str, int | None]]] = {}
    for i in plan.inputs:
        restart.setdefault(i.topic, {})[str(i.partition)] = i.restart_offset
    for o in plan.outputs:
        drop.setdefault(o.topic, {})[str(o.partition)] = {
            "drop_first": o.drop_first,
            "from": o.start,
            "end_offset": o.end_offset,
            "leader_epoch": o.leader_epoch,
        }
    return json.dumps({"restart": restart, "drop": drop}, separators=(",", ":"))


def export_csv(offsets: Iterable[tuple[TopicPartition, int]]) -> str:
    """Return CSV `topic,partition,offset`, as `kafka-consumer-groups --export`: no header."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        (topic, partition, offset) for (topic, partition), offset in offsets
    )
    return text.getvalue()


def import_csv(text: str, file: str, group: str) -> dict[TopicPartition, int]:
    """Return the offsets of one group in a file for `kafka-consumer-groups --from-file`.

    The lines are `topic,partition,offset` or, for several groups, `group,topic,partition,offset`;
    of the latter, those of `group` count.

    Raises UsageError, which names the line.
    """
    offsets: dict[TopicPartition, int] = {}
    others: set[str] = set()
    reader = csv.reader(io.StringIO(text), strict=True)
    while True:
        where = f"{file}, line {reader.line_num + 1}"
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UsageError(f"not CSV: {error}", where=where) from None
        if cells is None:
            break
        if not cells:
            continue
        if len(cells) == 4 and cells[0] != group:
            others.add(cells[0])
            continue
        partition, offset = _line(cells[-3:] if len(cells) == 4 else cells, where)
        if partition in offsets:
            raise UsageError(f"{named(partition)} is there twice", where=where)
        offsets[partition] = offset
    if not offsets:
        why = f"it is about {quoted(min(others))}, not {quoted(group)}" if others else "it is empty"
        raise UsageError(f"no offset in it: {why}", where=file)
    return offsets


def _line(cells: list[str], where: str) -> tuple[TopicPartition, int]:
    remedy = "write topic,partition,offset"
    if len(cells) != 3:
        raise UsageError(counted(len(cells), "column"), where=where, remedy=remedy)
    topic, partition, offset = (cell.strip() for cell in cells)
    if parse_selector(topic, where=where).literal != topic:
        raise UsageError(f"{quoted(topic)} is not a topic name", where=where, remedy=remedy)
    for name, value, most in (
        ("partition", partition, MAX_PARTITION),
        ("offset", offset, MAX_OFFSET),
    ):
        if not re.fullmatch("[0-9]{1,19}", value) or int(value) > most:
            raise UsageError(f"{quoted(value)} is not a valid {name}", where=where, remedy=remedy)
    return TopicPartition(topic, int(partition)), int(offset)
