"""Documents: what people edit or approve, and what is kept for them.

Cuts, manifests, plans, requests of jobs, stored offsets. They are pydantic's, since each field that
is wrong gets a message of its own; what lives in memory is a `Value`.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, as json's object_pairs_hook. Raises ValueError for a repeated key."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key is there twice")
    return values


class Document(BaseModel):
    """A frozen document: unknown fields are refused, a field has its own name or its alias."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, populate_by_name=True)


class StrictDocument(Document):
    """A document whose numbers must be numbers and whose texts must be texts."""

    model_config = ConfigDict(strict=True)
