"""The source offsets of a Flink checkpoint: read only, Flink alone writes it."""

from collections.abc import Sequence

from eoctl.stores import flink_checkpoint
from eoctl.stores.offsets.bounded import SilentError, bounded
from eoctl.stores.offsets.store import Contents, EnsureHeld, StoredValues, StoreEntry, Write
from recovery.errors import IncompleteError, RefusedError
from recovery.formats.flink_checkpoint import sources
from recovery.restart.observed import FlinkFacts
from recovery.restart.stored import StoredOffset, StoredPartition
from recovery.shared.store_tables import FlinkCheckpointStore

_ELSEWHERE = {-1: "latest", -2: "earliest", -3: "committed"}
"""Where a source begins in a partition of which it has read nothing yet."""


class FlinkOffsets:
    """The store `flink:DIR#UID`: where each Kafka source of a checkpoint goes on."""

    compares = False

    def __init__(self, described: FlinkCheckpointStore, seconds: float) -> None:
        self._path, self._uid, self._seconds = described.path, described.uid, seconds
        self.name = f"Flink checkpoint {described.path}"

    async def read(self) -> Contents:
        """Entries: the next offset of each partition of which the source has read something."""
        try:
            return await bounded(lambda job: self._read(), self._seconds)
        except SilentError as error:
            raise IncompleteError(f"cannot be read: {error}", where=self.name) from None

    def _read(self) -> Contents:
        folder = flink_checkpoint.read(self._path)
        offsets = sources(folder.content, self._uid, where=self.name)
        return Contents(
            exists=True,
            entries=tuple(
                StoreEntry(
                    StoredPartition(
                        input=StoredOffset(topic=o.topic, partition=o.partition, offset=o.offset)
                    ),
                    {"offset": o.offset, "checkpoint": folder.content.checkpoint_id},
                )
                for o in offsets
                if o.offset >= 0
            ),
            flink=FlinkFacts(
                promised=len(folder.content.committables),
                newer=folder.newer,
                unread={
                    (o.topic, o.partition): _ELSEWHERE.get(o.offset, str(o.offset))
                    for o in offsets
                    if o.offset < 0
                },
            ),
        )

    def kept(self, position: StoredPartition) -> StoredValues:
        raise RefusedError("a checkpoint is Flink's: never written", where=self.name)

    async def write(
        self, writes: Sequence[Write], ensure_held: EnsureHeld, *, dissolve: bool = False
    ) -> None:
        raise RefusedError(
            "a checkpoint is Flink's: never written",
            where=self.name,
            remedy="set a group to it: eoctl restart plan --group G --from-store",
        )
