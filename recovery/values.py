"""Frozen values: the base of facts and of rows.

They are msgspec's structs rather than dataclasses: creating a dataclass runs code generated for it,
a millisecond at every start for each class, and a struct of ten fields is created in a tenth of
the time.

Values that exist in thousands are declared `gc=False`: they are frozen, so no cycle leads through
them, and the garbage collector neither counts nor visits them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, dataclass_transform

import msgspec

if TYPE_CHECKING:
    from dataclasses import replace as replace  # the same for mypy, which checks the fields
else:

    def replace(value, /, **changes):
        """Return the value, or dataclass, with these fields in place of its own."""
        if isinstance(value, msgspec.Struct):
            return msgspec.structs.replace(value, **changes)
        from dataclasses import replace

        return replace(value, **changes)


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True):
    """A frozen value: equal to another of its type with equal fields, and hashed by them."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, values in them as dicts too: what JSON can hold."""
        fields: dict[str, Any] = msgspec.to_builtins(self, enc_hook=_written)
        return fields

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        """Return how pydantic reads and writes a value, since a bundle holds many."""
        from pydantic_core import core_schema

        def read(fields: object) -> Value:
            # numbers are texts where they are keys in JSON
            return msgspec.convert(fields, cls, str_keys=True, dec_hook=_document_of)

        writing = core_schema.plain_serializer_function_ser_schema(cls.as_dict)
        return core_schema.no_info_plain_validator_function(read, serialization=writing)


def _document_of(kind: Any, fields: Any) -> Any:
    """Return a pydantic document that a value has among its fields. Raises ValueError."""
    if isinstance(fields, kind):
        return fields
    return kind.model_validate(fields)


def _written(document: Any) -> Any:
    return document.model_dump(mode="json")


class Reason(Value, gc=False):
    """Something that a rule says: a code, whose sentence `eoctl.render` has, and what is in it.

    data: numbers and names, for scripts too where a row prints a reason. more: what only the
    sentence says.
    """

    code: str
    data: Mapping[str, Any] = {}
    more: Mapping[str, Any] = {}
