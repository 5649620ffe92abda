"""Decide whether a remedy is allowed, and with exactly which requests. Nothing is sent from here.

The rule for every marker: it carries E, the epoch that the partition describes, or E + 1. It is
written only when no owner can write with E any more, so that a marker never decides records added
between the last check and the marker. `still_able_to_write` returns the owners who could.
"""

from recovery.diagnose.diagnosis import Judged
from recovery.diagnose.remedies import Refused
from recovery.diagnose.verdicts import Verdict
from recovery.errors import RefusedError
from recovery.facts import (
    HasPartition,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
    Transactions,
)
from recovery.formats.reader import UnknownVersion
from recovery.formats.transaction_state import MAX_EPOCH, TransactionState, TransactionValue
from recovery.inspect.observation import CLOSED_STATES, OpenTransaction
from recovery.inspect.two_phase import is_two_phase
from recovery.plurals import counted
from recovery.values import Reason, Value

MARKER_ACTION = "write-marker"
"""The step of an abort or a resolve: it ends a transaction on one partition only."""
NEVER_KNOWN = frozenset(
    {
        "history-replaced",
        "history-moved",
        "history-compacted",
        "earlier-decision-compacted",
        "decisions-differ",
        "written-beyond-decision",
        "order-unclear",
        "topic-identity",
        "start-deleted",
    }
)
"""Rules of `unknown` that no later check can settle: only these are resolved without proof."""
_MOST_RAISED = 100
"""Epochs. Each takes a request."""


class DistantEpochError(ValueError):
    """The id with the records' producer id is far below their epoch: it is hardly theirs."""


def remedy_allowed(
    verdict: Verdict,
    action: str,
    *,
    owner_is_gone: bool = False,
    is_stopped: bool = False,
    without_proof: bool = False,
    by_source: bool = False,
) -> Reason | None:
    """Return None if allowed, else a refusal that names the remedy too (exit status 4).

    For a fence, check every partition on which the id is open, but not a stray batch of its
    producer id elsewhere: one refusal is enough. is_stopped: its application is known to be
    stopped, so a transaction within its limits may be fenced; a gate still forbids it. by_source:
    the records are byte copies of another cluster's, which decided them.
    """
    why = refusal_of(
        verdict,
        action,
        owner_is_gone=owner_is_gone,
        is_stopped=is_stopped,
        without_proof=without_proof,
        by_source=by_source,
    )
    return None if why is None else Reason("refused", more={"verdict": verdict, "why": why})


def refusal_of(
    verdict: Verdict,
    action: str,
    *,
    owner_is_gone: bool = False,
    is_stopped: bool = False,
    without_proof: bool = False,
    by_source: bool = False,
) -> Reason | None:
    """Return why an action is refused, None if it is allowed: the reason in `remedy_allowed`."""
    if action == "fence":
        return _fence_refused(verdict, owner_is_gone, is_stopped)
    if action == "resolve" and owner_is_gone:
        return _commit_in_its_stead_refused(verdict)
    if action == "resolve" and by_source:
        return _by_source_refused(verdict)
    written = {"abort": ("abort",), "resolve": ("resolve", "write-prepared-marker")}
    if verdict.remedy.action in written.get(action, ()):
        return None
    if action == "resolve" and without_proof:
        return _without_proof_refused(verdict)
    return _listed(verdict, action)


def _listed(v: Verdict, action: str) -> Reason:
    return dict(v.remedy.refused).get(action, Reason("does-not-fit", {"action": action}))


def refusals(verdict: Verdict) -> tuple[Refused, ...]:
    """Return the tempting actions that are refused now, each with the reason that refuses it."""
    actions = dict.fromkeys([action for action, _ in verdict.remedy.refused])
    commands = {"abort", "fence", "resolve"}
    reasons = {a: refusal_of(verdict, a) if a in commands else _listed(verdict, a) for a in actions}
    return tuple((action, why) for action, why in reasons.items() if why is not None)


def _without_proof_refused(v: Verdict) -> Reason | None:
    known_as = v.unproven if v.name == "coordinator-fenced" else v.rule
    if v.name not in ("unknown", "coordinator-fenced") or known_as is None:
        return _listed(v, "resolve")
    if known_as not in NEVER_KNOWN:
        return Reason("may-still-show")
    if v.owner is not None and v.name == "unknown":
        return Reason("owned", _named(v.owner))
    if v.samples < 2:
        return Reason("seen-once")
    return None


