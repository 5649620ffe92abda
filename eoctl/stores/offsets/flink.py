"""The source offsets of a Flink checkpoint: read-only, because only Flink writes it."""

from eoctl.stores import flink_checkpoint
from eoctl.stores.offsets.checkpoint_store import CheckpointOffsets
from eoctl.stores.offsets.store import Contents, StoreEntry
from recovery.formats.flink_checkpoint import sources
from recovery.restart.observed import FlinkFacts
from recovery.restart.stored import StoredOffset, StoredPartition
from recovery.shared.store_tables import FlinkCheckpointStore

_ELSEWHERE = {-1: "latest", -2: "earliest", -3: "committed"}
"""Where a source begins in a partition of which it has read nothing yet."""


class FlinkOffsets(CheckpointOffsets):
    """The store `flink:DIR#UID`: where each Kafka source of a checkpoint continues."""

    engine = "Flink"
    instead = "set a group to it: eoctl restart plan --group G --from-store"

    def __init__(self, described: FlinkCheckpointStore, seconds: float) -> None:
        super().__init__(described.path, seconds)
        self._path, self._uid = described.path, described.uid

    def _read(self) -> Contents:
        """Return the next offset of each partition that the source has read from."""
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
                    o.topic_partition: _ELSEWHERE.get(o.offset, str(o.offset))
                    for o in offsets
                    if o.offset < 0
                },
            ),
        )
