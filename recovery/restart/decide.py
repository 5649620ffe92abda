"""Decide where an application may restart. Pure: equal observations give the same decision.

`wants` returns what must still be observed; once that is empty, `decide` returns the plan or raises
a refusal. Every strategy gives the `Basis` of one input partition; the rules that hold for all
strategies are applied here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from recovery.errors import NO_SUCH_TOPIC, EoctlError, IncompleteError, RefusedError
from recovery.facts import TopicPartition
from recovery.formats.spark_checkpoint import starting_offsets
from recovery.quoting import some
from recovery.restart.connector import decide_connector
from recovery.restart.decision import (
    Basis,
    Check,
    InputDecision,
    OutputDecision,
    Promise,
    RestartPlan,
    StoreChange,
    gathered,
)
from recovery.restart.input_rules import identity, moved, readable, whole
from recovery.restart.merged import merge_log
from recovery.restart.observed import Observed, Question, Unobserved
from recovery.restart.output_end import output_end
from recovery.restart.output_rules import decide_output
from recovery.restart.positions import (
    changelog,
    checkpoint,
    flink_checkpoint,
    refuse_pending,
    spark_checkpoint,
    stored_pair,
)
from recovery.restart.stored import StoredOffset, StoredOutput, StoredPartition
from recovery.restart.transactional import transactional
from recovery.shared.app_file import App, named

STRATEGIES: Mapping[str, Callable[[App, Observed, TopicPartition], Basis]] = {
    "output-end": output_end,
    "commit-pair": stored_pair,
    "checkpoint": checkpoint,
    "changelog": changelog,
    "merge-log": merge_log,
    "transactional": transactional,
    "sql": stored_pair,
    "spark-checkpoint": spark_checkpoint,
    "flink-checkpoint": flink_checkpoint,
}

_BECAUSE = {
    "output-end": "each output is the copy of one input, so their number says where to restart",
    "commit-pair": "the input offset was committed with the output offset",
    "checkpoint": "input offset, output offset and state were committed together",
    "changelog": "each change of state carries the input and the output offset",
    "merge-log": "the order of the inputs is recorded, so the same outputs come again",
    "sql": "input offsets were committed in the transaction of the results",
    "spark-checkpoint": "Spark replays the batch in flight with exactly its ranges",
}

_FROM_BEST = ("exactly-once", "at-least-once", "at-most-once")


def wants(app: App, observed: Observed) -> tuple[Question[Any], ...]:
    """Return the questions that `decide` needs answered next; () when it has everything.

    Each round asks everything that can be asked about all partitions at once. A partition that will
    be refused asks nothing more.
    """
    wants: dict[Question[Any], None] = {}
    for look in _looks(app, observed):
        try:
            look()
        except Unobserved as question:
            wants |= dict.fromkeys(question.wants)
        except EoctlError:
            continue
    return tuple(wants)


def decide(app: App, observed: Observed) -> RestartPlan:
    """Return the plan. Raises RefusedError, IncompleteError where something could not be seen."""
    try:
        if app.strategy == "connect":
            return decide_connector(app, observed)
        return _decide(app, observed)
    except Unobserved as question:
        raise IncompleteError(f"not looked at: {question}") from None


def changes(plan: RestartPlan, observed: Observed) -> tuple[StoreChange, ...]:
    """Return what apply writes: the entries of plan.store that differ from the store's content, as
    positions (`recovery.restart.stored.as_kept` converts them for the store)."""
    store_changes = (
        StoreChange(observed.stored_at(entry.input.topic_partition), entry) for entry in plan.store
    )
    return tuple(change for change in store_changes if change.before != change.after)


def input_partitions(app: App, observed: Observed) -> tuple[TopicPartition, ...]:
    """Return all partitions of the inputs, sorted. Raises PendingError, and RefusedError for a
    missing topic or output partition and for a store entry of a partition that is no input."""
    refuse_pending(observed)
    for topic in (*app.inputs, *app.outputs, *((app.merge.topic,) if app.merge else ())):
        if topic not in observed.partition_counts:
            raise RefusedError(NO_SUCH_TOPIC, where=topic)
    all_partitions = tuple(
        TopicPartition(topic, partition)
        for topic in sorted(app.inputs)
        for partition in range(observed.partition_counts[topic])
    )
    known = set(all_partitions)
    if strange := [
        named(s.input.topic_partition)
        for s in observed.stored
        if s.input.topic_partition not in known
    ]:
        raise RefusedError(
            f"the store holds a position of {some(strange)}, not a partition of the inputs",
            where=app.name,
            remedy="the topic was created again with fewer partitions, or the application file "
            "names other inputs",
        )
    for topic_partition in all_partitions:
        for output in app.outputs_of(topic_partition):
            if output.partition >= observed.partition_counts[output.topic]:
                raise RefusedError(
                    f"it feeds {output}, which does not exist",
                    where=named(topic_partition),
                    remedy="say in [app.mapping] what it feeds",
                )
    return all_partitions


def _basis(app: App, observed: Observed, partition: TopicPartition) -> Basis:
    return STRATEGIES[app.strategy](app, observed, partition)


def _looks(app: App, observed: Observed) -> Iterator[Callable[[], object]]:
    """Yield everything that `decide` does, in pieces that do not depend on one another."""
    if app.strategy == "connect":
        yield partial(decide_connector, app, observed)
        return
    try:
        inputs = input_partitions(app, observed)
    except EoctlError:
        return
    for partition in inputs:
        yield partial(_input, app, observed, partition)
        for output in app.outputs_of(partition):
            yield partial(_output_of, app, observed, partition, output)
    yield partial(_decide, app, observed)


def _input(app: App, observed: Observed, partition: TopicPartition) -> tuple[Basis, InputDecision]:
    log, basis = observed.log(partition), _basis(app, observed, partition)
    checks = (*basis.checks, readable(basis.input.offset, log, app.isolation))
    if basis.stored is not None and basis.stored.input == basis.input:
        checks += identity(basis.input, log, observed)
    if basis.until is not None:
        readable(basis.until, log, app.isolation)
    entry = observed.stored_at(partition) or basis.stored
    current = None if entry is None else entry.input.offset
    return basis, moved(current, basis.input.offset, log, app.isolation, observed, checks)


def _output_of(
    app: App, observed: Observed, partition: TopicPartition, output: TopicPartition
) -> None:
    """Look at one output; `_outputs` decides on it for all of its inputs at once."""
    basis = _basis(app, observed, partition)
    stored = next(o for o in basis.outputs if o.topic_partition == output)
    decided = decide_output(stored, (partition,), app, observed, basis.stored, ordered=True)
    if decided.drop_first:
        _comes_again(observed, basis, partition)


def _decide(app: App, observed: Observed) -> RestartPlan:
    all_partitions = input_partitions(app, observed)
    bases: dict[TopicPartition, Basis] = {}
    inputs = []
    for partition in all_partitions:
        bases[partition], decision = _input(app, observed, partition)
        inputs.append(decision)
    outputs = _outputs(app, observed, bases)
    checks = [c for i in inputs for c in i.checks] + [c for o in outputs for c in o.checks]
    for o in outputs:
        checks += [_comes_again(observed, bases[p], p) for p in o.fed_by if o.drop_first]
    merges = {b.merge for b in bases.values() if b.merge is not None}
    inputs += [InputDecision(*merged, at, at, "none", 0) for merged, at in sorted(merges)]
    drops = sum(o.drop_first for o in outputs)
    promise = _promise(bases) or Promise("exactly-once", _because(app, outputs, drops))
    if drops:
        text = "the application gives the same outputs in the same order again"
        checks.append(Check("deterministic", None, text))
    return RestartPlan(
        app=app.name,
        strategy=app.strategy,
        inputs=tuple(inputs),
        outputs=outputs,
        state=tuple(bound for b in bases.values() for bound in b.state),
        guarantee=promise.guarantee,
        because=_if_dead(promise, checks),
        checks=gathered(tuple(checks)),
        store=tuple(kept for b in bases.values() if (kept := _entry_after(app, b)) is not None),
        starting_offsets=starting_offsets({p: b.input.offset for p, b in bases.items()})
        if app.strategy == "spark-checkpoint"
        else None,
    )


def _promise(bases: Mapping[TopicPartition, Basis]) -> Promise | None:
    """Return the weakest promise of the partitions, each reason once; None: there is none."""
    reasons: dict[Promise, list[str]] = {}
    for partition, basis in bases.items():
        if basis.promise is not None:
            reasons.setdefault(basis.promise, []).append(named(partition))
    if not reasons:
        return None
    least = max((p.guarantee for p in reasons), key=_FROM_BEST.index)
    weakest = {p.because: partitions for p, partitions in reasons.items() if p.guarantee == least}
    reasons_text = [
        b if len(reasons) == 1 else f"{b} ({some(partitions)})" for b, partitions in weakest.items()
    ]
    return Promise(least, "; ".join(reasons_text))


def _if_dead(promise: Promise, checks: Iterable[Check]) -> str:
    """Return why the guarantee holds; exactly-once is conditional if a process may still write.

    What that process writes after the plan comes again after the restart.
    """
    unfenced = any(c.name == "fenced" and c.held is None for c in checks)
    if promise.guarantee != "exactly-once" or not unfenced:
        return promise.because
    return f"only if the old process is dead, which is not proven; {promise.because}"


def _because(app: App, outputs: tuple[OutputDecision, ...], drops: int) -> str:
    text = _BECAUSE[app.strategy]
    if drops:
        written = some(
            [
                f"{named(o.topic_partition)} [{o.start}, {o.end_offset}) holds {o.drop_first}"
                for o in outputs
                if o.drop_first
            ]
        )
        return f"{text}; outputs after it are dropped when they come again: {written}"
    return f"{text}; no output was written after it" if outputs else text


def _outputs(
    app: App, observed: Observed, bases: Mapping[TopicPartition, Basis]
) -> tuple[OutputDecision, ...]:
    """Return each output partition once, however many inputs feed it."""
    feeds: dict[TopicPartition, list[tuple[TopicPartition, StoredOutput]]] = {}
    for partition, basis in bases.items():
        for stored in basis.outputs:
            feeds.setdefault(stored.topic_partition, []).append((partition, stored))
    outputs = []
    for output, pairs in sorted(feeds.items()):
        offsets = {stored.offset: partition for partition, stored in pairs}
        if len(offsets) > 1:
            (low, here), (high, there), *_ = sorted(offsets.items())
            raise RefusedError(
                f"{named(here)} was committed at its offset {low}, {named(there)} at {high}: which "
                "outputs come again is not known",
                where=named(output),
                remedy="inputs that share an output need one commit for all of them",
            )
        fed_by = tuple(partition for partition, _ in pairs)
        if app.strategy == "output-end" and len(fed_by) > 1:
            raise RefusedError(
                f"{len(fed_by)} input partitions feed it: how many of its records are of which "
                "one is not known",
                where=named(output),
                remedy="use commit-pair or merge-log",
            )
        ordered = len(fed_by) == 1 or app.strategy == "merge-log"
        entry = bases[fed_by[0]].stored
        decided = decide_output(pairs[0][1], fed_by, app, observed, entry, ordered=ordered)
        outputs.append(decided)
    return tuple(outputs)


def _comes_again(observed: Observed, basis: Basis, partition: TopicPartition) -> Check:
    """Check that, if outputs are dropped, all input records they were made from come again."""
    why = "the same outputs would not come again, n would drop others"
    start, log = basis.input.offset, observed.log(partition)
    return whole(start, max(start, log.last_stable_offset), log, observed, why=why)


def _entry_after(app: App, basis: Basis) -> StoredPartition | None:
    """Return the store's entry after apply: the input offset and the output offsets of that moment.

    An entry whose offset does not move is kept unchanged. None: eoctl never writes one. A
    changelog, a Spark checkpoint and a Flink checkpoint belong to their owner, and so does the
    state of a first commit, which a checkpoint holds and a merge log's commit may hold.
    """
    entry, topic_partition = basis.stored, basis.input.topic_partition
    if app.strategy in ("changelog", "spark-checkpoint", "flink-checkpoint"):
        return None
    if entry is not None and entry.input.offset == basis.input.offset:
        return entry
    if app.strategy in ("checkpoint", "merge-log"):
        return None
    start = StoredOffset(
        topic=topic_partition[0], partition=topic_partition[1], offset=basis.input.offset
    )
    alone = app.strategy == "output-end" and (entry is None or not entry.output)
    if alone or app.strategy == "transactional":
        return StoredPartition(input=start)
    return StoredPartition(input=start, output=basis.outputs)