def _by_source_refused(v: Verdict) -> Reason | None:
    """Return why this cluster, and not the source, decides; None: it knows nothing of an owner.

    An `orphan` may be a copy whose producer id is one of this cluster's own by chance.
    """
    if v.owner is not None:
        return Reason("decided-here", _named(v.owner))
    if v.name not in ("unknown", "orphan"):
        return Reason("was-decided-here")
    if v.name == "unknown" and v.rule not in NEVER_KNOWN:
        return Reason("owner-may-show")
    return Reason("seen-once") if v.samples < 2 else None


def undecided_refused(judged: Judged) -> Reason | None:
    """Return why nobody may decide a transaction in its owner's place; None if it has no owner.

    An id in Prepare* whose marker its partitions refuse is no such owner: it can do no more.
    """
    about, verdict = judged.about, judged.verdict
    for sample in (judged.first, judged.newest):
        if not sample.sees_all_coordinators:
            return Reason("owner-may-be-hidden")
        stuck = verdict.owner if verdict.name == "coordinator-fenced" else None
        for t in sample.live(about.producer_id or 0):
            if stuck is None or t.transactional_id != stuck.transactional_id:
                return Reason("has-an-owner", _named(t))
        if not sample.topic_describe:
            return Reason("owner-does-not-show", {"topic": about.topic})
    rows = [s.producer(about.producer_id or 0) for s in (judged.first, judged.newest)]
    if len({r and (r.producer_epoch, r.last_sequence) for r in rows}) > 1:
        return Reason("wrote-between")
    return None


def _named(row: TransactionFacts) -> dict[str, str]:
    return {"name": row.transactional_id, "state": row.state}


def _commit_in_its_stead_refused(v: Verdict) -> Reason | None:
    return commit_refused(v) if v.mixed else Reason("nothing-over-it")


def commit_refused(v: Verdict) -> Reason | None:
    """Return why a dead owner's open transaction may not be committed; None: nothing forbids it.

    Check every partition on which it is open, so that the commit delivers nothing that was aborted.
    """
    if v.owner is None or v.owner.state != "Ongoing":
        return Reason("nothing-ongoing", {"to": "commit"})
    if v.short_log is not None or v.unled:
        return dict(v.remedy.refused)["fence"]
    if is_two_phase(v.owner):
        return Reason("only-its-system-knows", {"name": v.owner.transactional_id})
    if v.mixed:
        return None if v.proven_outcome == "commit" else Reason("abort-was-lost")
    if v.name not in ("open", "long", "overdue"):
        return Reason("not-committed-with-it", {"verdict": v.name})
    if not v.fence_safe:
        return Reason("below-not-known", {"a_fence": False})
    return None


def _fence_refused(v: Verdict, owner_is_gone: bool, is_stopped: bool) -> Reason | None:
    if v.short_log is not None or v.unled:
        return dict(v.remedy.refused)["fence"]
    if v.name not in ("open", "long", "overdue", "two-phase"):
        return _listed(v, "fence")
    if v.owner is None or v.owner.state != "Ongoing":
        return Reason("nothing-ongoing", {"to": "fence"})
    if not v.fence_safe:
        return Reason("below-not-known", {"a_fence": True})
    if owner_is_gone:
        return None
    if v.gate is not None:
        return v.gate
    if v.name not in ("long", "overdue") and not is_stopped:
        return Reason("may-be-at-work")
    return None


class MarkerRequest(HasPartition, Value):
    """One entry of WriteTxnMarkers, sent to the partition's leader only.

    transaction_version: the field of a v2 request; 0 = the meaning of a v1 request.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    outcome: str
    coordinator_epoch: int
    transaction_version: int


class EndRequest(Value):
    """EndTxn at this version with the observed producer id and epoch: compare-and-set."""

    version: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool = False  # only on behalf of a dead owner, to save an earlier lost commit


class InitRequest(Value):
    """InitProducerId with the expected producer id and epoch and the id's described timeout."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int


