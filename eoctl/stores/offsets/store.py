"""The one interface to stores of offsets: read everything, compare-and-set, back to absence.

A store keeps one entry for each input partition. `Entry.kept` is that entry exactly as stored, as
JSON; a `Write` names it, so that any change in between is found and never overwritten, and the
reverse of a `Write` restores the old entry. `opening.open_store` opens any store.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec

from eoctl.stores.offsets.bounded import BlockingCall, LostError, SilentError, bounded
from recovery.change.plan import differences
from recovery.errors import (
    EoctlError,
    IncompleteError,
    RefusedError,
    UnreachableError,
    UnverifiedError,
)
from recovery.facts import GroupOffsetFacts, HasPartition, TopicPartition
from recovery.formats.spark_checkpoint import Checkpoint
from recovery.restart.observed import FlinkFacts
from recovery.restart.stored import StoredPartition
from recovery.shared.app_file import named
from recovery.values import Value

StoredValues = Mapping[str, Any]
"""An entry as its store keeps it: JSON without floats. A group: offset, leader_epoch, metadata."""

EnsureHeld = Callable[[], None]


class StoreEntry(Value):
    """One input partition: `position` in positions (the next offset), `kept` as in the store."""

    position: StoredPartition
    kept: StoredValues

    @property
    def topic_partition(self) -> TopicPartition:
        return self.position.input.topic_partition


class Contents(Value):
    """The result of one read of a store.

    exists: the group, node, file, key or table exists. entries: all, sorted, whatever their topics.
    facts: other values that must not change meanwhile (a group: type, state and members). pending:
    a group's commits that an open transaction holds. spark: the checkpoint. flink: what that
    checkpoint holds besides offsets. sources: source partition of a source connector → `offset`,
    its source offset as JSON text, which is no offset of a topic.
    """

    exists: bool
    entries: tuple[StoreEntry, ...] = ()
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)
    pending: tuple[GroupOffsetFacts, ...] = ()
    spark: Checkpoint | None = None
    flink: FlinkFacts | None = None
    sources: Mapping[TopicPartition, StoredValues] = msgspec.field(default_factory=dict)

    @property
    def kept(self) -> dict[TopicPartition, StoredValues]:
        """Return what the store keeps, by partition."""
        return {entry.topic_partition: entry.kept for entry in self.entries} | dict(self.sources)

    def at(self, partition: TopicPartition) -> StoreEntry | None:
        return next((entry for entry in self.entries if entry.topic_partition == partition), None)


class Write(HasPartition, Value):
    """`after` in place of exactly `before`; None means no entry."""

    topic: str
    partition: int
    before: StoredValues | None
    after: StoredValues | None

    @property
    def reverse(self) -> "Write":
        return Write(self.topic, self.partition, self.after, self.before)


class OffsetStore(Protocol):
    """An open store. Every call ends within the store's bound, even if its server is frozen."""

    @property
    def name(self) -> str:
        """Return the store's name for display: never with a password."""
        ...

    @property
    def compares(self) -> bool:
        """Return True if the store compares and sets. Else eoctl reads, compares, writes, and reads
        again."""
        ...

    async def read(self) -> Contents:
        """Read the store. Raises IncompleteError (CorruptError: wrong format), UnreachableError."""
        ...

    def kept(self, position: StoredPartition) -> StoredValues:
        """Return how the store keeps this entry. Raises RefusedError if it cannot hold it."""
        ...

    async def write(
        self, writes: Sequence[Write], ensure_held: EnsureHeld, *, dissolve: bool = False
    ) -> None:
        """Do all writes, each partition at most once. ensure_held is asked before each request.

        dissolve: the store did not exist before; it is removed once it is empty. Returns after
        writing everything. RefusedError: nothing was written. UnverifiedError: some of it was
        written, or the outcome is unknown; read again.
        """
        ...


def left(contents: Contents, writes: Sequence[Write]) -> tuple[Write, ...]:
    """Return the writes that are not done yet, for a run that resumes a killed one.

    Raises RefusedError if the store holds neither `before` nor `after`.
    """
    by_partition = contents.kept
    todo = tuple(w for w in writes if by_partition.get(w.topic_partition) != w.after)
    refuse_differences(contents, todo)
    return todo


def refuse_differences(contents: Contents, writes: Sequence[Write], where: str = "") -> None:
    """Raise RefusedError that names each entry that is not what the writes expect."""
    by_partition = contents.kept
    then = {named(w.topic_partition): w.before for w in writes}
    now = {named(w.topic_partition): by_partition.get(w.topic_partition) for w in writes}
    changed = differences(then, now)
    if changed:
        more = f" (and {len(changed) - 3} more)" if len(changed) > 3 else ""
        raise RefusedError(
            f"the store holds something else: {'; '.join(changed[:3])}{more}",
            where=where or None,
            remedy="somebody wrote meanwhile: plan again",
        )


def refuse_loss(kept: StoredPartition, position: StoredPartition, why: str, where: str) -> None:
    """Refuse a position that a store would not keep in full. kept: what a read would return."""
    if kept != position:
        start = position.input
        raise RefusedError(why, where=f"{where}, {start.topic_partition}")


def held_before(ensure_held: EnsureHeld, *, written: bool) -> None:
    """Check the lock before a request. written: an earlier one was sent.

    Raises RefusedError while nothing was sent, else UnverifiedError.
    """
    try:
        ensure_held()
    except EoctlError as error:
        kind = UnverifiedError if written else RefusedError
        raise kind(error.what, where=error.where, remedy=error.remedy) from None


@contextmanager
def unsent() -> Iterator[None]:
    """Refuse if something that a change must know cannot be seen: nothing was sent."""
    try:
        yield
    except (IncompleteError, UnreachableError) as error:
        raise RefusedError(
            f"{error.what}; nothing was written", where=error.where, remedy=error.remedy
        ) from None


async def write_at_once(
    store: OffsetStore,
    writes: Sequence[Write],
    work: Callable[[BlockingCall], None],
    seconds: float,
    lost: str,
) -> None:
    """Run a blocking call that writes all or nothing. If it raises LostError (a request got no
    answer) or is silent for `seconds`, read again to decide.

    lost: how an UnverifiedError begins. Raises RefusedError: nothing was written.
    """
    try:
        with unsent():
            await bounded(work, seconds)
    except SilentError as error:
        if not error.sent:
            raise RefusedError(f"{error}, nothing was written", where=store.name) from None
        await look_for(store, writes, f"{lost}: {error}")
    except LostError as error:
        await look_for(store, writes, f"{lost}: {error}")


async def look_for(store: OffsetStore, writes: Sequence[Write], lost: str) -> None:
    """Check if the store holds writes whose answer did not come. Raises UnverifiedError if not, or
    if it cannot be read."""
    try:
        if not left(await store.read(), writes):
            return
    except EoctlError:
        pass
    raise UnverifiedError(lost, where=store.name)
