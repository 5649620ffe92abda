"""Words of the reasons for a verdict, and of what is not known of an `unknown`."""

from collections.abc import Mapping, Sequence
from typing import Any

from eoctl.render.verdicts.unknown_words import NOT_KNOWN, UNPROVEN
from eoctl.render.words import Words, sentence
from recovery.facts import GroupFacts, TransactionFacts
from recovery.inspect.history import Decision
from recovery.inspect.id_facts import IdFacts, NamedPartition, Refusing
from recovery.inspect.observation import OpenTransaction
from recovery.plurals import counted, listed
from recovery.times import span
from recovery.values import Reason


def evidence_words(reason: Reason) -> str:
    """Return the sentence of a reason for a verdict."""
    return sentence(EVIDENCE, reason)


def _start_batch(
    about: OpenTransaction, groups: Sequence[str], producer_id: int, producer_epoch: int
) -> str:
    text = f"the batch at offset {about.start_offset} of {about.name} is producer id {producer_id}"
    held = f"; it holds offsets of {listed(groups, 'group')}" if groups else ""
    return f"{text}, epoch {producer_epoch}{held}"


def _all_deleted(about: OpenTransaction, log_start: int | None) -> str:
    return (
        f"every record of producer id {about.producer_id} in this transaction was deleted "
        f"(it began at offset {about.start_offset}, the log of {about.name} at {log_start}): "
        "none is left to show which transaction it was"
    )


def _start_deleted(
    about: OpenTransaction, producer_epoch: int, first_left: int | None, *, deleted: bool, **_: Any
) -> str:
    name, start = about.name, about.start_offset
    if deleted:
        text = f"it began at offset {start} of {name}"
        return f"{text}; its records there were deleted, and none is left"
    text = f"the records of {name} from offset {start}, where it began, were deleted"
    left = f"the first batch of its producer that is left is at offset {first_left}"
    return f"{text}; {left}, epoch {producer_epoch}"


def _short_log(log: str, in_sync: int, min_in_sync: int, away: Sequence[int]) -> str:
    return (
        f"{log}, its coordinator's log, has {in_sync} of the {min_in_sync} replicas in sync that "
        f"it must have (min.insync.replicas): {listed(away, 'broker')} "
        f"{'is' if len(away) == 1 else 'are'} away. Until enough are back its coordinator can "
        "neither commit nor abort"
    )


_ENOUGH = {
    None: "whether that is enough is not known",
    True: "too few for a record that all of these must acknowledge",
    False: "enough",
}


def _log_to_finish(
    log: str, in_sync: int | None, min_in_sync: int | None, *, too_few: bool | None
) -> str:
    least = f"{_or_unknown(min_in_sync)}: {_ENOUGH[too_few]}"
    return f"Replicas of {log} in sync: {_or_unknown(in_sync)}, needed: {least}"


def _or_unknown(value: int | None) -> str:
    return "not known" if value is None else str(value)


def _coordinator(**row: Any) -> str:
    text = (
        "transactional id {transactional_id} (coordinator on broker {coordinator}) is {state} with "
        "producer id {producer_id}, epoch {producer_epoch}"
    ).format(**row)
    if "here" in row:
        return f"{text}, and {'names' if row['names'] else 'does not name'} {row['here']}"
    text += f"; it names {', '.join(row['partitions']) or 'no partition'}"
    return text + (" and holds none of it back" if row["holds_none"] else "")


def _no_owner(
    about: OpenTransaction, seen: int, partitions: int, samples: int, apart: int | None
) -> str:
    """Return how thorough the search was. apart: ms between two looks; None: there was one."""
    often = "once" if samples == 1 or apart is None else f"twice, {span(apart)} apart"
    return (
        f"no coordinator lists producer id {about.producer_id} as open on {about.name}; "
        f"{seen} of {counted(partitions, 'coordinator partition')} answered, {often}"
    )


_FROM = {
    "log": "",
    "cache": " (read earlier and kept in this host's cache: the cluster may have compacted it)",
    "forgotten": " (only this host's cache knows it: the cluster's log no longer holds it)",
}


def _decision(about: OpenTransaction, decision: Decision, **_: Any) -> str:
    d = decision
    return (
        f"__transaction_state-{d.state_partition} offset {d.offset}: {d.transactional_id} decided "
        f"{d.outcome} with producer id {d.producer_id}, epoch {d.producer_epoch}, and names "
        f"{about.name}; no such marker follows offset {about.start_offset}{_FROM[d.source]}"
    )


