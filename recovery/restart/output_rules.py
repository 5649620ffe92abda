"""Decide how many outputs to drop, and when that is known: n visible data records in [o, end).

Every rule of "When n can be known" in docs/restart.md: refused are an incomplete range, an end that
is not final, and writers that cannot be one deterministic application.
"""

from collections.abc import Sequence

from recovery import plurals
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import TopicPartition
from recovery.formats.batches import NO_PRODUCER_ID
from recovery.quoting import some
from recovery.restart.decision import Check, OutputDecision
from recovery.restart.input_rules import identity
from recovery.restart.observed import Count, Counted, Log, Observed
from recovery.restart.producers import Producers, ended_a_transaction, next_sequence
from recovery.restart.stored import StoredOutput, StoredPartition
from recovery.shared.app_file import App, named

_EMPTY = "no record was looked at: nothing was written from the counted start to the end"


def final_end(log: Log) -> tuple[int, Check]:
    """Return the log end, once no in-flight record can still appear.

    That is LEO = HW = LSO on two reads. Raises RefusedError until then.
    """
    where = named(log.topic_partition)
    if len(log.reads) < 2:
        raise IncompleteError("its end was read only once", where=where)
    for read in log.reads:
        if read.log_end_offset is None:
            raise IncompleteError("its log end offset could not be read at the leader", where=where)
        if read.last_stable_offset < read.high_watermark:
            open_offsets = read.high_watermark - read.last_stable_offset
            raise _not_final(
                f"{plurals.counted(open_offsets, 'offset is', 'offsets are')} open from "
                f"{read.last_stable_offset} on",
                where,
                "end the open transaction first: see `eoctl why`",
            )
        if read.high_watermark < read.log_end_offset:
            why = (
                f"the leader's log ends at {read.log_end_offset}, it is replicated up to "
                f"{read.high_watermark}; the rest appears later"
            )
            raise _not_final(why, where, "wait until the followers are in sync, then plan again")
    ends = [read.high_watermark for read in log.reads]
    if len(set(ends)) > 1:
        remedy = "somebody still writes: stop or fence the old process, then plan again"
        raise _not_final(f"it moved from {ends[0]} to {ends[-1]} meanwhile", where, remedy)
    return log.high_watermark, Check("end-final", True, "LEO = HW = LSO on two reads", where)


def _not_final(why: str, where: str, remedy: str) -> RefusedError:
    return RefusedError(f"its end is not final: {why}", where=where, remedy=remedy)


def counted_range(
    start: int, end: int, log: Log, observed: Observed
) -> tuple[Counted, tuple[Check, ...]]:
    """Return the counts of [start, end) of an output. Raises RefusedError if n would be a guess."""
    where = named(log.topic_partition)
    if start > end:
        raise RefusedError(
            f"the output offset {start} is above the end {end}: outputs were lost, or the commit "
            "was written before them",
            where=where,
            remedy="look for an older commit whose outputs are all there",
        )
    if start < log.log_start_offset:
        raise RefusedError(
            f"the outputs [{start}, {log.log_start_offset}) are gone: the log starts at "
            f"{log.log_start_offset}; they cannot be counted",
            where=where,
            remedy="for output-end give [app.base] an offset that is still there",
        )
    counted = observed.count(Count(*log.topic_partition, start, end, producers=True))
    counts = counted.counts
    if counts.open:
        raise RefusedError(
            f"[{start}, {end}) holds {plurals.counted(counts.open, 'record')} of open transactions",
            where=where,
            remedy="end them first: see `eoctl why`",
        )
    if counts.missing:
        raise RefusedError(
            f"[{start}, {end}) lacks {plurals.counted(counts.missing, 'offset')} (compacted or "
            "deleted): how many outputs there were cannot be counted",
            where=where,
        )
    if start == end:
        return counted, (Check("range-whole", None, _EMPTY, where),)
    return counted, (Check("range-whole", True, "no output is missing or open", where),)


