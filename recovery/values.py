"""Frozen values: the base of facts and of rows.

They are msgspec's structs rather than dataclasses: creating a dataclass runs code generated for it,
a millisecond at every start for each class, and a struct of ten fields is created in a tenth of
the time.

Values that exist in thousands are declared `gc=False`: they are frozen, so no cycle leads through
them, and the garbage collector neither counts nor visits them.
"""

from typing import Any, Self, dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True):
    """A frozen value: equal to another of its type with equal fields, and hashed by them."""

    def but(self, **changes: Any) -> Self:
        """Return a copy of the value with these fields replaced."""
        return msgspec.structs.replace(self, **changes)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        """Return how pydantic reads and writes a value, since a bundle holds many."""
        from pydantic_core import core_schema

        def read(fields: object) -> Value:
            return msgspec.convert(fields, cls)

        writing = core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins)
        return core_schema.no_info_plain_validator_function(read, serialization=writing)
