"""Diagnose a damaged Structured Streaming checkpoint, and plan how to repair a copy of it.

A query can start in two ways that lose nothing: after its last batch, if that is committed, or by
repeating its last batch in exactly its ranges, as after any crash. The repair makes one of them
possible: what it writes is proven by other files or has no effect, and it says which. Otherwise the
query goes back to an earlier batch, and Spark plans the later ones again.

Spark's behaviour was measured with 4.3.0: tests/spark/test_checkpoint_repair.py.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from recovery.formats.spark_checkpoint import BatchOffsets, write_batch_offsets
from recovery.values import Value, replace

Effect = Literal["proven", "no-effect"]
Way = Literal["next", "again"]


class StoreVersions(Value):
    """The versions of one store partition that Spark can load, as its files show.

    name: its folder in the checkpoint. whole: the loadable versions. named: all versions that a
    file belongs to, even a broken one. Batch N loads version N and writes version N + 1.
    """

    name: str
    whole: frozenset[int]
    named: frozenset[int]


class CheckpointFiles(Value):
    """The files of a checkpoint.

    query_id: None where `metadata` is missing or broken. offsets, commits: by batch, None where the
    file is broken. broken: the reason, by file. stores: one for each partition that must exist;
    missing_stores: folders of partitions that do not. state_ids: commits name the files of the
    state (format 2 of state store checkpoints).
    """

    query_id: str | None
    offsets: Mapping[int, BatchOffsets | None]
    commits: Mapping[int, Mapping[str, Any] | None]
    broken: Mapping[str, str] = msgspec.field(default_factory=dict)
    stores: tuple[StoreVersions, ...] = ()
    missing_stores: tuple[str, ...] = ()

    @property
    def state_ids(self) -> bool:
        """Return True if commits name the files of the state."""
        return any(c is not None and c.get("stateUniqueIds") for c in self.commits.values())

    def loadable(self, version: int) -> bool:
        """Return True if every store can be loaded at a version; version 0 is empty."""
        if self.missing_stores:
            return False
        return version == 0 or all(version in store.whole for store in self.stores)

    @property
    def last(self) -> int | None:
        """Return the last batch that any file belongs to; None if there is no such file."""
        states = [max(s.named) - 1 for s in self.stores if s.named]
        return max((*self.offsets, *self.commits, *states), default=None)


class Progress(Value):
    """A batch from one of Spark's progress events, which Spark sends when the batch is done."""

    query_id: str
    batch: int
    timestamp_ms: int
    start: tuple[Any, ...]
    end: tuple[Any, ...]


class Finding(Value):
    """A difference from what Spark leaves behind. blocks: the query cannot start because of it, or
    starts with another batch. spark: what Spark 4.3.0 does about it. settles: what would prove the
    lost content."""

    file: str
    what: str
    blocks: bool
    spark: str
    settles: str | None = None


class Write(Value):
    """A file that the copy gets. because: what proves it, or why it has no effect."""

    file: str
    text: str
    effect: Effect
    because: str


class Remedy(Value):
    """The changes that turn a copy into a checkpoint from which Spark starts.

    way: `next` = after `batch`, `again` = repeat `batch` in exactly its ranges. without_offsets,
    without_commits: batches whose file the copy leaves out. version: of the state; the copy leaves
    out later ones. replanned: batches that come again in other ranges.
    """

    way: Way
    batch: int
    writes: tuple[Write, ...]
    without_offsets: tuple[int, ...]
    without_commits: tuple[int, ...]
    version: int
    replanned: tuple[int, ...] = ()


class CheckpointDiagnosis(Value):
    """The result. findings: () = intact. remedy: None where none is safe; refused: the reason."""

    last: int | None
    in_flight: bool
    findings: tuple[Finding, ...]
    remedy: Remedy | None
    refused: str | None

    @property
    def broken(self) -> bool:
        """Return True if something keeps the query from going on where it would have."""
        return any(f.blocks for f in self.findings)


def diagnose(
    files: CheckpointFiles, events: Mapping[int, Progress] | None = None, *, rewind: bool = False
) -> CheckpointDiagnosis:
    """Judge a checkpoint. events: those of its last two batches, if they were kept.

    rewind: go back to the last intact batch if nothing better is safe.
    """
    last = files.last
    if last is None:
        return CheckpointDiagnosis(None, False, _metadata(files), None, None)
    in_flight = last not in files.commits
    findings = (*_metadata(files), *_offsets(files, last), *_commits(files, last))
    findings += _state(files, last, in_flight)
    if not any(f.blocks for f in findings):
        return CheckpointDiagnosis(last, in_flight, findings, None, None)
    refused = _never(files)
    remedy = None
    if refused is None:
        remedy = _at(files, last, _filled(files, last, events or {}))
        if remedy is None and rewind:
            remedy = _earlier(files, last)
        if remedy is None:
            refused = _why_not(files, last, rewind=rewind)
    return CheckpointDiagnosis(last, in_flight, findings, remedy, refused)