def written_by_one(
    counted: Counted, stored: StoredOutput, log: Log, app: App, observed: Observed
) -> tuple[Check, ...]:
    """Check that one deterministic application can have written the n outputs, else refuse."""
    where = named(log.topic_partition)
    producers = counted.producers
    if producers is None:
        raise IncompleteError("who wrote the range was not read", where=where)
    for run in producers.runs:
        if run.producer_id == NO_PRODUCER_ID:
            raise RefusedError(
                f"at {run.first_offset} a producer without an id wrote (PID -1): a retry may be "
                "there twice, n means nothing",
                where=where,
                remedy="use an idempotent producer; now compare input and output record by record",
            )
    if (back := producers.interleaved) is not None:
        first, other, again = back
        raise RefusedError(
            f"two producers wrote at the same time: {first.producer_id} at {first.first_offset}, "
            f"{other.producer_id} at {other.first_offset}, {again.producer_id} again at "
            f"{again.first_offset}; n means nothing",
            where=where,
            remedy="find the second process, and clean up with `eoctl dedup`",
        )
    if producers.gaps:
        gap = producers.gaps[0]
        raise RefusedError(
            f"the sequence of producer {gap.producer_id} has a gap at {gap.offset}: (epoch, "
            f"sequence) {gap.expected} expected, {gap.found} found; records were lost",
            where=where,
            remedy="look for the loss with `eoctl audit sequences`",
        )
    checks = [Check("sequences", True, "one producer at a time, no gap in the sequences", where)]
    if not producers.runs:
        checks = [Check("sequences", None, _EMPTY, where)]
    checks += _stored_producer(stored, producers, log)
    checks.append(_exclusive(producers, stored, app, observed, where))
    checks.append(_fenced(producers, stored, log, observed))
    return tuple(checks)


def _stored_producer(stored: StoredOutput, producers: Producers, log: Log) -> list[Check]:
    """Compare the store's producer id, epoch and last sequence with the broker's."""
    if stored.producer_id is None or stored.producer_epoch is None:
        return []
    where, producer = named(log.topic_partition), stored.producer_id
    then = stored.producer_epoch, stored.last_sequence
    known = next((p for p in log.producers or () if p.producer_id == producer), None)
    now = None if known is None else (known.producer_epoch, known.last_sequence)
    begins = producers.first.get(producer)
    if begins is not None:
        if begins[0] > then[0]:  # each epoch begins at 0 (every transaction of v2 raises it)
            fits = begins[1] == 0
        else:
            fits = begins[0] == then[0] and (
                then[1] is None or begins == next_sequence(then[0], then[1])
            )
        if not fits:
            raise RefusedError(
                f"producer {producer} goes on at (epoch, sequence) {begins} after {stored.offset}, "
                f"the store holds {then}: they are not of the same moment",
                where=where,
                remedy="look for another commit of the application",
            )
    if now is None:
        text = f"the broker no longer knows the stored producer {producer}"
        return [Check("stored-producer", None, text, where)]
    last = producers.last.get(producer, then)
    if now[0] < last[0] or (
        now[0] == last[0] and None not in (now[1], last[1]) and now[1] != last[1]
    ):
        raise RefusedError(
            f"the broker knows producer {producer} at (epoch, sequence) {now}, store and log at "
            f"{last}: a stale state, records were lost",
            where=where,
            remedy="look for the loss with `eoctl audit sequences`",
        )
    text = "the stored producer, epoch and sequence lead to the broker's"
    return [Check("stored-producer", True, text, where)]


