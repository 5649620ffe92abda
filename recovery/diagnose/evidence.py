"""Phrase the reasons for a verdict as plain sentences with their numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from recovery.diagnose.case import Case
from recovery.facts import CoordinatorFacts, TransactionFacts
from recovery.inspect.id_facts import Refusing
from recovery.inspect.two_phase import is_two_phase, looks_precommitted
from recovery.plurals import counted, listed
from recovery.times import span
from recovery.values import Value


class Evidence(Value):
    """One reason: a stable code for scripts, a sentence for people, and the numbers in it."""

    code: str
    text: str
    data: Mapping[str, Any] = msgspec.field(default_factory=dict)


def about_batch(c: Case) -> list[Evidence]:
    """Describe the batch that holds the partition."""
    if c.start is None or c.about.producer_id is None:
        return []
    b, at = c.start, c.about
    data: dict[str, Any] = {"producer_id": b.producer_id, "producer_epoch": b.producer_epoch}
    if b.deleted or b.survivor is not None:
        text = (
            f"the records of {at.name} from offset {at.start_offset}, where it began, were deleted"
        )
        left = f"the first batch of its producer that is left is at offset {b.survivor}"
        text += "; none of its own is left" if b.deleted else f"; {left}, epoch {b.producer_epoch}"
        return [Evidence("start-deleted", text, data | {"first_left": b.survivor})]
    held = f"; it holds offsets of {listed(b.groups, 'group')}" if b.groups else ""
    return [
        Evidence(
            "start-batch",
            f"the batch at offset {at.start_offset} of {at.name} is producer id {b.producer_id}, "
            f"epoch {b.producer_epoch}{held}",
            data | {"groups": b.groups},
        )
    ]


def brokers_away(log: CoordinatorFacts | None, leaderless: Sequence[str] = ()) -> list[Evidence]:
    """Say that a coordinator cannot write its log, or which partitions cannot take a marker."""
    evidence = [] if log is None else [_short_log(log)]
    if leaderless:
        text = f"No marker can be written to {', '.join(leaderless)}: no leader answers"
        evidence.append(Evidence("leaderless", text, {"partitions": list(leaderless)}))
    return evidence


def _short_log(log: CoordinatorFacts) -> Evidence:
    text = (
        f"__transaction_state:{log.partition}, its coordinator's log, has {log.in_sync} of the "
        f"{log.least} replicas in sync that it must have (min.insync.replicas): "
        f"{listed(log.away, 'broker')} {'is' if len(log.away) == 1 else 'are'} away. Until enough "
        "are back its coordinator can neither commit nor abort"
    )
    data = {"in_sync": log.in_sync, "min_in_sync": log.least, "away": list(log.away)}
    return Evidence("coordinator-log", text, data)


def about_row(c: Case, row: TransactionFacts) -> Evidence:
    """Describe what a coordinator answered about an id."""
    names = "names" if c.about.topic_partition in (row.partitions or ()) else "does not name"
    return Evidence(
        "coordinator",
        f"transactional id {row.transactional_id} (coordinator on broker {row.coordinator}) is "
        f"{row.state} with producer id {row.producer_id}, epoch {row.producer_epoch}, and {names} "
        f"{c.about.name}",
        {
            "transactional_id": row.transactional_id,
            "state": row.state,
            "producer_epoch": row.producer_epoch,
            "coordinator": row.coordinator,
        },
    )


def no_owner(c: Case) -> Evidence:
    """Say how thorough the search for the owner was."""
    coordinators = c.newest.transactions.coordinators
    answered = min(sum(x.seen for x in s.transactions.coordinators) for s in c.samples)
    apart = c.newest.collected_at - c.first.collected_at
    twice = f", twice, {span(apart)} apart" if c.twice else ", once"
    return Evidence(
        "no-owner",
        f"no coordinator lists producer id {c.about.producer_id} as open on {c.about.name}; "
        f"{answered} of {counted(len(coordinators), 'coordinator partition')} answered{twice}",
        {"seen": answered, "partitions": len(coordinators), "samples": len(c.samples)},
    )


_FROM = {
    "log": "",
    "cache": " (read earlier and kept in this host's cache: the cluster may have compacted it)",
    "forgotten": " (only this host's cache knows it: the cluster's log no longer holds it)",
}


def about_decisions(c: Case) -> list[Evidence]:
    """Describe the Prepare* records that prove an outcome whose marker is missing."""
    return [
        Evidence(
            "decision",
            f"__transaction_state-{d.state_partition} offset {d.offset}: {d.transactional_id} "
            f"decided {d.outcome} with producer id {d.producer_id}, epoch {d.producer_epoch}, and "
            f"names {c.about.name}; no such marker follows offset {c.about.start_offset}"
            + _FROM[d.source],
            {
                "outcome": d.outcome,
                "producer_epoch": d.producer_epoch,
                "client_version": d.client_version,
                "offset": d.offset,
                "timestamp": d.timestamp,
                "source": d.source,
            },
        )
        for d in c.lost or ()
    ]


def rows_here(c: Case) -> list[Evidence]:
    return [about_row(c, row) for row in c.naming(c.newest)]


def rows_elsewhere(c: Case) -> list[Evidence]:
    return [about_row(c, row) for row in c.elsewhere]


def nobody(c: Case) -> list[Evidence]:
    since = c.history.window if c.history else None
    text = (
        "The coordinator's history (__transaction_state) is complete since before these records "
        "and shows neither commit nor abort for them"
    )
    kept = c.history.cached_until if c.history else 0
    if kept:
        text += f" (what is below offset {kept} was read earlier: this host's cache kept it)"
    decision = Evidence("no-decision", text, {"from_offset": since, "cached_until": kept})
    return [no_owner(c), *rows_elsewhere(c), *earlier_marker(c), decision, *by_cache(c)]


def by_cache(c: Case) -> list[Evidence]:
    """Say that the verdict relies on this host's cache: another host may answer `unknown`."""
    if not c.cache_decides or c.history is None:
        return []
    why = "a decision that the cluster's own log no longer holds"
    if not any(d.source == "forgotten" for d in c.history.decisions):
        why = f"which topic was named {c.about.topic}, and when"
    text = f"This host's cache decided: only it knows {why}. Another host may answer unknown"
    return [Evidence("cache", text, {"named_since": c.history.named_since})]


