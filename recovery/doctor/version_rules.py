"""What brokers run: known bugs, transactions that speak an older protocol than they could."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from recovery.doctor.durability_rules import few_copies
from recovery.doctor.findings import ALL, Change, DoctorFacts, Finding, SubjectKind, unseen
from recovery.doctor.known_bugs import READ, KnownBug, Suspicion, bugs_of
from recovery.doctor.versions import (
    TRANSACTION,
    Version,
    VersionRange,
    bounds,
    dotted,
    newer_than_known,
    next_branch,
)
from recovery.errors import UsageError
from recovery.facts import grouped
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import StateRecord
from recovery.inspect.rights import CLUSTER_DESCRIBE, STATE_READ
from recovery.values import Reason

STRICT = 2
"""The level of transaction.version with an epoch for each transaction (KIP-890)."""
STRICT_SINCE: Version = (4, 0, 0)

MOST_LISTED = 500
"""Ids in one sign: their owners are to be asked, each of them."""

ByRange = Mapping[VersionRange | None, Sequence[int]]
"""Ranges, each with the brokers that are of one of its releases; None: they fit no release."""


def known_bug(facts: DoctorFacts) -> Iterator[Finding]:
    """Find bugs that brokers have, or may have as far as their releases are known."""
    for seen, brokers in _ranges(facts, facts.broker_version).items():
        if seen is None:
            signs = (Reason("no-release", {"brokers": list(brokers)}),)
            yield Finding(*_subject(brokers), signs, state="unknown")
            continue
        version = _version_sign(facts, seen, brokers)
        for suspicion in bugs_of(seen):
            if not _out_of_danger(suspicion.bug, facts):
                yield _suspected(suspicion, version, brokers, _hides(suspicion.bug, facts))
    yield from _unseen(facts)


def transaction_version_low(facts: DoctorFacts) -> Iterator[Finding]:
    """Find a cluster whose brokers could all speak a stricter transaction protocol than it does."""
    level, ranges = _level(facts), _ranges(facts, facts.broker_version)
    if level >= STRICT or not all(_strict(seen) for seen in ranges if seen is not None):
        return
    sign = Reason("feature", {"feature": TRANSACTION, "level": level, "possible": STRICT})
    if None in ranges:
        signs = (sign, Reason("no-release", {"brokers": list(ranges[None])}))
        yield Finding("cluster", ALL, signs, state="unknown")
    elif ranges and not _hidden(facts):
        change = Change("features", TRANSACTION, TRANSACTION, str(STRICT))
        yield Finding("cluster", ALL, (sign,), change=change)
    yield from _unseen(facts)


def speaks_v1(facts: DoctorFacts) -> Iterator[Finding]:
    """Find ids whose newest transaction was of version 1 although the cluster can do version 2."""
    if facts.protocols and _level(facts) < STRICT:
        return  # then all are
    if ids := sorted(n for n, version in facts.client_versions.items() if version < STRICT):
        sign = Reason("v1-ids", {"names": ids[:MOST_LISTED], "number": len(ids)})
        yield Finding("transactional-id", ids[0], (sign,))
    yield from unseen(facts.missing_versions, STATE_READ, "transactional-id")


def newest_versions(records: Iterable[StateRecord]) -> dict[str, int]:
    """Return the protocol version of the newest transaction that each id's client wrote.

    records: in offset order within a partition. Only beginnings and commits count: an abort after
    the timeout, or by a new owner, bears the version of the coordinator.
    """
    newest = {}
    for record in records:
        value = record.value
        if isinstance(value, TransactionValue) and value.state in BEGUN:
            newest[record.transactional_id] = value.client_transaction_version
    return newest


BEGUN = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT)
"""States that a client's own request wrote, with the version of the protocol that it speaks."""


def mixed_versions(facts: DoctorFacts) -> Iterator[Finding]:
    """Find a cluster whose brokers cannot all be of one branch."""
    ranges = {seen: brokers for seen, brokers in _ranges(facts).items() if seen is not None}
    if any(not _branches(a).overlaps(_branches(b)) for a, b in combinations(ranges, 2)):
        signs = tuple(version_sign(seen, brokers) for seen, brokers in ranges.items())
        yield Finding("cluster", ALL, signs)
    yield from _unseen(facts)


def _branches(seen: VersionRange) -> VersionRange:
    """Return all releases of the branches of these releases."""
    least, below = seen.least, seen.below
    return VersionRange(
        None if least is None else (*least[:2], 0),
        below if below is None or below[2] == 0 else next_branch(below),
    )


