"""Timeouts of transactional ids: how long readers may wait, and whether the id can start again."""

from collections.abc import Iterator, Sequence

from recovery.doctor.findings import DoctorFacts, Finding, names_sign, setting_sign, unseen
from recovery.doctor.setting_names import HOUR, MAX_TIMEOUT, TWO_PHASE
from recovery.facts import grouped
from recovery.inspect.rights import CLUSTER_CONFIGS, IDS_DESCRIBE, TOPICS_DESCRIBE
from recovery.inspect.two_phase import TWO_PHASE_TIMEOUT
from recovery.values import Reason

LONG_MS = HOUR
"""The default of Flink's sink, the longest that is usual."""
HIDDEN_TOPIC = "TOPIC_AUTHORIZATION_FAILED"


def timeout_long(facts: DoctorFacts) -> Iterator[Finding]:
    """Find ids whose open transaction may hold readers for more than an hour."""
    for timeout_ms, ids in timeouts(facts).items():
        if LONG_MS < timeout_ms < TWO_PHASE_TIMEOUT:
            yield _finding(timeout_ms, ids)
    yield from ids_unseen(facts)


def timeout_above_max(facts: DoctorFacts) -> Iterator[Finding]:
    """Find ids with a timeout that a broker refuses when the id is initialised again."""
    if (least := facts.least(MAX_TIMEOUT)) is not None:
        for timeout_ms, ids in timeouts(facts).items():
            if least[0] < timeout_ms < TWO_PHASE_TIMEOUT:
                yield _finding(timeout_ms, ids, setting_sign(MAX_TIMEOUT, *least))
    yield from ids_unseen(facts)
    if timeouts(facts):
        yield from unseen(facts.missing_brokers, CLUSTER_CONFIGS, "transactional-id")


def two_phase_off(facts: DoctorFacts) -> Iterator[Finding]:
    """Find two-phase ids that a broker refuses when the id is initialised again (KIP-939)."""
    ids = timeouts(facts).get(TWO_PHASE_TIMEOUT)
    off = facts.by_value(TWO_PHASE).get("false")
    if ids and off:
        yield _finding(TWO_PHASE_TIMEOUT, ids, setting_sign(TWO_PHASE, "false", off))
    yield from ids_unseen(facts)
    if ids:
        yield from unseen(facts.missing_brokers, CLUSTER_CONFIGS, "transactional-id")


def timeouts(facts: DoctorFacts) -> dict[int, list[str]]:
    """Return the transaction timeouts in ms, ascending, each with the ids that have it."""
    rows = facts.transactions.rows
    found = grouped(
        (t.timeout_ms, t.transactional_id) for t in rows if t.timeout_ms is not None and not t.ghost
    )
    return dict(sorted(found.items()))


def ids_unseen(facts: DoctorFacts) -> Iterator[Finding]:
    """Yield what hides transactional ids, each with the right that shows them."""
    topics = [m for m in facts.transactions.missing if m.error == HIDDEN_TOPIC]
    others = [m for m in facts.transactions.missing if m.error != HIDDEN_TOPIC]
    yield from unseen(topics, TOPICS_DESCRIBE, "transactional-id")
    yield from unseen(others, IDS_DESCRIBE, "transactional-id")


def _finding(timeout_ms: int, ids: Sequence[str], *more: Reason) -> Finding:
    """Return the finding about all ids with a timeout: thousands of one application are one."""
    signs = (Reason("timeout", {"timeout_ms": timeout_ms}), names_sign("ids", ids), *more)
    return Finding("transactional-id", min(ids), signs)