def _exclusive(
    producers: Producers, stored: StoredOutput, app: App, observed: Observed, where: str
) -> Check:
    """Check that only this application wrote. That is proven only if the store names the one
    producer: a restarted process has another id, so the check lists all that wrote."""
    owners, ids = observed.owners, producers.producer_ids
    writers = some(
        [f"{i} (transactional id {owners[i]!r})" if i in owners else str(i) for i in ids], most=5
    )
    if app.exclusive:
        _refuse_two_applications(producers, observed, where, writers)
    if not app.exclusive:
        text = "only this application's outputs were counted (exclusive = false)"
        return Check("exclusive", None, f"{text}; written by {writers or 'nobody'}", where)
    if not ids:
        return Check("exclusive", None, _EMPTY, where)
    alone = len(ids) == 1
    text = (
        f"written by producer {writers}"
        if alone
        else f"producers {writers} wrote one after the other"
    )
    if alone and stored.producer_id == ids[0]:
        return Check("exclusive", True, f"{text} alone, which the store names", where)
    if stored.producer_id is not None and stored.producer_id not in ids:
        text += f", the store names {stored.producer_id}"
    elif alone:
        text += " alone"
    text += ": the application's own"
    if not alone:
        text += ", each having dropped what the one before wrote"
    return Check("exclusive", None, text, where)


def _refuse_two_applications(
    producers: Producers, observed: Observed, where: str, writers: str
) -> None:
    """Raise RefusedError if two transactional ids, or a transactional and a plain producer, wrote:
    that is not one process that was started again."""
    names = {observed.owners[i] for i in producers.producer_ids if i in observed.owners}
    kinds = {run.transactional for run in producers.runs}
    if len(names) < 2 and len(kinds) < 2:
        return
    what = f"{len(names)} transactional ids" if len(names) > 1 else "two kinds of producers"
    raise RefusedError(
        f"exclusive = true, but {what} wrote what is counted: {writers}; n would count "
        "the outputs of another application too",
        where=where,
        remedy="find out whose they are; say exclusive = false only if every one of them is this "
        "application's",
    )


def _fenced(producers: Producers, stored: StoredOutput, log: Log, observed: Observed) -> Check:
    """Check whether the old process can still write: without a transactional id nothing fences it.

    A process that wrote nothing after the commit may hang and send its records once it wakes up, so
    the producers that the broker remembers and the stored one are judged too.
    """
    where = named(log.topic_partition)
    # producer id → whether it writes in transactions
    writers = {run.producer_id: run.transactional for run in producers.runs}
    for p in log.producers or ():
        writers.setdefault(p.producer_id, ended_a_transaction(p))
    if stored.producer_id is not None and log.producers:
        writers.setdefault(stored.producer_id, False)
    if writers and observed.fenced.issuperset(writers):
        return Check("fenced", True, "the old producers are fenced", where)
    if writers and all(writers.values()):
        text = (
            "the old process is dead. It was not fenced: `eoctl txn fence` the application's "
            "transactional ids first"
        )
    else:
        text = (
            "the old process is dead. It was not fenced: check it, or revoke its WRITE permission"
        )
    return Check("fenced", None, text, where)


def decide_output(
    stored: StoredOutput,
    fed_by: tuple[TopicPartition, ...],
    app: App,
    observed: Observed,
    entry: StoredPartition | None,
    *,
    ordered: bool,
) -> OutputDecision:
    """Return n for one output partition. entry: the store's, if the offset comes from it. ordered:
    the order of its inputs is fixed (one input, or a merge log). Raises RefusedError."""
    log = observed.log(stored.topic_partition)
    is_stored = entry is not None and stored in entry.output
    checks = identity(stored, log, observed) if is_stored else ()
    end, final = final_end(log)
    counted, whole = counted_range(stored.offset, end, log, observed)
    writers = written_by_one(counted, stored, log, app, observed)
    n = counted.counts.data
    if n and not ordered:
        raise RefusedError(
            f"{plurals.counted(n, 'output')} after the commit may be of several inputs "
            f"({_some_named(fed_by)}): in which order is recorded nowhere",
            where=named(stored.topic_partition),
            remedy="the strategy merge-log records it",
        )
    checks = (*checks, final)
    if app.strategy != "output-end":  # output-end has them for all outputs since the base
        checks += (*whole, *writers)
    return OutputDecision(
        *stored.topic_partition, stored.offset, end, log.leader_epoch, n, fed_by, checks
    )


def _some_named(partitions: Sequence[TopicPartition]) -> str:
    return some([named(p) for p in partitions])
