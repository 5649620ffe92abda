"""The strategies whose store holds the restart position and the output offset that belongs to it.

commit-pair, checkpoint, sql: the stored entry itself. changelog: the last record of the changelog.
spark-checkpoint: the start of the batch in flight. flink-checkpoint: where the source goes on. Each
strategy gives the `Basis` of one input partition.
"""

import shlex

from recovery.errors import IncompleteError, RefusedError
from recovery.facts import TopicPartition
from recovery.quoting import some
from recovery.restart.decision import Basis, Check, Owner, PendingError, Promise, RestartState
from recovery.restart.observed import ChangelogTip, Observed
from recovery.restart.output_rules import final_end
from recovery.restart.stored import StoredOffset, StoredOutput, StoredPartition
from recovery.shared.app_file import App, named
from recovery.shared.store_tables import FlinkCheckpointStore, SparkCheckpointStore, TopicStore


def stored_pair(app: App, observed: Observed, partition: TopicPartition) -> Basis:
    """Restart commit-pair and sql at the stored input offset, with the stored output offsets."""
    return stored_or_base(app, observed, partition)


def checkpoint(app: App, observed: Observed, partition: TopicPartition) -> Basis:
    """Return the positions of a checkpoint, with the state in the commit."""
    basis = stored_or_base(app, observed, partition)
    entry = basis.stored
    if entry is not None and entry.state is None:
        raise RefusedError(
            "the commit holds no state",
            where=named(partition),
            remedy="an application without state has the strategy commit-pair",
        )
    text = "the state begins empty" if entry is None else "the state is the one in the commit"
    check = Check("state", True, text, named(partition))
    return Basis(basis.input, basis.outputs, checks=(*basis.checks, check), stored=entry)


def refuse_pending(observed: Observed) -> None:
    """Raise PendingError while a transaction holds a newer commit of the group."""
    if not observed.pending:
        return
    owners = sorted(
        {
            (p.transactional_id, p.producer_id, p.producer_epoch)
            for p in observed.pending
            if p.transactional_id
        },
        key=lambda owner: str(owner),
    )
    ways = tuple(sorted({p.way_out for p in observed.pending if p.way_out}))
    what = "an open transaction holds commits of the group that are not decided: "
    if ways:
        what += "its owner does not hold them, so no fence frees them"
    else:
        what += (
            "fence first (--fence does that; `txn fence` only with --owner-is-gone while it is "
            "within its limits)"
        )
        what += "" if owners else "; its transactional id was not found"
    fences = " and ".join(shlex.join(_fence(*owner)) for owner in owners)
    raise PendingError(
        what,
        where=some(sorted({named(p.topic_partition) for p in observed.pending})),
        remedy="; ".join(ways) or fences or "find it with `eoctl txn list`",
        owners=() if ways else tuple(Owner(*owner) for owner in owners),
    )


def _fence(name: str, producer_id: int | None, producer_epoch: int | None) -> list[str]:
    words = ["eoctl", "txn", "fence", name]
    if producer_id is not None and producer_epoch is not None:
        words += ["--pid", str(producer_id), "--epoch", str(producer_epoch)]
    return words


def changelog(app: App, observed: Observed, topic_partition: TopicPartition) -> Basis:
    """Return the (upstream, downstream) offsets in the changelog's last record; a replay up to the
    end gives the state."""
    assert isinstance(app.store, TopicStore)
    log = observed.log(TopicPartition(app.store.topic, topic_partition[1]))
    end, final = final_end(log)
    tip = observed.changelog_tip(ChangelogTip(*log.topic_partition, end))
    if tip is None:
        if log.log_start_offset:
            raise RefusedError(
                f"the changelog's records below {log.log_start_offset} are gone, and none is left",
                where=named(log.topic_partition),
            )
        return stored_or_base(app, observed, topic_partition)
    outputs = tuple(
        StoredOutput(topic=topic, partition=partition, offset=tip.downstream)
        for topic, partition in app.outputs_of(topic_partition)
    )
    start = StoredOffset(
        topic=topic_partition[0], partition=topic_partition[1], offset=tip.upstream
    )
    bound = RestartState(*log.topic_partition, end)
    text = "replay the changelog up to its end: its last record is the commit"
    checks = (final, Check("state", True, text, named(log.topic_partition)))
    stored = StoredPartition(input=start, output=outputs)
    return Basis(start, outputs, state=(bound,), checks=checks, stored=stored)


def spark_checkpoint(app: App, observed: Observed, topic_partition: TopicPartition) -> Basis:
    """Replay the batch in flight in exactly its ranges; the results are the same only if the sink
    drops batches that it has seen."""
    assert isinstance(app.store, SparkCheckpointStore)
    checkpoint, where = observed.spark, app.store.path
    if checkpoint is None:
        raise IncompleteError("the checkpoint was not read", where=where)
    if checkpoint.batch is None:
        raise RefusedError(
            "the query has not planned a batch yet: it begins where its options say", where=where
        )
    if topic_partition not in checkpoint.end:
        raise RefusedError(
            f"batch {checkpoint.batch} does not read it: the topic is not the query's, or the "
            "partition was added later",
            where=named(topic_partition),
            remedy=f"look at {where}/offsets/{checkpoint.batch}",
        )
    if not checkpoint.in_flight:
        start = checkpoint.end[topic_partition]
        text = f"batch {checkpoint.batch} is committed, none is in flight"
        until = None
    else:
        if app.store.sink == "other":
            raise RefusedError(
                f"batch {checkpoint.batch} is replayed completely, and this sink drops no repeats",
                where=where,
                remedy='say sink = "batch-id" if it drops batches it has seen; else clean up '
                "afterwards with `eoctl dedup`",
            )
        if topic_partition not in checkpoint.start:
            raise RefusedError(
                f"where batch {checkpoint.batch} begins is not written: the partition is new in it",
                where=named(topic_partition),
            )
        start, until = checkpoint.start[topic_partition], checkpoint.end[topic_partition]
        text = f"batch {checkpoint.batch} is in flight: Spark replays exactly its ranges"
    return Basis(
        StoredOffset(topic=topic_partition[0], partition=topic_partition[1], offset=start),
        (),
        until=until,
        checks=(Check("batch", True, text, where),),
        stored=StoredPartition(
            input=StoredOffset(topic=topic_partition[0], partition=topic_partition[1], offset=start)
        ),
    )


