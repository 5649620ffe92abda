"""A table of positions as its database describes it. Names are used as written and quoted."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from eoctl.stores.offsets.store import StoredValues
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError
from recovery.restart.stored import StoredPartition, dump_metadata
from recovery.shared.store_tables import SqlColumns, SqlStore
from recovery.values import Value

if TYPE_CHECKING:
    from sqlalchemy import Connection

_OPTIONAL = ("output", "state", "merge", "cluster_id", "topic_id", "leader_epoch")
_IDENTIFIER = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


def identifiers(text: str) -> tuple[str | None, str]:
    """Return (schema, table) of `table`, `schema.table`, `"a.b"."c"`. Raises UsageError."""
    parts, position = [], -1
    while position < len(text) and (match := _IDENTIFIER.match(text, position + 1)):
        parts.append(match[2] if match[1] is None else match[1].replace('""', '"'))
        position = match.end()
        if position < len(text) and text[position] != ".":
            break
    if position != len(text) or len(parts) > 2:
        raise UsageError(
            f"{text!r} is not a table",
            where="[app.store] table",
            remedy='write table, schema.table, or "names in quotes"',
        )
    return (parts[0] if len(parts) == 2 else None), parts[-1]


def opened_table(connection: "Connection", described: SqlStore, where: str) -> "Mapped":
    """Return the table. Raises IncompleteError if it, or a column, does not exist."""
    from sqlalchemy import Column, MetaData, Table, inspect
    from sqlalchemy.exc import NoSuchTableError
    from sqlalchemy.sql import quoted_name
    from sqlalchemy.types import JSON

    schema, name = identifiers(described.table)
    quoted_schema = None if schema is None else quoted_name(schema, True)
    try:
        actual = inspect(connection).get_columns(quoted_name(name, True), schema=quoted_schema)
    except NoSuchTableError:
        raise IncompleteError("there is no such table", where=where) from None
    types = {str(column["name"]): column["type"] for column in actual}
    names = {key: value for key, value in described.columns.model_dump().items() if value}
    columns = {}
    for key, column in names.items():
        if column not in types:
            raise IncompleteError(
                f"the table has no column {column!r}",
                where=where,
                remedy="see [app.store.columns]",
            )
        kind = types[column]
        if isinstance(kind, JSON):
            kind.none_as_null = True
        columns[key] = Column(quoted_name(column, True), kind)
    twice = [c for c in names.values() if list(names.values()).count(c) > 1]
    if twice:
        raise UsageError(f"the column {twice[0]!r} is named twice", where="[app.store.columns]")
    table = Table(quoted_name(name, True), MetaData(), *columns.values(), schema=quoted_schema)
    json_output = "output" in columns and isinstance(columns["output"].type, JSON)
    return Mapped(table, {k: table.c[str(v.name)] for k, v in columns.items()}, json_output)


class Mapped(Value):
    """Statements on the table. columns: by their content. json_output: it has a JSON type."""

    table: Any
    columns: Mapping[str, Any]
    json_output: bool

    def select(self, app: str | None, topics: Sequence[str] | None, *, lock: bool) -> Any:
        from sqlalchemy import select

        query = select(*self.columns.values())
        if "app" in self.columns and app is not None:
            query = query.where(self.columns["app"] == app)
        if topics is not None:
            query = query.where(self.columns["topic"].in_(list(topics)))
        return query.with_for_update() if lock else query

    def read(self, row: Any, where: str) -> tuple[TopicPartition, StoredValues]:
        """Return a row's place and its values. Raises CorruptError."""
        values = dict(zip(self.columns, row, strict=True))
        topic = values["topic"]
        if not isinstance(topic, str):
            raise CorruptError(f"the topic {topic!r} is not text", where=where)
        partition = TopicPartition(
            topic, _integer(values["partition"], "partition", f"{where}, {topic}")
        )
        at = f"{where}, {partition}"
        kept: dict[str, Any] = {"offset": _integer(values["offset"], "offset", at)}
        for key in _OPTIONAL:
            if key in values:
                kept[key] = _kept_value(key, values[key], at)
        return partition, kept

    def insert(self, app: str | None, topic_partition: TopicPartition, after: StoredValues) -> Any:
        key: dict[str, Any] = {"topic": topic_partition[0], "partition": topic_partition[1]}
        if "app" in self.columns:
            key["app"] = app
        statement = self.table.insert().inline().values(self._values(key | dict(after)))
        return statement.execution_options(preserve_rowcount=True)

    def update(
        self, app: str | None, partition: TopicPartition, before: StoredValues, after: StoredValues
    ) -> Any:
        return self._at(self.table.update(), app, partition, before).values(self._values(after))

    def delete(self, app: str | None, partition: TopicPartition, before: StoredValues) -> Any:
        return self._at(self.table.delete(), app, partition, before)

    def _at(
        self, statement: Any, app: str | None, topic_partition: TopicPartition, before: StoredValues
    ) -> Any:
        c = self.columns
        if "app" in c:
            statement = statement.where(c["app"] == app)
        return statement.where(
            c["topic"] == topic_partition[0],
            c["partition"] == topic_partition[1],
            c["offset"] == before["offset"],
        )

    def _values(self, kept: Mapping[str, Any]) -> dict[Any, Any]:
        values = dict(kept)
        if values.get("state") is not None:
            values["state"] = base64.b64decode(values["state"])
        if self.json_output and isinstance(values.get("output"), str):
            values["output"] = json.loads(values["output"])
        return {self.columns[key]: value for key, value in values.items()}

    def refuse_without_key(self, connection: "Connection", where: str) -> None:
        """Refuse a table without a unique key: two writers could each insert a row of their own."""
        from sqlalchemy import inspect

        inspector = inspect(connection)
        name, schema = self.table.name, self.table.schema
        primary = inspector.get_pk_constraint(name, schema=schema)["constrained_columns"]
        unique: list[Any] = [
            c["column_names"] for c in inspector.get_unique_constraints(name, schema=schema)
        ]
        indexes: list[Any] = [
            i["column_names"] for i in inspector.get_indexes(name, schema=schema) if i["unique"]
        ]
        key = {
            str(self.columns[k].name) for k in ("app", "topic", "partition") if k in self.columns
        }
        if not any(names and set(names) <= key for names in (primary, *unique, *indexes)):
            raise RefusedError(
                "a row would be added, and no unique key keeps a second one out",
                where=where,
                remedy="give the table a primary key of application, topic and partition",
            )


