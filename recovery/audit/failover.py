"""Judge where a group continues in another cluster: the offset, the guarantee, and the reasons.

The rules: docs/failover.md. A is the cluster that the group leaves, B the one that it goes to.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from recovery.audit.mirror_place import Continued, Place
from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.plurals import counted
from recovery.quoting import some
from recovery.restart.adhoc import End
from recovery.restart.decision import Check, Promise, RestartOrigin
from recovery.times import rfc3339
from recovery.values import Value, replace


class Found(Value):
    """A partition of the group, and where it is in the mirror.

    source, offset, leader_epoch: as committed in A. start, end: of B's log, up to its last stable
    offset. pairs: records that are in both logs. records: in B's. returning: records that
    the group has read and the mirror has still to copy. behind: all that it has still to copy.
    held: offsets of B that an open transaction holds; they count as not copied.
    timed: timestamps were compared; deleted: older records are missing in one of the logs.
    compacted: A is; None: its policy is hidden. not_proven: why A's log may not be the one that the
    group has read.
    known_at: A is gone, and a map knows it up to this instant (epoch ms); None: A answers. unseen:
    offsets up to the commit that the map has not seen. pending: an open transaction held a newer
    commit; None: unknown. unchecked: records of the mirror that were not compared with the map.
    """

    source: TopicPartition
    offset: int
    leader_epoch: int | None
    mirror: TopicPartition
    start: int
    place: Place
    pairs: int
    records: int
    end: int = 0
    returning: int = 0
    behind: int = 0
    held: int = 0
    timed: bool = True
    deleted: bool = False
    compacted: bool | None = False
    not_proven: str | None = None
    known_at: int | None = None
    unseen: int = 0
    pending: bool | None = False
    unchecked: int = 0

    def chosen(self, at: End | None) -> Continued:
        """Return the exact place, or the end of the range that was asked for."""
        return self.exact or (self.latest if at == "latest" else self.earliest)

    @property
    def exact(self) -> Continued | None:
        """Return the place, None where there is a range: records that the map has not seen may be
        read or not."""
        return None if self.unseen and self.place.unknown else self.place.exact

    @property
    def earliest(self) -> Continued:
        """Return the end of the range from which nothing is left out."""
        place = self.place
        if not self.unseen:
            return place.earliest
        low = place.exact or place.earliest
        return replace(low, again=low.again + min(self.unseen, place.unknown))

    @property
    def latest(self) -> Continued:
        """Return the end of the range from which nothing comes again."""
        if not self.unseen:
            return self.place.latest
        left, latest = self.place.unknown, self.place.latest
        before = latest.only_before + latest.new
        return Continued(self.end, 0, left, hidden=0, new=0, only_before=before, repeated=0)


def mirror_names(
    topics: Sequence[str], there: Collection[str], named: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return for each topic which of the topics of the other cluster may be its mirror, by name.

    On the way over that is the same name or ALIAS.topic, on the way back the topic without its
    alias. What is certainly another's mirror is left out. named: mirrors that somebody named.

    >>> mirror_names(["dc1.orders", "orders"], ["orders", "dc2.orders"], {})
    {'dc1.orders': ['orders'], 'orders': ['dc2.orders']}
    """
    alike = {
        topic: [named[topic]]
        if topic in named
        else sorted(n for n in there if n == topic or _aliased(n, topic) or _aliased(topic, n))
        for topic in topics
    }
    certain: dict[str, str] = {}
    while new := {t: n[0] for t, n in alike.items() if len(n) == 1 and t not in certain}:
        certain |= new
        taken = set(certain.values())
        alike = {
            t: n if t in certain else [m for m in n if m not in taken] for t, n in alike.items()
        }
    return alike


def likely_names(names: Collection[str], aliases: Collection[str] = ()) -> set[str]:
    """Return what topics may be called in the other cluster: so, without an alias, or with one.

    >>> sorted(likely_names(["dc1.orders"], ["dc2"]))
    ['dc1.orders', 'dc2.dc1.orders', 'orders']
    """
    without = {name[at + 1 :] for name in names for at, one in enumerate(name) if one == "."}
    return {*names, *without - {""}, *(f"{a}.{name}" for a in aliases for name in names)}


