"""Read the files of a Structured Streaming checkpoint on this host, and write a repaired copy.

The checkpoint itself is only read. Hadoop's local file system keeps the CRC-32 of every 512 bytes
of F in `.F.crc`; a file that does not match its checksums is broken, whatever its content.
"""

import json
import mmap
import os
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from eoctl.settings.folders import full_disk
from eoctl.stores import private
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.formats import spark_checkpoint as formats
from recovery.formats.reader import CorruptError
from recovery.restart.checkpoint_repair import CheckpointFiles, Progress, Remedy, StoreVersions
from recovery.times import instant

NOTE = "eoctl-repair.json"
"""What was repaired, in the copy's own folder; Spark does not look at it."""

_BATCH = re.compile(r"0|[1-9][0-9]*")
_STATE = re.compile(r"([1-9][0-9]*)(?:_[^.]*)?\.(delta|snapshot|zip|changelog)")
_PARTITIONS = re.compile(r'"storeName":"([^"]+)"[^}]*?"numPartitions":([0-9]+)')
_SST = re.compile(r'"dfsSstFileName":"([^"]+)","sizeBytes":([0-9]+)')
_EVENT = re.compile(r"(?:^|made progress: )\{", re.MULTILINE)
_LZ4 = b"LZ4Block"
_LZ4_END = 21  # bytes of the empty block that ends a stream
_MOST_BYTES = 64 << 20  # of a log file


def folder_of(word: str) -> Path:
    """Return the folder that a word names. Raises UsageError."""
    if "://" in word and not word.startswith("file://"):
        raise UsageError(
            "only a checkpoint on this host can be repaired",
            where=word,
            remedy="copy it to this host, and the repaired copy back",
        )
    folder = Path(word.removeprefix("file://").removeprefix("file:").removeprefix("spark:"))
    if not folder.is_dir():
        raise UsageError("there is no such directory", where=str(folder))
    if not any((folder / name).exists() for name in ("offsets", "commits", "metadata")):
        raise UsageError(
            "is not a checkpoint: no metadata, no offsets, no commits", where=str(folder)
        )
    return folder


def read(folder: Path) -> CheckpointFiles:
    """Read what a query starts from. Raises IncompleteError if that cannot be read, or changes
    while being read: a query is at work."""
    try:
        before = _listed(folder)
        files = _read(folder)
        if _listed(folder) != before:
            raise _changing(folder)
    except OSError as error:
        raise IncompleteError(
            f"cannot be read: {error.strerror}", where=str(error.filename or folder)
        ) from None
    return files


def _changing(folder: Path) -> IncompleteError:
    return IncompleteError(
        "changes while it is read", where=str(folder), remedy="stop the query first"
    )


def _listed(folder: Path) -> dict[str, tuple[int, int]]:
    listed = {}
    for path in _files(folder):
        with suppress(FileNotFoundError):
            status = path.stat()
            listed[str(path)] = (status.st_size, status.st_mtime_ns)
    return listed


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder, onerror=_raise):
        for name in names:
            yield Path(parent, name)


def _raise(error: OSError) -> None:
    raise error


def _read(folder: Path) -> CheckpointFiles:
    broken: dict[str, str] = {}
    query_id = None
    if (folder / "metadata").exists():
        with suppress(CorruptError):
            query_id = formats.query_id({"metadata": _text(folder, "metadata")})
        if query_id is None:
            broken["metadata"] = "is broken"
    offsets = _log(folder, "offsets", formats.batch_offsets, broken)
    _same_sources(offsets, broken)
    commits = _log(folder, "commits", formats.commit_metadata, broken)
    stores, missing = _stores(folder, offsets)
    return CheckpointFiles(query_id, offsets, commits, broken, stores, missing)


def _log(folder: Path, log: str, parse: Any, broken: dict[str, str]) -> dict[int, Any]:
    entries: dict[int, Any] = {}
    there = (folder / log).iterdir() if (folder / log).is_dir() else ()
    for name in (path.name for path in there):
        if not _BATCH.fullmatch(name):
            continue
        try:
            entries[int(name)] = parse(_text(folder, f"{log}/{name}"), f"{log}/{name}")
        except CorruptError as error:
            entries[int(name)] = None
            empty = (folder / log / name).stat().st_size == 0
            broken[f"{log}/{name}"] = "is empty" if empty else f"is broken: {error.what}"
    return entries


