"""The rows that people and scripts see: one model each for JSON, tables, dashboard and schemas.

Offsets are numbers, ages seconds, timestamps RFC 3339 UTC; unknown is null. Within v1 a field
is added, never renamed or removed (docs/schemas holds that). They are msgspec's: every command
imports some of them, and `lso --all` makes ten thousand.
"""

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Self,
    dataclass_transform,
    get_args,
    get_type_hints,
)

import msgspec
from msgspec import Meta, StructMeta

from recovery.facts import HasPartition
from recovery.times import rfc3339
from recovery.values import Value

EPOCH_MS = Meta(extra={"json": "date-time"})
Timestamp = Annotated[int | None, EPOCH_MS]
"""Epoch milliseconds; RFC 3339 in JSON."""

FROM, TO = Meta(extra={"json": "from"}), Meta(extra={"json": "to"})
"""Of fields that are called so in JSON: `from` is no name in Python."""

AgeClock = Literal["coordinator", "producer"]


class _ByName(StructMeta):
    """Makes every row's fields be given by name; msgspec's `kw_only` is not inherited."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any
    ) -> Any:
        return super().__new__(cls, name, bases, body, kw_only=True, **options)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Row(Value, metaclass=_ByName, forbid_unknown_fields=True):
    """The base of all rows: a frozen value whose fields are all present in its JSON."""

    @classmethod
    def of(cls, facts: object, **others: Any) -> Self:
        """Make a row of what `facts` has under the fields' own names, and of the other fields.

        Every field that is not among the others must be there: raises AttributeError.
        """
        names, values_of = _taken(cls, frozenset(others))
        others.update(zip(names, values_of(facts), strict=False))
        return cls.read(others)

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """Make a row of its fields by their own names. Raises ValueError (msgspec's)."""
        return msgspec.convert(fields, cls)

    def json_values(self) -> dict[str, Any]:
        """Return the fields as JSON values, under the names of the schema."""
        return _as_json(type(self), msgspec.to_builtins(self))


@cache
def _taken(
    model: type[Row], given: frozenset[str]
) -> tuple[tuple[str, ...], Callable[[object], tuple[Any, ...]]]:
    """Return the fields that are not given, and what reads them off facts: rows are many."""
    names = tuple(name for name in model.__struct_fields__ if name not in given)
    return names, attrgetter(*names, "__class__", "__class__")  # of two or more it makes a tuple


@cache
def json_names(model: type[Row]) -> tuple[str, ...]:
    """Return the fields' names in JSON and CSV."""
    other = _other_in_json(model)
    return tuple(other[name].name if name in other else name for name in model.__struct_fields__)


class _InJson(NamedTuple):
    """A field that JSON has under another name, as a timestamp, or with such a field in it."""

    name: str
    timestamp: bool
    row: type[Row] | None


@cache
def _other_in_json(model: type[Row]) -> Mapping[str, _InJson]:
    other = {}
    for name, hint in get_type_hints(model, include_extras=True).items():
        parts = _parts(hint)
        called = next((part.extra["json"] for part in parts if part in (FROM, TO)), name)
        rows = (part for part in parts if isinstance(part, type) and issubclass(part, Row))
        inner = next((row for row in rows if _other_in_json(row)), None)
        timestamp = EPOCH_MS in parts
        if called != name or timestamp or inner is not None:
            other[name] = _InJson(called, timestamp, inner)
    return other


def _parts(hint: Any) -> list[Any]:
    """Return an annotation's parts, however deep, and what `Annotated` adds to them."""
    return [hint, *(part for inner in get_args(hint) for part in _parts(inner))]


def _as_json(model: type[Row], fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a row as JSON has them; the dict itself is changed."""
    other, renamed = _other_in_json(model), False
    for name, field in other.items():
        renamed |= field.name != name
        if (value := fields[name]) is None:
            continue
        if field.timestamp:
            fields[name] = rfc3339(value)
        elif field.row is not None:
            several = value if isinstance(value, list | tuple) else [value]
            parts = [_as_json(field.row, one) for one in several]
            fields[name] = parts if several is value else parts[0]
    if not renamed:
        return fields
    return {other[name].name if name in other else name: v for name, v in fields.items()}


class ErrorRow(Row):
    """One thing that could not be seen or done."""

    scope: str
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    id: str | None = None
    error: str
    detail: str


class Blocking(Row):
    """The transaction at a partition's LSO. age_clock: whose clock age_seconds trusts."""

    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    start_offset: int
    last_timestamp: Timestamp
    age_seconds: float | None
    age_clock: AgeClock | None


class LsoRow(HasPartition, Row, gc=False):
    """A partition's offsets. held = high_watermark - last_stable_offset."""

    topic: str
    topic_id: str | None
    partition: int
    leader: int | None
    leader_epoch: int | None
    log_start_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    held: int | None
    blocking: Blocking | None = None
    blocking_known: Annotated[
        bool,
        Meta(
            description="false: what blocks this partition could not be asked; blocking is then "
            "null"
        ),
    ]
    error: str | None = None


class ProducerRow(HasPartition, Row):
    """A producer's state in one partition, and whether a process of an older epoch writes."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp: Timestamp
    coordinator_epoch: int | None
    current_txn_start_offset: int | None
    transactional_id: str | None = None
    stale_epoch: Annotated[
        bool | None,
        Meta(
            description="true: a zombie, a process of an earlier incarnation writes here. false: "
            "its epoch is the id's present one. null: not resolved, no coordinator knows the "
            "producer id, or not proven: a higher epoch of the id (`older_epoch`) is that of a "
            "newer process, or of the same one, which raised it after an error (KIP-360). A fence "
            "settles it: `txn fence ID --owner-is-gone`"
        ),
    ] = None
    wrote_after_fence: Annotated[
        bool | None,
        Meta(
            description="of an older epoch. true: it has a transaction open here, which its fence "
            "would have ended: it was begun later, or its marker was lost (`why` says which). "
            "false: it is merely listed here, with nothing open. null: not older, or not known"
        ),
    ] = None
    older_epoch: Annotated[
        bool | None,
        Meta(
            description="true: its id was initialised again since its last write here, whoever "
            "did it. null: not resolved, or not known"
        ),
    ] = None
    error: str | None = None


class TxnListRow(Row):
    """A transactional id as its coordinator lists it; partitions is their number."""

    transactional_id: str
    coordinator: int | None
    producer_id: int | None
    producer_epoch: int | None
    state: str | None
    timeout_ms: int | None
    start_timestamp: Timestamp
    age_seconds: float | None
    partitions: int | None
    error: str | None = None


class TxnPartition(HasPartition, Row):
    topic: str
    partition: int


class ConnectRow(Row):
    """Which part of Kafka Connect owns a transactional id, by its name. said: in a sentence.

    group_exists: a group that speaks Connect's protocol has this name; else it is a hint. connector
    and task: null for the leader's id. workers: REST addresses, of the worker that runs the task or
    else of all. runs: one of them was given the task; null for the leader's id.
    """

    group: str
    group_exists: bool
    connector: str | None
    task: int | None
    workers: list[str]
    runs: bool | None
    said: str


class TxnDescribeRow(Row):
    """A transactional id with the partitions of its current transaction."""

    transactional_id: str
    coordinator: int | None
    coordinator_partition: int
    producer_id: int | None
    producer_epoch: int | None
    state: str | None
    timeout_ms: int | None
    start_timestamp: Timestamp
    age_seconds: float | None
    partitions: list[TxnPartition]
    error: str | None = None
    connect: Annotated[
        ConnectRow | None,
        Meta(description="null: neither its name nor a group says that it is Connect's"),
    ] = None


class ContextRow(Row):
    """A named cluster. Secrets are never part of it."""

    name: str
    current: bool
    bootstrap_servers: str | None
    read_only: bool
    protected: bool
    source: str
    show_records: Annotated[
        bool, Meta(description="false: keys and values of records are not shown")
    ] = True


class ContextTestRow(Row):
    """One thing the credentials allow or not, and what eoctl can therefore not say.

    kind: a right; a command and whether its rights are there; machine: a part of this machine, or
    a clock, and whether it is well. sees: null = not known without trying, or not on all; then
    detail says what would settle it.
    """

    kind: Literal["right", "command", "machine"]
    check: str
    sees: bool | None
    detail: str
    cannot_say: list[str]
    error: str | None = None


class BrokerRow(Row):
    """A broker of the lab or the cluster."""

    broker: int
    host: str
    port: int
    up: bool | None


class ContextSettingRow(Row):
    """One setting in force. value: `(hidden)` where the key is a secret's."""

    key: str
    value: str
