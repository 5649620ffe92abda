"""A database table that holds a state: a row for each entry, through SQLAlchemy Core.

The columns are those of the state's Parquet files. `upsert` writes some rows in their own
transaction, `replace` all rows and the restart offsets in one. A row belongs to the state if its
partition has a row with its offset and key: all others are counted, and deleted only on request.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from eoctl.stores.offsets.bounded import BlockingCall, SilentError, bounded
from eoctl.stores.offsets.sql import SqlOffsets
from eoctl.stores.offsets.sql_database import Database
from eoctl.stores.offsets.sql_table import identifiers
from eoctl.stores.offsets.store import EnsureHeld, Write, held_before
from eoctl.stores.state.marks import Marks, among, marks, sorted_marks
from recovery.errors import (
    IncompleteError,
    RefusedError,
    UnreachableError,
    UnverifiedError,
    UsageError,
)
from recovery.formats.columns import rows_schema
from recovery.plurals import counted
from recovery.shared.digest import Digest, digest
from recovery.shared.store_tables import SqlStore
from recovery.values import Value

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from sqlalchemy import Connection

Result = TypeVar("Result")

SILENT_SECONDS = 60.0
ROWS_AT_ONCE = 1_000
_LOOKED_AT_ONCE = 10_000
_DIALECTS = ("postgresql", "sqlite")


class _SaidError(Exception):
    """The database's complaint. args: one sentence without any secret."""


class TableRows(Value):
    """A partition's rows in the table. marks: sorted."""

    digest: Digest
    marks: "NDArray[np.bytes_]"


@dataclass(slots=True)
class Counted:
    """The numbers of a partition's rows that belong to the state, and of others."""

    own: int = 0
    others: int = 0


