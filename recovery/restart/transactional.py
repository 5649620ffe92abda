"""transactional: offsets committed in the transaction of the outputs; restart at the commit, n = 0.

Whether an offset was committed in a transaction is read from `__consumer_offsets`, never from the
application file: an offset committed later and elsewhere (as Flink does) proves nothing about the
outputs. docs/restart.md says which evidence the guarantee rests on.
"""

import shlex
from collections.abc import Mapping
from functools import partial

from recovery import plurals
from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS
from recovery.quoting import some
from recovery.restart.commits import GroupCommit, OutputEvidence
from recovery.restart.decision import Basis, Check, Promise
from recovery.restart.observed import CommitOf, Count, InCommit, Observed, each
from recovery.restart.output_rules import final_end
from recovery.restart.positions import base_offset, stored_or_base
from recovery.restart.producers import ended_a_transaction
from recovery.restart.stored import StoredOffset, StoredOutput, StoredPartition
from recovery.shared.app_file import App, named
from recovery.shared.store_tables import KafkaGroupStore
from recovery.times import rfc3339

_IN_IT = "input offsets were committed in the transaction of the outputs"
_ASSUMED = (
    "input offsets were committed in a transaction; that the outputs were in the same one is "
    "assumed"
)
_NEVER = "nothing was committed, and the outputs hold no record of the application"


def transactional(app: App, observed: Observed, topic_partition: TopicPartition) -> Basis:
    """Return the restart. Raises RefusedError if offsets are gone or no transaction was used."""
    ends = {
        output: final_end(observed.log(output))[0] for output in app.outputs_of(topic_partition)
    }
    entry = observed.stored_at(topic_partition)
    if entry is None:
        start, promise, checks = _without_offset(app, observed, topic_partition, ends)
    else:
        start = entry.input
        promise, checks = _with_offset(app, observed, entry, ends)
    checks.append(
        Check("pending", True, "no commit of the group is pending", named(topic_partition))
    )
    checks += [_in_transactions(app, observed, output) for output in ends]
    outputs = tuple(StoredOutput(topic=o[0], partition=o[1], offset=end) for o, end in ends.items())
    return Basis(start, outputs, checks=tuple(checks), stored=entry, promise=promise)


def _with_offset(
    app: App, observed: Observed, entry: StoredPartition, ends: Mapping[TopicPartition, int]
) -> tuple[Promise, list[Check]]:
    """Check what the record of the group's commit proves."""
    partition, name = entry.input.topic_partition, "commit-in-transaction"
    where = named(partition)
    commit = observed.evidence(CommitOf(*partition))
    if isinstance(commit, str):
        because = "whether the group's offset was committed in a transaction could not be seen"
        return Promise("at-least-once", because), [Check(name, None, commit, where)]
    if commit.in_transaction:
        known = observed.owners.get(commit.producer_id or 0)
        who = f"producer {commit.producer_id} epoch {commit.producer_epoch}"
        text = (
            f"committed by {who}{'' if known is None else f' (transactional id {known!r})'} in a "
            f"transaction: its batch is at {CONSUMER_OFFSETS}:{commit.partition} offset "
            f"{commit.at}, its COMMIT marker at {commit.marker_at}"
        )
        promise, checks = _together(observed, commit, ends)
        return promise, [Check(name, True, text, where), *checks]
    at = rfc3339(commit.timestamp)
    text = (
        f"offset {commit.offset} was committed outside of a transaction at {at} "
        f"({CONSUMER_OFFSETS}:{commit.partition} offset {commit.at}), as a plain consumer, Flink "
        "or `restart apply` does"
    )
    if _is_base(app, observed, entry) and not _all_written(app, observed, ends):
        # An earlier plan set this offset: that is no better than no commit.
        return Promise("exactly-once", _NEVER), [Check(name, None, text, where)]
    because = (
        "the group's offset was committed outside of a transaction: the outputs may be ahead of it"
    )
    return Promise("at-least-once", because), [Check(name, False, text, where)]


def _together(
    observed: Observed, commit: GroupCommit, ends: Mapping[TopicPartition, int]
) -> tuple[Promise, list[Check]]:
    """Return the promise if the commit's transaction held the outputs, and the checks for that."""
    checks = each(partial(_in_commit, observed, commit, o, end) for o, end in ends.items())
    if any(c.held is False for c in checks):
        because = "outputs were committed after the group's offset, in transactions without it"
        return Promise("at-least-once", because), checks
    proven = checks and all(c.held for c in checks)
    return Promise("exactly-once", _IN_IT if proven else _ASSUMED), checks


_TOLD: Mapping[str, tuple[bool | None, str]] = {
    OutputEvidence.DECISION: (True, "the coordinator's decision on that transaction names it"),
    OutputEvidence.MARKERS: (
        True,
        "its records bear that producer id and epoch, with their COMMIT marker",
    ),
    OutputEvidence.LATER: (
        False,
        "a later transaction of that producer wrote there and holds no offset of the group",
    ),
    OutputEvidence.NOTHING: (
        None,
        "it was written in that transaction: no decision that is left, no last batch shows it",
    ),
}