def _metadata(files: CheckpointFiles) -> tuple[Finding, ...]:
    if files.query_id is not None:
        return ()
    why = files.broken.get("metadata", "is missing")
    return (
        Finding(
            "metadata",
            why,
            bool(files.offsets or files.commits) or "metadata" in files.broken,
            "refuses to start",
            'the query\'s id, from a progress event or the job\'s log: write {"id":"..."} there',
        ),
    )


def _offsets(files: CheckpointFiles, last: int) -> tuple[Finding, ...]:
    findings = []
    first = min(*files.offsets, *files.commits, last, max(last - 1, 0))
    for batch in range(first, last + 1):
        if files.offsets.get(batch) is not None:
            continue
        name = f"offsets/{batch}"
        missing = name not in files.broken
        needed = batch >= last - 1
        if batch == last and missing:
            spark = f"plans batch {batch} again, with other ranges, without a warning"
            if last in files.commits:
                spark = "sends the batch before it again, then fails at its commit"
        else:
            spark = "refuses to start" if needed else "passes over it"
        settles = f"the progress event of batch {batch}, which has its endOffset (--progress)"
        findings.append(
            Finding(
                name,
                files.broken.get(name, "is missing"),
                needed,
                spark,
                settles if needed else None,
            )
        )
    return tuple(findings)


def _commits(files: CheckpointFiles, last: int) -> tuple[Finding, ...]:
    findings = []
    begin = min([*files.offsets, *files.commits, last])
    for batch in range(begin, last + 1):
        if files.commits.get(batch) is not None:
            continue
        name = f"commits/{batch}"
        if name in files.broken:
            blocks = batch >= max(files.commits)
            spark = "refuses to start, or takes the watermark for 0" if blocks else "passes over it"
            findings.append(Finding(name, files.broken[name], blocks, spark))
        elif batch < last:
            findings.append(Finding(name, "is missing", False, "goes on with the last batch"))
    return tuple(findings)


def _state(files: CheckpointFiles, last: int, in_flight: bool) -> tuple[Finding, ...]:
    version = last if in_flight else last + 1
    findings = [
        Finding(name, "is missing", True, "fails in the first task that loads it")
        for name in files.missing_stores
    ]
    findings += [
        Finding(
            store.name,
            f"version {version} cannot be loaded: its files are missing or broken",
            True,
            "fails in the first task that loads it",
        )
        for store in files.stores
        if version and version not in store.whole
    ]
    return tuple(findings)


def _never(files: CheckpointFiles) -> str | None:
    """Return why no copy can be repaired at all; None: one may be."""
    if files.query_id is None:
        return "the query's id is not known: a sink would take it for another query"
    if files.state_ids:
        return (
            "its commits name the files of the state (state store checkpoint format 2), and what "
            "a lost one named is nowhere else"
        )
    return None


def _filled(files: CheckpointFiles, last: int, events: Mapping[int, Progress]) -> dict[int, Write]:
    """Return `offsets/last` and the one before it as files to write, if their content is proven."""
    filled: dict[int, Write] = {}
    for batch in (last, last - 1):
        earlier, commit = files.offsets.get(batch - 1), files.commits.get(batch - 1)
        if files.offsets.get(batch) is not None or earlier is None or commit is None:
            continue
        # Spark plans a batch with the watermark that the commit before it names.
        made = {**earlier.metadata, "batchWatermarkMs": commit["nextBatchWatermarkMs"]}
        later = files.offsets.get(batch + 1)
        event = events.get(batch)
        if event is not None and _fits(event, files, earlier):
            made["batchTimestampMs"] = event.timestamp_ms
            sources = _lines(earlier, event.end)
            because = (
                f"the progress event of batch {batch} of this query begins where "
                f"offsets/{batch - 1} ends; the watermark is that of commits/{batch - 1}"
            )
        elif later is not None and later.values == earlier.values:
            sources = earlier.sources
            because = (
                f"offsets/{batch - 1} and offsets/{batch + 1} are the same, and offsets never go "
                f"back; the watermark is that of commits/{batch - 1}"
            )
        else:
            continue
        because += f"; GUESSED: batchTimestampMs, and the confs, which are of batch {batch - 1}"
        text = write_batch_offsets(replace(earlier, metadata=made, sources=sources))
        filled[batch] = Write(f"offsets/{batch}", text, "proven", because)
    return filled


def _fits(event: Progress, files: CheckpointFiles, earlier: BatchOffsets) -> bool:
    """Return True if an event belongs to this query and begins where the batch before it ends."""
    return event.query_id == files.query_id and event.start == earlier.values


