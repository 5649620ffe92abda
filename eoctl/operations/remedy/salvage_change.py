"""`txn salvage`: copy the aborted records of a lost transaction in their order, exactly once.

All records of one lost transaction are written in one transaction, which also commits how far each
partition was read (to a group of its own): readers get all of them or none, and once they have,
that position is committed. After a kill anywhere, the next run first ends what the killed one left
open (`Writer.open`), then looks for the position: if it exists all is done, else nothing is.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import configs, coordinators
from eoctl.kafka.connection.cluster import Cluster, TopicMetadata
from eoctl.kafka.read import positions as log_positions
from eoctl.kafka.read.chunks import Chunk, Range
from eoctl.kafka.read.fetch import read
from eoctl.kafka.read.producer_records import written
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.kafka.write.exactly_once import Writer, committed, last_committed
from eoctl.operations.change.granted import ungranted
from eoctl.operations.change.new_plan import known_id, new_plan
from eoctl.operations.change.steps import Effect, die_here_in_tests, on_cluster
from eoctl.operations.inspect.offset_answers import at_partitions
from eoctl.operations.remedy.flink_transactions import Fate, Seen, look
from eoctl.settings.context import Context
from recovery.answers import Answer, error_rows
from recovery.change.plan import Plan, Step
from recovery.errors import EoctlError, IncompleteError, RefusedError
from recovery.facts import Missing, TopicPartition
from recovery.formats.batches import batch_headers
from recovery.formats.flink_checkpoint import Committable, FlinkCheckpoint
from recovery.formats.records import records
from recovery.inspect.rights import Need, needs_of_copy
from recovery.plurals import counted
from recovery.remedy.checkpoint_rows import SalvageRow
from recovery.remedy.salvage import Written, forgotten, name, refused
from recovery.values import Value, replace

KIND = "txn-salvage"
ACTION = "salvage"
_RETENTION = "offsets.retention.minutes"
_LEAST_TIMEOUT_MS, _MOST_TIMEOUT_MS = 60_000, 600_000
_RECORDS_PER_MS = 10  # that a writer surely sends, for its transaction's timeout


class SalvageRequest(Value):
    """The operator's request. content: the checkpoint, or one transaction in its place.

    topics: those its sink writes to, if not recorded any more. to: another topic to copy the
    records to. never_before: the operator knows that none was salvaged before.
    """

    content: FlinkCheckpoint
    topics: tuple[str, ...] = ()
    to: str | None = None
    never_before: bool = False


def of_transaction(one: Committable) -> FlinkCheckpoint:
    """Return a transaction as if a checkpoint promised it alone."""
    return FlinkCheckpoint(0, one.checkpoint_id, (one,), (), (), ())


class Lost(Value):
    """One lost transaction. standing: an earlier run committed that it was copied.

    refusal: why it cannot be copied, and what to do. copies: what that run wrote, by output
    partition.
    """

    one: Committable
    pieces: Mapping[TopicPartition, Written]
    standing: bool
    refusal: tuple[str, str] | None
    copies: Mapping[TopicPartition, Written]

    @property
    def aborted_at(self) -> int | None:
        """Return when its last marker was written, epoch ms by the broker's clock."""
        times = [p.ended_at for p in self.pieces.values() if p.ended_at is not None]
        return max(times, default=None)


class Found(Value):
    """The lost transactions of one snapshot. others: fates of those that are not lost."""

    lost: tuple[Lost, ...]
    others: tuple[Fate, ...]
    missing: tuple[Missing, ...]


async def find(cluster: Cluster, request: SalvageRequest) -> Found:
    """Read all that the checkpoint promises, and check whether the lost ones can be copied."""
    seen = await look(cluster, request.content, request.topics)
    promised = [f for f in seen.fates if f.committable is not None]
    lost = [f for f in promised if f.judgement.fate == "lost"]
    retention, missing = await _retention_ms(cluster) if lost else (None, [])
    judged = [await _judged(cluster, request, seen, fate, retention, missing) for fate in lost]
    judged.sort(key=lambda one: (one.one.checkpoint_id, min(_firsts(one), default=-1), one.one))
    others = tuple(f for f in promised if f.judgement.fate != "lost")
    return Found(tuple(judged), others, (*seen.missing, *missing))