def aliases_of(topics: Collection[str], there: Collection[str]) -> set[str]:
    """Return the aliases with which a cluster has mirrors of these topics, or MirrorMaker's own.

    >>> aliases_of(["orders"], ["dc1.orders", "dc2.heartbeats", "sales"]) == {"dc1", "dc2"}
    True
    """
    ends = [f".{name}" for name in (*topics, "heartbeats", "checkpoints.internal")]
    return {name.removesuffix(end) for name in there for end in ends if name.endswith(end)} - {""}


def _aliased(name: str, topic: str) -> bool:
    return name.endswith(f".{topic}")


def refuse_unpaired(found: Found) -> None:
    """Raise RefusedError if nothing shows that this is the source's mirror."""
    if found.pairs:
        return
    where = str(found.mirror)
    if found.records:
        raise RefusedError(
            f"none of its {counted(found.records, 'record')} is one of {found.source}'s: it is not "
            "its mirror, or the records are changed on the way",
            where=where,
            remedy="name the mirror with --map, or restart by time: --to-datetime",
        )
    if found.start > 0:
        raise RefusedError(
            f"it is empty and begins at {found.start}: whatever was mirrored is deleted",
            where=where,
            remedy="nothing says what of it the group has read: choose with --to-offset",
        )
    if found.offset > 0:
        raise RefusedError(
            f"it has no record yet to compare with {found.source}, of which the group has read "
            f"up to {found.offset}: nothing shows that it is its mirror, or from where it goes on",
            where=where,
            remedy="wait until the mirror has copied something, or leave it out: --topic",
        )


def refuse_ranges(found: Sequence[Found]) -> None:
    """Raise RefusedError if records do not say where a partition continues: an end is chosen."""
    ranges = [f for f in found if f.exact is None]
    if not ranges:
        return
    texts = [
        f"{f.mirror} continues between {low.offset} and {high.offset}: from {low.offset} "
        f"{most}{counted(low.again, 'record comes', 'records come')} again, from {high.offset} "
        f"{most}{counted(high.left, 'record is', 'records are')} left out"
        for f in ranges
        for low, high, most in [(f.earliest, f.latest, "up to " if f.unseen else "")]
    ]
    why = "no offset has all before it that was read, and all after it that was not"
    if any(f.unseen for f in ranges):
        why = "the group has read records that the map has not seen"
    raise RefusedError(
        f"{why}: {some(texts)}",
        remedy="add --at earliest (repeats) or --at latest (leaves out)",
    )


def promise(found: Sequence[Found], at: End | None) -> Promise:
    """Return the guarantee of all partitions together, and what it rests on."""
    left = [text for f in found for text in _left_out(f, f.chosen(at))]
    again = [text for f in found for text in _again(f, f.chosen(at))]
    if known := [f.known_at for f in found if f.known_at is not None]:
        since = rfc3339(min(known))
        again.insert(
            0,
            f"of what B has; what the group has read in A since {since} comes again, and what A "
            "wrote after it and B lacks is lost",
        )
    if left:
        more = f"; {some(again, 4)}" if again else ""
        return Promise("at-most-once", f"{some(left, 4)}{more}")
    if again:
        return Promise("at-least-once", some(again, 4))
    pairs = counted(sum(f.pairs for f in found), "record")
    return Promise(
        "exactly-once",
        f"{pairs} of both clusters pair: what the group has read is before the new offsets, "
        "everything else after them, once",
    )


def _left_out(f: Found, c: Continued) -> Iterator[str]:
    name = f.mirror
    if c.left:
        yield f"{name}: {counted(c.left, 'record')} before {c.offset} that the group has not read"
    if f.place.lost:
        yield f"{name} lacks {counted(f.place.lost, 'record')} that the group has not read"
    if c.only_before and not f.compacted:
        yield f"{name}: {counted(c.only_before, 'record')} before {c.offset} that only B has"
    if f.deleted and not f.timed:
        yield (
            f"{name} has its own timestamps and older records are deleted: equal records "
            "may be taken for each other"
        )


