"""connect: decide where a source connector of Kafka Connect goes on, as given or as counted.

Only the connector knows what a source offset means. Where one number in it rises by one with each
record, the outputs show that number: k = all their visible data records since their base.
Otherwise the operator gives the offsets, and nothing is promised about them.
"""

from functools import partial

from recovery import plurals
from recovery.errors import NO_SUCH_TOPIC, RefusedError
from recovery.facts import TopicPartition
from recovery.restart.decision import (
    Check,
    Guarantee,
    OutputDecision,
    RestartPlan,
    RestartSource,
    gathered,
)
from recovery.restart.observed import Observed, each
from recovery.restart.output_end import counted_output
from recovery.restart.source_offsets import number_in, parse_offsets, with_number
from recovery.shared.app_file import App, ConnectSource

_FENCED = Check(
    "fenced",
    None,
    "with exactly.once.source.support Connect fences the tasks' producers before it changes "
    "offsets; without it a worker that hangs may still write: kill it",
)


def decide_connector(app: App, observed: Observed) -> RestartPlan:
    """Return the plan. Raises RefusedError, IncompleteError; Unobserved until all is counted."""
    source = app.source
    assert source is not None
    checks = (Check("stopped", True, "the connector is STOPPED", app.name), _FENCED)
    if source.offsets is not None:
        sources, promise = _given(source.offsets, observed)
        return _plan(app, sources, (), promise, checks)
    partitions = _output_partitions(app, observed)
    counted = each(partial(counted_output, app, observed, partition) for partition in partitions)
    k = sum(records for (_, _, records), _ in counted)
    more = tuple(check for _, some in counted for check in some)
    text = "each output is the copy of one record of the source, none is missing between them"
    more = (*more, Check("one-to-one", None, text))
    outputs = tuple(
        OutputDecision(*partition, start, end, observed.log(partition).leader_epoch, 0, ())
        for partition, ((start, end, _), _) in zip(partitions, counted, strict=True)
    )
    moved = _counted(app, source, observed, k)
    records = plurals.counted(k, "record")
    because = f"the outputs hold {records} of the source, so their number says where it goes on"
    return _plan(app, (moved,), outputs, ("exactly-once", because), (*checks, *more))


def _given(
    text: str, observed: Observed
) -> tuple[tuple[RestartSource, ...], tuple[Guarantee, str]]:
    wanted = parse_offsets(text, "[app.source] offsets")
    sources = tuple(
        RestartSource(partition, observed.sources.get(partition), offset)
        for partition, offset in sorted(wanted.items())
    )
    if all(s.current_offset == s.restart_offset for s in sources):
        return sources, ("at-least-once", "nothing moves: it goes on from its present offsets")
    because = (
        "these offsets are the operator's: which records of the source come again or are left out, "
        "Kafka does not know"
    )
    return sources, ("at-most-once", because)


def _counted(app: App, source: ConnectSource, observed: Observed, k: int) -> RestartSource:
    """Return the only source partition, with the number that belongs to k records."""
    if len(observed.sources) != 1:
        raise RefusedError(
            f"the connector has offsets of {len(observed.sources)} source partitions: which "
            "records are of which one cannot be counted",
            where=app.name,
            remedy="give [app.source] offsets",
        )
    [(partition, current)] = observed.sources.items()
    assert source.field is not None
    if number_in(current, source.field) is None:
        raise RefusedError(
            f"the source offset {current} holds no integer in {source.field}",
            where=app.name,
            remedy="check [app.source] field, or give offsets",
        )
    number = source.first + k - (1 if app.position == "last" else 0)
    if number < 0:
        raise RefusedError("no record was written: there is no last one", where=app.name)
    return RestartSource(partition, current, with_number(current, source.field, number))


def _output_partitions(app: App, observed: Observed) -> tuple[TopicPartition, ...]:
    for topic in app.outputs:
        if topic not in observed.partition_counts:
            raise RefusedError(NO_SUCH_TOPIC, where=topic)
    return tuple(
        TopicPartition(topic, partition)
        for topic in sorted(app.outputs)
        for partition in range(observed.partition_counts[topic])
    )


def _plan(
    app: App,
    sources: tuple[RestartSource, ...],
    outputs: tuple[OutputDecision, ...],
    promise: tuple[Guarantee, str],
    checks: tuple[Check, ...],
) -> RestartPlan:
    return RestartPlan(
        app=app.name,
        strategy=app.strategy,
        inputs=(),
        outputs=outputs,
        state=(),
        guarantee=promise[0],
        because=promise[1],
        checks=gathered(checks),
        store=(),
        sources=sources,
    )