def _firsts(lost: Lost) -> list[int]:
    return [p.first for p in lost.pieces.values()]


async def _retention_ms(cluster: Cluster) -> tuple[int | None, list[Missing]]:
    """Return the shortest time a broker keeps a salvage's position; None = not known."""
    values, missing = await configs.broker_configs(cluster, [_RETENTION])
    minutes = [int(text) for v in values.values() if (text := v.get(_RETENTION))]
    if missing or len(minutes) < len(cluster.brokers):
        return None, []
    return min(minutes) * 60_000, []


async def _judged(
    cluster: Cluster,
    request: SalvageRequest,
    seen: Seen,
    fate: Fate,
    retention: int | None,
    missing: list[Missing],
) -> Lost:
    """Return one lost transaction; what could not be read of its copies is added to `missing`."""
    one = fate.committable
    assert one is not None
    pieces = dict(sorted(fate.written.items()))
    group = name(one, request.to)
    positions, pending = (
        await last_committed(cluster, group, list(pieces)) if pieces else ({}, False)
    )
    # also if its end is not where these records end: a cut removed some of those copied
    in_logs = {partition: at.in_log for partition, at in positions.items()}
    remedy = f"what was copied is another log's: look at the output, then delete group {group}"
    await log_positions.refuse_other_logs(cluster, in_logs, remedy)
    standing = _stands(pieces, positions)
    copies: dict[TopicPartition, Written] = {}
    if standing:
        begins = _begins({p: piece.last for p, piece in pieces.items()}, request.to)
        copies, unread = await _copies(cluster, group, begins)
        missing.extend(unread)
    refusal = None if standing else _refused(request, fate, one, pieces)
    lost = Lost(one, pieces, standing, refusal, copies)
    aborted_at = lost.aborted_at
    if standing or refusal is not None or request.never_before or pending or aborted_at is None:
        return lost
    if retention is None or forgotten(aborted_at, seen.at, retention):
        why = f"{_RETENTION} cannot be read" if retention is None else f"longer than {_RETENTION}"
        return replace(
            lost,
            refusal=(
                f"it was aborted too long ago to know whether it was salvaged before ({why})",
                "if it never was, and no restore wrote its records again: --never-salvaged",
            ),
        )
    return lost


def _refused(
    request: SalvageRequest, fate: Fate, one: Committable, pieces: Mapping[TopicPartition, Written]
) -> tuple[str, str] | None:
    by_flink = one.checkpoint_id >= 0  # an id that was named alone has none
    return refused(pieces, fate.past.partitions, request.topics, by_flink=by_flink)


def _stands(
    pieces: Mapping[TopicPartition, Written], positions: Mapping[TopicPartition, CommittedPosition]
) -> bool:
    return bool(pieces) and all(
        (p := positions.get(partition)) is not None and p.offset == piece.last + 1
        for partition, piece in pieces.items()
    )


def _outputs(topic_partitions: Collection[TopicPartition], to: str | None) -> list[TopicPartition]:
    return [TopicPartition(to or topic, partition) for topic, partition in topic_partitions]


def _begins(lasts: Mapping[TopicPartition, int], to: str | None) -> dict[TopicPartition, int]:
    """Return each partition of the output, and the offset after which its copies are."""
    return {
        TopicPartition(to or topic, p): -1 if to else last for (topic, p), last in lasts.items()
    }