def _again(f: Found, c: Continued) -> Iterator[str]:
    name = f.mirror
    if not f.pairs:
        yield f"{name}: nothing of it could be compared, so nothing shows that it is the mirror"
    if c.again:
        yield f"{name}: {counted(c.again, 'record comes', 'records come')} again"
    if f.returning:
        records = counted(f.returning, "record")
        yield f"{name}: the mirror has still to copy {records} that the group has read, or again"
    if c.repeated:
        records = counted(c.repeated, "record")
        yield f"{name}: {records} may be copies of records that A no longer has"
    if c.alike:
        records = counted(c.alike, "record")
        yield f"{name}: {records} newer than the map may be repeats of others"
    if c.hidden:
        records = counted(c.hidden, "record")
        yield f"{name}: {records} that A aborted, or has not decided"


def checks(f: Found, at: End | None) -> Iterator[Check]:
    """Yield what was compared, and what is assumed."""
    where, chosen = str(f.mirror), f.chosen(at)
    fields = "timestamp, key, value and headers" if f.timed else "key, value and headers"
    text = f"{counted(f.pairs, 'record')} of both clusters are equal in {fields}"
    yield Check("paired", True if f.pairs else None, text, where)
    if f.returning:
        text = f"wait until the mirror has come to {f.source} {max(f.offset, f.place.reach)}, "
        yield Check("mirrored", False, text + "and plan again: then these records are there", where)
    elif f.behind:
        text = f"{counted(f.behind, 'record')} of A are not mirrored yet: they follow"
        yield Check("mirrored", None, text, where)
    if f.held:
        text = f"an open transaction in B holds {counted(f.held, 'offset')}, which were not "
        yield Check("held", None, text + f"compared: see `eoctl why {where}`", where)
    if f.known_at is not None:
        yield from _of_map(f)
    if chosen.new:
        text = f"{counted(chosen.new, 'record')} after the new offset are only in B: they are read"
        yield Check("only-in-b", None, text, where)
    if f.compacted and chosen.only_before:
        text = f"{counted(chosen.only_before, 'record')} before the new offset are only in B: A is "
        yield Check("only-in-b", None, text + "compacted and may have had them", where)
    if f.not_proven is not None:
        yield Check("source-log", None, f.not_proven, where)


def _of_map(f: Found) -> Iterator[Check]:
    """Yield how far a map goes that takes A's place."""
    where = str(f.mirror)
    text = f"the commit was seen at {rfc3339(f.known_at or 0)}: a later one is not known, and what "
    yield Check("map", None, text + "A wrote since the map's last look may be missing in B", where)
    if f.place.unknown:
        text = f"{counted(f.place.unknown, 'record')} of B are newer than the map: they are read"
        yield Check("newer", None, text, where)
    if f.pending is not False:
        may = "held" if f.pending else "may have held"
        text = f"an open transaction in A {may} a newer commit of the group: what it has read by "
        yield Check("pending", None, text + "then comes again", where)
    if f.unchecked:
        text = f"{counted(f.unchecked, 'record is', 'records are')} taken from the map and not "
        yield Check("unchecked", None, text + "compared: B has deleted others beside them", where)


def origin(f: Found, at: End | None) -> RestartOrigin:
    """Return the row that says where a new offset comes from."""
    chosen, place = f.chosen(at), f.place
    low, high = (chosen, chosen) if f.exact else (f.earliest, f.latest)
    return RestartOrigin(
        topic=f.mirror.topic,
        partition=f.mirror.partition,
        source_topic=f.source.topic,
        source_partition=f.source.partition,
        source_offset=f.offset,
        source_leader_epoch=f.leader_epoch,
        earliest_offset=low.offset,
        latest_offset=high.offset,
        pairs=f.pairs,
        read_again=chosen.again + chosen.repeated + chosen.alike + chosen.hidden + f.returning,
        skipped=chosen.left + place.lost + (0 if f.compacted else chosen.only_before),
        not_mirrored=f.behind,
    )