def flink_checkpoint(app: App, observed: Observed, topic_partition: TopicPartition) -> Basis:
    """Return where a job that starts afresh goes on. Whether the results of earlier records are
    committed is what `txn commit --checkpoint` shows; Flink itself also restores operator state.
    """
    assert isinstance(app.store, FlinkCheckpointStore)
    checkpoint, where = observed.flink, app.store.path
    if checkpoint is None:
        raise IncompleteError("the checkpoint was not read", where=where)
    if checkpoint.newer:
        raise RefusedError(
            f"checkpoint {checkpoint.newer[-1]} lies beside it: what was committed since would "
            "come twice",
            where=where,
            remedy="name that one in [app.store] path",
        )
    checks = [
        results_belong(where),
        Check("newest", None, "no later checkpoint was completed: none lies beside it", where),
    ]
    entry, base = observed.stored_at(topic_partition), app.base_of(topic_partition)
    if entry is not None:
        start = entry.input
    elif base is not None:
        start = StoredOffset(topic=topic_partition[0], partition=topic_partition[1], offset=base)
        checks.append(
            Check("base", None, f"it starts at {base}, as [app.base] says", named(topic_partition))
        )
    else:
        begins = checkpoint.unread.get(topic_partition)
        raise RefusedError(
            "the checkpoint holds no offset of it: its source reads other partitions, or it was "
            "added later"
            if begins is None
            else f"the checkpoint holds no offset of it, which its source begins at {begins}",
            where=named(topic_partition),
            remedy=f'say in [app.base] where it begins: "{named(topic_partition)}" = 0',
        )
    because = (
        "what was read before these offsets is left out where its transaction is not committed "
        f"(the checkpoint promises {checkpoint.promised} of Kafka's sink: `eoctl txn commit "
        "--checkpoint` shows it), and operators begin without their state"
    )
    return Basis(
        start,
        (),
        checks=tuple(checks),
        stored=entry,
        promise=Promise("at-most-once", because),
    )


def results_belong(where: str) -> Check:
    """Return what is assumed when a job begins at offsets that were stored without the results."""
    text = "all that was read before these offsets has its results where they belong"
    return Check("source", None, text, where)


def stored_or_base(app: App, observed: Observed, topic_partition: TopicPartition) -> Basis:
    """Return the stored entry with every output that it must name; without an entry, the base.

    An application that never committed starts at its base, by default the start of the logs if that
    is 0. A store that lacks one of several partitions is another case: partitions were added, and
    the application file must give the base.
    """
    outputs = app.outputs_of(topic_partition)
    entry = observed.stored_at(topic_partition)
    if entry is not None:
        return Basis(entry.input, _named_outputs(entry, outputs), stored=entry)
    bases = [app.base_of(p) for p in (topic_partition, *outputs)]
    if observed.stored and None in bases:
        raise RefusedError(
            "the store has no entry for it, but for others: partitions were added, or it was "
            "never committed",
            where=named(topic_partition),
            remedy=f'say in [app.base] where it begins: "{named(topic_partition)}" = 0'
            + "".join(f', "{named(o)}" = 0' for o in outputs),
        )
    start, *ends = (base_offset(app, observed, p) for p in (topic_partition, *outputs))
    check = Check("base", True, "never committed: it starts at its base", named(topic_partition))
    return Basis(
        StoredOffset(topic=topic_partition[0], partition=topic_partition[1], offset=start),
        tuple(
            StoredOutput(topic=o[0], partition=o[1], offset=end)
            for o, end in zip(outputs, ends, strict=True)
        ),
        checks=(check,),
    )


def base_offset(app: App, observed: Observed, partition: TopicPartition) -> int:
    """Return the offset where counting starts: the file's, or else the log's start if that is 0."""
    base = app.base_of(partition)
    if base is not None:
        return base
    start = observed.log(partition).log_start_offset
    if start:
        raise RefusedError(
            f"the log starts at {start}, not at 0: what was there before is not known",
            where=named(partition),
            remedy=f'say in [app.base] where counting starts: "{named(partition)}" = OFFSET',
        )
    return 0


def _named_outputs(
    entry: StoredPartition, outputs: tuple[TopicPartition, ...]
) -> tuple[StoredOutput, ...]:
    """Return exactly the outputs that the application file maps: n is unknown if one is missing."""
    by_partition = {o.topic_partition: o for o in entry.output}
    where = named(entry.input.topic_partition)
    if absent := [named(o) for o in outputs if o not in by_partition]:
        raise RefusedError(
            f"the commit names no output offset of {some(absent)}: what was written after it "
            "cannot be counted",
            where=where,
            remedy="use the strategy that the application follows",
        )
    if foreign := [named(o) for o in by_partition if o not in outputs]:
        raise RefusedError(
            f"the commit names the output {some(foreign)}, the application file does not",
            where=where,
            remedy="correct outputs or [app.mapping]",
        )
    return tuple(by_partition[o] for o in outputs)
