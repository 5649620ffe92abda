"""Positions in ZooKeeper: a node of decimal text for each partition, or one with the JSON object.

All changes of one write are one multi-operation with the versions that were read: all or nothing,
and nothing if somebody wrote in between. It is sent only over the connection that it was prepared
on: after an interruption nothing more is sent, and a new session checks the outcome. So a write
whose answer was lost is recognised and never sent twice.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from eoctl.stores.locks.zookeeper_session import Session
from eoctl.stores.offsets.bounded import BlockingCall, LostError, SilentError, bounded
from eoctl.stores.offsets.json_object import EMPTY, entries_of, kept_of, written
from eoctl.stores.offsets.store import (
    Contents,
    EnsureHeld,
    StoredValues,
    StoreEntry,
    Write,
    held_before,
    refuse_differences,
    refuse_loss,
    write_at_once,
)
from eoctl.stores.offsets.zookeeper_nodes import (
    Tree,
    commit,
    create,
    error_words,
    get_all,
    read_consumer,
)
from recovery.errors import RefusedError, UnreachableError, UsageError
from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError
from recovery.restart.stored import StoredOffset, StoredPartition, as_kept, next_positions
from recovery.shared.offset_bounds import MAX_OFFSET
from recovery.shared.store_tables import ZooKeeperStore

_WHERE = "[app.store] connect"
_DECIMAL = re.compile(r"-1|0|[1-9][0-9]{0,18}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
MOST_BYTES = 900_000  # a server takes no request above jute.maxbuffer, 1 MiB


class _Change(NamedTuple):
    session: Session
    transaction: Any
    tree: Tree
    writes: Sequence[Write]
    dissolve: bool


class ZooKeeperOffsets:
    """The store of [app.store] kind = "zookeeper"."""

    compares = True

    def __init__(self, described: ZooKeeperStore, seconds: float) -> None:
        from kazoo.protocol.paths import normpath

        self._described = described
        self._seconds = seconds
        session = Session(described.connect, _WHERE)
        try:
            self._path = normpath(session.folder + described.path)
        except ValueError as error:
            raise UsageError(str(error), where="[app.store] path") from None
        self.name = f"ZooKeeper {session.shown}{described.path}"

    async def read(self) -> Contents:
        def work(job: BlockingCall) -> Contents:
            session = self._session()
            try:
                return self._contents(self._read(session))
            finally:
                session.stop()

        try:
            return await bounded(work, self._seconds)
        except SilentError as error:
            raise UnreachableError(str(error), where=self.name) from None

    def _session(self) -> Session:
        session = Session(self._described.connect, _WHERE)
        try:
            session.start(self._seconds / 2)
        except BaseException:
            session.stop()
            raise
        return session

    def _read(self, session: Session) -> Tree:
        """Return the nodes. Raises UnreachableError."""
        from kazoo.exceptions import KazooException, NoAuthError

        try:
            session.ask(session.client.sync_async(self._path))  # a follower may lag
            if self._described.is_consumer_offsets:
                return read_consumer(session, self._path)
            nodes = get_all(session, [self._path])
            return Tree(nodes=nodes)
        except NoAuthError:
            raise UnreachableError(
                "ZooKeeper does not let these credentials read it",
                where=self.name,
                remedy="check user and password, and the ACLs of the nodes",
            ) from None
        except (session.client.handler.timeout_exception, KazooException) as error:
            raise UnreachableError(f"no answer ({error_words(error)})", where=self.name) from None

    def _contents(self, tree: Tree) -> Contents:
        if not self._described.is_consumer_offsets:
            if self._path not in tree.nodes:
                return Contents(exists=False)
            text = self._text(self._path, tree.nodes[self._path][0])
            return Contents(True, entries_of(text, self._described.position, self.name))
        by_partition: dict[TopicPartition, StoredValues] = {}
        for path, (data, _) in tree.nodes.items():
            topic, _, number = path.removeprefix(self._path + "/").partition("/")
            text = self._text(path, data)
            if not _PARTITION.fullmatch(number):
                raise CorruptError(f"the node {path!r} is not a partition", where=self.name)
            if not _DECIMAL.fullmatch(text) or int(text) > MAX_OFFSET:
                raise CorruptError(f"the node {path!r} holds no offset: {text!r}", where=self.name)
            by_partition[TopicPartition(topic, int(number))] = {"offset": int(text)}
        entries = tuple(
            StoreEntry(self._position(partition, by_partition[partition]), by_partition[partition])
            for partition in sorted(by_partition)
        )
        return Contents(self._path in tree.folders, entries)

    def _text(self, path: str, data: bytes) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise CorruptError(f"the node {path!r} holds no text", where=self.name) from None

    def _position(self, topic_partition: TopicPartition, kept: StoredValues) -> StoredPartition:
        start = StoredOffset(
            topic=topic_partition[0], partition=topic_partition[1], offset=kept["offset"]
        )
        return next_positions([StoredPartition(input=start)], self._described.position)[0]

    def kept(self, position: StoredPartition) -> StoredValues:
        if not self._described.is_consumer_offsets:
            return kept_of(position, self._described.position)
        partition = position.input.topic_partition
        kept = {"offset": as_kept([position], self._described.position)[0].input.offset}
        why = "nodes of a consumer hold an input offset and nothing else"
        refuse_loss(self._position(partition, kept), position, why, self.name)
        return kept

    async def write(
        self, writes: Sequence[Write], ensure_held: EnsureHeld, *, dissolve: bool = False
    ) -> None:
        def work(job: BlockingCall) -> None:
            session = self._session()
            try:
                self._write(session, job, writes, ensure_held, dissolve=dissolve)
            finally:
                session.stop()

        await write_at_once(self, writes, work, self._seconds, "the answer was lost")

    def _write(
        self,
        session: Session,
        job: BlockingCall,
        writes: Sequence[Write],
        ensure_held: EnsureHeld,
        *,
        dissolve: bool,
    ) -> None:
        interruptions = session.interruptions
        tree = self._read(session)
        contents = self._contents(tree)
        refuse_differences(contents, writes, self.name)
        transaction = session.client.transaction()
        change = _Change(session, transaction, tree, writes, dissolve)
        if self._described.is_consumer_offsets:
            self._plan_nodes(change)
        else:
            self._plan_object(change)
        if not transaction.operations:
            return
        size = sum(len(op.serialize()) for op in transaction.operations)
        if size > MOST_BYTES:
            raise RefusedError(
                f"{size:,} bytes are more than one operation of ZooKeeper takes", where=self.name
            )
        held_before(ensure_held, written=False)
        self._send(session, job, transaction, interruptions)

    def _plan_object(self, change: _Change) -> None:
        session, transaction, tree, writes, dissolve = change
        data, version = tree.nodes.get(self._path, (None, -1))
        text = None if data is None else self._text(self._path, data)
        after = written(text, writes, self.name)
        if data is None:
            if after is not None:
                create(session, transaction, self._path, after.encode(), {})
        elif after is None and dissolve:
            transaction.delete(self._path, version)
        else:
            transaction.set_data(self._path, (EMPTY if after is None else after).encode(), version)

    def _plan_nodes(self, change: _Change) -> None:
        session, transaction, tree, writes, dissolve = change
        made: dict[str, Any] = {}
        names = {folder: set(inside) for folder, inside in tree.folders.items()}
        for write in writes:
            topic = f"{self._path}/{write.topic}"
            path = f"{topic}/{write.partition}"
            if write.after is not None:
                data = str(write.after["offset"]).encode()
                if write.before is None:
                    create(session, transaction, path, data, made)
                    names.setdefault(topic, set()).add(str(write.partition))
                else:
                    transaction.set_data(path, data, tree.nodes[path][1])
            elif write.before is not None:
                transaction.delete(path, tree.nodes[path][1])
                names[topic].discard(str(write.partition))
                if not names[topic]:
                    transaction.delete(topic)
                    names[self._path].discard(write.topic)
        if dissolve and self._path in names and not names[self._path]:
            group = self._path.rpartition("/")[0]
            transaction.delete(self._path)
            if len(session.ask(session.client.get_children_async(group))) == 1:
                transaction.delete(group)

    def _send(
        self, session: Session, job: BlockingCall, transaction: Any, interruptions: int
    ) -> None:
        """Send. Raises RefusedError: nothing was written; LostError: outcome unknown."""
        from kazoo.exceptions import (
            KazooException,
            NoAuthError,
            RolledBackError,
            RuntimeInconsistency,
        )

        def may_be_sent() -> bool:
            if session.interruptions != interruptions:
                return False
            try:
                job.writing()
            except SilentError:  # the call was given up
                return False
            return True

        try:
            results = session.ask(commit(session.client, transaction, may_be_sent))
        except (session.client.handler.timeout_exception, KazooException) as error:
            job.give_up()
            if not job.sent:
                raise RefusedError(
                    f"the connection was interrupted ({error_words(error)}), nothing was written",
                    where=self.name,
                ) from None
            raise LostError(error_words(error)) from None
        wrong = [r for r in results if isinstance(r, Exception)]
        why = [r for r in wrong if not isinstance(r, (RolledBackError, RuntimeInconsistency))]
        if any(isinstance(r, NoAuthError) for r in why):
            raise RefusedError(
                "ZooKeeper does not let these credentials write it; nothing was written",
                where=self.name,
                remedy="check user and password, and the ACLs of the nodes",
            )
        if wrong:
            text = error_words(why[0] if why else wrong[0])
            raise RefusedError(
                f"another process wrote just now ({text}); nothing was written",
                where=self.name,
                remedy="plan again",
            )
