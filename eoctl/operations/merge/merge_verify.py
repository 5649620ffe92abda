"""`merge verify`: compare a merge log's entries with its inputs, and its tip with the output."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.properties import ClientSettings
from eoctl.kafka.write.exactly_once import committed
from eoctl.operations.merge.planning import Merge, MergeLook, bases, look, partitions_of, visible
from eoctl.operations.merge.read import Stream, read_log, silent
from recovery.answers import Answer, error_rows
from recovery.errors import EoctlError, Exit
from recovery.facts import Missing, TopicPartition
from recovery.formats.reader import CorruptError
from recovery.merge.log import MergeEntry, merge_format
from recovery.merge.log_findings import Identity, MergeVerifier, OutputComparison, output_ahead
from recovery.merge.log_rows import MergeFindingRow
from recovery.merge.replay import Base
from recovery.plurals import count, counted
from recovery.shared.app_file import named

if TYPE_CHECKING:
    from confluent_kafka import Message

VerifyProgress = Callable[[int, int, int], None]
"""Called with a partition of the log, offsets done, offsets in all."""

_STEP = 1000  # entries between two rounds of reading the records they need from the inputs
_SILENT_READS = 300
_CREATE_TIME = 1  # confluent_kafka.TIMESTAMP_CREATE_TIME


async def verify(
    cluster: Cluster,
    request: Merge,
    *,
    max_rate: float | None = None,
    progress: VerifyProgress | None = None,
) -> Answer:
    """Return findings about the requested partitions; what could not be read is in errors."""
    # An application may be running: it reads an input, then logs, then writes outputs. So the log
    # is read before the inputs, and outputs before the log.
    logs = await look(cluster, request, twice=False)
    later = await look(cluster, request, twice=False)
    missing = [*logs.missing, *(m for m in later.missing if m not in logs.missing)]
    rows: list[MergeFindingRow] = []
    entries: dict[int, int] = {}
    compared = 0
    chosen = partitions_of(request, logs)
    for p in chosen:
        merge = TopicPartition(request.topic, p)
        try:
            checking = _Checking(cluster, request, (logs, later), merge, max_rate, progress)
            checking.outputs = await _outputs(cluster, request, logs, p)
            findings = await asyncio.to_thread(checking.run)
        except EoctlError as error:
            missing.append(_unseen(merge, error))
            continue
        rows += findings
        entries[p] = checking.verifier.entries
        compared += 0 if checking.outputs is None else checking.outputs.comparison.compared
        if checking.verifier.unproven:
            text = (
                f"retention deleted the records of {count(checking.verifier.unproven)} of "
                f"{counted(checking.verifier.entries, 'entry', 'entries')}: nobody can tell "
                "whether they existed"
            )
            missing.append(Missing("partition", "OFFSET_OUT_OF_RANGE", text, None, *merge))
    if request.output is not None:
        findings, more = await _against_outputs(cluster, request, logs, chosen)
        rows += findings
        missing += (m for m in more if m not in missing)
    return Answer(
        "merge-verify",
        cluster.cluster_id,
        now_ms(),
        rows,
        error_rows(missing),
        extra={
            "entries": sum(entries.values()),
            "partitions": len(chosen),
            "outputs_compared": compared,
        },
        judging=True,
        finding=bool(rows),
    )


def _unseen(partition: TopicPartition, error: EoctlError) -> Missing:
    where = f"{error.where}: " if error.where not in (None, named(partition)) else ""
    name = "OFFSET_OUT_OF_RANGE" if error.exit_status is Exit.REFUSED else "INCOMPLETE"
    return Missing("partition", name, where + error.what, None, *partition)


async def _against_outputs(
    cluster: Cluster, request: Merge, logs: MergeLook, partitions: Sequence[int]
) -> tuple[list[MergeFindingRow], list[Missing]]:
    """Report outputs that have no entry, from a commit to the ends of both logs."""
    assert request.output is not None
    rows: list[MergeFindingRow] = []
    missing: list[Missing] = []
    begin: dict[int, Base] = {}
    for p in partitions:
        try:
            begin |= await bases(cluster, request, [p], logs, certain=False)
        except EoctlError as error:
            missing.append(_unseen(TopicPartition(request.output, p), error))
    # Commits were read just now, the log long after `logs`: a running application has moved on. So
    # both ends are read again, outputs before the log as always.
    outputs = await look(cluster, request, twice=False)
    entries = await look(cluster, request, twice=False)
    missing += [*outputs.missing, *(m for m in entries.missing if m not in outputs.missing)]
    for p, base in begin.items():
        merge = TopicPartition(request.topic, p)
        try:
            end = outputs.bounds(base.output, "read_committed")[1]
            tip = entries.bounds(merge, "read_committed")[1]
            ranges = {merge: (base.merge_offset, tip), base.output: (base.output_offset, end)}
            counts = await visible(cluster, entries, ranges)
        except EoctlError as error:
            missing.append(_unseen(base.output, error))
            continue
        ahead = output_ahead(merge, tip, counts[merge].data, base.output, counts[base.output].data)
        if ahead is not None:
            rows.append(ahead)
    return rows, missing


class _Outputs:
    """The outputs of one partition after a commit, read together with the log."""

    def __init__(
        self, settings: ClientSettings, merge: TopicPartition, base: Base, end: int, *, copies: bool
    ) -> None:
        self.base = base
        self.comparison = OutputComparison(merge, base.output, copies=copies)
        runs = read_log(settings, base.output, base.output_offset, end)
        self._messages = (m for messages in runs for m in messages)
        self._records: dict[TopicPartition, dict[int, Identity | None]] = {}

    def record(self, m: "Message") -> None:
        """Add a record of an input."""
        partition = TopicPartition(m.topic() or "", m.partition() or 0)
        self._records.setdefault(partition, {})[m.offset() or 0] = _identity(m)

    def compare(self, entries: Sequence[tuple[int, MergeEntry | None]]) -> None:
        """Compare the next entries of the log (None: not an entry); all their records are known."""
        done: dict[TopicPartition, int] = {}
        for merge_offset, entry in entries:
            if entry is not None:
                partition = entry.topic_partition
                done[partition] = max(entry.offset, done.get(partition, -1))
            if merge_offset < self.base.merge_offset:
                continue
            m = next(self._messages, None)
            if entry is not None and m is not None:
                record = self._records.get(partition, {}).get(entry.offset)
                there = m.offset() or 0, _identity(m)
                self.comparison.pair(merge_offset, entry, record, there)
        for partition, last in done.items():
            records = self._records.get(partition, {})
            self._records[partition] = {o: r for o, r in records.items() if o > last}


def _identity(m: "Message") -> Identity | None:
    """Return what identifies a record; None if its headers' names are not UTF-8."""
    try:
        headers = tuple(m.headers() or ())
    except UnicodeDecodeError:
        return None
    kind, time = m.timestamp()
    return Identity(hash((m.key(), m.value(), headers)), time if kind == _CREATE_TIME else None)