def _lines(earlier: BatchOffsets, ends: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the sources' offsets as lines, with the source names of another batch."""
    texts = [e if isinstance(e, str) else json.dumps(e, separators=(",", ":")) for e in ends]
    if earlier.version < 2:
        return tuple(texts)
    names = [line.partition(":")[0] for line in earlier.sources]
    return tuple(f"{name}:{text}" for name, text in zip(names, texts, strict=True))


def _at(files: CheckpointFiles, last: int, filled: Mapping[int, Write]) -> Remedy | None:
    """Return the remedy by which the query goes on where it would have; None: not possible."""
    here = files.offsets.get(last) is not None or last in filled
    if not here:
        return None
    writes = [filled[last]] if last in filled else []
    if files.commits.get(last) is not None and files.loadable(last + 1):
        if last > 0 and files.offsets.get(last - 1) is None:
            writes.append(filled.get(last - 1) or _placeholder(files, last, filled))
        return Remedy("next", last, tuple(writes), (), (), last + 1)
    return _again(files, last, filled, writes)


def _again(
    files: CheckpointFiles, last: int, filled: Mapping[int, Write], writes: list[Write]
) -> Remedy | None:
    """Return the remedy that repeats the last batch in exactly its ranges; None: not possible."""
    offsets = files.offsets.get(last)
    if not files.loadable(last):
        return None
    if last > 0 and files.offsets.get(last - 1) is None:
        if last - 1 not in filled:
            return None
        writes.append(filled[last - 1])
    if files.commits.get(last - 1) is None and last - 1 in files.commits:
        if offsets is None or offsets.watermark_ms is None:
            return None
        writes.append(
            Write(
                f"commits/{last - 1}",
                f'v1\n{{"nextBatchWatermarkMs":{offsets.watermark_ms}}}',
                "proven",
                f"Spark plans batch {last} after the commit of batch {last - 1}, with its "
                f"watermark: that is in offsets/{last}",
            )
        )
    without = (last,) if last in files.commits else ()
    return Remedy("again", last, tuple(writes), (), without, last)


def _placeholder(files: CheckpointFiles, last: int, filled: Mapping[int, Write]) -> Write:
    """Return `offsets/last-1` for a query that goes on after `last`: the file only has to exist."""
    offsets = files.offsets.get(last)
    text = filled[last].text if offsets is None else write_batch_offsets(offsets)
    return Write(
        f"offsets/{last - 1}",
        text,
        "no-effect",
        f"GUESSED: a copy of offsets/{last}. Spark asks that it is there and reads nothing from "
        f"its offsets on, since batch {last} is committed",
    )


def _earlier(files: CheckpointFiles, last: int) -> Remedy | None:
    """Return the remedy for the latest intact batch that the query can go on from."""
    for batch in range(last, -1, -1):
        whole = files.offsets.get(batch) is not None
        before = batch == 0 or files.offsets.get(batch - 1) is not None
        if not (whole and before):
            continue
        done = files.commits.get(batch) is not None and files.loadable(batch + 1)
        earlier_done = batch == 0 or files.commits.get(batch - 1) is not None
        if not done and not (earlier_done and files.loadable(batch)):
            continue
        way: Way = "next" if done else "again"
        return Remedy(
            way,
            batch,
            (),
            tuple(n for n in files.offsets if n > batch),
            tuple(n for n in files.commits if n > batch or (n == batch and not done)),
            batch + 1 if done else batch,
            tuple(range(batch + 1, last + 1)),
        )
    return None


def _why_not(files: CheckpointFiles, last: int, *, rewind: bool) -> str:
    """Return why no copy goes on where the query would have."""
    if not files.loadable(last) and not files.loadable(last + 1):
        why = f"neither version {last} nor version {last + 1} of the state is complete"
    elif files.offsets.get(last) is None:
        why = f"where batch {last} ends is not written anywhere else"
    else:
        why = f"where batch {last} begins is not written anywhere else"
    if rewind:
        return f"{why}, and no earlier batch is complete either"
    back = _earlier(files, last)
    if back is None:
        return f"{why}, and no earlier batch is complete either"
    planned = _batches(back.replanned)
    return (
        f"{why}; --rewind goes back to batch {back.batch}: {planned} would be planned again, with "
        "other ranges"
    )


def _batches(numbers: Iterable[int]) -> str:
    first, *rest = numbers
    return f"batches {first} to {rest[-1]}" if rest else f"batch {first}"


def words(remedy: Remedy) -> str:
    """Return where a query starts from the copy, and what that means for its output."""
    at_least_once = (
        f"Spark plans {_batches(remedy.replanned)} again: rows that were sent come again, and a "
        "sink that knows batches by their number (Delta, a file sink, eoctl's) leaves rows out "
        "unless it gets a new name"
        if remedy.replanned
        else ""
    )
    if remedy.way == "next":
        plain = f"the query goes on after batch {remedy.batch}, which is committed"
        return f"{plain}; {at_least_once}" if at_least_once else f"{plain}: nothing is repeated"
    plain = (
        f"the query runs batch {remedy.batch} again, in exactly its ranges, as after a crash: rows "
        "come twice unless the sink knows the batch by its number"
    )
    return f"{plain}; {at_least_once}" if at_least_once else plain
