"""Find records in bytes: varints at many positions at once, and the chain of record lengths.

Source: Kafka's class ByteUtils (zigzag varints, seven bits a byte, low group first).
"""

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LONGEST = 10
_RUN_LEAST = 8  # so many records of one length in a row are worth comparing at once
_MOST_AT_ONCE = 256
_SIEVES = 4  # passes, since a false record may point to another false one
_LOCK_STEP_LEAST = 64  # so many batches are worth walking side by side


def varints(
    data: "NDArray[np.uint8]", position: "NDArray[np.int64]"
) -> tuple["NDArray[np.int64]", "NDArray[np.int64]"]:
    """Return the zigzag varints at `position`, and the positions after them.

    A varint has at most ten bytes; more are ignored, and the caller's checks of lengths and ends
    find malformed ones. At least ten bytes must follow each position.
    """
    import numpy as np

    byte = data[position]
    value = (byte & 0x7F).astype(np.uint64)
    behind = position + 1
    more = np.flatnonzero(byte >= 0x80)
    shift = 7
    while len(more) and shift < 7 * _LONGEST:
        if len(more) == len(position):  # mostly lengths, with equally many bytes each
            byte = data[behind]
            value |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            behind += 1
        else:
            byte = data[position[more] + shift // 7]
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            behind[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    sign = -(value & np.uint64(1)).view(np.int64)
    value >>= np.uint64(1)
    return value.view(np.int64) ^ sign, behind


def record_starts(
    data: "NDArray[np.uint8]",
    first: "NDArray[np.int64]",
    behind: "NDArray[np.int64]",
    count: "NDArray[np.int64]",
) -> tuple["NDArray[np.int64]", int]:
    """Return the start of each record, batch after batch, and how many batches were walked.

    Batch i has count[i] records in data[first[i]:behind[i]], which they fill exactly: the walk ends
    at a batch where they do not. Only a record's length shows where the next one is, so no single
    vector operation finds all; but many batches can be walked side by side.
    """
    if int(count.sum()) >= _LOCK_STEP_LEAST * int(count.max(initial=0)):
        return _lock_step(data, first, behind, count)
    if _sizes_vary(data, first, behind):
        starts = _by_zeros(data, first, behind, count)
        if starts is not None:
            return starts, len(first)
    return _one_by_one(data, first, behind, count)


def _sizes_vary(
    data: "NDArray[np.uint8]", first: "NDArray[np.int64]", behind: "NDArray[np.int64]"
) -> bool:
    """Return True if sizes vary in most batches, judged by their second to fourth records."""
    import numpy as np

    position = first
    sizes: list[NDArray[np.int64]] = []
    for _ in range(4):
        length, at = varints(data, position)
        sizes.append(length)
        position = np.clip(at + length, first, behind)
    alike = (sizes[1] == sizes[2]) & (sizes[2] == sizes[3])
    return 2 * int(alike.sum()) < len(first)


def _by_zeros(
    data: "NDArray[np.uint8]",
    first: "NDArray[np.int64]",
    behind: "NDArray[np.int64]",
    count: "NDArray[np.int64]",
) -> "NDArray[np.int64] | None":
    """Find all at once if the byte after each record's length is 0, as Kafka's clients write it.

    Each byte 0 may be such a byte. A false record points to no other, or none points to it. Return
    None unless the rest is one chain through each batch, which proves it; a record of more than
    8 KiB, or one with headers before a very small one, gives None.
    """
    import numpy as np

    empty = count == 0
    if (first[empty] != behind[empty]).any():
        return None
    first, behind, count = first[~empty], behind[~empty], count[~empty]
    if not len(first):
        return first
    low = int(first[0])
    zero = np.flatnonzero(data[low : int(behind[-1])] == 0) + low
    high, two = data[zero - 1], data[zero - 2]
    length = high.astype(np.int64)
    long = two >= 0x80
    length[long] = (length[long] << 7) + (two[long] & 0x7F)
    start = zero - 1 - long
    good = (high > 0) & (high < 0x80) & (length & 1 == 0) & (start >= low)
    start, end = start[good], zero[good] + (length[good] >> 1)
    at = np.searchsorted(start, first)
    if len(lost := np.flatnonzero(np.append(start, -1)[at] != first)):
        start, end = (np.insert(each, at[lost], first[lost]) for each in (start, end))
        at = np.searchsorted(start, first)
    length, position = varints(data, first)
    end[at] = position + length
    stop = behind[np.repeat(np.arange(len(first)), np.diff(at, append=len(start)))]
    last = np.cumsum(count) - 1
    for _ in range(_SIEVES):
        following = np.append(start[1:], -1)
        if len(start) == last[-1] + 1:
            following[last] = behind
            if (end == following).all() and (start[last - count + 1] == first).all():
                return start
            return None
        final = end == stop
        direct = (end == following) & ~final
        others = np.flatnonzero(~direct & ~final)
        to = np.searchsorted(start, end[others])
        hit = np.append(start, -1)[to] == end[others]
        reached = np.zeros(len(start) + 1, np.bool_)
        reached[1:] = direct
        reached[to[hit]] = True
        reached[np.searchsorted(start, first)] = True
        kept = direct | final
        kept[others[hit]] = True
        kept &= reached[:-1]
        start, end, stop = start[kept], end[kept], stop[kept]
    return None


def _lock_step(
    data: "NDArray[np.uint8]",
    first: "NDArray[np.int64]",
    behind: "NDArray[np.int64]",
    count: "NDArray[np.int64]",
) -> tuple["NDArray[np.int64]", int]:
    """Walk the n-th record of every batch at once."""
    import numpy as np

    none = np.zeros(0, np.int64)
    order = np.argsort(-count, kind="stable")  # batches with most records first, so those left ...
    position, end, size = first[order], behind[order], count[order]
    slot = (np.cumsum(count) - count)[order]
    starts = np.empty(int(count.sum()), np.int64)
    width = np.searchsorted(-size, -np.arange(int(size[0]) if len(size) else 0), side="left")
    for step, n in enumerate(width.tolist()):  # ... at each step are the first n
        starts[slot[:n] + step] = position[:n]
        length, at = varints(data, position[:n])
        position[:n] = at + length
        wrong = (length < 0) | (length > end[:n] - at)
        if wrong.any():
            return none, int(order[int(wrong.argmax())])
    wrong = position != end
    if wrong.any():
        return none, int(order[int(wrong.argmax())])
    return starts, len(first)


def _one_by_one(
    data: "NDArray[np.uint8]",
    first: "NDArray[np.int64]",
    behind: "NDArray[np.int64]",
    count: "NDArray[np.int64]",
) -> tuple["NDArray[np.int64]", int]:
    """Walk one record after the other. Records of one size often follow each other, so comparing
    many lengths at once finds how long such a run is."""
    import numpy as np

    content = data.tobytes()  # Python reads bytes faster than an array
    starts = array("q")  # a list would take five times as much
    runs: list[tuple[int, int, int]] = []  # start, stride, records
    records_walked, declared = 0, 0
    for batch, (position, end, left) in enumerate(
        zip(first.tolist(), behind.tolist(), count.tolist(), strict=True)
    ):
        declared += left
        patience = 1
        while position < end:
            if left >= _RUN_LEAST:
                stride, same = _same_length(content, data, position, end, left)
                if same >= _RUN_LEAST:
                    runs.append((position, stride, same))
                    records_walked += same
                    position += stride * same
                    left -= same
                    patience = 1
            before = len(starts)
            pause = before + patience
            while position < end and len(starts) < pause:
                starts.append(position)
                byte = content[position]
                if byte < 0x80:
                    position += 1 + (byte >> 1)
                elif (second := content[position + 1]) < 0x80:
                    position += 2 + ((byte & 0x7F | second << 7) >> 1)
                else:
                    length, position = _long(content, position)
                    position += length >> 1
            left -= len(starts) - before
            patience *= 2  # where sizes vary, comparing finds nothing
        if position != end or records_walked + len(starts) != declared:
            return np.zeros(0, np.int64), batch
    walked = np.frombuffer(starts, np.int64) if starts else np.zeros(0, np.int64)
    if not runs:
        return walked, len(first)
    start, stride, records = np.array(runs, np.int64).T
    within = np.arange(records_walked) - np.repeat(np.cumsum(records) - records, records)
    every = np.repeat(start, records) + np.repeat(stride, records) * within
    return np.sort(np.concatenate((walked, every))), len(first)


def _long(content: bytes, position: int) -> tuple[int, int]:
    """Return a varint of up to ten bytes, not yet unzigzagged, and the position after it.

    For a longer one, return 1, which stands for the length -1.
    """
    value = 0
    for group in range(_LONGEST):
        byte = content[position + group]
        value |= (byte & 0x7F) << 7 * group
        if byte < 0x80:
            return value, position + group + 1
    return 1, position + _LONGEST


def _same_length(
    content: bytes, data: "NDArray[np.uint8]", position: int, end: int, left: int
) -> tuple[int, int]:
    """Return (stride, n): n records from `position` on, and perhaps more, have one length.

    Both are 0 for lengths that are not written in one or two bytes.
    """
    low, high = content[position], content[position + 1]
    if low < 0x80:
        stride = 1 + (low >> 1)
    elif high < 0x80:
        stride = 2 + ((low & 0x7F | high << 7) >> 1)
    else:
        return 0, 0
    if low & 1:
        return 0, 0
    fit = min(left, (end - position) // stride, _MOST_AT_ONCE)
    if fit < _RUN_LEAST:
        return stride, 0
    behind = position + stride * fit
    same = data[position:behind:stride] == low
    if low >= 0x80:
        same &= data[position + 1 : behind : stride] == high
    n = int(same.argmin())
    return stride, n or fit  # the first one always equals itself
