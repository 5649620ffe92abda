"""Keeping a copy of `__transaction_state` from growing for ever.

The broker's log is compacted; what was read of it is kept, since it may be evidence. A busy
cluster writes 10 GB a day. So past MOST_BYTES of one partition, the older half of its file keeps of
each transactional id only its newest KEPT records, some ten transactions, and nothing of an id that
its coordinator has forgotten by then (a tombstone). The newer half keeps all. For which ids records
were dropped, and below which offset, is noted: their history is not whole before it.
"""

from collections import Counter
from collections.abc import Iterator

from eoctl.stores.kept_log import KeptExtent, KeptLog, index_of
from recovery.inspect.log_part import LogPart, part_of
from recovery.inspect.log_tokens import RowNames, id_token, names_of

MOST_BYTES = 128 << 20
KEPT = 40
_PIECE = 1 << 20  # bytes written at once


def is_due(log: KeptLog) -> bool:
    """Return True if the file is to be pruned."""
    return log.size > max(MOST_BYTES, log.prune_at)


def prune(log: KeptLog) -> None:
    """Write the file again without what is dropped; under the lock. Raises OSError, DamagedError.

    It is pruned next when it has grown by half of MOST_BYTES, however much the live ids need.
    """
    counts, ended = _counts(log)
    dropped: dict[int, int] = {}
    new_path = log.path.with_name(log.path.name + ".new")
    for path in (new_path, index_of(new_path)):
        path.unlink(missing_ok=True)
    with KeptLog(new_path) as new:
        for piece in _pieces(_left(log, counts, ended, dropped)):
            new.append(part_of(piece), 0, log.wholeness)
        new.note_pruned(log.cuts | dropped, new.size + MOST_BYTES // 2)
    # a crash between the two leaves an index that does not fit: it is made again
    index_of(new_path).replace(index_of(log.path))
    new_path.replace(log.path)


def _older(log: KeptLog) -> list[KeptExtent]:
    return [e for e in log.extents if e.end <= log.size // 2]


def _counts(log: KeptLog) -> tuple["Counter[bytes]", set[bytes]]:
    """Count each id's batches in the file; and the ids whose last one is an old tombstone."""
    counts: Counter[bytes] = Counter()
    ended: set[bytes] = set()
    older = len(_older(log))
    for number, extent in enumerate(log.extents):
        for row in names_of(extent.part()):
            counts.update(row.names or ())
            ended -= set(row.names or ())
            if number < older:
                ended |= set(row.ended)
    return counts, ended


def _left(
    log: KeptLog, counts: "Counter[bytes]", ended: set[bytes], dropped: dict[int, int]
) -> Iterator[bytes]:
    """Yield the batches that are kept. dropped: filled with the first offset kept of an id."""
    older = len(_older(log))
    cut: set[bytes] = set()
    for number, extent in enumerate(log.extents):
        part = extent.part()
        if number == older:
            cut -= ended  # none of them comes again
        if number >= older and not cut:
            yield bytes(part.data)
            continue
        for row in names_of(part):
            header = part.header(row.row)
            if number >= older or _keeps(row, counts, ended):
                for name in cut & set(row.names or ()):
                    dropped[id_token(name)] = header.base_offset
                    cut.remove(name)
                yield _bytes(part, row.row)
            else:
                cut |= set(row.names or ())
            for name in row.names or () if number < older else ():
                counts[name] -= 1


def _keeps(row: RowNames, counts: "Counter[bytes]", ended: set[bytes]) -> bool:
    """Tell whether a batch of the older half stays. counts: of its ids, from this batch on."""
    if row.names is None:
        return True
    return any(counts[name] <= KEPT and name not in ended for name in row.names)


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
