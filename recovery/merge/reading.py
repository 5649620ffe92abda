"""Read a merge log for a replay: its entries, and the refusal for each way a log can be wrong.

The local engine and Spark share this module. Nothing may be written past the point where a log is
wrong, since restarts rely on its order.
"""

from collections.abc import Sequence

from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.formats.reader import CorruptError
from recovery.merge.log import Columns, MergeEntry, MergeFormat
from recovery.shared.app_file import named

LOOK = "check the log with `eoctl merge verify`"


def entries_of(
    form: MergeFormat,
    merge: TopicPartition,
    offsets: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
) -> Columns:
    """Return the entries of a log's records, in order. Raises RefusedError for any that is none."""
    usual = form.decode_usual(keys, values)
    if usual is not None:
        return usual
    entries: Columns = [], []
    for offset, key, value in zip(offsets, keys, values, strict=True):
        try:
            entry = form.decode(key, value)
        except CorruptError as error:
            raise unreadable(merge, offset, error) from None
        entries[0].append(entry.topic_partition)
        entries[1].append(entry.offset)
    return entries


def unreadable(merge: TopicPartition, offset: int, error: CorruptError) -> RefusedError:
    """Return the refusal: the log's record at `offset` is no entry."""
    return RefusedError(
        f"no entry of the format: {error.what}", where=f"{named(merge)} at {offset}", remedy=LOOK
    )


def goes_back(merge: TopicPartition, partition: TopicPartition) -> RefusedError:
    """Return the refusal: the log names an input's offsets twice, or not in order."""
    return RefusedError(
        f"its entries for {named(partition)} go back", where=named(merge), remedy=LOOK
    )


def no_input(merge: TopicPartition, partition: TopicPartition) -> RefusedError:
    """Return the refusal: the log names a partition that is not among the inputs."""
    return RefusedError(
        f"it names {named(partition)}, which is no input", where=named(merge), remedy=LOOK
    )


def refuse_unreadable(partition: TopicPartition, offset: int, bounds: tuple[int, int]) -> None:
    """Refuse to read an input at an offset outside bounds: its log start, its end for a reader.

    Raises RefusedError.
    """
    start, end = bounds
    if offset < start:
        raise RefusedError(
            f"the merge log names offset {offset}, the log starts at {start}: retention took "
            "what is to be read",
            where=named(partition),
            remedy="begin at a later commit: --from-merge-offset, --output-offset",
        )
    if offset >= end:
        raise beyond(partition, offset, end)


def beyond(partition: TopicPartition, offset: int, end: int) -> RefusedError:
    """Return the refusal: the input lacks the offset, or does not show it to this reader."""
    return RefusedError(
        f"the merge log names offset {offset}, the log ends at {end}",
        where=named(partition),
        remedy="the input lost records, or holds them back; see `eoctl merge verify`",
    )


def no_record(merge: TopicPartition, entry: MergeEntry) -> RefusedError:
    """Return the refusal: no visible record exists at or after the entry's offset."""
    return RefusedError(
        f"it names {named(entry.topic_partition)} at {entry.offset}, where there is no record",
        where=named(merge),
        remedy=LOOK,
    )


def mismatch(
    merge: TopicPartition, merge_offset: int, entry: MergeEntry, actual: int
) -> RefusedError:
    """Return the refusal: the input's next record is at `actual`, not at the entry's offset."""
    where, name = f"{named(merge)} at {merge_offset}", named(entry.topic_partition)
    if actual < entry.offset:
        return RefusedError(
            f"it names {name} at {entry.offset}, but the record at {actual} comes before it "
            "and is not in the log",
            where=where,
            remedy=LOOK,
        )
    return RefusedError(
        f"it names {name} at {entry.offset}, where no record is: the next is at {actual}",
        where=where,
        remedy=LOOK,
    )
