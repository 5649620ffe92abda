"""Apply the rules of the config file's [check]: each gives what it observed and its judgement.

A rule is a finding if the observed value reaches the threshold. If something that could change
the answer was not seen, the answer is None (unknown).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from recovery.diagnose.contest import Contests
from recovery.diagnose.diagnosis import ORDER, Diagnosis, Judged
from recovery.errors import UsageError
from recovery.facts import (
    GroupFacts,
    GroupTimes,
    Missing,
    TopicPartition,
    TransactionFacts,
    Transactions,
)
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS
from recovery.formats.transaction_state import TransactionValue
from recovery.inspect.observation import CLOSED_STATES
from recovery.values import Reason, Value
from recovery.watch.check_rows import Judgement, Unit

TRANSACTION_STATE = "__transaction_state"
NOT_GRANTED = "AUTHORIZATION_FAILED"
UNSUPPORTED = "UNSUPPORTED_VERSION"
KEPT_BY_HISTORY = frozenset({"orphan", "marker-lost", "unknown"})
"""Verdicts that depend on the `__transaction_state` history of a closed transactional id."""


class Thresholds(Value):
    """The [check] section as numbers; None = the rule is off. Durations in seconds."""

    held_records: int | None = None
    held_age: float | None = None
    verdicts: Mapping[str, int] = msgspec.field(default_factory=dict)
    groups_pending: int | None = None
    coordinators_unavailable: int | None = None
    producer_id_expiry: float | None = None
    deadline: float | None = None
    two_phase_age: float | None = None
    id_expiry: float | None = None
    epochs_left: int | None = None
    group_expiry: float | None = None
    producer_states: int | None = None
    transactional_ids: int | None = None
    internal_topic_bytes: int | None = None
    contested_ids: int | None = None
    mirror_map_age: float | None = None
    mirror_maps: tuple[str, ...] = ()

    @property
    def need_ids(self) -> bool:
        """Return True if an enabled rule needs every transactional id described."""
        of_ids = (self.producer_id_expiry, self.deadline, self.two_phase_age, self.id_expiry)
        return self.epochs_left is not None or any(limit is not None for limit in of_ids)

    def __post_init__(self) -> None:
        for name in self.verdicts:
            if name not in ORDER:
                raise UsageError(
                    f"no verdict {name!r}",
                    where="[check] verdicts",
                    remedy=f"one of {', '.join(ORDER)}",
                )


class Observed(Value):
    """The facts that `check` judges. groups None: not queried. expiration_ms: any broker's shortest
    expiration of idle transactional ids; offsets_retention_ms: the same for group offsets; None =
    unknown. group_times: of groups without members, over that retention; a group that is absent
    could not be seen. contests: None = not looked for. now: epoch ms, our clock."""

    diagnosis: Diagnosis
    transactions: Transactions
    groups: tuple[GroupFacts, ...] | None
    groups_missing: tuple[Missing, ...]
    expiration_ms: int | None
    expiration_missing: tuple[Missing, ...]
    now: int
    offsets_retention_ms: int | None = None
    group_times: Mapping[str, GroupTimes] = msgspec.field(default_factory=dict)
    group_times_missing: tuple[Missing, ...] = ()
    contests: Contests | None = None


def check_rules(observed: Observed, limits: Thresholds) -> list[Judgement]:
    """Return what each enabled rule says, in the order of the config file's documentation."""
    rules: list[tuple[float | None, Callable[[Observed, float], Judgement]]] = [
        (limits.held_records, _held_records),
        (limits.held_age, _held_age),
        *((n, _verdict(name)) for name, n in limits.verdicts.items()),
        (limits.groups_pending, _groups_pending),
        (limits.coordinators_unavailable, _coordinators),
        (limits.producer_id_expiry, _expiry),
    ]
    return [rule(observed, threshold) for threshold, rule in rules if threshold is not None]


def verdict_counts(d: Diagnosis) -> dict[str, int]:
    """Return the number of transactions per verdict, including zeros.

    One on several partitions counts once. Ids that hold no partition are counted as well.
    """
    return {
        name: len(
            {
                (j.about.producer_id, None if j.about.producer_id is not None else j.about)
                for j in d.judged
                if j.verdict.name == name
            }
        )
        + sum(j.verdict.name == name for j in d.ids)
        for name in ORDER
    }


def unseen_partitions(d: Diagnosis) -> int:
    """Return how many partitions have offsets that could not be seen."""
    return sum(p.held is None for p in d.partitions)


def holders(d: Diagnosis) -> list[Judged]:
    """Return the transaction at the LSO of each held partition."""
    first: dict[TopicPartition, Judged] = {}
    for j in d.judged:
        known = first.get(j.about.topic_partition)
        if known is None or (j.about.start_offset or 0) < (known.about.start_offset or 0):
            first[j.about.topic_partition] = j
    return list(first.values())


