"""The database of a store of positions; no text that leaves this module contains its password."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.kafka.connection.credentials import Secret, resolve
from eoctl.kafka.connection.property_names import SECRET_KEY
from recovery.errors import IncompleteError, UsageError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.exc import SQLAlchemyError

_URL = "[app.store] url"
_EXTRA = "install eoctl with its extra `sql` and the database's driver"


class Database:
    """One database. url: SQLAlchemy's, or `env:NAME`, `file:PATH` that hold it.

    shown: the part of the address that may be shown. Raises UsageError.
    """

    def __init__(self, url: str, seconds: float) -> None:
        try:
            from sqlalchemy.engine import make_url
            from sqlalchemy.exc import ArgumentError
        except ModuleNotFoundError:
            raise UsageError("needs SQLAlchemy", where=_URL, remedy=_EXTRA) from None
        self._seconds = seconds
        try:
            self._url = make_url(resolve(url, _URL).strip())
        except (ArgumentError, ValueError):
            raise UsageError(
                "is not a database address",
                where=_URL,
                remedy="write postgresql+psycopg://user:password@host/database, env:NAME or "
                "file:PATH",
            ) from None
        values = [self._url.password, *_secrets(self._url.query)]
        self._secrets = [Secret(str(value)) for value in values if value]
        host = self._url.host or ""
        if "@" in host:  # part of the password would be taken for the host, and shown
            raise UsageError("write an @ in user or password as %40", where=_URL)
        port = f":{self._url.port}" if self._url.port else ""
        server = f"//{host}{port}/" if host else ""
        self.shown = f"{self._url.get_backend_name()}:{server}{self._url.database or ''}"

    def engine(self, *, writing: bool) -> "Engine":
        """Return the engine. Raises UsageError if SQLAlchemy has no driver for the database."""
        from sqlalchemy import create_engine, event
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError
        from sqlalchemy.pool import NullPool

        arguments: dict[str, Any] = {}
        kind = self._url.get_backend_name()
        if kind == "sqlite":
            self._refuse_missing_file()
            arguments = {"timeout": self._seconds / 2}
        elif kind == "postgresql":
            arguments = {"connect_timeout": max(2, math.ceil(self._seconds / 2))}
        try:
            engine = create_engine(
                self._url, poolclass=NullPool, connect_args=arguments, hide_parameters=True
            )
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            why = self.hidden(str(error).splitlines()[0])
            raise UsageError(f"cannot be opened: {why}", where=_URL, remedy=_EXTRA) from None
        if kind == "sqlite":
            # the driver would begin a transaction too late, and then only for reading
            event.listen(engine, "connect", _no_begin)
            event.listen(engine, "begin", _begin_writing if writing else _begin_reading)
        return engine

    def _refuse_missing_file(self) -> None:
        """Refuse a file that does not exist: SQLite would create an empty database."""
        path = self._url.database
        if not path or path == ":memory:" or not Path(path).is_file():
            raise IncompleteError("there is no such database", where=self.shown)

    def bound_statements(self, connection: "Connection") -> None:
        """Limit the wait for a row that another transaction holds, so that an error names it."""
        if self._url.get_backend_name() == "postgresql":
            from sqlalchemy import text

            bounds = {"lock_timeout": 400, "statement_timeout": 700}  # ms of each second we have
            for name, part in bounds.items():
                connection.execute(text(f"SET LOCAL {name} = {int(self._seconds * part)}"))

    def error_words(self, error: "SQLAlchemyError") -> str:
        """Return the database's own words, on one line."""
        words = str(getattr(error, "orig", None) or error).strip().splitlines()
        return self.hidden(words[0] if words else type(error).__name__)

    def hidden(self, text: str) -> str:
        for secret in self._secrets:
            text = secret.hidden_in(text)
        return text

    @staticmethod
    def rolled_back(error: "SQLAlchemyError") -> bool:
        """Return True if this answer to COMMIT is a no. A lost connection or server is not.

        Source: PostgreSQL's manual, appendix A: SQLSTATE classes 08 (connection), 57 (end).
        """
        state = getattr(getattr(error, "orig", None), "sqlstate", None)
        return state is not None and state[:2] not in ("08", "57")

    @staticmethod
    def is_duplicate(error: "SQLAlchemyError") -> bool:
        """Return True if a unique key was violated."""
        orig = getattr(error, "orig", None)
        name = getattr(orig, "sqlite_errorname", "")
        duplicates = ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY")
        return getattr(orig, "sqlstate", "") == "23505" or name in duplicates


def _secrets(query: Mapping[str, Any]) -> list[str]:
    values = []
    for key, value in query.items():
        if SECRET_KEY.search(key):
            values += [value] if isinstance(value, str) else list(value)
    return values


def _no_begin(connection: Any, record: Any) -> None:
    connection.isolation_level = None


def _begin_reading(connection: "Connection") -> None:
    connection.exec_driver_sql("BEGIN")


def _begin_writing(connection: "Connection") -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
