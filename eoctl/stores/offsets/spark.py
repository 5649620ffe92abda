"""A Spark checkpoint directory on this host: read-only, because only Spark writes it."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from eoctl.stores.offsets.checkpoint_store import CheckpointOffsets
from eoctl.stores.offsets.store import Contents, StoreEntry
from recovery.errors import IncompleteError, UsageError
from recovery.formats import spark_checkpoint
from recovery.formats.reader import CorruptError
from recovery.restart.stored import StoredOffset, StoredPartition
from recovery.shared.store_tables import SparkCheckpointStore

MOST_BYTES = 64 << 20


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
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise CorruptError(f"larger than {MOST_BYTES >> 20} MiB", where=name)
        return data.decode("utf-8")

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
