"""Positions kept as a consumer group's committed offsets; the outputs are in the metadata.

Kafka has no compare-and-set for offsets: read, compare, and commit without a member, which the
coordinator accepts only while the group has no members.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from eoctl.kafka.ask.groups import find_groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.read.committed import with_offsets
from eoctl.kafka.write import commit
from eoctl.kafka.write.commit import CommittedPosition, NotSentError
from eoctl.stores.offsets.store import (
    Contents,
    EnsureHeld,
    StoredValues,
    StoreEntry,
    Write,
    held_before,
    left,
    refuse_differences,
    refuse_loss,
    unsent,
)
from recovery.errors import (
    EoctlError,
    IncompleteError,
    RefusedError,
    UnreachableError,
    UnverifiedError,
)
from recovery.facts import GroupOffsetFacts, TopicPartition
from recovery.plurals import counted
from recovery.restart.stored import (
    StoredOffset,
    StoredPartition,
    as_kept,
    dump_metadata,
    next_positions,
    parse_metadata,
)
from recovery.shared.store_tables import KafkaGroupStore

EMPTY = ("Empty", "Dead")
WRITABLE = ("classic", "consumer")
_REMEDIES = {
    "UNKNOWN_MEMBER_ID": "the group has members again: stop the application",
    "NON_EMPTY_GROUP": "the group has members again: stop the application",
    "GROUP_SUBSCRIBED_TO_TOPIC": "the group has members again: stop the application",
    "OFFSET_METADATA_TOO_LARGE": "raise the brokers' offset.metadata.max.bytes",
    "GROUP_AUTHORIZATION_FAILED": "grant READ (and DELETE, for undo) on the group",
    "TOPIC_AUTHORIZATION_FAILED": "grant READ on the topic",
}
_UNKNOWN = frozenset(  # answers that may also follow an append
    {
        "REQUEST_TIMED_OUT",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "UNKNOWN_SERVER_ERROR",
    }
)


_NEVER_WRITTEN = {
    "share": (
        "a share group has no positions: its records are acknowledged one by one",
        "kafka-share-groups.sh --reset-offsets moves its start offset",
    ),
    "streams": (
        "eoctl never writes the offsets of a streams group (KIP-1071): they belong to its tasks",
        "kafka-streams-groups.sh --reset-offsets moves them, or the application itself",
    ),
}


def refuse_kind(kind: str | None, where: str) -> None:
    """Refuse a kind of group that eoctl never writes, and name the tool that can.

    kind: in lower case; None: no group's. Raises RefusedError.
    """
    if kind is None or kind in WRITABLE:
        return
    what, remedy = _NEVER_WRITTEN.get(kind, (f"a {kind} group is not written", None))
    raise RefusedError(what, where=where, remedy=remedy)


def refuse_members(contents: Contents, where: str) -> None:
    """Raise RefusedError while a group has members, or is of a kind that eoctl never writes.

    Other stores are never refused.
    """
    refuse_kind(contents.facts.get("type"), where)
    state, members = contents.facts.get("state"), contents.facts.get("members")
    if state not in (None, *EMPTY) or members:
        known = "" if members is None else f" with {counted(members, 'member')}"
        raise RefusedError(
            f"the group is {state}{known}",
            where=where,
            remedy="stop the application; a member that died leaves after its session timeout",
        )


class GroupOffsets:
    """The store of [app.store] kind = "kafka-group"."""

    compares = False

    def __init__(
        self, described: KafkaGroupStore, cluster: Cluster, inputs: Sequence[str] | None
    ) -> None:
        self._described = described
        self._cluster = cluster
        self._inputs = inputs
        self.name = f"group {described.group}"

    async def read(self) -> Contents:
        self._cluster.forgive()
        groups, missing = await find_groups(self._cluster, [self._described.group])
        if groups and (groups[0].type or "").lower() == "share":
            refuse_kind("share", self.name)
        if groups:
            groups, more = await with_offsets(self._cluster, groups)
            missing += more
        for m in missing:
            hidden = m.scope == "topic" and m.topic is None and self._inputs is not None
            if not hidden:  # our topics are known then, and can be seen
                raise IncompleteError(f"{m.error}: {m.detail}", where=self.name)
        if not groups:
            raise IncompleteError("its coordinator did not tell", where=self.name)
        group = groups[0]
        facts = {
            "type": (group.type or "classic").lower(),
            "state": group.state,
            "members": None if group.members is None else len(group.members),
        }
        return Contents(
            exists=group.state != "Dead",
            entries=tuple(self._entry(o) for o in group.offsets if o.committed_offset is not None),
            facts=facts,
            pending=tuple(o for o in group.offsets if o.pending),
        )

    def _entry(self, o: GroupOffsetFacts) -> StoreEntry:
        kept = {
            "offset": o.committed_offset,
            "leader_epoch": o.leader_epoch,
            "metadata": o.metadata or "",
        }
        return StoreEntry(self._position(o.topic_partition, kept), kept)

    def _position(self, topic_partition: TopicPartition, kept: StoredValues) -> StoredPartition:
        where = f"{self.name}, {topic_partition}"
        stored = StoredPartition(
            input=StoredOffset(
                topic=topic_partition[0],
                partition=topic_partition[1],
                offset=kept["offset"],
                leader_epoch=kept["leader_epoch"],
            ),
            output=parse_metadata(kept["metadata"], where),
        )
        return next_positions([stored], self._described.position)[0]

    def kept(self, position: StoredPartition) -> StoredValues:
        p = as_kept([position], self._described.position)[0]
        if p.input.offset < 0:
            raise RefusedError(
                "a group cannot keep that nothing was done yet (-1)",
                where=f"{self.name}, {p.input.topic_partition}",
            )
        kept = {
            "offset": p.input.offset,
            "leader_epoch": p.input.leader_epoch,
            "metadata": dump_metadata(p.output),
        }
        why = "a group has no room for state, merge offset or the ids of cluster and topic"
        refuse_loss(self._position(p.input.topic_partition, kept), position, why, self.name)
        return kept

    async def write(
        self, writes: Sequence[Write], ensure_held: EnsureHeld, *, dissolve: bool = False
    ) -> None:
        with unsent():
            contents = await self.read()
        self._refuse_unsafe(contents)
        refuse_differences(contents, writes, self.name)
        commits = {w.topic_partition: _committed(w.after) for w in writes if w.after is not None}
        deletes = [w.topic_partition for w in writes if w.after is None and w.before is not None]
        sent = False
        group = self._described.group
        if commits:
            ready = self._ready(ensure_held, writes, sent)
            request = commit.commit_offsets(self._cluster, group, commits, ready)
            await self._send(request, writes, sent)
            sent = True
        if deletes:
            ready = self._ready(ensure_held, writes, sent)
            request = commit.delete_offsets(self._cluster, group, deletes, ready)
            await self._send(request, writes, sent)
            sent = True
        if dissolve and not commits:
            await self._dissolve(ensure_held, sent)

    async def _dissolve(self, ensure_held: EnsureHeld, sent: bool) -> None:
        """Delete a group that only a plan created, once nothing is committed in it."""
        contents = await self.read()
        if not contents.exists or contents.entries:
            return
        self._refuse_unsafe(contents)
        ready = self._ready(ensure_held, (), sent, empty=True)

        async def delete() -> commit.ErrorsByPartition:
            error = await commit.delete_group(self._cluster, self._described.group, ready)
            return {} if error == "GROUP_ID_NOT_FOUND" else {TopicPartition("", 0): error}

        await self._send(delete(), (), sent)

    def _ready(
        self,
        ensure_held: EnsureHeld,
        writes: Sequence[Write],
        written: bool,
        *,
        empty: bool = False,
    ) -> commit.Ready:
        """Check the lock before each sending; before a second one also read and compare."""

        async def ready(again: bool) -> None:
            if again:
                await self._look_again(writes, empty=empty)
            held_before(ensure_held, written=written or again)

        return ready

    async def _look_again(self, writes: Sequence[Write], *, empty: bool) -> None:
        """Check again. Raises UnverifiedError: earlier requests may have been written."""
        bound = self._cluster.deadline.within(commit.PATIENCE_SECONDS)
        while True:
            try:
                contents = await self.read()
                self._refuse_unsafe(contents)
                left(contents, writes)
                if not empty or not contents.entries:
                    return
                what, remedy = "something was committed in it meanwhile", None
            except EoctlError as error:
                loading = isinstance(error, (IncompleteError, UnreachableError))
                if loading and not bound.passed:
                    await asyncio.sleep(commit.PAUSE_SECONDS)
                    continue
                what, remedy = error.what, error.remedy
            raise UnverifiedError(what, where=self.name, remedy=remedy)

    def _refuse_unsafe(self, contents: Contents) -> None:
        kind, state = contents.facts["type"], contents.facts["state"]
        refuse_kind(kind, self.name)
        if state not in EMPTY:
            members = contents.facts["members"]
            known = "" if members is None else f" with {counted(members, 'member')}"
            raise RefusedError(
                f"the group is {state}{known}", where=self.name, remedy="stop the application first"
            )
        if contents.pending:
            o = contents.pending[0]
            raise RefusedError(
                f"an open transaction holds a commit of {o.topic_partition}",
                where=self.name,
                remedy="fence its owner first",
            )

    async def _send(
        self, request: Awaitable[commit.ErrorsByPartition], writes: Sequence[Write], sent: bool
    ) -> None:
        """Send. Raises RefusedError if nothing was written, else UnverifiedError."""
        trouble: str
        try:
            errors = await request
            wrong = {
                topic_partition: error
                for topic_partition, error in errors.items()
                if error != "NONE"
            }
            if not wrong:
                return
            topic_partition, error = min(wrong.items())
            of = f" of {topic_partition}" if topic_partition[0] else ""
            trouble, remedy = f"the coordinator answered {error}{of}", _REMEDIES.get(error)
            if not sent and len(wrong) == len(errors) and not set(wrong.values()) & _UNKNOWN:
                raise RefusedError(trouble, where=self.name, remedy=remedy)
        except NotSentError as failure:
            trouble, remedy = str(failure), None
            if not sent:
                raise RefusedError(f"{trouble}; nothing was written", where=self.name) from None
        except WireError as failure:
            trouble, remedy = f"the coordinator's answer was lost: {failure.detail}", None
        if writes and await self._is_done(writes):
            return
        raise UnverifiedError(trouble, where=self.name, remedy=remedy)

    async def _is_done(self, writes: Sequence[Write]) -> bool:
        try:
            return not left(await self.read(), writes)
        except EoctlError:
            return False


def _committed(kept: StoredValues | Any) -> CommittedPosition:
    return CommittedPosition(kept["offset"], kept["metadata"], kept["leader_epoch"])