def _no_decision(cached_until: int, **_: Any) -> str:
    below = f"what is below offset {cached_until} was read earlier: this host's cache kept it"
    return (
        "The coordinator's history (__transaction_state) is complete since before these records "
        "and shows neither commit nor abort for them"
    ) + (f" ({below})" if cached_until else "")


def _cache(about: OpenTransaction, *, forgotten: bool, **_: Any) -> str:
    why = "a decision that the cluster's own log no longer holds"
    if not forgotten:
        why = f"which topic was named {about.topic}, and when"
    return f"This host's cache decided: only it knows {why}. Another host may answer unknown"


def _running(
    age_seconds: float,
    timeout_ms: int | None,
    long_after: int,
    *,
    clock_measured: bool,
    two_phase: bool,
    **_: Any,
) -> str:
    ends = "has no timeout" if two_phase else f"times out after {span(timeout_ms or 0)}"
    by = f"by {whose_clock(measured=clock_measured)}"
    return (
        f"It has run for {span(round(age_seconds * 1000))} {by}; it {ends} and counts as long "
        f"after {span(long_after)} (--long-after)"
    )


def _id_running(
    age_seconds: float | None,
    timeout_ms: int | None,
    long_after: int,
    *,
    clock_measured: bool,
    compared: str,
) -> str:
    """Return how long an id that holds none has run. compared: by `our` clock or `its` own."""
    runs = "how long it has run is not known"
    if age_seconds is not None:
        by = whose_clock(measured=clock_measured)
        runs = f"it has run for about {span(round(age_seconds * 1000))} by {by}"
    limits = f"its timeout is {span(timeout_ms or 0)}, counted as long after {span(long_after)}"
    whose = "its coordinator's clock" if compared == "its" else "our clock"
    return f"{runs} ({limits}; compared by {whose})"


def whose_clock(*, measured: bool) -> str:
    """Name the clock that a time is by. measured: the coordinator's clock is known."""
    if measured:
        return "its coordinator's clock"
    return "our clock (its coordinator's could not be measured)"


def _deadline(
    left_ms: int | None,
    cycle_ms: int | None,
    missed: int | None,
    *,
    two_phase: bool,
    log_is_short: bool,
    clock_measured: bool,
    **_: Any,
) -> str:
    """Return when its coordinator aborts it. missed: cycles since then that it did not."""
    by = whose_clock(measured=clock_measured)
    if two_phase:
        return "Its coordinator never aborts it: two-phase has no timeout"
    if left_ms is None:
        return "When its coordinator aborts it could not be seen"
    if log_is_short:
        when = f"passed {span(left_ms)} ago" if left_ms < 0 else f"passes in {span(left_ms)}"
        return f"Its timeout {when}; its coordinator cannot abort it while those brokers are away"
    if left_ms >= 0:
        return f"Its coordinator aborts it in {span(left_ms)} (start + timeout, by {by})"
    past = f"Its timeout passed {span(left_ms)} ago" + ("" if clock_measured else f", by {by}")
    if cycle_ms is None:
        return f"{past}; how often its coordinator looks for such is hidden (by default every 10s)"
    if missed is None:
        return f"{past}; its coordinator looks every {span(cycle_ms)} and should abort it now"
    return (
        f"{past}: due {counted(missed, 'cycle')} ago: the coordinator is not doing it (it should "
        f"look every {span(cycle_ms)})"
    )


def _precommitted(name: str, left_ms: int | None, **_: Any) -> str:
    soon = "at once" if left_ms is None or left_ms < 0 else f"within {span(left_ms)}"
    return (
        f"{name} looks like a Flink sink (by its name): these records may be pre-committed, and "
        "the abort at that deadline loses them. Restore the job from its last checkpoint "
        f"{soon}: it then commits them"
    )


def _signs_of_life(
    groups: Sequence[GroupFacts],
    unseen: Sequence[str],
    apart: int,
    silent: int | None,
    *,
    worked: bool | None,
    **_: Any,
) -> str:
    """Return an owner's signs of life. silent: ms since its last write, by the producer's clock."""
    words = []
    if worked is not None:
        did = "worked on" if worked else "wrote nothing here"
        words.append(f"it {did} between two looks {span(apart)} apart")
    if silent is not None and silent >= 0:
        words.append(f"its last write here was ~{span(silent)} ago by the producer's clock")
    words += [f"group {g.group} of its name has members ({_members(g)})" for g in groups]
    if not groups:
        words.append(
            f"whether a group of its name has members could not be seen: {unseen[0]}"
            if unseen
            else "no group of its name has members"
        )
    lives = "Its owner shows signs of life" if worked or groups else "No sign of life of its owner"
    return f"{lives}: {'; '.join(words)}"


