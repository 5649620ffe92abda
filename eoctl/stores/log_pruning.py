"""Keep the copy of `__transaction_state` from growing forever.

The broker's log is compacted; this copy keeps batches, since they may be evidence. A busy cluster
writes 10 GB a day. So past MOST_BYTES of one partition, the older half of its file keeps only the
newest KEPT records of each transactional id, some ten transactions. The newer half keeps all. The
ids whose records were dropped are noted, with the offset below which their history is incomplete.

An id that its coordinator has forgotten (a tombstone) may have left a lost marker, which then only
these records prove. It is kept like the others, until all ids of that kind need more than
MOST_BYTES / 4; then the ids forgotten first are dropped, with all their records.
"""

from collections import Counter
from collections.abc import Iterator

from eoctl.stores.kept_log import KeptExtent, KeptLog, index_of
from recovery.inspect.log_part import LogPart, part_of
from recovery.inspect.log_tokens import RowNames, id_token, names_of

MOST_BYTES = 128 << 20
KEPT = 40
_PIECE = 1 << 20  # bytes per write


def is_due(log: KeptLog) -> bool:
    """Return True if it is time to prune the file."""
    return log.size > max(MOST_BYTES, log.prune_at)


def prune(log: KeptLog) -> None:
    """Rewrite the file without what is dropped; under the lock. Raises OSError, DamagedError.

    The next pruning is due once the file has grown by half of MOST_BYTES, whatever live ids need.
    """
    counts, ended = _counts(log)
    gone = _without_room(log, counts, ended)
    dropped: dict[int, int] = {}
    new_path = log.path.with_name(log.path.name + ".new")
    for path in (new_path, index_of(new_path)):
        path.unlink(missing_ok=True)
    with KeptLog(new_path) as new:
        for piece in _pieces(_left(log, counts, gone, dropped)):
            new.append(part_of(piece), 0, log.wholeness)
        new.note_pruned(log.cuts | dropped, new.size + MOST_BYTES // 2)
    # a crash between the two leaves an index that does not fit: it is recreated
    index_of(new_path).replace(index_of(log.path))
    new_path.replace(log.path)


def _older(log: KeptLog) -> list[KeptExtent]:
    return [e for e in log.extents if e.end <= log.size // 2]


def _counts(log: KeptLog) -> tuple["Counter[bytes]", list[bytes]]:
    """Count each id's batches, and find the ids whose last one is an old tombstone.

    The ids are in the order in which they were forgotten.
    """
    counts: Counter[bytes] = Counter()
    ended: dict[bytes, None] = {}
    older = len(_older(log))
    for number, extent in enumerate(log.extents):
        for row in names_of(extent.part()):
            for name in row.names or ():
                counts[name] += 1
                ended.pop(name, None)
            if number < older:
                ended |= dict.fromkeys(row.ended)
    return counts, list(ended)


def _without_room(log: KeptLog, counts: "Counter[bytes]", ended: list[bytes]) -> set[bytes]:
    """Return the forgotten ids to drop: the earliest ones, if there are too many."""
    usual = log.size / max(1, counts.total())  # bytes of an average batch
    room = MOST_BYTES / 4
    gone = set[bytes]()
    for name in reversed(ended):
        room -= min(counts[name], KEPT) * usual
        if room < 0:
            gone.add(name)
    return gone


def _left(
    log: KeptLog, counts: "Counter[bytes]", gone: set[bytes], dropped: dict[int, int]
) -> Iterator[bytes]:
    """Yield the batches that are kept. dropped: filled with each pruned id's first kept offset."""
    older = len(_older(log))
    cut: set[bytes] = set()
    for number, extent in enumerate(log.extents):
        part = extent.part()
        if number == older:
            cut -= gone  # none of these ids comes again
        if number >= older and not cut:
            yield bytes(part.data)
            continue
        for row in names_of(part):
            header = part.header(row.row)
            if number >= older or _keeps(row, counts, gone):
                for name in cut & set(row.names or ()):
                    dropped[id_token(name)] = header.base_offset
                    cut.remove(name)
                yield _bytes(part, row.row)
            else:
                cut |= set(row.names or ())
            for name in row.names or () if number < older else ():
                counts[name] -= 1


def _keeps(row: RowNames, counts: "Counter[bytes]", gone: set[bytes]) -> bool:
    """Return True if a batch of the older half is kept. counts: of its ids, from this batch on."""
    if row.names is None:
        return True
    return any(counts[name] <= KEPT and name not in gone for name in row.names)


def _bytes(part: LogPart, row: int) -> bytes:
    header = part.header(row)
    return bytes(part.data[header.position : header.position + header.size])


def _pieces(batches: Iterator[bytes]) -> Iterator[bytes]:
    piece = bytearray()
    for batch in batches:
        piece += batch
        if len(piece) >= _PIECE:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)
