"""Collect the reasons for a verdict; `eoctl.render.verdicts.evidence_words` has their sentences."""

from collections.abc import Sequence

from recovery.diagnose.case import Case
from recovery.facts import CoordinatorFacts, TransactionFacts
from recovery.inspect.id_facts import Refusing
from recovery.inspect.two_phase import is_two_phase, looks_precommitted
from recovery.values import Reason


def about_batch(c: Case) -> list[Reason]:
    """Describe the batch that holds the partition."""
    if c.start is None or c.about.producer_id is None:
        return []
    b = c.start
    data = {"producer_id": b.producer_id, "producer_epoch": b.producer_epoch}
    if b.deleted or b.survivor is not None:
        more = {"about": c.about, "deleted": b.deleted}
        return [Reason("start-deleted", data | {"first_left": b.survivor}, more)]
    return [Reason("start-batch", data | {"groups": b.groups}, {"about": c.about})]


def brokers_away(log: CoordinatorFacts | None, leaderless: Sequence[str] = ()) -> list[Reason]:
    """Say that a coordinator cannot write its log, or which partitions cannot take a marker."""
    evidence = []
    if log is not None:
        data = {"in_sync": log.in_sync, "min_in_sync": log.least, "away": list(log.away)}
        evidence.append(Reason("coordinator-log", data, {"log": log.name}))
    if leaderless:
        evidence.append(Reason("leaderless", {"partitions": list(leaderless)}))
    return evidence


def about_id(row: TransactionFacts) -> Reason:
    """Describe what a coordinator answered about an id."""
    data = {
        "transactional_id": row.transactional_id,
        "state": row.state,
        "producer_epoch": row.producer_epoch,
        "coordinator": row.coordinator,
    }
    return Reason("coordinator", data, {"producer_id": row.producer_id})


def about_row(c: Case, row: TransactionFacts) -> Reason:
    """Describe what a coordinator answered about an id, and whether it names the partition."""
    said = about_id(row)
    names = c.about.topic_partition in (row.partitions or ())
    return Reason(said.code, said.data, {**said.more, "here": c.about.name, "names": names})


def no_owner(c: Case) -> Reason:
    """Say how thorough the search for the owner was."""
    answered = min(sum(x.seen for x in s.transactions.coordinators) for s in c.samples)
    partitions = len(c.newest.transactions.coordinators)
    apart = c.newest.collected_at - c.first.collected_at if c.twice else None
    return Reason(
        "no-owner",
        {"seen": answered, "partitions": partitions, "samples": len(c.samples)},
        {"about": c.about, "apart": apart},
    )


def about_decisions(c: Case) -> list[Reason]:
    """Describe the Prepare* records that prove an outcome whose marker is missing."""
    return [
        Reason(
            "decision",
            {
                "outcome": d.outcome,
                "producer_epoch": d.producer_epoch,
                "client_version": d.client_version,
                "offset": d.offset,
                "timestamp": d.timestamp,
                "source": d.source,
            },
            {"about": c.about, "decision": d},
        )
        for d in c.lost or ()
    ]


def rows_here(c: Case) -> list[Reason]:
    return [about_row(c, row) for row in c.naming(c.newest)]


def rows_elsewhere(c: Case) -> list[Reason]:
    return [about_row(c, row) for row in c.elsewhere]


def nobody(c: Case) -> list[Reason]:
    since = c.history.window if c.history else None
    kept = c.history.cached_until if c.history else 0
    decision = Reason("no-decision", {"from_offset": since, "cached_until": kept})
    return [no_owner(c), *rows_elsewhere(c), *earlier_marker(c), decision, *by_cache(c)]


def by_cache(c: Case) -> list[Reason]:
    """Say that the verdict relies on this host's cache: another host may answer `unknown`."""
    if not c.cache_decides or c.history is None:
        return []
    forgotten = any(d.source == "forgotten" for d in c.history.decisions)
    more = {"about": c.about, "forgotten": forgotten}
    return [Reason("cache", {"named_since": c.history.named_since}, more)]


def earlier_marker(c: Case) -> list[Reason]:
    """Describe the producer's last marker before the batch, easily mistaken for this one's end."""
    start = c.about.start_offset
    markers = reversed(c.history.markers) if c.history else ()
    m = next((m for m in markers if start and m.offset < start), None)
    if m is None:
        return []
    data = {"offset": m.offset, "outcome": m.outcome}
    return [Reason("earlier-marker", data, {"start": start})]