def _members(group: GroupFacts) -> str:
    members = [f"{client} at {host}" for client, host in group.members or ()]
    return ", ".join([*members[:3], *(["…"] if len(members) > 3 else [])])


def _clock(ahead_ms: int, broker: int) -> str:
    where = "ahead of" if ahead_ms > 0 else "behind"
    return (
        f"The clock of broker {broker}, its coordinator, is {span(ahead_ms)} {where} ours: ages "
        "and deadlines here are by the coordinator's"
    )


def _decided_when(leaderless: Sequence[str], age: int, *, clock_measured: bool) -> str:
    when = "the clocks do not show when it was decided"
    if age >= 0:
        when = f"decided {span(age)} ago by {whose_clock(measured=clock_measured)}"
    return f"{when}; partitions without a leader that answers: {', '.join(leaderless) or 'none'}"


def _markers_written(partitions: Sequence[str], gone: Sequence[str]) -> str:
    text = (
        f"it names {counted(len(partitions), 'partition')}: each has its marker, or nothing of it "
        "is open there, and its coordinator has not completed it"
    )
    return text + (f"; deleted since: {', '.join(gone)}" if gone else "")


def _marker_refused(refusing: Refusing, look: IdFacts, **_: Any) -> str:
    p = refusing.partition
    assert p.producer is not None
    is_open = _what_is_open(p, look.row)
    if refusing.above:
        return (
            f"{p.name} has seen coordinator epoch {p.producer.coordinator_epoch}, its "
            f"coordinator's is {look.coordinator_epoch}: {refusing.above} below, so its marker is "
            f"refused; {is_open}"
        )
    if p.producer.producer_epoch == look.row.producer_epoch:
        return (
            f"on {p.name} somebody wrote with producer epoch {p.producer.producer_epoch}, the "
            "one of its marker, which is refused for as long as that is open (KAFKA-19999): "
            f"{is_open}"
        )
    return (
        f"{p.name} has seen producer epoch {p.producer.producer_epoch}, its Prepare* bears "
        f"{look.row.producer_epoch}: its marker is refused; {is_open}"
    )


def _what_is_open(p: NamedPartition, row: TransactionFacts) -> str:
    """Return what is open on a partition that refuses a marker, and what a foreign marker cost."""
    if p.open_from is not None:
        return f"a transaction is open there from offset {p.open_from}"
    text = "none of it is open there any more"
    if p.ended_by is None:
        return text
    by, at = p.ended_by
    text += f": the {by} marker at offset {at} ended it"
    if by == row.decided:
        return text
    if row.decided == "commit":
        return f"{text}. LOSS: its coordinator decided commit, and that marker says {by}"
    return f"{text}. Its coordinator decided {row.decided}: records were delivered that it aborted"


EVIDENCE: Mapping[str, Words] = {
    "start-batch": _start_batch,
    "start-deleted": lambda **d: (_all_deleted if "log_start" in d else _start_deleted)(**d),
    "leaderless": lambda partitions: (
        f"No marker can be written to {', '.join(partitions)}: no leader answers"
    ),
    "coordinator-log": lambda **d: (_short_log if "away" in d else _log_to_finish)(**d),
    "coordinator": _coordinator,
    "no-owner": _no_owner,
    "decision": _decision,
    "no-decision": _no_decision,
    "cache": _cache,
    "earlier-marker": "The {outcome} marker of its producer at offset {offset} is before this "
    "batch, which begins at offset {start}: it does not decide this batch",
    "earlier-unclear": "whether an older, decided transaction of the id lies under it is not "
    "known: no fence",
    "running": lambda **d: (_id_running if "compared" in d else _running)(**d),
    "deadline": _deadline,
    "looks-precommitted": _precommitted,
    "signs-of-life": _signs_of_life,
    "clock": _clock,
    "decided-when": lambda **d: (
        _decided_when(**d) if d else "since when it is decided is not known"
    ),
    "outcome-unproven": lambda rule: UNPROVEN[rule],
    "partitions-hidden": lambda partitions: (
        f"its record names partitions that we may not see: {', '.join(partitions) or 'none'}"
    ),
    "markers-written": _markers_written,
    "marker-refused": _marker_refused,
    # rules of `unknown`
    "coordinators-not-seen": lambda errors, **d: (
        _no_owner(**d) + (f" ({', '.join(errors)})" if errors else "")
    ),
    "one-sample": _no_owner,
    **NOT_KNOWN,
}
"""Code of a reason → its sentence, from its data."""