def newer_protocol(facts: DoctorFacts) -> Iterator[Finding]:
    """Find brokers that speak a newer protocol than every release that eoctl knows."""
    newer = grouped(
        (tuple(newer_than_known(protocol).items()), broker)
        for broker, protocol in sorted(facts.protocols.items())
    )
    for versions, brokers in newer.items():
        if versions:
            signs = (Reason("newer", {"brokers": brokers, "versions": dict(versions)}),)
            yield Finding(*_subject(brokers), signs)
    yield from _unseen(facts)


def refuse_contradiction(facts: DoctorFacts) -> None:
    """Raise UsageError if no broker answers like the version that somebody gave."""
    by_hand = facts.broker_version
    seen = [r for r in _ranges(facts) if r is not None]
    if by_hand is not None and seen and not any(by_hand.overlaps(r) for r in seen):
        raise UsageError(
            f"no broker answers like that version: they answer like {seen[0]}",
            where="--broker-version",
            remedy="leave it out, and the answers' bounds count",
        )


def version_sign(seen: VersionRange, brokers: Sequence[int], *, by_hand: bool = False) -> Reason:
    """Return the sign of what brokers run. by_hand: somebody says so; else their answers do."""
    return Reason("version", {"brokers": list(brokers), "versions": str(seen), "by_hand": by_hand})


def _ranges(facts: DoctorFacts, by_hand: VersionRange | None = None) -> ByRange:
    """Return what each broker runs. by_hand: counts for brokers whose answer fits it."""
    return grouped(
        (_combined(bounds(protocol), by_hand), broker)
        for broker, protocol in sorted(facts.protocols.items())
    )


def _combined(seen: VersionRange | None, by_hand: VersionRange | None) -> VersionRange | None:
    if seen is None or by_hand is None:
        return seen or by_hand
    if not seen.overlaps(by_hand):
        return seen
    least = max((r.least for r in (seen, by_hand) if r.least is not None), default=None)
    below = min((r.below for r in (seen, by_hand) if r.below is not None), default=None)
    return VersionRange(least, below)


def _version_sign(facts: DoctorFacts, seen: VersionRange, brokers: Sequence[int]) -> Reason:
    """Return the sign of what brokers run. read: eoctl knows the bugs of some such release."""
    protocols = [facts.protocols[broker] for broker in brokers]
    by_hand = any(bounds(protocol) != seen for protocol in protocols)
    read = any(map(seen.overlaps, READ)) and (by_hand or not any(map(newer_than_known, protocols)))
    sign = version_sign(seen, brokers, by_hand=by_hand)
    return Reason(sign.code, {**sign.data, "read": read})


def _suspected(
    suspicion: Suspicion, version: Reason, brokers: Sequence[int], hidden: Sequence[Finding]
) -> Finding:
    """Return a bug that brokers have or may have. hidden: why it may be unable to come about."""
    bug = suspicion.bug
    affected = [str(releases) for releases in bug.affected()]
    fixed = [dotted(release) for release in bug.fixed]
    sign = Reason("bug", {"number": bug.number, "affected": affected, "fixed": fixed})
    return Finding(
        *_subject(brokers),
        (version, sign, *(sign for f in hidden for sign in f.signs)),
        state="finding" if suspicion.certain and not hidden else "unknown",
        lacks=next((f.lacks for f in hidden if f.lacks is not None), None),
        bug=bug.number,
    )


def _out_of_danger(bug: KnownBug, facts: DoctorFacts) -> bool:
    """Return True if nothing on this cluster can bring the bug about."""
    return bug.needs_few_copies and not any(few_copies(facts))


def _hides(bug: KnownBug, facts: DoctorFacts) -> list[Finding]:
    """Return what hides whether something on this cluster can bring the bug about."""
    seen = list(few_copies(facts)) if bug.needs_few_copies else []
    return seen if all(f.state == "unknown" for f in seen) else []


def _subject(brokers: Sequence[int]) -> tuple[SubjectKind, str]:
    return ("broker", str(brokers[0])) if len(brokers) == 1 else ("cluster", ALL)


def _level(facts: DoctorFacts) -> int:
    """Return the finalized transaction.version; a broker may not have heard of the newest yet."""
    return max([0, *(p.finalized.get(TRANSACTION, 0) for p in facts.protocols.values())])


def _strict(seen: VersionRange) -> bool:
    return seen.least is not None and seen.least >= STRICT_SINCE


def _hidden(facts: DoctorFacts) -> set[int]:
    return set(facts.brokers) - set(facts.protocols)


def _unseen(facts: DoctorFacts) -> Iterator[Finding]:
    """Yield what hides the versions of brokers; no right is needed to see them."""
    hidden = _hidden(facts)
    missing = [m for m in facts.missing_brokers if m.broker in hidden]
    yield from unseen(missing, CLUSTER_DESCRIBE)
