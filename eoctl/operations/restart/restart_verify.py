"""`restart verify`: check again, after an apply, for a process that should be dead.

A zombie shows in three ways: it commits over what was applied, it holds a commit in an open
transaction, or it writes after the end that `drop_first` was counted to. Each would duplicate or
lose records once the application starts.
"""

import asyncio
from collections.abc import Iterator, Mapping

from eoctl.host.clock import now_ms
from eoctl.kafka.ask.log_ends import read_ends
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read.count import Cuts, count
from eoctl.operations.restart.observe import Stores, opened_stores
from eoctl.operations.restart.restart_plan import MIRROR, decision_of, writes_of
from eoctl.operations.restart.restart_request import asked_again
from eoctl.stores.offsets.store import Contents, OffsetStore
from recovery.answers import Answer, error_rows
from recovery.change.plan import Plan, differences
from recovery.errors import RefusedError
from recovery.facts import Missing, PartitionFacts, TopicPartition
from recovery.formats.batches import NO_PRODUCER_ID
from recovery.restart.decision import OutputDecision
from recovery.restart.producers import ProducerRuns, Producers
from recovery.restart.verify_rows import RestartVerifyRow
from recovery.shared.app_file import named


async def verify(cluster: Cluster, plan: Plan, *, pause: float) -> Answer:
    """Return a row per finding; none: all is as the plan left it. pause: seconds before reading.

    Raises RefusedError for another cluster.
    """
    if cluster.cluster_id != plan.cluster_id:
        raise RefusedError(
            f"the plan is for cluster {plan.cluster_id}, but {cluster.cluster_id} answers"
        )
    await asyncio.sleep(pause)
    request = asked_again(plan.details["asked"])
    async with opened_stores(cluster, request) as stores:
        rows = await _stores(plan, stores)
    decision = decision_of(plan)
    outputs = {o.topic_partition: o for o in decision.outputs}
    more, missing = await _outputs(cluster, plan, outputs)
    rows += more
    return Answer(
        schema="restart-verify",
        cluster_id=cluster.cluster_id,
        collected_at=now_ms(),
        rows=rows,
        errors=error_rows(missing),
        extra={
            "app": request.name,
            "outputs": len(outputs),
            "guarantee": decision.guarantee,
            "because": decision.because,
        },
        judging=True,
        finding=bool(rows),
    )


async def _stores(plan: Plan, stores: Stores) -> list[RestartVerifyRow]:
    rows: list[RestartVerifyRow] = []
    target: Mapping[str, object] = plan.details["target"]
    if stores.main is not None:
        rows += _compared("store", stores.main, await stores.main.read(), target)
    if stores.mirror is not None:
        mirrored = {
            named(w.topic_partition): w.after
            for step in plan.steps
            if step.parameters.get("which") == MIRROR
            for w in writes_of(step)
        }
        rows += _compared("mirror", stores.mirror, await stores.mirror.read(), mirrored)
    return rows


def _compared(
    finding: str, store: OffsetStore, contents: Contents, target: Mapping[str, object]
) -> Iterator[RestartVerifyRow]:
    held = {named(partition): kept for partition, kept in contents.kept.items()}
    state = contents.facts.get("state")
    who = f"; the group is {state}" if state else ""
    for partition, then in target.items():
        changed = differences({"": then}, {"": held.get(partition)})
        if changed:
            text = "; ".join(c.strip().removeprefix(": ") for c in changed)
            yield RestartVerifyRow(
                finding="overwritten" if finding == "store" else "mirror-overwritten",
                where=partition,
                producer_id=None,
                detail=f"{store.name}: {text}{who}",
            )
    for o in contents.pending:
        text = (
            f"{store.name}: an open transaction holds a commit, which may replace the offset "
            "that is there"
        )
        yield _finding("pending", o.topic_partition, None, text)


