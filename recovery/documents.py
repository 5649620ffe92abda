"""Documents: what people edit or approve, and what is kept for them.

Cuts, manifests, plans, requests of jobs, stored offsets. They are pydantic's, since each field that
is wrong gets a message of its own; what lives in memory is a `Value`.
"""

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """A frozen document: unknown fields are refused, a field has its own name or its alias."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, populate_by_name=True)


class StrictDocument(Document):
    """A document whose numbers must be numbers and whose texts must be texts."""

    model_config = ConfigDict(strict=True)
