"""The rows of `context list`, `context show` and `context test`."""

from typing import Annotated, Literal

from msgspec import Meta

from recovery.row import Row


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


class ContextSettingRow(Row):
    """One setting in force. value: `(hidden)` where the key is a secret's."""

    key: str
    value: str