async def _copies(
    cluster: Cluster, transactional_id: str, outputs: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, Written], list[Missing]]:
    """Return what the writer of a salvage committed, read in its outputs, and what of it could not
    be read. Both are empty if the coordinator has forgotten its producer id."""
    rows, unseen = await coordinators.find(cluster, [transactional_id])
    row = next((r for r in rows if r.error is None and r.producer_epoch is not None), None)
    if row is None or row.producer_epoch is None:
        return {}, [m for m in unseen if m.error != coordinators.NOT_FOUND]
    facts, unseen = await at_partitions(cluster, outputs)
    ranges = [
        Range(
            f.topic,
            f.partition,
            max(f.log_start_offset, outputs[f.topic_partition] + 1),
            f.high_watermark,
        )
        for f in facts
        if f.log_start_offset is not None and f.high_watermark is not None
    ]
    # a commit of transactions v2 raises the epoch
    epochs = range(max(0, row.producer_epoch - 1), row.producer_epoch + 1)
    wanted = [(row.producer_id, epoch) for epoch in epochs]
    found, unread = await written(cluster, ranges, wanted)
    copies = {
        partition: w
        for by_partition in found.values()
        for partition, w in by_partition.items()
        if w.outcome != "abort"  # left by an earlier run that was killed
    }
    return copies, [*unseen, *unread]


def answer(cluster_id: str | None, request: SalvageRequest, found: Found) -> Answer:
    """Return the rows of one snapshot. A finding while one is lost or refused."""
    rows = [row for lost in found.lost for row in _rows(request, lost)]
    unknown = [
        Missing("transaction", "UNKNOWN", f.judgement.detail, id=_id_of(f))
        for f in found.others
        if f.judgement.fate == "unknown"
    ]
    return Answer(
        "txn-salvage",
        cluster_id,
        now_ms(),
        rows,
        error_rows((*found.missing, *unknown)),
        extra={"not_lost": _not_lost(found)},
        judging=True,
        finding=any(row.status != "salvaged" for row in rows),
    )


def _not_lost(found: Found) -> dict[str, int]:
    fates = [f.judgement.fate for f in found.others]
    return {fate: fates.count(fate) for fate in sorted(set(fates))}


def _rows(request: SalvageRequest, lost: Lost) -> list[SalvageRow]:
    status = "salvaged" if lost.standing else "refused" if lost.refusal else "lost"
    detail = {
        "salvaged": "copied, and its position is committed",
        "lost": "aborted, and all of it is there",
        "refused": f"{lost.refusal[0]}: {lost.refusal[1]}" if lost.refusal else "",
    }[status]
    base: dict[str, Any] = {
        "transactional_id": lost.one.transactional_id,
        "producer_id": lost.one.producer_id,
        "producer_epoch": lost.one.producer_epoch,
        "status": status,
        "detail": detail,
    }
    nothing: dict[str, Any] = dict.fromkeys(
        ("topic", "partition", "first_offset", "last_offset", "aborted_at", "to_topic")
    )
    if not lost.pieces:
        return [SalvageRow(**base, **nothing, records=0, to_first_offset=None, to_last_offset=None)]
    rows = []
    for (topic, partition), piece in lost.pieces.items():
        copy = lost.copies.get(TopicPartition(request.to or topic, partition))
        rows.append(
            SalvageRow(
                **base,
                topic=topic,
                partition=partition,
                records=piece.records,
                first_offset=piece.first,
                last_offset=piece.last,
                aborted_at=piece.ended_at,
                to_topic=request.to or topic,
                to_first_offset=copy.first if copy else None,
                to_last_offset=copy.last if copy else None,
            )
        )
    return rows