def row_of(at: StoredPartition, columns: SqlColumns) -> StoredValues:
    """Return an entry as a row keeps it, in the columns that the table has."""
    values: dict[str, Any] = {
        "output": _text(json.loads(dump_metadata(at.output))["output"]) if at.output else None,
        "state": None if at.state is None else base64.b64encode(at.state).decode("ascii"),
        "merge": at.merge,
        "cluster_id": at.input.cluster_id,
        "topic_id": at.input.topic_id,
        "leader_epoch": at.input.leader_epoch,
    }
    there = {key: values[key] for key in _OPTIONAL if getattr(columns, key) is not None}
    return {"offset": at.input.offset, **there}


def position_of(topic_partition: TopicPartition, kept: StoredValues, where: str) -> StoredPartition:
    """Return a row's entry, as kept. Raises CorruptError."""
    value: dict[str, Any] = {
        "input": {
            "topic": topic_partition[0],
            "partition": topic_partition[1],
            "offset": kept["offset"],
        }
        | {key: kept.get(key) for key in ("cluster_id", "topic_id", "leader_epoch")},
        "state": kept.get("state"),
        "merge": kept.get("merge"),
    }
    if kept.get("output") is not None:
        try:
            value["output"] = json.loads(kept["output"])
        except (ValueError, RecursionError):
            raise CorruptError(
                "its output is not JSON", where=f"{where}, {topic_partition}"
            ) from None
    try:
        return StoredPartition.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise CorruptError(f"{path}: {first['msg']}", where=f"{where}, {topic_partition}") from None


def _kept_value(key: str, value: Any, where: str) -> Any:
    if value is None:
        return None
    if key in ("merge", "leader_epoch"):
        return _integer(value, key, where)
    if key == "state":
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise CorruptError("its state is not bytes", where=where)
        return base64.b64encode(bytes(value)).decode("ascii")
    if key == "output" and not isinstance(value, str):
        return _text(value)
    if not isinstance(value, str):
        raise CorruptError(f"its {key} is not text", where=where)
    return value


def _text(value: Any) -> str:
    """Return equal text for equal JSON, whatever the order of a JSON column's keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _integer(value: Any, name: str, where: str) -> int:
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise CorruptError(f"the {name} {value!r} is not an integer", where=where)
    return value