async def _outputs(
    cluster: Cluster, plan: Plan, outputs: Mapping[TopicPartition, OutputDecision]
) -> tuple[list[RestartVerifyRow], list[Missing]]:
    """Return the producers that wrote after the counted ends."""
    metadata = await cluster.metadata(sorted({topic for topic, _ in outputs}))
    partitions: list[PartitionMetadata] = [
        p for t in metadata.topics.values() for p in t.partitions if p.topic_partition in outputs
    ]
    rows: list[RestartVerifyRow] = []
    missing: list[Missing] = []
    gone = outputs.keys() - {p.topic_partition for p in partitions}
    for topic_partition in sorted(gone):
        text = "the output no longer exists"
        missing.append(
            Missing("partition", "UNKNOWN_TOPIC_OR_PARTITION", text, None, *topic_partition)
        )
    facts, ends, more = await read_ends(cluster, metadata.topics.values(), partitions)
    missing += more
    runs: dict[TopicPartition, ProducerRuns] = {}
    cuts = []
    for f in facts:
        topic_partition = f.topic_partition
        o = outputs[topic_partition]
        rows += _same_log(plan, f, o)
        if f.error is not None or f.high_watermark is None or f.last_stable_offset is None:
            continue
        assert f.log_start_offset is not None
        if f.high_watermark > o.end_offset:
            runs[topic_partition] = ProducerRuns(o.end_offset, f.high_watermark)
            span = (o.end_offset, f.high_watermark)
            cuts.append(
                Cuts(
                    *topic_partition,
                    span,
                    f.log_start_offset,
                    f.last_stable_offset,
                    runs[topic_partition],
                )
            )
        elif ends.get(topic_partition, 0) > f.high_watermark:
            text = f"the leader has offsets from {f.high_watermark} on that are not replicated"
            rows.append(_finding("written-beyond", topic_partition, None, text))
    _, uncounted = await count(cluster, cuts)
    missing += uncounted
    for topic_partition, producers in runs.items():
        rows += _zombies(plan, topic_partition, outputs[topic_partition], producers.producers)
    return rows, missing


def _same_log(plan: Plan, f: PartitionFacts, o: OutputDecision) -> Iterator[RestartVerifyRow]:
    partition = f.topic_partition
    then = plan.observed[named(partition)]["topic_id"]
    if f.topic_id != then:
        yield _finding(
            "another-topic", partition, None, f"topic id {f.topic_id}, planned on {then}"
        )
    elif f.high_watermark is not None and f.high_watermark < o.end_offset:
        text = f"it ends at {f.high_watermark}, counted to {o.end_offset}: records were lost"
        yield _finding("lost", partition, None, text)
    if None not in (o.leader_epoch, f.leader_epoch) and f.leader_epoch != o.leader_epoch:
        text = f"leader epoch {f.leader_epoch}, counted with {o.leader_epoch}: count again"
        yield _finding("another-epoch", partition, None, text)


def _zombies(
    plan: Plan, partition: TopicPartition, o: OutputDecision, producers: Producers
) -> Iterator[RestartVerifyRow]:
    # in all outputs: an old process may write here for the first time
    before = {pid for pids in plan.details["producers"].values() for pid in pids}
    for pid in sorted({*producers.last, *producers.producer_ids}):
        if pid == NO_PRODUCER_ID:
            text = (
                f"a producer without an id wrote after offset {o.end_offset}: nobody can tell "
                "which application it is"
            )
            yield _finding("written-beyond", partition, None, text)
        elif pid in before:
            epoch = producers.last[pid][0]
            text = (
                f"producer {pid}, which wrote before the plan, wrote after offset "
                f"{o.end_offset} with epoch {epoch}: drop_first {o.drop_first} is no longer valid"
            )
            yield _finding("written-beyond", partition, pid, text)


def _finding(
    finding: str, partition: TopicPartition, producer_id: int | None, detail: str
) -> RestartVerifyRow:
    return RestartVerifyRow.read(
        {
            "finding": finding,
            "where": named(partition),
            "producer_id": producer_id,
            "detail": detail,
        }
    )
