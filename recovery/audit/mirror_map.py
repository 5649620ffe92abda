"""A mirror map: which record of a source is which record of its mirror, kept for later.

With it `restart plan --from-cluster MAP` finds a group's offset in the mirror once the source is
gone. A map is exact for the records that it has seen, and says up to where that is. It holds no
keys and no values. The rules: docs/failover.md.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal

from pydantic import Field, ValidationError

from recovery.audit.mirror_steps import Rest, Steps
from recovery.documents import Document
from recovery.errors import RefusedError, UsageError
from recovery.facts import HasPartition
from recovery.quoting import quoted
from recovery.shared.log_position import LogPosition

SCHEMA = "eoctl.mirror-map/v1"
_SEAL = "seal"
BY_TIME = "restart by time, --to-datetime"
"""The way out where a map does not say the offset."""


class MapRange(Document):
    """Offsets [start, end) of a log. leader_epoch: of the record before `end`; None = unknown."""

    start: int
    end: int
    leader_epoch: int | None

    @property
    def position(self) -> LogPosition:
        """Return where the next run goes on."""
        return LogPosition(self.end, self.leader_epoch)


class MapBlock(Document):
    """The mirror's visible records in [start, end): their number, and the sum of their digests,
    each mixed with its offset."""

    start: int
    end: int
    records: int
    digest: str


class MapUnseen(Document):
    """Offsets [start, end) of the mirror that were deleted before any run saw them.

    proven: False: an eoctl that noted nothing may have seen them.
    """

    start: int
    end: int
    proven: bool = True


class MapPartition(Document):
    """One partition of both topics.

    looked_at: epoch ms, our clock, before anything was read: of later records it has only some;
    0: the source was never read up to its end.
    began: timestamp (ms) of the source's first record; None: it has none. pairs, waiting: records
    with a pair, and visible ones without. steps, rest: packed as in `recovery.audit.mirror_steps`;
    number: of steps. blocks: cover the mirror's range, by offset. unseen: by offset; None: made by
    an eoctl that did not note them.
    """

    partition: int
    looked_at: int
    source: MapRange
    mirror: MapRange
    began: int | None
    pairs: int
    number: int
    waiting: int
    steps: str
    rest: str
    blocks: tuple[MapBlock, ...]
    unseen: tuple[MapUnseen, ...] | None = None

    def unseen_since(self, before: "MapPartition | None") -> list[MapUnseen]:
        """Return what the mirror deleted after a run, before the next one saw it."""
        if before is None:
            return []
        return [r for r in self.unseen or () if r.start >= before.mirror.end]

    @property
    def gaps(self) -> tuple[MapUnseen, ...]:
        """Return where the mirror may have had copies that no run has seen."""
        return unseen_after(self, 0)

    def unpacked(self) -> tuple[Steps, Rest]:
        """Return the pairs, and the source's records without one."""
        return Steps.unpacked(self.steps), Rest.unpacked(self.rest)


class MapCommit(HasPartition, Document):
    """What a group had committed in the source's cluster.

    seen_at: epoch ms, our clock, before it was read. offset None: only a transaction's commit was
    there. pending: an open transaction held a newer one; None: unknown. held: the log is the one
    that the group has read, as `recovery.shared.log_position.Standing` says.
    """

    group: str
    topic: str
    partition: int
    offset: int | None
    leader_epoch: int | None
    metadata: str
    pending: bool | None
    seen_at: int
    held: bool | None = None
    because: str = ""


class MirrorMap(Document):
    """The map of one topic.

    compared: the fields that make two records the same. compacted: the source is or was when the
    map was kept; None: its policy was hidden. asked: the partitions that it should know.
    """

    schema_: Literal["eoctl.mirror-map/v1"] = Field(default="eoctl.mirror-map/v1", alias="schema")
    source_cluster_id: str
    source_topic: str
    source_topic_id: str | None
    mirror_cluster_id: str
    mirror_topic: str
    mirror_topic_id: str | None
    compared: tuple[str, ...]
    compacted: bool | None
    asked: tuple[int, ...] = ()
    partitions: tuple[MapPartition, ...]
    commits: tuple[MapCommit, ...]

    @property
    def looked_at(self) -> int:
        """Return the instant up to which all is known, commits too; 0: some partition is not."""
        if not self.partitions or set(self.asked) - self.by_number().keys():
            return 0
        return min(self._instants)

    @property
    def newest(self) -> int:
        """Return the instant of the newest that is known; 0: nothing is."""
        return max(self._instants, default=0)

    @property
    def _instants(self) -> list[int]:
        return [p.looked_at for p in self.partitions] + [c.seen_at for c in self.commits]

    def by_number(self) -> dict[int, MapPartition]:
        """Return the partitions by number."""
        return {p.partition: p for p in self.partitions}