class RaiseRequest(Value):
    """Raise an idle id until an owner that could still write with its epoch is shut out.

    end_version: 5 = begin with EndTxn v5 (abort), which changes nothing if producer id or epoch is
    stale (Kafka 4.0, KIP-890: an abort without a transaction raises the epoch). None = only
    InitProducerId, which is no compare-and-set. above: the epoch that the id has to exceed.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    above: int
    end_version: int | None


def still_able_to_write(
    row: ProducerFacts, transactions: Transactions
) -> tuple[TransactionFacts, ...]:
    """Return the ids whose owners may still write with the epoch that the partition describes.

    There are none if no coordinator knows the producer id, if its id has a later epoch, or if the
    id is in Prepare* for this partition's transaction. transactions: of all coordinators.
    """
    here = row.topic_partition
    return tuple(
        t
        for t in transactions.owners(row.producer_id)
        if (t.producer_epoch is None or t.producer_epoch <= row.producer_epoch)
        and not (t.state.startswith("Prepare") and here in (t.partitions or ()))
    )


def raise_first(
    row: ProducerFacts, transactions: Transactions, *, end_version: int | None
) -> RaiseRequest | None:
    """Return the raise that must precede a marker; None if no owner can write anyway.

    Raises ValueError, with a sentence, if no raise makes the marker safe: the id has an open
    transaction, or is not described. Raises DistantEpochError if it is far below the epoch.
    """
    able = still_able_to_write(row, transactions)
    for t in able:
        if t.state not in CLOSED_STATES:
            raise ValueError(f"{t.transactional_id} is {t.state} with its producer id and epoch")
        if t.producer_epoch is None or t.timeout_ms is None:
            raise ValueError(f"{t.transactional_id} has its producer id and could not be described")
    if len(able) > 1:
        names = ", ".join(t.transactional_id for t in able)
        raise ValueError(f"more than one id has its producer id: {names}")
    for t in able:
        assert t.producer_epoch is not None
        assert t.timeout_ms is not None
        if row.producer_epoch - t.producer_epoch > _MOST_RAISED:
            raise DistantEpochError(
                f"{t.transactional_id} has this producer id, but its epoch is {t.producer_epoch}, "
                f"the records' is {row.producer_epoch}: its producer id is equal by chance, or "
                "__transaction_state lost its newer epochs"
            )
        return RaiseRequest(
            t.transactional_id,
            t.producer_id,
            t.producer_epoch,
            t.timeout_ms,
            row.producer_epoch,
            end_version,
        )
    return None


def marker_for(
    about: OpenTransaction, row: ProducerFacts, outcome: str, *, write_version: int
) -> MarkerRequest:
    """Return the marker of an abort, a resolve or an outcome without proof.

    write_version: the leader's version of WriteTxnMarkers. From 2 on the marker carries E + 1 and
    transaction version 2, and the leader refuses it if a producer has written with E + 1; below 2
    it carries E, and is refused if a producer has written above E. No epoch exceeds 32767. The
    coordinator epoch is the described one: a higher one would fence the real coordinator.
    """
    raised = write_version >= 2 and row.producer_epoch < MAX_EPOCH
    return MarkerRequest(
        about.topic,
        about.partition,
        row.producer_id,
        row.producer_epoch + 1 if raised else row.producer_epoch,
        outcome,
        max(row.coordinator_epoch or 0, 0),
        2 if raised else 0,
    )


def named_and_visible(
    row: TransactionFacts, newest: TransactionValue | UnknownVersion | None
) -> tuple[TopicPartition, ...]:
    """Return the partitions that a fence of `row` ends: all that its Ongoing record names.

    newest: the id's newest record. Raises RefusedError unless it describes this transaction and
    every partition that it names can be seen.
    """
    if (
        not isinstance(newest, TransactionValue)
        or newest.state is not TransactionState.ONGOING
        or newest.producer_id != row.producer_id
        or newest.producer_epoch != row.producer_epoch
    ):
        raise RefusedError(
            "the newest record of __transaction_state is not about this open transaction: which "
            "partitions it is on is not known",
            where=row.transactional_id,
            remedy="look again; it may just have ended",
        )
    visible = set(row.partitions or ())
    hidden = [tp for tp in newest.partitions if tp not in visible]
    if hidden or not visible:
        topics = sorted({topic for topic, _ in hidden})
        raise RefusedError(
            f"its open transaction is on {counted(len(newest.partitions), 'partition')}, "
            f"of which {len(visible)} can be seen: decided records may lie on what cannot",
            where=row.transactional_id,
            remedy="grant DESCRIBE on " + (", ".join(topics) or "its topics"),
        )
    return tuple(sorted(visible))


def end_request(row: TransactionFacts, transaction_version: int) -> EndRequest:
    """Return the EndTxn with the observed epoch; a stale epoch changes nothing (ProducerFenced).

    Neither version shuts out a live owner: v1 (EndTxn v3) leaves the epoch usable, and v2 (EndTxn
    v5) returns the next epoch to the owner too, if it asks. InitProducerId follows, until
    `is_shut_out`; what the owner begins in between is aborted as well (the plan says so).
    InitProducerId is never first: it aborts even with a stale epoch.
    Raises ValueError for an id that was not described or is not Ongoing.
    """
    if row.state != "Ongoing" or row.producer_epoch is None or row.timeout_ms is None:
        raise ValueError(f"{row.transactional_id} is {row.state}, or was not described")
    version = 5 if transaction_version >= 2 else 3
    return EndRequest(version, row.transactional_id, row.producer_id, row.producer_epoch)