def earlier_marker(c: Case) -> list[Evidence]:
    """Describe the producer's last marker before the batch, easily mistaken for this one's end."""
    start = c.about.start_offset
    markers = reversed(c.history.markers) if c.history else ()
    m = next((m for m in markers if start and m.offset < start), None)
    if m is None:
        return []
    text = (
        f"The {m.outcome} marker of its producer at offset {m.offset} is before this batch, "
        f"which begins at offset {start}: it does not decide this batch"
    )
    return [Evidence("earlier-marker", text, {"offset": m.offset, "outcome": m.outcome})]


def running_time(c: Case) -> list[Evidence]:
    """Say how long the transaction has run, when it ends, and whether its owner is alive."""
    row = c.ongoing
    if row is None:
        return rows_here(c)
    running = [
        *rows_here(c), *_runs(c, row), _ends(c, row), *_precommitted(c, row), *_life(c), *clock(c)
    ]  # fmt: skip
    if c.nothing_decided_below:
        return running
    why = c.history.reason if c.history else "history-not-read"
    why = why or ("topic-identity" if c.topic_unclear else None)
    text = "whether an older, decided transaction of the id lies under it is not known: no fence"
    return [*running, Evidence("earlier-unclear", text, {"reason": why or "order-unclear"})]


def _runs(c: Case, row: TransactionFacts) -> list[Evidence]:
    age, whose = c.age
    if age is None:
        return []
    by = whose_clock(c.ahead)
    timeout = (
        "has no timeout" if is_two_phase(row) else f"times out after {span(row.timeout_ms or 0)}"
    )
    text = (
        f"It has run for {span(round(age * 1000))} by {by}; it {timeout} and counts as long after "
        f"{span(c.settings.long_after)} (--long-after)"
    )
    data = {"age_seconds": age, "age_clock": whose, "timeout_ms": row.timeout_ms}
    return [Evidence("running", text, data | {"clock_measured": c.ahead is not None})]


def whose_clock(ahead: int | None) -> str:
    """Name the clock that a time is measured by; ahead: the coordinator's, None = not measured."""
    if ahead is not None:
        return "its coordinator's clock"
    return "our clock (its coordinator's could not be measured)"


def _ends(c: Case, row: TransactionFacts) -> Evidence:
    """Say when the coordinator aborts the transaction (Kafka: abortTimedOutTransactions)."""
    left, cycle, code = c.deadline_in, c.abort_cycle, "deadline"
    data = {"deadline": c.deadline, "left_ms": left, "cycle_ms": cycle}
    if is_two_phase(row):
        return Evidence(code, "Its coordinator never aborts it: two-phase has no timeout", data)
    if left is None:
        return Evidence(code, "When its coordinator aborts it could not be seen", data)
    if c.short_log is not None:
        when = f"passed {span(left)} ago" if left < 0 else f"passes in {span(left)}"
        text = f"Its timeout {when}; its coordinator cannot abort it while those brokers are away"
        return Evidence(code, text, data)
    if left >= 0:
        by = whose_clock(c.ahead)
        text = f"Its coordinator aborts it in {span(left)} (start + timeout, by {by})"
        return Evidence(code, text, data)
    past = f"Its timeout passed {span(left)} ago"
    if c.ahead is None:
        past += f", by {whose_clock(c.ahead)}"
    if cycle is None:
        text = f"{past}; how often its coordinator looks for such is hidden (by default every 10s)"
    elif c.cycles_missed is None:
        text = f"{past}; its coordinator looks every {span(cycle)} and should abort it now"
    else:
        due = f"due {counted(c.cycles_missed, 'cycle')} ago"
        text = f"{past}: {due}: the coordinator is not doing it"
        text += f" (it should look every {span(cycle)})"
    return Evidence(code, text, data)