def unavailable(transactions: Transactions) -> int:
    """Return how many coordinators have no leader, do not answer, are moving or are loading."""
    return sum(not c.seen and not _not_askable(c.error) for c in transactions.coordinators)


def pending_groups(groups: Iterable[GroupFacts]) -> list[str]:
    """Return the groups with an offset commit that waits for a transaction's end."""
    return [g.group for g in groups if any(o.pending for o in g.offsets)]


def ages_unknown(d: Diagnosis) -> list[Missing]:
    """Return a `Missing` for each partition that has been held for an unknown time."""
    return [
        Missing(
            "partition",
            "AGE_UNKNOWN",
            "held, and no clock shows since when",
            topic=j.about.topic,
            partition=j.about.partition,
        )
        for j in holders(d)
        if j.verdict.age_seconds is None
    ]


def judgement(
    rule: str,
    threshold: float,
    observed: float | None,
    unit: Unit,
    *reasons: Reason,
    finding: bool,
    unsure: bool,
) -> Judgement:
    """Return what a rule says. unsure: not everything was seen, so only a finding is certain."""
    ok = False if finding else None if unsure else True
    return Judgement(rule, threshold, observed, unit, ok, reasons)


_NOTHING_HELD = Reason("nothing-held")


def _held_records(facts: Observed, threshold: float) -> Judgement:
    d = facts.diagnosis
    worst = max((p for p in d.partitions if p.held), key=lambda p: p.held or 0, default=None)
    observed = worst.held or 0 if worst else 0
    unseen = unseen_partitions(d)
    reasons = [Reason("held-most", {"name": worst.topic_partition}) if worst else _NOTHING_HELD]
    if unseen:
        reasons.append(Reason("partitions-not-seen", {"number": unseen}))
    finding, unsure = observed >= threshold, bool(unseen)
    return judgement(
        "held_records", threshold, observed, "offsets", *reasons, finding=finding, unsure=unsure
    )


def _held_age(facts: Observed, threshold: float) -> Judgement:
    d = facts.diagnosis
    aged = [j for j in holders(d) if j.verdict.age_seconds is not None]
    oldest = max(aged, key=lambda j: j.verdict.age_seconds or 0.0, default=None)
    observed = oldest.verdict.age_seconds or 0.0 if oldest else 0.0
    unsure = len(holders(d)) - len(aged) + unseen_partitions(d)
    reasons = [_NOTHING_HELD]
    if oldest is not None:
        data = {"name": oldest.about.name, "clock": oldest.verdict.age_clock}
        reasons = [Reason("held-longest", data)]
    if unsure:
        reasons.append(Reason("ages-not-known", {"number": unsure}))
    finding = observed >= threshold
    return judgement(
        "held_age", threshold, observed, "seconds", *reasons, finding=finding, unsure=bool(unsure)
    )


def named(names: Iterable[str]) -> Reason:
    """Return the reason that names what a rule counts."""
    return Reason("named", {"names": list(names)})


def _verdict(name: str) -> Callable[[Observed, float], Judgement]:
    def rule(observed: Observed, threshold: float) -> Judgement:
        d = observed.diagnosis
        counts = verdict_counts(d)
        mine = [j.about.name for j in d.judged if j.verdict.name == name]
        mine += [j.name for j in d.ids if j.verdict.name == name]
        unsure = unseen_partitions(d) + (0 if name == "unknown" else counts["unknown"])
        reasons = [named(dict.fromkeys(mine))]
        if unsure:
            reasons.append(Reason("not-judged", {"number": unsure}))
        return judgement(
            f"verdicts.{name}",
            threshold,
            counts[name],
            "transactions",
            *reasons,
            finding=counts[name] >= threshold,
            unsure=bool(unsure),
        )

    return rule


def _groups_pending(observed: Observed, threshold: float) -> Judgement:
    names = pending_groups(observed.groups or ())
    unsure = observed.groups is None or bool(observed.groups_missing)
    reasons = [named(names), *([Reason("groups-not-seen")] if unsure else [])]
    finding = len(names) >= threshold
    return judgement(
        "groups_pending", threshold, len(names), "groups", *reasons, finding=finding, unsure=unsure
    )


def _coordinators(observed: Observed, threshold: float) -> Judgement:
    t = observed.transactions
    gone = unavailable(t)
    unasked = sum(_not_askable(c.error) for c in t.coordinators if not c.seen)
    unsure = bool(unasked) or any(m.scope == "topic" for m in t.missing)
    seen = sum(c.seen for c in t.coordinators)
    reasons = [Reason("answered", {"seen": seen, "total": len(t.coordinators)})]
    if unsure:
        reasons.append(Reason("not-all-may-be-asked"))
    rule, finding = "coordinators_unavailable", gone >= threshold
    return judgement(rule, threshold, gone, "partitions", *reasons, finding=finding, unsure=unsure)


def _not_askable(error: str | None) -> bool:
    return error is not None and (error.endswith(NOT_GRANTED) or error == UNSUPPORTED)


