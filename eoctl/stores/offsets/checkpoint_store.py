"""The checkpoints of Flink and Spark as stores of offsets: only their engines write them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from eoctl.stores import flink_checkpoint
from eoctl.stores.offsets.bounded import SilentError, bounded
from eoctl.stores.offsets.store import Contents, EnsureHeld, StoredValues, StoreEntry, Write
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.formats import spark_checkpoint
from recovery.formats.flink_checkpoint import sources
from recovery.formats.reader import CorruptError
from recovery.restart.observed import FlinkFacts
from recovery.restart.stored import StoredOffset, StoredPartition
from recovery.shared.store_tables import FlinkCheckpointStore, SparkCheckpointStore


class CheckpointOffsets(ABC):
    """What the stores of checkpoints share. instead: what to do instead of writing one."""

    compares = False
    engine: ClassVar[str]
    instead: ClassVar[str]

    def __init__(self, path: str, seconds: float) -> None:
        self._seconds = seconds
        self.name = f"{self.engine} checkpoint {path}"

    async def read(self) -> Contents:
        """Return entries: where a job restored from this checkpoint begins to read."""
        try:
            return await bounded(lambda job: self._read(), self._seconds)
        except SilentError as error:
            raise IncompleteError(f"cannot be read: {error}", where=self.name) from None

    @abstractmethod
    def _read(self) -> Contents:
        """Read the checkpoint's files; the caller limits the time."""

    def kept(self, position: StoredPartition) -> StoredValues:
        raise RefusedError(f"a checkpoint is {self.engine}'s: never written", where=self.name)

    async def write(
        self, writes: Sequence[Write], ensure_held: EnsureHeld, *, dissolve: bool = False
    ) -> None:
        raise RefusedError(
            f"a checkpoint is {self.engine}'s: never written", where=self.name, remedy=self.instead
        )


_MOST_BYTES = 64 << 20  # of one file of a checkpoint
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


class SparkOffsets(CheckpointOffsets):
    """The store of [app.store] kind = "spark-checkpoint". Raises UsageError for a remote path."""

    engine = "Spark"
    instead = "give the query the plan's startingOffsets"

    def __init__(self, described: SparkCheckpointStore, seconds: float) -> None:
        path = described.path
        scheme, colon, rest = path.partition("://")
        if colon and scheme != "file":
            raise UsageError(
                f"{scheme} is not read here",
                where="[app.store] path",
                remedy="copy metadata, offsets, commits and sources to this host",
            )
        self._path = Path(rest if colon else path.removeprefix("file:"))
        super().__init__(str(self._path), seconds)

    def _read(self) -> Contents:
        """Return entries: where the next batch begins, or the unfinished one, which runs again."""
        if not self._path.is_dir():
            raise IncompleteError("there is no such directory", where=self.name)
        try:
            checkpoint = spark_checkpoint.read(_Files(self._path))
        except CorruptError as error:
            raise error.within(self.name) from None
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            name = getattr(error, "filename", None) or self._path
            raise IncompleteError(f"{name} cannot be read: {why}", where=self.name) from None
        stands = checkpoint.start if checkpoint.in_flight else checkpoint.end
        return Contents(
            exists=True,
            entries=tuple(
                StoreEntry(
                    StoredPartition(
                        input=StoredOffset(topic=topic, partition=partition, offset=offset)
                    ),
                    {
                        "offset": offset,
                        "batch": checkpoint.batch,
                        "in_flight": checkpoint.in_flight,
                    },
                )
                for (topic, partition), offset in sorted(stands.items())
            ),
            spark=checkpoint,
        )


class _Files(Mapping[str, str]):
    """The directory's files by name; only those that are looked at are read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names = [
            str(path.relative_to(folder))
            for pattern in ("metadata", "offsets/*", "commits/*", "sources/*/0")
            for path in folder.glob(pattern)
            if spark_checkpoint.relevant(str(path.relative_to(folder)))
        ]

    def __getitem__(self, name: str) -> str:
        with (self._folder / name).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise CorruptError(f"larger than {_MOST_BYTES >> 20} MiB", where=name)
        return data.decode("utf-8")

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
