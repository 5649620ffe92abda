"""Timeouts of transactional ids: how long readers may wait, and whether the id can start again."""

from collections.abc import Iterable, Iterator

from recovery.doctor.findings import (
    DoctorFacts,
    Finding,
    Sign,
    names_sign,
    setting_sign,
    unseen,
)
from recovery.doctor.setting_names import HOUR, MAX_TIMEOUT, TWO_PHASE
from recovery.facts import TransactionFacts, grouped
from recovery.inspect.rights import CLUSTER_CONFIGS, IDS_DESCRIBE, TOPICS_DESCRIBE
from recovery.inspect.two_phase import is_two_phase

LONG_MS = HOUR
"""The default of Flink's sink, the longest that is usual."""
HIDDEN_TOPIC = "TOPIC_AUTHORIZATION_FAILED"


def timeout_long(facts: DoctorFacts) -> Iterator[Finding]:
    """Find ids whose open transaction may hold readers for more than an hour."""
    rows = (t for t in described(facts) if not is_two_phase(t) and (t.timeout_ms or 0) > LONG_MS)
    yield from _by_timeout(rows)
    yield from ids_unseen(facts)


def timeout_above_max(facts: DoctorFacts) -> Iterator[Finding]:
    """Find ids with a timeout that a broker refuses when the id is initialised again."""
    if (least := facts.least(MAX_TIMEOUT)) is not None:
        most, brokers = least
        rows = (t for t in described(facts) if not is_two_phase(t) and (t.timeout_ms or 0) > most)
        yield from _by_timeout(rows, setting_sign(MAX_TIMEOUT, most, brokers))
    yield from ids_unseen(facts)
    if described(facts):
        yield from unseen(facts.missing_brokers, CLUSTER_CONFIGS, "transactional-id")


def two_phase_off(facts: DoctorFacts) -> Iterator[Finding]:
    """Find two-phase ids that a broker refuses when the id is initialised again (KIP-939)."""
    rows = [t for t in described(facts) if is_two_phase(t)]
    if off := facts.by_value(TWO_PHASE).get("false"):
        yield from _by_timeout(rows, setting_sign(TWO_PHASE, "false", off))
    yield from ids_unseen(facts)
    if rows:
        yield from unseen(facts.missing_brokers, CLUSTER_CONFIGS, "transactional-id")


def described(facts: DoctorFacts) -> list[TransactionFacts]:
    """Return the ids that their coordinators know and described."""
    return [t for t in facts.transactions.rows if not t.ghost and t.timeout_ms is not None]


def ids_unseen(facts: DoctorFacts) -> Iterator[Finding]:
    """Yield what hides transactional ids, each with the right that shows them."""
    topics = [m for m in facts.transactions.missing if m.error == HIDDEN_TOPIC]
    others = [m for m in facts.transactions.missing if m.error != HIDDEN_TOPIC]
    yield from unseen(topics, TOPICS_DESCRIBE, "transactional-id")
    yield from unseen(others, IDS_DESCRIBE, "transactional-id")


def _by_timeout(rows: Iterable[TransactionFacts], *more: Sign) -> Iterator[Finding]:
    """Yield a finding for each timeout: thousands of ids of one application are one finding."""
    for timeout_ms, ids in sorted(
        grouped((t.timeout_ms, t.transactional_id) for t in rows).items()
    ):
        signs = (Sign("timeout", {"timeout_ms": timeout_ms}), names_sign("ids", ids), *more)
        yield Finding("transactional-id", min(ids), signs)