async def plan(
    cluster: Cluster, context: Context, request: SalvageRequest, scope: str
) -> Plan | None:
    """Plan the copy of every lost transaction that can be copied; None if there is none left.

    Raises RefusedError if one cannot be copied, or the output cannot accept its records;
    IncompleteError if not all could be seen.
    """
    found = await find(cluster, request)
    if found.missing:
        raise IncompleteError(found.missing[0].detail, where=scope)
    if unknown := [f for f in found.others if f.judgement.fate == "unknown"]:
        raise IncompleteError(unknown[0].judgement.detail, where=_id_of(unknown[0]))
    if not found.lost and (open_ := [f for f in found.others if f.judgement.fate == "open"]):
        raise RefusedError(
            "it is open, not lost: nothing of it was aborted",
            where=_id_of(open_[0]),
            remedy="commit it: eoctl txn commit --checkpoint PATH --execute",
        )
    todo = [lost for lost in found.lost if not lost.standing]
    for lost in todo:
        if lost.refusal is not None:
            raise RefusedError(
                lost.refusal[0], where=lost.one.transactional_id, remedy=lost.refusal[1]
            )
    if not todo:
        return None
    topics = await _topics(cluster, {p for lost in todo for p in lost.pieces}, request.to)
    steps = tuple(_step(request, lost) for lost in todo)
    total = sum(p.records for lost in todo for p in lost.pieces.values())
    number = request.content.checkpoint_id
    promise = (
        f". Restore this job from checkpoint {number} or a later one, or never: an older one "
        "writes them again"
        if number >= 0
        else ". An application that writes them again itself doubles them"
    )
    times = [t for t, facts in topics.items() if facts["timestamps"] != "CreateTime"]
    if times:
        promise += f"; records get the present time in {', '.join(times)}"
    if request.never_before:
        promise += ". ASSUMED: they were not salvaged before"
    return new_plan(
        context,
        known_id(cluster.cluster_id, scope),
        kind=KIND,
        action=ACTION,
        scope=scope,
        summary=f"copies {counted(total, 'aborted record')} of "
        f"{counted(len(todo), 'lost transaction')} to "
        f"{request.to or ', '.join(sorted({t for lost in todo for t, _ in lost.pieces}))}{promise}",
        observed={"topics": topics} | {_subject(lost.one): _facts(lost) for lost in todo},
        steps=steps,
        details={
            "to": request.to,
            "topics": list(request.topics),
            "never_before": request.never_before,
        },
        hits=f"{total}-records",
    )


def _id_of(fate: Fate) -> str:
    assert fate.committable is not None
    return fate.committable.transactional_id


def _subject(one: Committable) -> str:
    return f"{one.transactional_id} pid {one.producer_id} epoch {one.producer_epoch}"


def _facts(lost: Lost) -> dict[str, Any]:
    """Return what must not change before it is copied."""
    return {
        "refused": None if lost.refusal is None else lost.refusal[0],
        "salvaged": lost.standing,
        "records": {
            str(partition): [p.records, p.first, p.last] for partition, p in lost.pieces.items()
        },
    }


async def _topics(
    cluster: Cluster, topic_partitions: Collection[TopicPartition], to: str | None
) -> dict[str, Any]:
    """Return both sides' topic ids, and the output's time setting. Raises as `plan` does."""
    outputs = _outputs(topic_partitions, to)
    names = sorted({topic for topic, _ in (*topic_partitions, *outputs)})
    metadata = (await cluster.metadata(names)).topics
    values, missing = await configs.topic_configs(cluster, names, ["message.timestamp.type"])
    if missing:
        raise IncompleteError(missing[0].detail, where=missing[0].topic)
    for topic, partition in sorted(outputs):
        found: TopicMetadata | None = metadata.get(topic)
        if found is None or found.error is not None:
            why = "cannot be seen" if found is None else f"cannot be seen: {found.error}"
            raise RefusedError(why, where=topic, remedy="name a topic that exists")
        if partition not in {p.partition for p in found.partitions}:
            raise RefusedError(
                f"it has no partition {partition}: each record is copied to the partition of its "
                "own number",
                where=topic,
            )
    return {
        topic: {
            "topic_id": metadata[topic].topic_id,
            "timestamps": values[topic]["message.timestamp.type"],
        }
        for topic in names
    }


