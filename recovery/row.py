"""Rows: what people and scripts see, one model each for JSON, tables, dashboard and schemas.

Offsets are numbers, ages seconds, timestamps RFC 3339 UTC; unknown is null. Within v1 a field
is added, never renamed or removed (docs/schemas holds that). They are msgspec's: every command
imports some of them, and `lso --all` makes ten thousand.
"""

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Self, dataclass_transform, get_args, get_type_hints

import msgspec
from msgspec import Meta, StructMeta

from recovery.times import rfc3339
from recovery.values import Value

EPOCH_MS = Meta(extra={"json": "date-time"})

Timestamp = Annotated[int | None, EPOCH_MS]
"""Epoch milliseconds; RFC 3339 in JSON."""

FROM, TO = Meta(extra={"json": "from"}), Meta(extra={"json": "to"})
"""Of fields that are called so in JSON: `from` is no name in Python."""


class _ByName(StructMeta):
    """Makes fields be given by name, unless a row says `kw_only=False`: msgspec inherits none."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any
    ) -> Any:
        return super().__new__(cls, name, bases, body, **{"kw_only": True, **options})


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


class _InJson(Value):
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