class Expiring(Value):
    """A closed transactional id that something depends on; at: when the brokers may drop it."""

    transactional_id: str
    at: int
    why: Reason


def near_expiry(
    rows: Iterable[TransactionFacts], expiration_ms: int, now: int, within: float
) -> list[TransactionFacts]:
    """Return closed ids that may be dropped within `within` seconds.

    A coordinator drops an id transactional.id.expiration.ms after its last change of state. But
    coordinators report only the start of its last transaction, which is earlier, so an id may live
    longer than computed here, never shorter.
    """
    return [
        t
        for t in rows
        if t.state in CLOSED_STATES
        and t.start_timestamp is not None
        and t.start_timestamp + expiration_ms - now <= within * 1000
    ]


def expiring(observed: Observed, within: float) -> list[Expiring]:
    """Return ids that are needed and will be dropped, soonest first.

    Most expiring ids no longer have an owner. An id is needed if its history decides what to do
    with held records, since the history is dropped with it, or if its client is alive: a group
    member is named like it (Kafka Streams), and that client's next transaction would fail.
    """
    if observed.expiration_ms is None:
        return []
    ids: list[Expiring] = []
    for j in observed.diagnosis.judged:
        for record in j.history.latest if j.history else ():
            value = record.value
            if not isinstance(value, TransactionValue) or value.state not in CLOSED_STATES:
                continue
            if j.verdict.name in KEPT_BY_HISTORY:
                data = {"name": record.transactional_id, "held": j.about.name}
                why = Reason("history-goes", {**data, "verdict": j.verdict.name})
                at = value.last_update_ms + observed.expiration_ms
                ids.append(Expiring(record.transactional_id, at, why))
    clients = living_clients(observed.groups or ())
    for t in near_expiry(observed.transactions.rows, observed.expiration_ms, observed.now, within):
        name = clients.get(t.transactional_id)
        if name is not None and t.start_timestamp is not None:
            why = Reason("client-lives", {"name": t.transactional_id, "client": name})
            ids.append(
                Expiring(t.transactional_id, t.start_timestamp + observed.expiration_ms, why)
            )
    return sorted(ids, key=lambda e: (e.at, e.transactional_id))


def living_clients(groups: Iterable[GroupFacts]) -> dict[str, str]:
    """Return transactional id → the group member with its name, of all ids that there may be.

    Of Kafka Streams `app-UUID-1` → `app-UUID-StreamThread-1-...`; elsewhere both have one name.
    """
    clients = sorted({client for g in groups for client, _ in g.members or ()})
    threads = {
        f"{client[: m.start()]}-{m[1]}": client
        for client in clients
        for m in _THREAD.finditer(client)
    }
    return {**threads, **{client: client for client in clients}}


_THREAD = re.compile("(?<=.)-StreamThread-([^-]*)(?=-)", re.DOTALL)


EXPIRATION_NOT_KNOWN = Reason("expiration-not-known")


def _expiry(observed: Observed, threshold: float) -> Judgement:
    ids = expiring(observed, threshold)
    first = ids[0] if ids else None
    left = None if first is None else (first.at - observed.now) / 1000
    reason = Reason("no-needed-id-expires") if first is None else first.why
    if observed.expiration_ms is None:
        reason = EXPIRATION_NOT_KNOWN
    finding, unsure = left is not None and left <= threshold, observed.expiration_ms is None
    rule = "producer_id_expiry"
    return judgement(rule, threshold, left, "seconds", reason, finding=finding, unsure=unsure)


GAPS: Mapping[str, Callable[[Missing], bool]] = {
    "transaction-history": lambda m: (
        m.topic == TRANSACTION_STATE and m.scope in ("partition", "topic")
    ),
    "transactional-ids": lambda m: (
        m.scope in ("coordinator", "transaction")
        and m.error == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    ),
    "groups": lambda m: m.error == "GROUP_AUTHORIZATION_FAILED",
    "group-commits": lambda m: m.scope == "group" and m.topic == CONSUMER_OFFSETS,
    "settings": lambda m: m.error == "CLUSTER_AUTHORIZATION_FAILED" and m.scope == "broker",
}
"""Values of a context's accept_missing: permissions that are known not to be granted."""


def split_accepted(
    missing: Iterable[Missing], accepted: Sequence[str]
) -> tuple[list[Missing], list[Missing]]:
    """Split into errors and known gaps (notes only). Raises UsageError for an unknown gap."""
    for name in accepted:
        if name not in GAPS:
            raise UsageError(
                f"no gap {name!r}", where="accept_missing", remedy=f"one of {', '.join(GAPS)}"
            )
    errors: list[Missing] = []
    notes: list[Missing] = []
    for m in dict.fromkeys(missing):
        known = m.error.endswith(NOT_GRANTED) and any(GAPS[name](m) for name in accepted)
        (notes if known else errors).append(m)
    return errors, notes
