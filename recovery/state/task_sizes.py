"""Decide how much each task of a rebuild does, and what that costs in requests to object storage.

A partition that is large for the tasks that run at once is read in ranges, which leave runs. Runs
are merged in buckets, each of which reads its slice of each run. A slice is one request, so
requests grow as the runs times the buckets, and buckets are as large as slices allow: a merge's
memory does not depend on them.
"""

from collections.abc import Mapping, Sequence

from recovery.facts import TopicPartition

RANGE_BYTES, LEAST_RANGE_BYTES = 4 << 30, 1 << 30  # a smaller one costs more than it saves
RANGE_OFFSETS, LEAST_RANGE_OFFSETS = 20_000_000, 5_000_000  # where bytes are not known
_RANGES = 2  # for each task that runs at once: they do not all take equally long
SECTION_BYTES = 2 << 20  # of a run, at least: a slice begins and ends with a section
READ_BYTES = 8 << 20  # of one request
PART_BYTES = 16 << 20  # of one request, of a file that is being written; S3 takes 10,000 parts
_SLICES = 46  # of this size in a task's memory: with one more section, a slice is one request
_SMALL = 8  # as many of the smallest buckets in a task's memory
_MOST = 16  # of a task's memory in a bucket, whatever slices are then: it is not to take hours


def most_offsets(
    offsets: Mapping[TopicPartition, int],
    sizes: Mapping[TopicPartition, int],
    slots: int | None,
) -> dict[TopicPartition, int]:
    """Return how many offsets of each partition one task reads.

    offsets: that are read of each partition; sizes: their bytes, where they are known. slots: how
    many tasks run at once; None if nobody knows, and then ranges are small. A log's size may leave
    out what is below its leader's disk, so no range has more than RANGE_OFFSETS.

    >>> at = TopicPartition("t", 0)
    >>> [most_offsets({at: 10**9}, {at: 100 << 30}, slots)[at] for slots in (4, 40, 400, None)]
    [20000000, 12500000, 10000000, 10000000]
    >>> most_offsets({at: 10**9}, {}, 40)[at]
    12500000
    """
    total = sum(sizes.values())
    whole = sum(offsets.values())
    most_bytes, most = (
        min(high, max(low, _divided(of_all, _RANGES * slots))) if slots else low
        for of_all, low, high in (
            (total, LEAST_RANGE_BYTES, RANGE_BYTES),
            (whole, LEAST_RANGE_OFFSETS, RANGE_OFFSETS),
        )
    )
    return {
        at: max(1, min(_divided(number * most_bytes, sizes[at]), RANGE_OFFSETS))
        if sizes.get(at)
        else most
        for at, number in offsets.items()
    }


def buckets(sizes: Sequence[int], ranges: int, memory_bytes: int, *, by_request: bool) -> int:
    """Return into how many equal parts of all hashes runs of these sizes (bytes) are merged.

    ranges: that left the runs, which is about the number of tasks that run side by side.
    memory_bytes: of a task. by_request: each slice of a run costs a request.

    >>> memory = 256 << 20
    >>> at_most = [246 << 20] * 416  # 100 GiB of records that are never replaced
    >>> [buckets(at_most, 50, memory, by_request=each) for each in (True, False)]
    [45, 400]
    >>> [buckets([3 << 20] * 31, 31, memory, by_request=each) for each in (True, False)]
    [1, 3]
    >>> buckets([5 << 20] * 1000, 1000, memory, by_request=True)
    2
    """
    total = sum(sizes)
    if not total:
        return 1
    small = max(1, memory_bytes // _SMALL)
    wanted = max(_divided(total, memory_bytes), min(ranges, _divided(total, small)))
    if not by_request:
        return wanted
    slices = _divided(max(sizes), max(1, memory_bytes // _SLICES))
    return min(wanted, max(slices, _divided(total, _MOST * memory_bytes)))


def merges(runs: int, most: int) -> list[int]:
    """Return how many runs each merge takes before the last one, in which at most `most` are left.

    The smallest comes first, so that as few bytes as possible are written and read again.

    >>> merges(100, 32)
    [7, 32, 32]
    >>> merges(32, 32)
    []
    """
    full, rest = divmod(max(0, runs - most), most - 1)
    return [rest + 1] * bool(rest) + [most] * full


def requests(sizes: Sequence[int], into: int, most: int) -> int:
    """Return how many requests the runs of a partition cost at most, and the state merged of them.

    sizes: of the runs, in bytes. into: buckets. most: runs that are merged at once. The state is
    taken as large as its runs.

    >>> 100 * requests([246 << 20] * 416, 45, 32)  # 10 TiB in 100 partitions, all keys different
    5293800
    """
    total = sum(sizes)
    slices = sum(into * _reads(_divided(size, into)) for size in sizes)
    again = 0
    for runs in merges(len(sizes), most):
        size = _divided(runs * total, into * len(sizes))
        again += into * (writes(size) + _reads(size))
    state = into * writes(_divided(total, into))
    return sum(map(writes, sizes)) + slices + again + state


def _reads(size: int) -> int:
    """Return the requests that read so many bytes of a run, with the rest of their sections."""
    return _divided(size + SECTION_BYTES, READ_BYTES)


def writes(size: int, part_bytes: int = PART_BYTES) -> int:
    """Return the requests that write a file: one, or its parts, a beginning and an end."""
    parts = _divided(size, part_bytes)
    return parts + 2 if parts > 1 else 1


def _divided(size: int, by: int) -> int:
    return -(-size // by)