class StateTable:
    """One table. columns: the state's, by name: `int64`, `binary` or `string`.

    Raises UsageError for an invalid url, or a database of another kind.
    """

    def __init__(self, described: SqlStore, columns: Mapping[str, str]) -> None:
        self._described, self._columns = described, columns
        self._database = Database(described.url, SILENT_SECONDS)
        kind = self._database.shown.partition(":")[0]
        if kind not in _DIALECTS:
            raise UsageError(
                f"rows can't be delivered into {kind}, only into {' and '.join(_DIALECTS)}",
                where="--into",
            )
        self._kind = kind
        self._key = [n for n in ("partition", "key", "valid_from") if n in columns]
        self.marked = ["offset", *self._key[1:]]  # the columns from which a row's mark is made
        self.name = f"{self._database.shown} table {described.table}"

    async def check(self) -> None:
        """Check that the table exists with the state's columns and their unique key.

        Raises IncompleteError, RefusedError.
        """
        await self._reading(lambda connection, job: self._check(connection))

    async def count(self, live: Marks) -> dict[int, Counted]:
        """Return the state's rows by partition. Raises RefusedError for an unknown partition."""
        return await self._reading(lambda connection, job: self._count(connection, job, live))

    async def partition_rows(self, partition: int) -> TableRows:
        """Return the partition's rows as they are."""
        return await self._reading(
            lambda connection, job: self._rows_there(connection, job, partition)
        )

    async def upsert(
        self,
        rows: Iterable["pa.Table"],
        partition: int,
        keep: "NDArray[np.bytes_] | None",
        ensure_held: EnsureHeld,
    ) -> None:
        """Write rows of a partition, some per transaction; delete the rest if `keep` is given.

        The rest are the partition's rows with other marks. Raises RefusedError if nothing was
        written, IncompleteError if some rows were.
        """

        def work(job: BlockingCall) -> None:
            with self._connected(writing=True) as connection:
                for table in rows:
                    for low in range(0, len(table), ROWS_AT_ONCE):
                        with self._transaction(connection, job, ensure_held):
                            self._put(connection, table.slice(low, ROWS_AT_ONCE))
                if keep is not None:
                    with self._transaction(connection, job, ensure_held):
                        self._delete(connection, job, partition, keep)

        await self._writing(work)

    async def replace(
        self,
        rows: Callable[[int], Iterable["pa.Table"]],
        live: Marks,
        offsets: tuple[SqlStore, Sequence[Write]],
        ensure_held: EnsureHeld,
        *,
        replace: bool,
    ) -> None:
        """Replace all rows, and the restart offsets with them, in one transaction.

        rows: of a partition. offsets: their table, compared and set. replace: delete other rows,
        else refuse. Raises RefusedError if nothing was written, UnverifiedError if the database's
        answer to COMMIT did not arrive.
        """
        store = SqlOffsets(offsets[0], None, SILENT_SECONDS)

        def work(job: BlockingCall) -> None:
            with (
                self._connected(writing=True) as connection,
                self._transaction(connection, job, ensure_held),
            ):
                if self._kind == "postgresql":  # no rows may be added while old ones are deleted
                    name = connection.dialect.identifier_preparer.format_table(self._table)
                    connection.exec_driver_sql(f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE")
                store.put(connection, offsets[1])
                counts = self._count(connection, job, live)
                if not replace:
                    refuse_others(sum(one.others for one in counts.values()), self.name)
                for partition, keep in live.items():
                    for table in rows(partition):
                        for low in range(0, len(table), ROWS_AT_ONCE):
                            held_before(ensure_held, written=False)
                            self._put(connection, table.slice(low, ROWS_AT_ONCE))
                            job.answered()
                    self._delete(connection, job, partition, keep)

        await self._writing(work)

    @property
    def _table(self) -> Any:
        from sqlalchemy import BigInteger, Column, LargeBinary, MetaData, Table, Text
        from sqlalchemy.sql import quoted_name

        kinds: dict[str, Any] = {"int64": BigInteger, "binary": LargeBinary, "string": Text}
        schema, name = identifiers(self._described.table)
        return Table(
            quoted_name(name, True),
            MetaData(),
            *(
                Column(
                    quoted_name(column, True),
                    kinds[kind],
                    primary_key=column in self._key,
                    autoincrement=False,
                )
                for column, kind in self._columns.items()
            ),
            schema=None if schema is None else quoted_name(schema, True),
        )

    def _check(self, connection: "Connection") -> None:
        from sqlalchemy import Integer, LargeBinary, String, inspect
        from sqlalchemy.exc import NoSuchTableError
        from sqlalchemy.schema import CreateTable

        table, inspector = self._table, inspect(connection)
        try:
            columns = inspector.get_columns(table.name, schema=table.schema)
        except NoSuchTableError:
            create_statement = " ".join(str(CreateTable(table).compile(connection)).split())
            raise IncompleteError(
                "there is no such table", where=self.name, remedy=f"make it: {create_statement}"
            ) from None
        actual = {column["name"]: column["type"] for column in columns}
        types = {"int64": Integer, "binary": LargeBinary, "string": String}
        for name in self._columns:
            if name not in actual:
                raise IncompleteError(f"the table has no column {name!r}", where=self.name)
        for name, kind in self._columns.items():
            if not isinstance(actual[name], types[kind]):
                raise RefusedError(
                    f"its column {name!r} is of type {actual[name]}, the state's is {kind}",
                    where=self.name,
                )
        keys: list[Any] = [
            inspector.get_pk_constraint(table.name, schema=table.schema)["constrained_columns"],
            *(
                c["column_names"]
                for c in inspector.get_unique_constraints(table.name, schema=table.schema)
            ),
            *(
                i["column_names"]
                for i in inspector.get_indexes(table.name, schema=table.schema)
                if i["unique"] and not i.get("dialect_options", {}).get("postgresql_where")
            ),
        ]
        if not any(set(key) == set(self._key) for key in keys):
            raise RefusedError(
                f"the table has no unique key of {', '.join(self._key)}",
                where=self.name,
                remedy="give it that primary key",
            )

    def _count(
        self, connection: "Connection", job: BlockingCall, live: Marks
    ) -> dict[int, Counted]:
        import numpy as np
        from sqlalchemy import func, select

        table, counts = self._table, {partition: Counted() for partition in live}
        query = select(func.coalesce(table.c.partition, -1), *self._marked(table))
        for part in self._streamed(connection, job, query):
            numbers = np.array([row[0] for row in part], np.int64)
            row_marks = marks(row[1:] for row in part)
            for number in np.unique(numbers).tolist():
                if number not in live:
                    raise RefusedError(
                        f"it has rows of partition {number}, which the state has not",
                        where=self.name,
                    )
                own = among(row_marks[numbers == number], live[number])
                counts[number].own += int(own.sum())
                counts[number].others += int((~own).sum())
        return counts

    def _marked(self, table: Any) -> list[Any]:
        """Return the columns of `marked`; a null integer is -1, which no state contains."""
        from sqlalchemy import func

        columns = [(n, table.c[n]) for n in self.marked]
        return [c if n == "key" else func.coalesce(c, -1) for n, c in columns]

    def _rows_there(self, connection: "Connection", job: BlockingCall, partition: int) -> TableRows:
        import pyarrow as pa
        from sqlalchemy import func, select

        table = self._table
        names = rows_schema().names
        columns = {n: table.c[n] for n in names} | {"offset": func.coalesce(table.c.offset, -1)}
        query = select(*columns.values(), *self._marked(table)).where(
            table.c.partition == partition
        )
        total, row_marks = Digest(), []
        for part in self._streamed(connection, job, query):
            rows = [dict(zip(names, row, strict=False)) for row in part]
            total += digest(partition, pa.Table.from_pylist(rows, schema=rows_schema()))
            row_marks.append(marks(row[len(names) :] for row in part))
        return TableRows(total, sorted_marks(row_marks))

    def _put(self, connection: "Connection", rows: "pa.Table") -> None:
        values = rows.to_pylist()
        if not values:
            return
        insert: Any
        if self._kind == "postgresql":
            from sqlalchemy.dialects.postgresql import insert
        else:
            from sqlalchemy.dialects.sqlite import insert
        statement = insert(self._table)
        changed = {n: statement.excluded[n] for n in self._columns if n not in self._key}
        statement = statement.on_conflict_do_update(index_elements=self._key, set_=changed)
        connection.execute(statement, values)

    def _delete(
        self,
        connection: "Connection",
        job: BlockingCall,
        partition: int,
        keep: "NDArray[np.bytes_]",
    ) -> None:
        """Delete a partition's rows with other marks: they belong to another state."""
        from sqlalchemy import bindparam, func, or_, select, tuple_

        table = self._table
        here = table.c.partition == partition
        keys = [table.c[name] for name in self._key[1:]]
        odd = [column.is_(None) for column in keys]
        if self._kind == "sqlite":  # any type in any column
            odd.append(func.typeof(table.c.key) != "blob")
        connection.execute(table.delete().where(here, or_(*odd)))
        same = [c == bindparam(f"at_{n}") for n, c in enumerate(self._marked(table))]
        gone = table.delete().where(here, *same)
        after: list[Any] = []
        while True:  # in the order of the key, some at a time: never all of them in memory
            query = select(*self._marked(table)).where(here, *after).order_by(*keys)
            part = connection.execute(query.limit(_LOOKED_AT_ONCE)).all()
            job.answered()
            if not part:
                return
            stale = (~among(marks(part), keep)).nonzero()[0].tolist()
            if stale:
                values = [{f"at_{n}": v for n, v in enumerate(part[i])} for i in stale]
                connection.execute(gone, values)
                job.answered()
            after = [tuple_(*keys) > tuple_(*part[-1][1:])]

    def _streamed(
        self, connection: "Connection", job: BlockingCall, query: Any
    ) -> Iterator[Sequence[Any]]:
        """Yield rows, some at a time, never all of them in memory."""
        options = {"stream_results": True, "yield_per": _LOOKED_AT_ONCE}
        for part in connection.execute(query, execution_options=options).partitions():
            job.answered()
            yield part

    async def _reading(self, use: Callable[["Connection", BlockingCall], Result]) -> Result:
        def work(job: BlockingCall) -> Result:
            with self._connected(writing=False) as connection:
                return use(connection, job)

        try:
            return await bounded(work, SILENT_SECONDS)
        except (SilentError, _SaidError) as error:
            raise UnreachableError(str(error), where=self.name) from None

    async def _writing(self, work: Callable[[BlockingCall], None]) -> None:
        sent = False

        def watched(job: BlockingCall) -> None:
            nonlocal sent
            try:
                work(job)
            finally:
                sent = job.sent

        try:
            await bounded(watched, SILENT_SECONDS)
        except RefusedError as error:
            if not sent:
                raise
            raise IncompleteError(error.what, where=error.where, remedy=error.remedy) from None
        except SilentError as error:
            if not error.sent:
                raise RefusedError(f"{error}, nothing was written", where=self.name) from None
            raise UnverifiedError(str(error), where=self.name) from None
        except _SaidError as error:
            if not sent:
                raise RefusedError(f"{error}; nothing was written", where=self.name) from None
            raise IncompleteError(f"{error}; some may be written", where=self.name) from None

    @contextmanager
    def _transaction(
        self, connection: "Connection", job: BlockingCall, ensure_held: EnsureHeld
    ) -> Iterator[None]:
        """Commit at the end, if the lock is still held and the call was not abandoned."""
        held_before(ensure_held, written=job.sent)
        with connection.begin():
            self._database.bound_statements(connection)
            yield
            held_before(ensure_held, written=job.sent)
            job.writing()
        job.answered()

    @contextmanager
    def _connected(self, *, writing: bool) -> Iterator["Connection"]:
        from sqlalchemy.exc import SQLAlchemyError

        engine = self._database.engine(writing=writing)
        try:
            with engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise _SaidError(self._database.error_words(error)) from None
        finally:
            engine.dispose()


def refuse_others(others: int, where: str) -> None:
    """Raise RefusedError if other rows exist."""
    if others:
        raise RefusedError(
            f"it holds {counted(others, 'row')} that this state has not",
            where=where,
            remedy="--replace updates and deletes them; or deliver into an empty table",
        )
