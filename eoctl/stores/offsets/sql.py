"""Positions in a database table, one row per input partition, through SQLAlchemy Core.

All changes of one write are one transaction: the rows are locked and compared, each UPDATE and
DELETE names the old offset and must hit one row, an INSERT that meets another's row is refused.
Nothing takes effect before the COMMIT, so only a COMMIT without an answer leaves doubt.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from eoctl.stores.offsets.bounded import BlockingCall, LostError, SilentError, bounded
from eoctl.stores.offsets.sql_database import Database
from eoctl.stores.offsets.sql_table import Mapped, opened_table, position_of, row_of
from eoctl.stores.offsets.store import (
    Contents,
    EnsureHeld,
    StoredValues,
    StoreEntry,
    Write,
    held_before,
    refuse_differences,
    write_at_once,
)
from recovery.errors import RefusedError, UnreachableError
from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError
from recovery.restart.stored import StoredPartition, as_kept, next_positions
from recovery.shared.store_tables import SqlStore

if TYPE_CHECKING:
    from sqlalchemy import Connection

Result = TypeVar("Result")


class _RepliedError(Exception):
    """The database's complaint. args: one sentence without any secret."""


class SqlOffsets:
    """The store of [app.store] kind = "sql". Raises UsageError for an invalid url."""

    compares = True

    def __init__(self, described: SqlStore, app: str | None, seconds: float) -> None:
        self._described = described
        self._app = app
        self._seconds = seconds
        self._database = Database(described.url, seconds)
        self.name = f"{self._database.shown} table {described.table}"

    async def read(self) -> Contents:
        try:
            return await bounded(
                lambda job: self._connected(self._read, writing=False), self._seconds
            )
        except (SilentError, _RepliedError) as error:
            raise UnreachableError(str(error), where=self.name) from None

    def _read(self, connection: "Connection") -> Contents:
        table = opened_table(connection, self._described, self.name)
        return self._contents(connection, table, None)

    def kept(self, position: StoredPartition) -> StoredValues:
        at = as_kept([position], self._described.position)[0]
        row = row_of(at, self._described.columns)
        if position_of(at.input.topic_partition, row, self.name) != at:
            raise RefusedError(
                "the table has no column for a part of this entry",
                where=f"{self.name}, {at.input.topic_partition}",
                remedy="name its columns in [app.store.columns]",
            )
        return row

    async def write(
        self, writes: Sequence[Write], ensure_held: EnsureHeld, *, dissolve: bool = False
    ) -> None:
        def work(job: BlockingCall) -> None:
            try:
                self._connected(lambda c: self._write(c, job, writes, ensure_held), writing=True)
            except _RepliedError as error:
                if job.sent:
                    raise LostError(str(error)) from None
                raise RefusedError(f"{error}; nothing was written", where=self.name) from None

        await write_at_once(
            self, writes, work, self._seconds, "the database's answer to COMMIT did not arrive"
        )

    def _connected(self, use: Callable[["Connection"], Result], *, writing: bool) -> Result:
        from sqlalchemy.exc import SQLAlchemyError

        engine = self._database.engine(writing=writing)
        try:
            with engine.connect() as connection:
                return use(connection)
        except SQLAlchemyError as error:
            raise _RepliedError(self._database.error_words(error)) from None
        finally:
            engine.dispose()

    def _write(
        self,
        connection: "Connection",
        job: BlockingCall,
        writes: Sequence[Write],
        ensure_held: EnsureHeld,
    ) -> None:
        from sqlalchemy.exc import SQLAlchemyError

        transaction = connection.begin()
        self._database.bound_statements(connection)
        self.put(connection, writes)
        held_before(ensure_held, written=False)
        job.writing()
        try:
            transaction.commit()
        except SQLAlchemyError as error:
            if not self._database.rolled_back(error):
                raise
            raise RefusedError(  # a deferred constraint, a conflict of serializable transactions
                f"{self._database.error_words(error)}; nothing was written", where=self.name
            ) from None

    def put(self, connection: "Connection", writes: Sequence[Write]) -> None:
        """Compare and set in the open transaction. Raises RefusedError."""
        table = opened_table(connection, self._described, self.name)
        topics = sorted({w.topic for w in writes})
        there = self._contents(connection, table, topics, lock=True)
        refuse_differences(there, writes, self.name)
        if any(w.before is None and w.after is not None for w in writes):
            table.refuse_without_key(connection, self.name)
        for write in writes:
            self._change(connection, table, write)

    def _change(self, connection: "Connection", table: Mapped, write: Write) -> None:
        from sqlalchemy.exc import IntegrityError

        try:
            if write.before is None and write.after is not None:
                hit = connection.execute(
                    table.insert(self._app, write.topic_partition, write.after)
                )
            elif write.before is not None and write.after is not None:
                hit = connection.execute(
                    table.update(self._app, write.topic_partition, write.before, write.after)
                )
            elif write.before is not None:
                hit = connection.execute(
                    table.delete(self._app, write.topic_partition, write.before)
                )
            else:
                return
        except IntegrityError as error:
            why = self._database.error_words(error)
            if self._database.is_duplicate(error):
                why = "another process added this row just now"
            raise RefusedError(f"{why}; nothing was written", where=self._at(write)) from None
        if hit.rowcount != 1:
            raise RefusedError(
                f"{hit.rowcount} rows were hit instead of one; nothing was written",
                where=self._at(write),
                remedy="another process wrote meanwhile, or the table takes one partition twice",
            )

    def _at(self, write: Write) -> str:
        return f"{self.name}, {write.topic_partition}"

    def _contents(
        self,
        connection: "Connection",
        table: Mapped,
        topics: Sequence[str] | None,
        *,
        lock: bool = False,
    ) -> Contents:
        rows = connection.execute(table.select(self._app, topics, lock=lock)).all()
        by_partition: dict[TopicPartition, StoredValues] = {}
        for row in rows:
            partition, kept = table.read(row, self.name)
            if partition in by_partition:
                raise CorruptError(f"{partition} is in two rows", where=self.name)
            by_partition[partition] = kept
        partitions = sorted(by_partition)
        at = [
            position_of(partition, by_partition[partition], self.name) for partition in partitions
        ]
        return Contents(
            exists=True,
            entries=tuple(
                StoreEntry(position, by_partition[position.input.topic_partition])
                for position in next_positions(at, self._described.position)
            ),
        )