def running_time(c: Case) -> list[Reason]:
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
    return [*running, Reason("earlier-unclear", {"reason": why or "order-unclear"})]


def _runs(c: Case, row: TransactionFacts) -> list[Reason]:
    age, whose = c.age
    if age is None:
        return []
    data = {"age_seconds": age, "age_clock": whose, "timeout_ms": row.timeout_ms}
    more = {"two_phase": is_two_phase(row), "long_after": c.settings.long_after}
    return [Reason("running", data | {"clock_measured": c.ahead is not None}, more)]


def _ends(c: Case, row: TransactionFacts) -> Reason:
    """Say when the coordinator aborts the transaction (Kafka: abortTimedOutTransactions)."""
    return Reason(
        "deadline",
        {"deadline": c.deadline, "left_ms": c.deadline_in, "cycle_ms": c.abort_cycle},
        {
            "two_phase": is_two_phase(row),
            "log_is_short": c.short_log is not None,
            "clock_measured": c.ahead is not None,
            "missed": c.cycles_missed,
        },
    )


def _precommitted(c: Case, row: TransactionFacts) -> list[Reason]:
    if is_two_phase(row) or not looks_precommitted(row, c.settings, c.newest.groups):
        return []
    more = {"name": row.transactional_id, "left_ms": c.deadline_in}
    return [Reason("looks-precommitted", {"deadline": c.deadline}, more)]


def _life(c: Case) -> list[Reason]:
    """Describe a late owner's signs of life: indirect ones, since Kafka has none (KIP-98)."""
    if not c.late:
        return []
    pid, now = c.about.producer_id, c.newest.collected_at
    producer = None if pid is None else c.newest.producer(pid)
    last = producer.last_timestamp if producer else None
    groups, unseen = c.life.living, c.life.unseen
    members = [f"{client} at {host}" for g in groups for client, host in g.members or ()]
    return [
        Reason(
            "signs-of-life",
            {
                "worked": None if c.second is None else c.moved,
                "last_write": last,
                "members": members,
                "groups_seen": not unseen,
            },
            {
                "apart": now - c.first.collected_at,
                "silent": None if last is None else now - last,
                "groups": groups,
                "unseen": unseen,
            },
        )
    ]


def clock(c: Case) -> list[Reason]:
    """Say that the coordinator's clock differs from ours."""
    row = c.preparing or c.ongoing
    if row is None or c.ahead is None or abs(c.ahead) <= c.settings.clock_skew:
        return []
    return [Reason("clock", {"ahead_ms": c.ahead, "broker": row.coordinator})]


def markers_due(c: Case) -> list[Reason]:
    record = c.prepared
    if record is None:
        return [*rows_here(c), Reason("decided-when")]
    more = {"age": c.coordinators_now - record.timestamp, "clock_measured": c.ahead is not None}
    return [*rows_here(c), Reason("decided-when", {"leaderless": c.leaderless}, more), *clock(c)]


def lost(c: Case) -> list[Reason]:
    return [*about_decisions(c), *by_cache(c), *rows_here(c), *rows_elsewhere(c)]


def why_unproven(c: Case) -> Reason | None:
    """Say why a Prepare* proves no outcome for what is open here; None: it proves one.

    data: `rule`, the rule of `unknown` with the same reason, whose page says what to do.
    """
    rule = _unproven_by(c)
    return None if rule is None else Reason("outcome-unproven", {"rule": rule})


def _unproven_by(c: Case) -> str | None:
    history = c.history
    if any(r.above == 0 and _is_here(c, r) for r in c.refusing):
        return "written-beyond-decision"
    if c.prepare_proves is not None:
        return None
    if history is None:
        return "history-not-read"
    if history.reason in ("history-not-read", "history-unreadable"):
        return history.reason
    if c.lost is None:
        return "topic-identity" if c.topic_unclear else "order-unclear"
    return "earlier-decision-compacted" if c.may_hide_earlier else "decisions-differ"


def _is_here(c: Case, r: Refusing) -> bool:
    p = r.partition
    return p.topic_partition == c.about.topic_partition and p.open_from is not None
