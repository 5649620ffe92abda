"""output-end: a 1:1 copy restarts after as many input records as its output holds.

k = visible data records in the output since its base; restart = the offset after the k-th record
that the application sees from the input's base on. If a copy goes to several outputs, the one with
the fewest records decides, and the others drop the records beyond that.
"""

from functools import partial

from recovery import plurals
from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.restart.decision import Basis, Check
from recovery.restart.input_rules import identity, readable, whole
from recovery.restart.observed import Observed, Walk, each
from recovery.restart.output_rules import counted_range, final_end, written_by_one
from recovery.restart.positions import base_offset
from recovery.restart.stored import StoredOffset, StoredOutput
from recovery.shared.app_file import App, named


def output_end(app: App, observed: Observed, topic_partition: TopicPartition) -> Basis:
    """Return where a copy restarts. Raises RefusedError if outputs are no copy or uncountable."""
    log, where = observed.log(topic_partition), named(topic_partition)
    base = base_offset(app, observed, topic_partition)
    # A walk cannot begin at a base that no longer exists.
    checks = [readable(base, log, app.isolation)]
    entry = observed.stored_at(topic_partition)
    if entry is not None:
        checks += identity(entry.input, log, observed)
    counted: dict[TopicPartition, tuple[int, int, int]] = {}
    topic_partitions = app.outputs_of(topic_partition)
    counts = each(partial(counted_output, app, observed, output) for output in topic_partitions)
    for output, (counts_here, more) in zip(topic_partitions, counts, strict=True):
        counted[output] = counts_here
        checks += more
    if not counted:
        raise RefusedError("it feeds no output: nothing shows how far it was read", where=where)
    k = min(records for _, _, records in counted.values())
    restart = observed.walk(Walk(*topic_partition, base, k, app.isolation == "read_uncommitted"))
    if restart is None:
        raise RefusedError(
            f"the output holds {plurals.counted(k, 'record')} since its base, the input fewer: it "
            "is not a 1:1 copy, or the base is wrong",
            where=where,
            remedy="check [app.base] and [app.mapping]",
        )
    why = "the k-th record now is not the k-th record of that time"
    checks.append(whole(base, restart, log, observed, why=why, always=True))
    text = "the k-th output is the copy of the k-th input"
    checks.append(Check("one-to-one", None, text, where))
    outputs = each(partial(_output, observed, output, *c, k) for output, c in counted.items())
    return Basis(
        StoredOffset(topic=topic_partition[0], partition=topic_partition[1], offset=restart),
        tuple(outputs),
        checks=tuple(checks),
        stored=entry,
    )


def _output(
    observed: Observed, topic_partition: TopicPartition, start: int, end: int, records: int, k: int
) -> StoredOutput:
    """Return the offset of an output after k of its records."""
    offset: int | None = end
    if records > k:
        offset = observed.walk(Walk(*topic_partition, start, k))
    assert offset is not None, "fewer records than were counted"
    return StoredOutput(topic=topic_partition[0], partition=topic_partition[1], offset=offset)


def counted_output(
    app: App, observed: Observed, output: TopicPartition
) -> tuple[tuple[int, int, int], list[Check]]:
    """Return (base, end, records in between) of an output, with the checks on that range."""
    log = observed.log(output)
    start = base_offset(app, observed, output)
    end, _ = final_end(log)
    counted, more = counted_range(start, end, log, observed)
    base = StoredOutput(topic=output[0], partition=output[1], offset=start)
    checks = [*more, *written_by_one(counted, base, log, app, observed)]
    return (start, end, counted.counts.data), checks
