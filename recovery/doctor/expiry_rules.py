"""What Kafka forgets, and when: transactional ids, producers' sequences, committed offsets."""

from collections.abc import Iterator

from recovery.doctor.findings import Change, DoctorFacts, Finding, names_sign, setting_sign, unseen
from recovery.doctor.id_rules import ids_unseen
from recovery.doctor.setting_names import (
    DAY,
    HOUR,
    ID_EXPIRATION,
    OFFSETS_RETENTION,
    PRODUCER_EXPIRATION,
)
from recovery.inspect.rights import CLUSTER_CONFIGS, GROUPS_DESCRIBE
from recovery.values import Reason
from recovery.watch.check_rules import living_clients, near_expiry

AWAY_MS = DAY
"""An application that failed in the evening comes back the next day."""
RETRIES_MS = HOUR
"""Far more than the 2 minutes of a producer's default delivery.timeout.ms."""


def ids_expire_early(facts: DoctorFacts) -> Iterator[Finding]:
    """Find coordinators that forget an idle transactional id within a day."""
    if (least := facts.least(ID_EXPIRATION)) is not None and least[0] < AWAY_MS:
        yield Finding("cluster", "*", (setting_sign(ID_EXPIRATION, *least),))
    yield from unseen(facts.missing_brokers, CLUSTER_CONFIGS)


def idle_id_in_use(facts: DoctorFacts) -> Iterator[Finding]:
    """Find ids that are dropped within a day although their client lives, by its name."""
    if (least := facts.least(ID_EXPIRATION)) is not None:
        expiration, brokers = least
        clients = living_clients(facts.groups)
        for name in near_ids(facts):
            if (client := clients.get(name)) is not None:
                sign = Reason("client-lives", {"client": client})
                signs = (sign, setting_sign(ID_EXPIRATION, expiration, brokers))
                yield Finding("transactional-id", name, signs)
    yield from ids_unseen(facts)
    if facts.transactions.rows:
        yield from unseen(facts.missing_brokers, CLUSTER_CONFIGS, "transactional-id")
    if near_ids(facts):
        yield from unseen(facts.missing_groups, GROUPS_DESCRIBE, "transactional-id")


def near_ids(facts: DoctorFacts) -> list[str]:
    """Return ids without a transaction that may be dropped within a day.

    At most half of the expiration counts as near, so an id that is used more often is never here.
    """
    if (least := facts.least(ID_EXPIRATION)) is None:
        return []
    within = min(AWAY_MS, least[0] / 2) / 1000
    rows = near_expiry(facts.transactions.rows, least[0], facts.now, within)
    return [t.transactional_id for t in rows if not t.ghost]


def producers_expire_early(facts: DoctorFacts) -> Iterator[Finding]:
    """Find brokers that forget a producer's sequence numbers within an hour."""
    for value, brokers in facts.by_value(PRODUCER_EXPIRATION).items():
        for broker in brokers if int(value) < RETRIES_MS else ():
            yield Finding(
                "broker",
                str(broker),
                (setting_sign(PRODUCER_EXPIRATION, int(value), [broker]),),
                change=Change("brokers", str(broker), PRODUCER_EXPIRATION, str(DAY)),
            )
    yield from unseen(facts.missing_brokers, CLUSTER_CONFIGS)


def offsets_expire_early(facts: DoctorFacts) -> Iterator[Finding]:
    """Find coordinators that forget the offsets of a group without members within a day."""
    if (least := facts.least(OFFSETS_RETENTION)) is not None and least[0] < AWAY_MS // 60_000:
        sign = setting_sign(OFFSETS_RETENTION, *least)
        yield from _of_named_groups(facts, sign) if facts.named else _of_idle_groups(facts, sign)
    yield from unseen(facts.missing_brokers, CLUSTER_CONFIGS, "group")


def _of_named_groups(facts: DoctorFacts, sign: Reason) -> Iterator[Finding]:
    """Yield each named group: one with members loses its offsets once they have left."""
    for g in facts.groups:
        if g.group in facts.named:
            idle = (names_sign("idle-groups", [g.group]),) if g.state == "Empty" else ()
            yield Finding("group", g.group, (sign, *idle))


def _of_idle_groups(facts: DoctorFacts, sign: Reason) -> Iterator[Finding]:
    """Yield all groups without members as one finding; the cluster if there are none."""
    if idle := [g.group for g in facts.groups if g.state == "Empty"]:
        yield Finding("group", min(idle), (sign, names_sign("idle-groups", idle)))
    else:
        yield Finding("cluster", "*", (sign,))
