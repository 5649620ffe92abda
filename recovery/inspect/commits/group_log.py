"""Walk through a partition of `__consumer_offsets` for the records of some groups."""

from collections.abc import Collection

from recovery.formats.batches import CODEC_MASK, BatchHeader, batch_headers
from recovery.formats.consumer_offsets import (
    GroupKey,
    MemberKey,
    OffsetKey,
    OffsetValue,
    decode_group,
    decode_key,
    decode_value,
)
from recovery.formats.reader import Buffer, UnknownVersion
from recovery.formats.records import ControlType, Record, marker, records


class GroupLog:
    """The base of what is made of these records: `add` the batches in order, up to the end.

    A batch may come twice where two reads meet.
    """

    def __init__(self, groups: Collection[str]) -> None:
        self._groups = frozenset(groups)
        self._needles = [group.encode("utf-8", "surrogatepass") for group in self._groups]
        self._next = 0
        self.unreadable: set[str] = set()  # groups with a record of an unknown version

    def add(self, buffer: Buffer) -> None:
        """Take in the batches of a buffer. Raises CorruptError."""
        for header in batch_headers(buffer):
            if header.last_offset < self._next:
                continue
            self._next = header.last_offset + 1
            if header.is_control:
                end = marker(buffer, header)
                if end is not None and end.type is not ControlType.OTHER:
                    self._end(header, end.type)
            elif self._may_be_mine(buffer, header):
                for record in records(buffer, header):
                    self._record(record, header)

    def _may_be_mine(self, buffer: Buffer, header: BatchHeader) -> bool:
        """Return False if a batch cannot be about the group: most batches need not be opened."""
        if header.attributes & CODEC_MASK or len(self._needles) != 1:
            return True
        end = header.position + header.size
        return self._needles[0] in bytes(memoryview(buffer)[header.position : end])

    def _record(self, record: Record, header: BatchHeader) -> None:
        key = decode_key(record.key or b"")
        if not isinstance(key, OffsetKey | GroupKey | MemberKey) or key.group not in self._groups:
            return
        if not isinstance(key, OffsetKey):
            self._state(key, record.value)
            return
        value = decode_value(record.value)
        if isinstance(value, UnknownVersion):
            self.unreadable.add(key.group)
            value = None
        self._commit(key, value, record, header)

    def _commit(
        self, key: OffsetKey, value: OffsetValue | None, record: Record, header: BatchHeader
    ) -> None:
        """Take an offset's record. value None: a tombstone (expired or deleted), or unreadable."""
        raise NotImplementedError

    def _state(self, key: GroupKey | MemberKey, value: bytes | None) -> None:
        """Take a record about the group itself or a member. value None: a tombstone."""
        raise NotImplementedError

    def _end(self, header: BatchHeader, outcome: ControlType) -> None:
        """Take the marker, COMMIT or ABORT, of a transaction that may hold commits of any group."""
        raise NotImplementedError


def members_after(
    before: set[str] | None, key: GroupKey | MemberKey, present: bool | None
) -> set[str] | None:
    """Return the members after a record, as far as the records name them; None: not known.

    present: see `present_in`. Of a classic group only whether it has members is known.
    """
    if present is None:
        return None
    if isinstance(key, MemberKey):
        mine = {key.member}
        return (before or set()) | mine if present else (before or set()) - mine
    return {"any"} if present else set()


def present_in(key: GroupKey | MemberKey, value: bytes | None) -> bool | None:
    """Return whether the group has members after this record, of a MemberKey this member.

    None: its version is unknown. Raises CorruptError.
    """
    if isinstance(key, MemberKey):
        return value is not None
    group = decode_group(value)
    return None if isinstance(group, UnknownVersion) else group is not None and bool(group.clients)