def _text(folder: Path, name: str) -> str:
    """Return a small file's text. Raises CorruptError if its checksums or encoding are wrong."""
    path = folder / name
    if path.stat().st_size > _MOST_BYTES:
        raise CorruptError(f"larger than {_MOST_BYTES >> 20} MiB", where=name)
    data = path.read_bytes()
    if not _sums_fit(path, data):
        raise CorruptError("its checksums (.crc) are of other bytes", where=name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise CorruptError("it is not text", where=name) from None


def _sums_fit(path: Path, data: bytes | mmap.mmap) -> bool:
    """Return False if Hadoop's checksums next to a file belong to other bytes."""
    try:
        sums = path.with_name(f".{path.name}.crc").read_bytes()
    except FileNotFoundError:
        return True
    if sums[:4] != b"crc\0" or len(sums) < 8:
        return False
    [size] = struct.unpack(">i", sums[4:8])
    if size <= 0:
        return False
    now = [zlib.crc32(data[n : n + size]) for n in range(0, len(data), size)]
    return sums[8:] == struct.pack(f">{len(now)}I", *now)


def _same_sources(offsets: dict[int, Any], broken: dict[str, str]) -> None:
    """Mark files as broken that have fewer sources than others, or an incomplete last line."""
    whole = [o for o in offsets.values() if o is not None]
    most = max((len(o.sources) for o in whole), default=0)
    for batch, entry in offsets.items():
        if entry is None:
            continue
        if len(entry.sources) < most:
            why = f"is broken: {len(entry.sources)} of {most} sources"
        elif any(_cut(entry, other) for other in whole):
            why = "is broken: a source's offset is not JSON"
        else:
            continue
        offsets[batch] = None
        broken[f"offsets/{batch}"] = why


def _cut(entry: formats.BatchOffsets, other: formats.BatchOffsets) -> bool:
    """Return True if a source's offset is not JSON here, but is JSON in `other`."""
    return any(
        isinstance(here, str) and here != formats.VOID and isinstance(there, (dict, list, int))
        for here, there in zip(entry.values, other.values, strict=False)
    )


def _stores(
    folder: Path, offsets: Mapping[int, Any]
) -> tuple[tuple[StoreVersions, ...], tuple[str, ...]]:
    """Return the stores' versions, and the folders that are missing."""
    stores: list[StoreVersions] = []
    missing: list[str] = []
    state = folder / "state"
    operators = sorted(p for p in state.glob("*") if _BATCH.fullmatch(p.name) and p.is_dir())
    for operator in operators:
        there = {p for p in operator.glob("*") if _BATCH.fullmatch(p.name) and p.is_dir()}
        names: set[str] = set()
        for partition in there:
            names |= {p.name for p in partition.iterdir() if p.is_dir() and not _ours(p.name)}
        known = _expected(operator, offsets)
        partitions = max(
            [known, *(int(p.name) + 1 for p in there)], default=0
        )  # a folder that Spark does not know of is checked too
        for number in range(partitions):
            base = operator / str(number)
            for store in [base / n for n in sorted(names)] or [base]:
                name = str(store.relative_to(folder))
                if store.is_dir():
                    stores.append(_versions(store, name))
                else:
                    missing.append(name)
    return tuple(stores), tuple(missing)


def _ours(name: str) -> bool:
    """Return True for a folder in a partition's folder that is not a store."""
    return name.startswith(("_", ".")) or name in ("SSTs", "logs")


def _expected(operator: Path, offsets: Mapping[int, Any]) -> int:
    """Return an operator's number of partitions: from its metadata, else the query's conf."""
    for path in sorted((operator / "_metadata").rglob("*"), reverse=True):
        if path.is_file() and not path.name.startswith("."):
            numbers = _PARTITIONS.findall(path.read_text("utf-8", "replace"))
            if numbers:
                return max(int(n) for _, n in numbers)
    for batch in sorted(offsets, reverse=True):
        if offsets[batch] is not None:
            conf = offsets[batch].metadata.get("conf") or {}
            text = str(conf.get("spark.sql.shuffle.partitions", ""))
            return int(text) if text.isdecimal() else 0
    return 0


def _versions(store: Path, name: str) -> StoreVersions:
    """Return the versions a provider can load from a folder: a full state, then each change."""
    snapshots: set[int] = set()
    changes: set[int] = set()
    named: set[int] = set()
    broken: set[int] = set()  # snapshots on which Spark fails, with a change next to them or not
    for path in store.iterdir():
        if not (match := _STATE.fullmatch(path.name)):
            continue
        version = int(match[1])
        named.add(version)
        kind = snapshots if match[2] in ("snapshot", "zip") else changes
        if _whole(path):
            kind.add(version)
        elif kind is snapshots:
            broken.add(version)
    whole: set[int] = set()
    for version in sorted(named):
        follows = version in changes and (version == 1 or version - 1 in whole)
        if version not in broken and (version in snapshots or follows):
            whole.add(version)
    return StoreVersions(name, frozenset(whole), frozenset(named))


def _whole(path: Path) -> bool:
    """Return False if a state's file is empty, cut, or lacks a file that it names."""
    if not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
        if not _sums_fit(path, data):
            return False
        if data[: len(_LZ4)] == _LZ4:
            end = data[-_LZ4_END:]
            return end.startswith(_LZ4) and not any(end[len(_LZ4) + 1 :])
    if path.suffix != ".zip":
        return True
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            content = archive.read("metadata") if "metadata" in names else b""
    except (zipfile.BadZipFile, EOFError, zlib.error):
        return False
    for sst, size in _SST.findall(content.decode("utf-8", "replace")):
        file = path.parent / "SSTs" / sst
        if not file.is_file() or file.stat().st_size != int(size):
            return False
    return True


def read_progress(path: Path, query_id: str | None) -> dict[int, Progress]:
    """Return a query's progress events by batch; the last one of several.

    The file may be `lastProgress` as JSON, several a line each, Spark's event log, or the log of
    its driver. Raises UsageError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"cannot be read: {reason}", where=f"--progress {path}") from None
    events = {}
    for event in _events(text):
        with suppress(KeyError, TypeError, UsageError):
            # a trigger without a batch also has a number and offsets: those of a future batch
            if event["id"] == query_id and "commitOffsets" in event["durationMs"]:
                events[int(event["batchId"])] = _progress(event)
    return events


def _events(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects that begin a line or follow Spark's words, and those in an event."""
    for match in _EVENT.finditer(text):
        with suppress(ValueError, RecursionError, AttributeError):
            content, _ = json.JSONDecoder().raw_decode(text, match.end() - 1)
            yield content
            inside = content.get("progress")
            yield json.loads(inside) if isinstance(inside, str) else inside


def _progress(event: Mapping[str, Any]) -> Progress:
    def ends(name: str) -> tuple[Any, ...]:
        values = [source[name] for source in event["sources"]]
        texts = [formats.VOID if v is None else v for v in values]
        return tuple(formats.offset_value(t) if isinstance(t, str) else t for t in texts)

    at = instant(event["timestamp"], 0, where="timestamp")
    return Progress(event["id"], event["batchId"], at, ends("startOffset"), ends("endOffset"))


def copy(folder: Path, to: Path, remedy: Remedy, note: Mapping[str, Any]) -> None:
    """Make the repaired copy, completely or not at all. Raises RefusedError, IncompleteError."""
    if to.exists():
        raise RefusedError("is there already", where=str(to), remedy="name a new folder")
    if to.resolve().is_relative_to(folder.resolve()):
        raise UsageError("lies in the checkpoint, which is never changed", where=str(to))
    making = to.with_name(f".{to.name}.making")
    if making.exists():
        raise RefusedError(
            "an earlier copy was left unfinished, or is being made",
            where=str(making),
            remedy="remove it when nothing writes there",
        )
    try:
        before = _listed(folder)
        private.make_folder(making)
        try:
            _copy(folder, making, remedy)
            for write in remedy.writes:
                _put(making / write.file, write.text)
            _put(making / NOTE, json.dumps(note, indent=1) + "\n")
            if _listed(folder) != before:
                raise _changing(folder)
            making.rename(to)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
    except OSError as error:
        if (full := full_disk(error)) is not None:
            raise full from None
        raise IncompleteError(
            f"cannot be copied: {error.strerror}", where=str(error.filename or to)
        ) from None


def _copy(folder: Path, making: Path, remedy: Remedy) -> None:
    """Copy the files that are kept, byte for byte."""
    replaced = {write.file for write in remedy.writes}
    for path in _files(folder):
        name = path.relative_to(folder)
        bare = name.with_name(name.name.removeprefix(".").removesuffix(".crc"))
        of = bare if name.name.startswith(".") and name.name.endswith(".crc") else name
        if str(of) in replaced or _left_out(of, remedy):
            continue
        target = making / name
        private.make_folder(target.parent)
        shutil.copyfile(path, target)
        shutil.copystat(path, target)


def _left_out(name: Path, remedy: Remedy) -> bool:
    if name.parts[0] == "state":
        match = _STATE.fullmatch(name.name)
        return match is not None and int(match[1]) > remedy.version
    if len(name.parts) != 2 or not _BATCH.fullmatch(name.name):
        return False
    batch = int(name.name)
    if name.parts[0] == "offsets":
        return batch in remedy.without_offsets
    return name.parts[0] == "commits" and batch in remedy.without_commits


def _put(path: Path, text: str) -> None:
    private.make_folder(path.parent)
    private.make_file(path).write_text(text, encoding="utf-8")