def _in_commit(observed: Observed, commit: GroupCommit, output: TopicPartition, end: int) -> Check:
    start = observed.log(output).log_start_offset
    held: bool | None = None
    text: str = "no record was looked at: it is empty"
    if start < end:
        shown = observed.evidence(InCommit(*output, start, end, commit))
        held, text = _TOLD.get(shown, (None, shown))
    return Check("outputs-in-commit", held, text, named(output))


def _without_offset(
    app: App,
    observed: Observed,
    topic_partition: TopicPartition,
    ends: Mapping[TopicPartition, int],
) -> tuple[StoredOffset, Promise, list[Check]]:
    """Return where a group without an offset starts: it never committed, or lost its offsets."""
    base = app.base_of(topic_partition)
    written = _all_written(app, observed, ends)
    if base is None and written and not observed.stored:
        assert isinstance(app.store, KafkaGroupStore)
        words = [
            "eoctl",
            "restart",
            "plan",
            "--group",
            app.store.group,
            "--topic",
            named(topic_partition),
        ]
        raise RefusedError(
            f"the group holds no offset of it, but {some(written)}: its offsets are gone (expired "
            "or deleted), and from the beginning everything would come twice",
            where=named(topic_partition),
            remedy="take the offset from a checkpoint or a backup and say it in [app.base]: "
            f'"{named(topic_partition)}" = OFFSET; or choose an instant: '
            f"{shlex.join(words)} --to-datetime T, or --as-of T for what it had committed then",
        )
    if base is None:
        basis = stored_or_base(app, observed, topic_partition)
        return basis.input, Promise("exactly-once", _NEVER), list(basis.checks)
    start = base_offset(app, observed, topic_partition)
    text = f"it starts at {start}, as [app.base] says"
    promise = Promise("exactly-once", _NEVER)
    if written:
        because = "the group holds no offset; where it begins is what [app.base] says"
        promise = Promise("at-least-once", because)
    return (
        StoredOffset(topic=topic_partition[0], partition=topic_partition[1], offset=start),
        promise,
        [Check("base", None, text, named(topic_partition))],
    )


def _is_base(app: App, observed: Observed, entry: StoredPartition) -> bool:
    base = app.base_of(entry.input.topic_partition)
    begin = observed.log(entry.input.topic_partition).log_start_offset == 0
    return entry.input.offset == (base if base is not None else 0 if begin else None)


def _all_written(app: App, observed: Observed, ends: Mapping[TopicPartition, int]) -> list[str]:
    texts = each(partial(_written, app, observed, o, end) for o, end in ends.items())
    return [text for text in texts if text is not None]


def _written(app: App, observed: Observed, output: TopicPartition, end: int) -> str | None:
    """Return what the application wrote to an output since its base; None: nothing."""
    log, base = observed.log(output), app.base_of(output)
    start = log.log_start_offset if base is None else base
    if base is None and start > 0:
        return f"{named(output)} starts at {start}, and what was below it is deleted"
    counted = observed.count(Count(*output, start, max(start, end), producers=True))
    writers, counts = counted.producers, counted.counts
    if counts.missing:  # their writers are unknown, as below a log start
        lacks = plurals.counted(counts.missing, "offset")
        return f"{named(output)} lacks {lacks} from {start} on: records that compaction took"
    assert writers is not None
    # Not exclusive: records outside of transactions are assumed foreign. Runs end where a producer
    # comes back: later writers are unknown.
    transactional = writers.interleaved is not None or any(r.transactional for r in writers.runs)
    if counts.data and (app.exclusive or transactional):
        return f"{named(output)} holds {plurals.counted(counts.data, 'record')} from {start} on"
    at = writers.first_commit  # its transaction has no record here, or no longer
    return None if at is None else f"{named(output)} holds a COMMIT marker at offset {at}"


def _in_transactions(app: App, observed: Observed, output: TopicPartition) -> Check:
    """Check who wrote outside of a transaction, since n = 0 holds only for outputs inside one."""
    where, log = named(output), observed.log(output)
    if log.producers is None:
        text = "which producers wrote outside of transactions could not be seen"
        return Check("outputs-in-transaction", None, text, where)
    plain = [str(p.producer_id) for p in log.producers if not ended_a_transaction(p)]
    if plain and app.exclusive:
        raise RefusedError(
            f"producers wrote outside of transactions: {some(plain, most=5)}; outputs that are not "
            "in the transaction are not taken back with it",
            where=where,
            remedy="count them with the strategy commit-pair, or say exclusive = false if they "
            "are not this application's",
        )
    if plain:
        text = f"another application wrote outside of transactions: {some(plain, most=5)}"
        return Check("outputs-in-transaction", None, text, where)
    text = (
        "no producer wrote outside of transactions: none that the broker remembers did, but one "
        "without an id (PID -1), or forgotten since, cannot be seen"
    )
    return Check("outputs-in-transaction", None, text, where)
