"""Frozen values: the base of facts and of rows.

They are msgspec's structs and no dataclasses: a class is made without running code that was
written for it, which every start would pay for (a millisecond for each dataclass), and a value of
ten fields is made in a tenth of the time.

Values that are made by the thousand are declared `gc=False`: frozen as they are, no cycle leads
through them, and the garbage collector neither counts nor visits them.
"""

from typing import Any, Self, dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True):
    """A frozen value: equal to another of its type with equal fields, and hashed by them."""

    def but(self, **changes: Any) -> Self:
        """Return the value with these fields in place of its own."""
        return msgspec.structs.replace(self, **changes)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        """Return how pydantic reads and writes a value: a bundle holds many."""
        from pydantic_core import core_schema

        def read(fields: object) -> Value:
            return msgspec.convert(fields, cls)

        writing = core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins)
        return core_schema.no_info_plain_validator_function(read, serialization=writing)
