"""One partition of `__transaction_state`, kept in extents: the records of some ids.

A busy cluster's log holds millions of records, of which a verdict needs a handful. The search goes
from the newest extent back, one at a time; an index says which extents may hold what is needed, and
a chain ends once enough of an id's past has been seen (`recovery.inspect.chains`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from recovery.formats.reader import UnknownVersion
from recovery.inspect.chains import Chain, Wanted, most_records
from recovery.inspect.history import StateLog, StateRecord, producer_ids_of
from recovery.inspect.log_part import LogPart, Wholeness
from recovery.inspect.log_tokens import encoded, id_token, producer_token
from recovery.values import Value


class Extent(Protocol):
    """Some consecutive batches."""

    @property
    def opaque(self) -> bool:
        """Return True if the batches may be about any id."""
        ...

    def may_hold(self, tokens: AbstractSet[int]) -> bool:
        """Return True if one of these tokens may be in the batches."""
        ...

    def part(self) -> LogPart:
        """Read the batches. Raises CorruptError."""
        ...


class KeptBatches(Protocol):
    """The part of a partition's log that was read."""

    @property
    def extents(self) -> Sequence[Extent]:
        """Return the complete log read so far, in order."""
        ...

    @property
    def wholeness(self) -> Wholeness:
        """Return from where on nothing is missing."""
        ...

    def cut(self, name: str) -> int:
        """Return the offset below which records of this id were dropped; 0 if none were."""
        ...


class Fetched(Value):
    """An extent in memory."""

    batches: LogPart
    opaque: bool = True

    def may_hold(self, tokens: AbstractSet[int]) -> bool:
        return True

    def part(self) -> LogPart:
        return self.batches


class Former(Value):
    """Batches of a partition that were read earlier and are no longer in the present log.

    same_topic: the present topic lost them; otherwise they are of an earlier topic of that name, or
    their file was damaged later.
    """

    partition: int
    log: KeptBatches
    leader_epoch: int  # of its last batch
    same_topic: bool


def state_log(
    partition: int,
    log: KeptBatches,
    end: int,
    producer_ids: Collection[int],
    transactional_ids: Collection[str] | None = (),
    newest: int | None = None,
) -> StateLog:
    """Return what `partition` holds about these producer ids and transactional ids (None = all).

    log: its content from its log start to `end` (the high watermark). producer_ids: as a mapping to
    `Wanted` (for all requested partitions), only the records are loaded that a history of those
    batches needs. newest: how many records of each id are enough; None = all. Raises CorruptError.
    """
    cuts: dict[str, int] = {}
    if transactional_ids is None:
        records, cuts = _of_all(partition, log, newest)
    else:
        wanted = producer_ids if isinstance(producer_ids, Mapping) else None
        naming = _ids_naming(partition, log, producer_ids, every=wanted is None)
        for name in transactional_ids:
            naming.setdefault(name, set())
        naming.pop("", None)  # no id at all
        chains = _chains(naming, wanted, newest)
        _follow(partition, log, chains)
        records = [r for chain in chains.values() for r in chain.kept]
        cuts = _cuts(log, chains)
    whole = log.wholeness
    late = whole.end < end and whole.whole_from < end
    return StateLog(
        partition=partition,
        records=tuple(sorted(records, key=lambda r: r.offset)),
        whole_from=end if late else whole.whole_from,
        end=end,
        stands_from=whole.stands_from,
        cuts=cuts,
    )


def _rows(part: LogPart) -> range:
    return range(len(part.scan))


def _of_all(
    partition: int, log: KeptBatches, newest: int | None
) -> tuple[list[StateRecord], dict[str, int]]:
    """Return the newest records of each id, and the offset below which its others are left out."""
    chains: dict[str, Chain] = {}
    for extent in reversed(log.extents):
        part = extent.part()
        for row in reversed(_rows(part)):
            for record in reversed(list(part.decoded(partition, [row]))):
                chain = chains.setdefault(record.transactional_id, Chain(None, newest))
                if not chain.done:
                    chain.add(record)
    return [r for chain in chains.values() for r in chain.kept], _cuts(log, chains)


def _cuts(log: KeptBatches, chains: Mapping[str, Chain]) -> dict[str, int]:
    """Return the offset below which records of an id were not loaded or are no longer kept."""
    cuts = {name: max(log.cut(name), chain.cut or 0) for name, chain in chains.items()}
    return {name: cut for name, cut in cuts.items() if cut}


def _ids_naming(
    partition: int, log: KeptBatches, producer_ids: Collection[int], *, every: bool
) -> dict[str, set[int]]:
    """Return the ids whose records name these producer ids, with those; only the newest id of each.

    every: also the ids that named a producer id earlier. No two ids ever get the same producer id.
    """
    naming: dict[str, set[int]] = {}
    unfound = set(producer_ids)
    tokens = {producer_token(pid) for pid in unfound}
    for extent in reversed(log.extents if producer_ids else ()):
        if not extent.opaque and not extent.may_hold(tokens):
            continue
        part, found = extent.part(), set[int]()
        for record in part.decoded(partition, part.of_producers(producer_ids)):
            if isinstance(record.value, UnknownVersion):
                # it may belong to the producer: its id is listed so that this is reported
                naming.setdefault(record.transactional_id, set())
                continue
            if borne := unfound & producer_ids_of(record):
                naming.setdefault(record.transactional_id, set()).update(borne)
                found |= borne
        if not every and found:
            unfound -= found
            tokens = {producer_token(pid) for pid in unfound}
    return naming


def _chains(
    naming: Mapping[str, set[int]], wanted: Mapping[int, Wanted] | None, newest: int | None
) -> dict[str, Chain]:
    if wanted is None:
        return {name: Chain(None, newest) for name in naming}
    most = most_records(max(len(naming), len(wanted)))
    return {name: Chain({pid: wanted[pid] for pid in pids}, most) for name, pids in naming.items()}


def _follow(
    partition: int,
    log: KeptBatches,
    chains: Mapping[str, Chain],
) -> None:
    """Walk the chains from the newest extent back until each is done."""
    open_ = {name: encoded(name) for name in chains}
    everything = frozenset(open_.values())
    tokens = {id_token(name) for name in open_.values()}
    for extent in reversed(log.extents if chains else ()):
        if not extent.opaque and not extent.may_hold(tokens):
            continue
        part = extent.part()
        needles = everything if extent.opaque else frozenset(open_.values())
        for record in _backwards(partition, part, needles):
            chain = chains.get(record.transactional_id)
            if chain is not None and not chain.done:
                chain.add(record)
        ended = [name for name in open_ if chains[name].done]
        if ended:
            for name in ended:
                del open_[name]
            tokens = {id_token(name) for name in open_.values()}


def _backwards(partition: int, part: LogPart, names: Collection[bytes]) -> Iterator[StateRecord]:
    """Yield the records that may belong to these ids, newest first, one batch at a time."""
    for row in reversed(part.of_ids(names)):
        yield from reversed(list(part.decoded(partition, [row])))
