"""The rows that people and scripts see: one model each for JSON, tables, dashboard and schemas.

Offsets are numbers, ages seconds, timestamps RFC 3339 UTC; unknown is null. Within v1 a field
is added, never renamed or removed (docs/schemas holds that).
"""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema

from recovery.times import rfc3339

Timestamp = Annotated[
    int | None,
    PlainSerializer(rfc3339, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}),
]
"""Epoch milliseconds; RFC 3339 in JSON."""

AgeClock = Literal["coordinator", "producer"]


class Row(BaseModel):
    """The base of all rows: a frozen value whose fields are all present in its JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def of(cls, facts: object, **others: Any) -> Self:
        """Make a row of what `facts` has under the fields' own names, and of the other fields.

        Every field that is not among the others must be there: raises AttributeError.
        """
        names, values_of = _taken(cls, frozenset(others))
        return cls.model_validate(dict(zip(names, values_of(facts), strict=False), **others))


@cache
def _taken(
    model: type[Row], given: frozenset[str]
) -> tuple[tuple[str, ...], Callable[[object], tuple[Any, ...]]]:
    """Return the fields that are not given, and what reads them off facts: rows are many."""
    names = tuple(name for name in model.__pydantic_fields__ if name not in given)
    return names, attrgetter(*names, "__class__", "__class__")  # of two or more it makes a tuple


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


class LsoRow(Row):
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
    blocking_known: bool = Field(
        description="false: what blocks this partition could not be asked; blocking is then null"
    )
    error: str | None = None


class ProducerRow(Row):
    """A producer's state in one partition. stale_epoch: a newer incarnation lives."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp: Timestamp
    coordinator_epoch: int | None
    current_txn_start_offset: int | None
    transactional_id: str | None = None
    stale_epoch: bool | None = Field(
        default=None, description="null: not resolved, or no coordinator knows the producer id"
    )
    wrote_after_fence: bool | None = Field(
        default=None,
        description="of a stale epoch. true: it has a transaction open here, which its fence would "
        "have ended: it was begun later, or its marker was lost (`why` tells). false: it merely "
        "stands here, with nothing open. null: not stale, or not known",
    )
    error: str | None = None


class _CoordinatedRow(Row):
    transactional_id: str
    coordinator: int | None


class _PlacedRow(_CoordinatedRow):
    coordinator_partition: int


class _TxnRow(Row):
    producer_id: int | None
    producer_epoch: int | None
    state: str | None
    timeout_ms: int | None
    start_timestamp: Timestamp
    age_seconds: float | None


class TxnListRow(_TxnRow, _CoordinatedRow):
    """A transactional id as its coordinator lists it; partitions is their number."""

    partitions: int | None
    error: str | None = None


class TxnPartition(Row):
    topic: str
    partition: int


class ConnectRow(Row):
    """Whose of Kafka Connect's a transactional id is, by its name. said: in a sentence.

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


class TxnDescribeRow(_TxnRow, _PlacedRow):
    """A transactional id with the partitions of its current transaction."""

    partitions: list[TxnPartition]
    error: str | None = None
    connect: ConnectRow | None = Field(
        default=None, description="null: neither its name nor a group says that it is Connect's"
    )


class ContextRow(Row):
    """A named cluster. Secrets are never part of it."""

    name: str
    current: bool
    bootstrap_servers: str | None
    read_only: bool
    protected: bool
    source: str


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