async def _outputs(
    cluster: Cluster, request: Merge, logs: MergeLook, partition: int
) -> _Outputs | None:
    """Return what to compare; None without an output, or if retention removed needed records.

    `_against_outputs` says what is wrong with the output.
    """
    if request.output is None:
        return None
    merge = TopicPartition(request.topic, partition)
    try:
        base = (await bases(cluster, request, [partition], logs, certain=False))[partition]
        first, end = logs.bounds(base.output, "read_committed")
        start, _ = logs.bounds(merge, "read_committed")
        copied = await committed(cluster, request.group, [merge])
    except EoctlError:
        return None
    if base.output_offset < first or base.merge_offset < start:
        return None
    return _Outputs(cluster.settings, merge, base, end, copies=bool(copied))


class _Checking:
    """Reads one partition of the log, and the inputs' records that its entries need."""

    def __init__(
        self,
        cluster: Cluster,
        request: Merge,
        looks: tuple[MergeLook, MergeLook],
        merge: TopicPartition,
        max_rate: float | None,
        progress: VerifyProgress | None,
    ) -> None:
        self._settings = cluster.settings
        self._asked, self._merge = request, merge
        self._max_rate, self._progress = max_rate, progress
        earlier, later = looks
        self._log_start, self._tip = earlier.bounds(merge, "read_committed")
        inputs = {
            topic_partition: later.bounds(topic_partition, request.isolation)
            for topic_partition in later.facts
            if topic_partition[0] in request.inputs
        }
        self._ends = {topic_partition: end for topic_partition, (_, end) in inputs.items()}
        self.verifier = MergeVerifier(merge, inputs)
        self._stream: Stream | None = None
        self._waiting: dict[TopicPartition, deque[int]] = {}
        self._come: dict[TopicPartition, int] = {}  # everything below was read
        self.outputs: _Outputs | None = None

    def run(self) -> list[MergeFindingRow]:
        rows: list[MergeFindingRow] = []
        decode = merge_format(self._asked.format).decode
        self._stream = Stream(
            self._settings, isolation=self._asked.isolation, max_rate=self._max_rate
        )
        try:
            for messages in read_log(
                self._settings, self._merge, self._log_start, self._tip, max_rate=self._max_rate
            ):
                for begin in range(0, len(messages), _STEP):
                    entries: list[tuple[int, MergeEntry | None]] = []
                    for m in messages[begin : begin + _STEP]:
                        try:
                            entry = decode(m.key(), m.value())
                            entries.append((m.offset(), entry))
                            self.verifier.entry(m.offset(), entry)
                        except CorruptError as error:
                            entries.append((m.offset(), None))
                            self.verifier.unreadable(m.offset(), error.what)
                    self._tell()
                    rows += self.verifier.findings()
                    if self.outputs is not None:
                        self.outputs.compare(entries)
                if self._progress is not None:
                    done = messages[-1].offset() + 1 - self._log_start
                    self._progress(self._merge[1], done, self._tip - self._log_start)
            differ = [] if self.outputs is None else self.outputs.comparison.findings()
            return rows + self.verifier.findings() + differ
        finally:
            self._stream.close()

    def _tell(self) -> None:
        """Answer all questions of the verifier."""
        while needs := self.verifier.needs():
            self._begin(needs)
            for partition, (_, until) in needs.items():
                self._read_to(partition, until)
                waiting = self._waiting[partition]
                offsets = list(takewhile(lambda o, end=until: o < end, waiting))  # type: ignore[misc]
                for _ in offsets:
                    waiting.popleft()
                self.verifier.input(partition, offsets, until)

    def _begin(self, needs: Mapping[TopicPartition, tuple[int, int]]) -> None:
        new = {p: start for p, (start, _) in needs.items() if p not in self._waiting}
        if new:
            assert self._stream is not None
            self._stream.add(new)
            self._waiting |= {p: deque() for p in new}
            self._come |= new

    def _read_to(self, partition: TopicPartition, until: int) -> None:
        """Read until everything below `until` has come. Raises IncompleteError."""
        stream = self._stream
        assert stream is not None
        silent_reads = 0
        while self._come[partition] < until:
            came = False
            for here, messages in stream.read(min(0.2, stream.owed or 0.2)):
                came = True
                self._waiting[here].extend(m.offset() for m in messages)
                if self.outputs is not None:
                    for m in messages:
                        self.outputs.record(m)
                self._come[here] = messages[-1].offset() + 1
                stream.balance(self._held, here)
            if stream.ends.get(partition, -1) >= self._ends[partition]:
                return
            stream.resume_short(self._held)
            silent_reads = 0 if came else silent_reads + 1
            if silent_reads > _SILENT_READS:
                raise silent(partition)

    def _held(self, partition: TopicPartition) -> int:
        return len(self._waiting[partition])