def _step(request: SalvageRequest, lost: Lost) -> Step:
    one = lost.one
    where = ", ".join(
        f"{p.records} of {partition} (offsets {p.first} to {p.last})"
        for partition, p in lost.pieces.items()
    )
    return Step(
        action=ACTION,
        target=one.transactional_id,
        parameters={
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "checkpoint_id": one.checkpoint_id,
            "to": request.to,
            "pieces": {
                str(partition): [p.records, p.first, p.last] for partition, p in lost.pieces.items()
            },
        },
        does=f"copy {where} to {request.to or 'the ends of the same partitions'}, in one "
        "transaction, with keys, values, headers and timestamps as they are",
        stands_on=("topics", _subject(one)),
        harms=("if somebody already wrote these records again, they are there twice",),
    )


def _one(step: Step) -> Committable:
    p = step.parameters
    return Committable(step.target, p["producer_id"], p["producer_epoch"], p["checkpoint_id"], "")


def _pieces(step: Step) -> dict[TopicPartition, tuple[int, int, int]]:
    """Return the records, the first and the last offset of each partition."""
    pieces = step.parameters["pieces"].items()
    return {
        TopicPartition.parse(name): (count, first, last) for name, (count, first, last) in pieces
    }


class SalvageOperation:
    """Observes, performs and verifies the copies of one plan."""

    def __init__(self, cluster: Cluster, context: Context, plan: Plan) -> None:
        self._cluster, self._context, self._plan = cluster, context, plan

    async def cluster_id(self) -> str:
        return self._cluster.cluster_id or ""

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        """Check again that they are lost, complete, and not salvaged meanwhile."""
        self._cluster.forgive()
        details = self._plan.details
        ones = tuple(map(_one, steps))
        request = SalvageRequest(
            replace(of_transaction(ones[0]), committables=ones),
            tuple(details["topics"]),
            details["to"],
            details["never_before"],
        )
        found = await find(self._cluster, request)
        if found.missing:
            raise IncompleteError(found.missing[0].detail, where=self._plan.scope)
        facts: dict[str, object] = {_subject(lost.one): _facts(lost) for lost in found.lost}
        partitions = {partition for step in self._plan.steps for partition in _pieces(step)}
        return facts | {"topics": await _topics(self._cluster, partitions, details["to"])}

    def needs(self, step: Step) -> frozenset[Need]:
        """Return the step's rights: copies are read back."""
        to, topics = step.parameters["to"], {topic for topic, _ in _pieces(step)}
        outputs = {to} if to else topics
        return needs_of_copy(topics | outputs, outputs, name(_one(step), to))

    async def ungranted(self, needs: Collection[Need]) -> frozenset[Need]:
        return await ungranted(self._cluster, needs)

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        """Copy one transaction's records, unless they are copied; return their number."""
        one, pieces = _one(step), _pieces(step)
        to, total = step.parameters["to"], sum(count for count, _, _ in pieces.values())
        group = name(one, to)
        timeout_ms = min(_MOST_TIMEOUT_MS, max(_LEAST_TIMEOUT_MS, total // _RECORDS_PER_MS))
        writer = Writer(self._context.settings(), group, group, timeout_ms=timeout_ms)
        await asyncio.to_thread(writer.open)  # first: it fences, then the position is final
        die_here_in_tests("salvage-opened")
        try:
            positions = await committed(self._cluster, group, list(pieces))
            if positions:
                return {"copied": 0}
            await asyncio.to_thread(writer.begin)
            sent, epochs = await self._send(writer, one, pieces, to)
            die_here_in_tests("salvage-sent")
            ensure_held()
            ends = {
                partition: CommittedPosition(
                    last + 1, f"{one.producer_id}:{one.producer_epoch}", epochs.get(partition)
                )
                for partition, (_, _, last) in pieces.items()
            }
            await asyncio.to_thread(writer.commit, ends)
            die_here_in_tests("salvage-committed")
            await committed(self._cluster, group, list(pieces))  # it is visible after its answer
            return {"copied": sent}
        except BaseException:
            await asyncio.to_thread(writer.abort)
            raise
        finally:
            await asyncio.to_thread(writer.close)

    async def _send(
        self,
        writer: Writer,
        one: Committable,
        pieces: Mapping[TopicPartition, tuple[int, int, int]],
        to: str | None,
    ) -> tuple[int, dict[TopicPartition, int]]:
        """Send every record; return how many, and each partition's last leader epoch. Raises
        RefusedError unless each partition has as many records as planned."""
        counts = dict.fromkeys(pieces, 0)
        epochs: dict[TopicPartition, int] = {}
        ranges = [
            Range(*partition, first, last + 1) for partition, (_, first, last) in pieces.items()
        ]

        def send(chunk: Chunk) -> None:
            partition = chunk.topic_partition
            _, first, last = pieces[partition]
            for header in batch_headers(chunk.records):
                same = (header.producer_id, header.producer_epoch) == one[1:3]
                if not same or header.is_control or not header.is_transactional:
                    continue
                for record in records(chunk.records, header):
                    if not max(first, chunk.fetch_offset) <= record.offset <= last:
                        continue
                    writer.send(
                        to or chunk.topic,
                        chunk.partition,
                        record.key,
                        record.value,
                        headers=record.headers,
                        timestamp=record.timestamp,
                    )
                    counts[partition] += 1
                    if header.leader_epoch >= 0:
                        epochs[partition] = header.leader_epoch

        async with aclosing(read(self._cluster, ranges)) as chunks:
            async for item in chunks:
                if isinstance(item, Chunk):
                    await asyncio.to_thread(send, item)
                elif item.error is not None:
                    raise IncompleteError(
                        f"it was read up to offset {item.position} only: {item.error}",
                        where=str(item.topic_partition),
                    )
        if differ := [p for p, (count, _, _) in pieces.items() if counts[p] != count]:
            raise RefusedError(
                f"it had {counted(pieces[differ[0]][0], 'record')}, and has "
                f"{counts[differ[0]]:,} now; nothing was committed",
                where=str(differ[0]),
            )
        return sum(counts.values()), epochs

    async def verify(self, step: Step) -> Effect:
        """Check that its position is committed, and count its copies in the output."""
        self._cluster.forgive()
        one, pieces = _one(step), _pieces(step)
        group = name(one, step.parameters["to"])
        try:
            positions, pending = await last_committed(self._cluster, group, list(pieces))
        except EoctlError as error:
            return Effect(None, None, error.sentence)
        done = all(
            (p := positions.get(partition)) is not None and p.offset == last + 1
            for partition, (_, _, last) in pieces.items()
        )
        if not done:
            return Effect(
                False, None, "none of it is copied", untouched=not pending, final=not pending
            )
        total = sum(count for count, _, _ in pieces.values())
        lasts = {partition: last for partition, (_, _, last) in pieces.items()}
        begins = _begins(lasts, step.parameters["to"])
        copies, unread = await _copies(self._cluster, group, begins)
        if unread:
            text = f"committed, but not all copies can be read: {unread[0].detail}"
            return Effect(None, None, text)
        saw = {
            str(partition): [w.records, w.first, w.last] for partition, w in sorted(copies.items())
        }
        where = ", ".join(f"{p} offsets {first} to {last}" for p, (_, first, last) in saw.items())
        copied = sum(w.records for w in copies.values())
        beyond = None
        on_the_way = any(w.outcome is None for w in copies.values())
        if copies and (on_the_way or len(copies) < len(pieces)):
            return Effect(False, saw, f"committed, but not all markers are there: {where}")
        if copies and copied != total:
            beyond = f"the output holds {counted(copied, 'record')} of it, not {total}"
        return Effect(
            True, saw, f"{counted(total, 'record')} copied: {where or 'before'}", beyond=beyond
        )


opened = on_cluster(SalvageOperation)
"""The operation that carries a salvage's plan out, on an open cluster."""