def unseen_after(known: MapPartition | None, start: int) -> tuple[MapUnseen, ...]:
    """Return what no run has seen of a mirror that is read from offset `start` on now."""
    seen = 0 if known is None else known.mirror.end
    earlier: tuple[MapUnseen, ...] = ()
    if known is not None:
        begin = known.mirror.start
        earlier = (MapUnseen(start=0, end=begin, proven=False),) if begin else ()
        earlier = earlier if known.unseen is None else known.unseen
    return (*earlier, MapUnseen(start=seen, end=start)) if start > seen else earlier


def with_partition(
    kept: MirrorMap,
    part: MapPartition,
    commits: Sequence[MapCommit],
    *,
    complete: bool,
    read: Collection[str] = (),
) -> MirrorMap:
    """Return the map with this partition, and its commits as they are now.

    complete: all groups were seen; else those that are not in `read` keep what was seen of them.
    """
    number = part.partition
    new = [c for c in commits if c.partition == number]
    seen = {c.group for c in new} | set(read)
    old = [
        c for c in kept.commits if c.partition != number or (not complete and c.group not in seen)
    ]
    parts = kept.by_number() | {number: part}
    partitions = tuple(parts[n] for n in sorted(parts))
    return kept.model_copy(update={"partitions": partitions, "commits": (*old, *new)})


_MUST_AGREE = (
    "source_cluster_id",
    "source_topic",
    "source_topic_id",
    "mirror_cluster_id",
    "mirror_topic",
    "mirror_topic_id",
    "compared",
)


def refuse_other_map(known: MirrorMap, now: MirrorMap, where: str, remedy: str) -> None:
    """Raise RefusedError if a map is of other topics than `now` is: by name, by id, by cluster."""
    for name in _MUST_AGREE:
        then, present = getattr(known, name), getattr(now, name)
        if then != present:
            raise RefusedError(
                f"the map has {name.replace('_', ' ')} {shown(then)}, and now it is "
                f"{shown(present)}: its offsets are of other records",
                where=where,
                remedy=remedy,
            )


def ids_unknown(kept: MirrorMap) -> str | None:
    """Return why a map may be of other topics of these names: brokers without topic ids."""
    ids = ((kept.source_topic, kept.source_topic_id), (kept.mirror_topic, kept.mirror_topic_id))
    without = [topic for topic, known in ids if known is None]
    if not without:
        return None
    return f"{without[0]} has no topic id: it may be another topic of this name than the map saw"


def unread_parts(kept: MirrorMap) -> Iterator[tuple[int, str]]:
    """Yield the partitions of which a map may not know each record of the source, why, and what to
    do."""
    for part in kept.partitions:
        if not part.looked_at:
            yield (
                part.partition,
                "the map has not read it to its end: bring it up to date, audit mirror --keep",
            )
        if kept.compacted is not False:
            text = "it is compacted, or its settings were hidden when the map was kept: which "
            yield part.partition, text + "records it had is unknown: compare them, audit mirror"


def shown(fact: str | tuple[str, ...] | None) -> str:
    """Return a fact of a map for a sentence."""
    return "unknown" if fact is None else fact if isinstance(fact, str) else ", ".join(fact)


def dump(kept: MirrorMap) -> str:
    """Return the content of a map's file."""
    content = kept.model_dump(mode="json", by_alias=True)
    return json.dumps(content | {_SEAL: _hash(content)}, indent=1) + "\n"


def load(text: str, where: str) -> MirrorMap:
    """Return the map in a text. where: the file, for errors.

    Raises UsageError if it is none, RefusedError if the seal shows that it was edited.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        found = "no mirror map" if schema is None else f"schema {quoted(str(schema)[:60])}"
        raise UsageError(f"not a mirror map of this version: {found}", where=where)
    seal = content.pop(_SEAL, None)
    if seal != _hash(content):
        raise RefusedError(
            "the map was changed after it was written: its seal does not fit",
            where=where,
            remedy="use an unchanged copy of it",
        )
    try:
        return MirrorMap.model_validate(content)
    except ValidationError as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"not a mirror map: {reason}", where=where) from None


def _hash(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


LEAST_IN_BLOCK = 1 << 12
"""Records of a block; a smaller one is joined with the next."""


def with_block(blocks: tuple[MapBlock, ...], new: MapBlock) -> tuple[MapBlock, ...]:
    """Return the blocks with one more, which begins where they end."""
    if not blocks or blocks[-1].records >= LEAST_IN_BLOCK:
        return (*blocks, new)
    last = blocks[-1]
    joined = MapBlock(
        start=last.start,
        end=new.end,
        records=last.records + new.records,
        digest=digest_text(_halves(last.digest, new.digest)),
    )
    return (*blocks[:-1], joined)


def _halves(*digests: str) -> list[int]:
    return [sum(int(d[i : i + 16], 16) for d in digests) % 2**64 for i in (0, 16)]


def digest_text(halves: list[int]) -> str:
    """Return a sum of digests as 32 hexadecimal digits."""
    return "".join(f"{half:016x}" for half in halves)