def _precommitted(c: Case, row: TransactionFacts) -> list[Evidence]:
    if is_two_phase(row) or not looks_precommitted(row, c.settings, c.newest.groups):
        return []
    left = c.deadline_in
    soon = "at once" if left is None or left < 0 else f"within {span(left)}"
    text = (
        f"{row.transactional_id} looks like a Flink sink (by its name): these records may be "
        "pre-committed, and the abort at that deadline loses them. Restore the job "
        f"from its last checkpoint {soon}: it then commits them"
    )
    return [Evidence("looks-precommitted", text, {"deadline": c.deadline})]


def _life(c: Case) -> list[Evidence]:
    """Describe a late owner's signs of life: indirect ones, since Kafka has none (KIP-98)."""
    if not c.late:
        return []
    pid, now = c.about.producer_id, c.newest.collected_at
    producer = None if pid is None else c.newest.producer(pid)
    last = producer.last_timestamp if producer else None
    words = []
    if c.second is not None:
        apart = span(c.newest.collected_at - c.first.collected_at)
        did = "worked on" if c.moved else "wrote nothing here"
        words.append(f"it {did} between two looks {apart} apart")
    if last is not None and last <= now:
        words.append(f"its last write here was ~{span(now - last)} ago by the producer's clock")
    life = c.life
    groups = life.living
    members = [f"{client} at {host}" for g in groups for client, host in g.members or ()]
    words += [
        f"group {g.group} of its name has members ("
        + ", ".join(f"{client} at {host}" for client, host in (g.members or ())[:3])
        + (", …)" if len(g.members or ()) > 3 else ")")
        for g in groups
    ]
    if not groups:
        words.append(
            f"whether a group of its name has members could not be seen: {life.unseen[0]}"
            if life.unseen
            else "no group of its name has members"
        )
    lives = "Its owner shows signs of life" if c.moved or groups else "No sign of life of its owner"
    data = {
        "worked": None if c.second is None else c.moved,
        "last_write": last,
        "members": members,
        "groups_seen": not life.unseen,
    }
    return [Evidence("signs-of-life", f"{lives}: {'; '.join(words)}", data)]


def clock(c: Case) -> list[Evidence]:
    """Say that the coordinator's clock differs from ours."""
    row = c.preparing or c.ongoing
    if row is None or c.ahead is None or abs(c.ahead) <= c.settings.clock_skew:
        return []
    where = "ahead of" if c.ahead > 0 else "behind"
    text = (
        f"The clock of broker {row.coordinator}, its coordinator, is {span(c.ahead)} {where} ours: "
        "ages and deadlines here are by the coordinator's"
    )
    return [Evidence("clock", text, {"ahead_ms": c.ahead, "broker": row.coordinator})]


def markers_due(c: Case) -> list[Evidence]:
    record = c.prepared
    if record is None:
        return [*rows_here(c), Evidence("decided-when", "since when it is decided is not known")]
    age = c.coordinators_now - record.timestamp
    when = "the clocks do not show when it was decided"
    if age >= 0:
        when = f"decided {span(age)} ago by {whose_clock(c.ahead)}"
    text = f"{when}; partitions without a leader that answers: {', '.join(c.leaderless) or 'none'}"
    decided = Evidence("decided-when", text, {"leaderless": c.leaderless})
    return [*rows_here(c), decided, *clock(c)]


def lost(c: Case) -> list[Evidence]:
    return [*about_decisions(c), *by_cache(c), *rows_here(c), *rows_elsewhere(c)]


def why_unproven(c: Case) -> Evidence | None:
    """Say why a Prepare* proves no outcome for what is open here; None: it proves one.

    data: `rule`, the rule of `unknown` with the same reason, whose page says what to do.
    """
    history, lost = c.history, c.lost
    if any(r.above == 0 and _is_here(c, r) for r in c.refusing):
        rule = "written-beyond-decision"
        text = "its producer wrote later batches here, which that decision does not cover"
    elif c.prepare_proves is not None:
        return None
    elif history is None or history.reason in ("history-not-read", "history-unreadable"):
        rule = "history-not-read" if history is None else str(history.reason)
        text = "__transaction_state was not read: an earlier decision may be on these records"
    elif lost is None and c.topic_unclear:
        rule = "topic-identity"
        text = "decisions name this topic, and its log has the marker of none: it may be recreated"
    elif lost is None:
        rule = "order-unclear"
        text = (
            "under transactions v1 only the order of decisions and markers shows what a decision "
            "is about, and the markers in this log do not fit the decisions: somebody else may "
            "have written one, or one was written twice or lost"
        )
    elif c.may_hide_earlier:
        rule = "earlier-decision-compacted"
        text = (
            "__transaction_state was compacted, and an earlier decision on these records may be "
            "gone"
        )
    else:
        rule = "decisions-differ"
        text = "more than this decision, or none, is about what is open here"
    return Evidence("outcome-unproven", text, {"rule": rule})


def _is_here(c: Case, r: Refusing) -> bool:
    p = r.partition
    return p.topic_partition == c.about.topic_partition and p.open_from is not None
