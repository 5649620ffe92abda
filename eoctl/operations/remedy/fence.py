"""Fence: have the coordinator end an id's transaction and shut its owner out, compare-and-set.

The transaction is judged first. If it is within its limits, if its owner shows signs of life, or if
the id is idle, only --owner-is-gone makes a plan; if it is not completely seen, nothing does.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import collect, coordinators, groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.write import markers as repairs
from eoctl.operations.change.new_plan import new_plan
from eoctl.operations.change.steps import NOT_PLANNED, Effect, die_here_in_tests
from eoctl.operations.diagnose.judging import diagnose
from eoctl.operations.diagnose.owner_traces import look_for_life
from eoctl.operations.inspect import history_answer
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.inspect.source import StateLogs
from eoctl.operations.remedy import raising as remedy_raise
from eoctl.operations.remedy import shutting_out
from eoctl.operations.remedy.remedy_plan import (
    Counts,
    RemedyRequest,
    amounts,
    ensure_held_first,
    is_for,
    judged_with,
    refusal,
    step_evidence,
    told_of_id,
    told_without_partition,
)
from eoctl.render.diagnose_words import fence_harm
from eoctl.render.verdicts.remedy_words import remedy_words
from eoctl.settings.context import Context
from eoctl.stores.journal_files import Journal
from recovery.change.plan import Plan, Step
from recovery.diagnose.case import gate_of
from recovery.diagnose.contest import contests, goes_on
from recovery.diagnose.diagnosis import Judged
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnverifiedError
from recovery.facts import ProducerFacts, TopicPartition, TransactionFacts
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS
from recovery.inspect.group_life import group_life
from recovery.inspect.incarnation import Incarnation
from recovery.inspect.observation import CLOSED_STATES, Settings
from recovery.plurals import counted
from recovery.quoting import some
from recovery.remedy.fences import (
    NOT_FENCED,
    beyond_fence,
    incarnation,
    is_half_fenced,
    taken_over,
)
from recovery.remedy.life import writes
from recovery.remedy.repairs import (
    EndRequest,
    RaiseRequest,
    end_request,
    named_and_visible,
    remedy_allowed,
)
from recovery.selectors import parse_selector
from recovery.values import Value, replace

CONTEST_RECORDS = 200  # an id's newest, which show whether it is contested


class Look(Value):
    """The facts on which a fence of an open transaction is judged.

    partitions: all that its Ongoing record names. judged: all open transactions on them, from two
    complete snapshots. counts: for a plan of many.
    """

    row: TransactionFacts
    partitions: tuple[TopicPartition, ...]
    judged: tuple[Judged, ...]
    counts: Counts | None = None


async def plan(
    cluster: Cluster,
    context: Context,
    request: RemedyRequest,
    settings: Settings,
    interval: float,
    look: Look | None = None,
) -> Plan:
    """Return the plan of a fence. Raises RefusedError and IncompleteError.

    look: a snapshot of many ids; None: take one of this id alone.
    """
    assert request.transactional_id is not None
    row = await described(cluster, request.transactional_id) if look is None else look.row
    if request.producer_id not in (None, row.producer_id) or request.producer_epoch not in (
        None,
        row.producer_epoch,
    ):
        raise RefusedError(
            f"it is producer id {row.producer_id} epoch {row.producer_epoch} now, not "
            f"{request.producer_id} epoch {request.producer_epoch}: that transaction is over",
            where=request.transactional_id,
            remedy="look again: eoctl txn hanging",
        )
    subject = remedy_raise.subject(row.transactional_id)
    if row.state in CLOSED_STATES:
        step = await _raise_idle(cluster, row, request)
        observed, words = remedy_raise.facts(row), "it is idle; its owner is shut out"
    else:
        judgement = await judged_for(cluster, row, request, settings, interval, look)
        counts = None if look is None else look.counts
        about = [await step_evidence(cluster, j, "abort", counts) for j in judgement.mine]
        words = "; ".join(f"{a['partition']}: {amounts(a)}" for a in about)
        about = about or await told_of_id(cluster, row, settings, interval)
        step, observed = (
            await fence_step(cluster, row, request, judgement, about),
            facts(row, judgement, request),
        )
        words = f"its open transaction is aborted ({words or 'nothing is written yet'})"
    if look is None:
        harms = await _contested(cluster, row.transactional_id)
        step = step.model_copy(update={"harms": (*harms, *step.harms)})
    hits = row.transactional_id + ("-owner-is-gone" if request.owner_is_gone else "")
    return new_plan(
        context,
        cluster.cluster_id,
        kind="txn-fence",
        action="fence",
        scope=subject,
        summary=f"{row.transactional_id}: {words}; an owner that still lives is shut out",
        steps=(step,),
        observed={subject: observed},
        details=judged_with(settings, interval),
        hits=hits,
    )


async def _contested(cluster: Cluster, name: str) -> list[str]:
    """Return what a fence costs an id that is contested now, as far as its history can be read."""
    logs = await history_answer.read_state_logs(cluster, [name], (), newest=CONTEST_RECORDS)
    found, now = contests(r for log in logs.logs for r in log.records), now_ms()
    return [
        fence_harm(history_answer.contest_row(c), now)
        for c in found
        if c.transactional_id == name and goes_on(c.initialisations[-1].at, now)
    ]


async def fence_step(
    cluster: Cluster,
    row: TransactionFacts,
    request: RemedyRequest,
    judgement: "Judgement",
    about: list[dict[str, Any]],
) -> Step:
    """Return the step that ends an open transaction and shuts its owner out."""
    end = await end_of(cluster, row)
    name = row.transactional_id
    harm = f"an owner of {name} that still lives loses this transaction and is shut out"
    return Step(
        action="fence",
        target=name,
        parameters=request_of(row, judgement, end.version, initialise=True)
        | {
            "owner_is_gone": request.owner_is_gone,
            "is_stopped": request.is_stopped,
        },
        does=does(row, "abort", end.version, initialise=True),
        stands_on=(remedy_raise.subject(name),),
        about=about,
        harms=(harm,),
    )


async def end_of(cluster: Cluster, row: TransactionFacts) -> EndRequest:
    """Return the EndTxn of a fence. Raises RefusedError if the id could not be raised after it."""
    end = end_request(row, cluster.transaction_version)
    if end.version < 5:  # only InitProducerId raises it, and that request names the timeout
        await remedy_raise.refuse_timeout(cluster, row)
    return end


def does(row: TransactionFacts, outcome: str, end_version: int, *, initialise: bool) -> str:
    """Say what `send` sends. outcome: abort or commit."""
    text = (
        f"EndTxn v{end_version} ({outcome}) with producer id {row.producer_id} epoch "
        f"{row.producer_epoch}, which changes nothing if either is stale"
    )
    if initialise:
        text += (
            f"; then InitProducerId, {remedy_raise.UNTIL}, which shuts its owner out: what the "
            f"owner begins between them is aborted{' as well' if outcome == 'abort' else ''}"
        )
    return text


def request_of(
    row: TransactionFacts, judgement: "Judgement", end_version: int, *, initialise: bool
) -> dict[str, Any]:
    """Return what `send` and `ended` need of a step: the transaction as seen, and how to end it.

    initialise: InitProducerId follows EndTxn, until a live owner is shut out.
    """
    return {
        "end_version": end_version,
        "initialise": initialise,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "timeout_ms": row.timeout_ms,
        "coordinator": row.coordinator,
        "start_timestamp": row.start_timestamp,
        "partitions": [str(tp) for tp in judgement.partitions],
    }


async def _raise_idle(cluster: Cluster, row: TransactionFacts, request: RemedyRequest) -> Step:
    name = row.transactional_id
    if not request.owner_is_gone:
        raise RefusedError(
            f"it is {row.state}: nothing is open that a fence could end, and its owner may be "
            "at work",
            where=name,
            remedy="to shut its owner out all the same: --owner-is-gone",
        )
    if row.producer_epoch is None or row.timeout_ms is None:
        raise IncompleteError("it could not be described", where=name)
    await remedy_raise.refuse_short_log(cluster, name)
    version = await remedy_raise.end_version(cluster, row.coordinator)
    if version is None:
        await remedy_raise.refuse_timeout(cluster, row)
    raise_request = RaiseRequest(
        name, row.producer_id, row.producer_epoch, row.timeout_ms, row.producer_epoch, version
    )
    text = (
        f"its coordinator (broker {row.coordinator}) says {row.state}, producer id "
        f"{row.producer_id} epoch {row.producer_epoch}: none of it is open"
    )
    evidence = [{"code": "coordinator", "text": text, "data": {"state": row.state}}]
    about = told_without_partition(row, "at rest", "idle", evidence)
    return remedy_raise.step(raise_request, row, owner_is_gone=True, about=[about])


async def done_before(cluster: Cluster, request: RemedyRequest) -> str | None:
    """Return how an earlier run ended it, if the id is still as that run left it, else None."""
    assert request.transactional_id is not None
    row = await described(cluster, request.transactional_id)
    change = ("txn-fence", cluster.cluster_id, f"id {request.transactional_id}")
    done = [
        entry
        for entry in Journal().find().entries
        if entry.state == "done"
        and (p := entry.begun.data["plan"])
        and (p["kind"], p["cluster_id"], p["scope"]) == change
    ]
    if not done or not is_for(done[-1].plan, request):
        return None
    last = done[-1].steps("step-done")[1].data
    saw = remedy_raise.stand(row, None)
    if {k: last["saw"].get(k) for k in saw} != saw or NOT_PLANNED in last.get("detail", ""):
        return None
    return f"done already: it is {row.state}, as journal entry {done[-1].id} left it"


class Judgement(Value):
    """The evidence of a fence. partitions: all that its Ongoing record names; mine: the verdicts on
    those where the id has written."""

    partitions: tuple[TopicPartition, ...]
    mine: tuple[Judged, ...]


def facts(row: TransactionFacts, judgement: Judgement, request: RemedyRequest) -> dict[str, Any]:
    """Return what must not change before the fence is sent.

    wrote: its producer's position on each partition; if that moves, the owner is alive. Left out if
    the operator said that the owner is gone.
    """
    stands = {}
    for j in judgement.mine:
        p = _producer(j)
        stands[j.about.name] = p and [p.producer_epoch, p.last_sequence, p.current_txn_start_offset]
    return {
        "state": row.state,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "start_timestamp": row.start_timestamp,
        "timeout_ms": row.timeout_ms,
        "partitions": [str(tp) for tp in judgement.partitions],
        **({} if request.owner_is_gone else {"wrote": stands}),
    }


def _producer(j: Judged) -> ProducerFacts | None:
    return j.newest.producer(j.about.producer_id or 0)


async def described(cluster: Cluster, name: str) -> TransactionFacts:
    """Return the id as its coordinator describes it. Raises RefusedError for an unknown one."""
    row = await shutting_out.described(cluster, name)
    if row is None:
        raise RefusedError(
            "no coordinator knows this transactional id",
            where=name,
            remedy="`eoctl txn list` has those that are known",
        )
    return row


async def judged_for(
    cluster: Cluster,
    row: TransactionFacts,
    request: RemedyRequest,
    settings: Settings,
    interval: float,
    look: Look | None = None,
) -> Judgement:
    """Judge every partition of an id's transaction, two checks `interval` s apart.

    All must allow the fence. look: a snapshot of many ids. Raises RefusedError, IncompleteError.
    """
    name = row.transactional_id
    if row.state != "Ongoing":
        raise RefusedError(
            f"it is {row.state}: its outcome is decided, no fence changes it", where=name
        )
    if look is None:
        partitions = await partitions_of(cluster, row)
        selectors = tuple(parse_selector(str(tp)) for tp in partitions)
        diagnosis = await diagnose(cluster, Scope(selectors), settings, pause=interval)
        if diagnosis.missing:
            raise IncompleteError(diagnosis.missing[0].detail, where=name)
        look = Look(row, partitions, diagnosis.judged)
    mine = []
    errors: list[EoctlError] = []
    for judged in look.judged:
        if judged.about.producer_id not in (None, row.producer_id):
            continue
        why = remedy_allowed(
            judged.verdict,
            "fence",
            owner_is_gone=request.owner_is_gone,
            is_stopped=request.is_stopped,
        )
        if why is not None:
            errors.append(refusal(judged, why, cluster.transaction_version, name))
        mine.append(judged)
    if errors:  # what cannot be judged comes before a refusal, as in the exit status
        raise next((e for e in errors if isinstance(e, IncompleteError)), errors[0])
    if request.owner_is_gone:
        return Judgement(look.partitions, tuple(mine))
    if not mine and not request.is_stopped:
        await _refuse_within_limits(cluster, row, settings)
    await refuse_members(
        cluster, mine, name, "stop it first; if its owner is gone for good: --owner-is-gone"
    )
    return Judgement(look.partitions, tuple(mine))


async def partitions_of(cluster: Cluster, row: TransactionFacts) -> tuple[TopicPartition, ...]:
    """Return all partitions of the open transaction, proven by its Ongoing record.

    A coordinator omits those whose topic we may not DESCRIBE, without an error: none visible, or
    fewer than the record names, is not "none". Raises RefusedError, also if its coordinator could
    not write the end; IncompleteError.
    """
    await remedy_raise.refuse_short_log(cluster, row.transactional_id)
    logs = await history_answer.read_state_logs(cluster, [row.transactional_id], (), newest=1)
    return partitions_in(logs, row)


def partitions_in(logs: StateLogs, row: TransactionFacts) -> tuple[TopicPartition, ...]:
    """Return the partitions of an open transaction as these logs prove them (see above)."""
    name = row.transactional_id
    unseen = [*logs.missing, *history_answer.unread(logs)]
    newest = None
    for log in logs.logs:
        for record in log.records:
            if record.transactional_id == name:
                newest = record.value
    if unseen:
        raise IncompleteError(
            f"{unseen[0].detail}: which partitions its transaction is on is unknown",
            where=name,
            remedy="grant READ on __transaction_state, or wait until its partition has a leader",
        )
    return named_and_visible(row, newest)


async def _refuse_within_limits(
    cluster: Cluster, row: TransactionFacts, settings: Settings
) -> None:
    """Judge the id: without writes a transaction has no verdict on a partition.

    Uses its coordinator's own clock (ListTransactions with a duration filter). Raises RefusedError.
    """
    name = row.transactional_id
    life = await look_for_life(cluster, [row])
    gate = gate_of(
        row,
        settings,
        late=True,
        moved=False,
        groups=life.groups,
        missing=life.groups_missing,
    )
    if gate is not None:
        raise RefusedError(remedy_words(gate), where=name, remedy="only with --owner-is-gone")
    limit = min(row.timeout_ms or settings.long_after, settings.long_after)
    past = await coordinators.transactions(
        cluster, states=["Ongoing"], producer_ids=[row.producer_id], running_longer_than_ms=limit
    )
    if past.missing:
        raise IncompleteError(past.missing[0].detail, where=name)
    if name not in {t.transactional_id for t in past.rows}:
        raise RefusedError(
            "it is open and within its limits: its owner may be at work",
            where=name,
            remedy="wait; only with --owner-is-gone",
        )


async def refuse_members(
    cluster: Cluster, mine: Sequence[Judged], name: str, remedy: str = "stop it first"
) -> None:
    """Refuse if a group whose offsets it holds has members, which are a sign of life.

    remedy: what the operator can do. Raises RefusedError; IncompleteError if it could not be seen
    whether such a group has members.
    """
    here = [j for j in mine if j.about.topic == CONSUMER_OFFSETS]
    if unread := [j for j in here if j.start is None or not j.start.groups_read]:
        raise IncompleteError(
            f"on {unread[0].about.name} it holds offsets of groups that were not all read, so "
            "whether their applications run is not known",
            where=name,
            remedy=remedy,
        )
    names = sorted({g for j in here if j.start for g in j.start.groups})
    if not names:
        return
    facts, missing = await groups.find_groups(cluster, names)
    life = group_life(facts, missing)
    for group in life.living:
        raise RefusedError(
            f"group {group.group} (it holds offsets of that group) has "
            f"{counted(len(group.members or ()), 'member')}: its application runs",
            where=name,
            remedy=remedy,
        )
    if life.unseen:
        raise IncompleteError(
            "it holds offsets of a group, and whether that group's application runs is not "
            f"known: {life.unseen[0]}",
            where=name,
            remedy=remedy,
        )


def shuts_out(step: Step) -> bool:
    """Return True if the step shuts an id's owner out when it ends the transaction.

    True also for fences of an earlier version of eoctl, whose plans say only that they do.
    """
    return step.action == "fence" or bool(step.parameters["initialise"])


def _used(step: Step) -> Incarnation:
    return Incarnation(step.parameters["producer_id"], step.parameters["producer_epoch"])


async def send(
    cluster: Cluster, step: Step, ensure_held: Callable[[], None]
) -> shutting_out.ShutOut | None:
    """End the transaction, then raise the id until its owner is shut out, if that is planned.

    If an earlier run has ended it, the id is only raised. A process that has initialised the id
    meanwhile is left alone, unless the plan was made, and confirmed, for an owner that writes.
    """
    p = step.parameters
    insist = bool(p.get("owner_is_gone")) and writes(step)
    try:  # its coordinator may have moved since
        row = await _at_rest(cluster, step.target)
    except EoctlError as error:
        raise RefusedError(f"{error.what}; nothing was sent", where=step.target) from None
    now = row.state, row.producer_id, row.producer_epoch, row.start_timestamp
    planned = now == ("Ongoing", p["producer_id"], p["producer_epoch"], p["start_timestamp"])
    half = not planned and shuts_out(step) and _is_half(step, row)
    if not planned and not half:
        # under v1 the next transaction has the same epoch, and EndTxn would abort that one
        raise RefusedError(
            f"it is {row.state} with producer id {row.producer_id} epoch {row.producer_epoch} now: "
            "its transaction is no longer the planned one; nothing was sent",
            where=step.target,
            remedy="ask whether its application was started again, then plan again",
        )
    ensure_held_first(ensure_held, step.target)
    mine = incarnation(row)
    outcome = p.get("outcome") or "abort"
    used = _used(step)
    if half:
        taken = await shutting_out.taken_over(cluster, row, used, outcome, p["timeout_ms"])
        if taken is not None and not insist:
            return taken
        used = used if taken is None else mine  # that process is shut out, too
    if planned:
        try:
            answer = await _end(cluster, step, row.coordinator)
        except (WireError, UnverifiedError) as error:
            if not shuts_out(step):
                raise
            mine = await _ended_all_the_same(cluster, step, error)
        else:
            if answer.producer_id is not None and answer.producer_epoch is not None:
                mine = Incarnation(answer.producer_id, answer.producer_epoch)
    if not shuts_out(step):
        return None
    die_here_in_tests("fence-ended")
    raising = shutting_out.Raising(
        cluster,
        step.target,
        p["timeout_ms"],
        end_version=p["end_version"],
        by_end=False,
        insist=insist,
        ensure_held=ensure_held,
        first=half,
    )
    return await raising.until_shut_out(used, mine)


async def _end(cluster: Cluster, step: Step, coordinator: int) -> repairs.Answered:
    """Send the planned EndTxn. Raises RefusedError, and UnverifiedError."""
    p = step.parameters
    commit = p.get("outcome") == "commit"
    end = EndRequest(p["end_version"], step.target, p["producer_id"], p["producer_epoch"], commit)
    answer = await repairs.end_transaction(cluster, coordinator, end)
    if answer.error in repairs.END_REFUSED:
        raise remedy_raise.refused(answer.error, step.target, p["timeout_ms"])
    if answer.error != "NONE":
        raise UnverifiedError(
            f"the coordinator answered {answer.error}, which may come after the outcome was "
            "written",
            where=step.target,
        )
    return answer


async def _ended_all_the_same(
    cluster: Cluster, step: Step, error: WireError | UnverifiedError
) -> Incarnation:
    """Check if an EndTxn was carried out though its answer was lost; return the incarnation.

    Raises that error unless the transaction is over and nobody has initialised the id since.
    """
    cluster.forgive()
    try:
        row = await _at_rest(cluster, step.target)
    except EoctlError:
        raise error from None
    if not _is_half(step, row, owner_is_gone=False):
        raise error
    return incarnation(row)


async def _at_rest(cluster: Cluster, name: str) -> TransactionFacts:
    """Describe the id; while it is decided and writes its markers, wait for one silence at most."""
    deadline = cluster.silence()
    while True:
        row = await described(cluster, name)
        if not row.state.startswith("Prepare") or deadline.passed:
            return row
        await asyncio.sleep(shutting_out.PAUSE_SECONDS)


def _is_half(step: Step, row: TransactionFacts, *, owner_is_gone: bool | None = None) -> bool:
    """Return True if only a fence's raise remains. owner_is_gone: None = as it was planned."""
    p = step.parameters
    gone = bool(p.get("owner_is_gone")) if owner_is_gone is None else owner_is_gone
    outcome = p.get("outcome") or "abort"
    return is_half_fenced(row, _used(step), outcome=outcome, owner_is_gone=gone)


async def ended(cluster: Cluster, step: Step, raised: shutting_out.ShutOut | None) -> Effect:
    """Check with its coordinator and each partition's leader whether the transaction is over.

    raised: how far this process raised the id; None = an earlier run did, or nobody yet.
    """
    p = step.parameters
    row = await described(cluster, step.target)
    same = (
        row.state == "Ongoing"
        and row.producer_id == p["producer_id"]
        and row.start_timestamp == p["start_timestamp"]
    )
    saw = remedy_raise.stand(row, raised)
    if same or row.state.startswith("Prepare"):
        # decided by an interrupted EndTxn of ours: only its markers are on their way
        then = replace(row, state=row.state.replace("Prepare", "Complete"))
        ours = _is_half(step, then, owner_is_gone=False)
        half = raised is None and not same and shuts_out(step) and ours
        text = f"{step.target} is still {row.state}"
        return Effect(False, saw, text, untouched=same, resumable=half)
    for name in p["partitions"]:
        partition = TopicPartition.parse(name)
        metadata = await cluster.metadata([partition.topic])
        members = [
            m for m in metadata.topics[partition.topic].partitions if m.topic_partition == partition
        ]
        rows, _ = await collect.producers(cluster, members)
        here = rows.get(partition)
        if here is None:
            return Effect(None, saw, f"{name} could not be read")
        if any(
            r.producer_id == p["producer_id"]
            and r.current_txn_start_offset is not None
            and r.producer_epoch <= p["producer_epoch"]
            for r in here
        ):
            return Effect(False, saw, f"its transaction is still open on {name}")
    detail = f"{step.target} is {row.state}, epoch {row.producer_epoch}"
    if p["partitions"]:
        detail += f"; nothing of it is open on {some(p['partitions'])}"
    if not shuts_out(step):
        return Effect(True, saw, detail)
    if raised is None and _is_half(step, row):
        text = f"{detail}, and an owner that lives is not shut out yet"
        return Effect(False, saw, text, resumable=True)
    used = _used(step) if raised is None else raised.used
    return Effect(True, saw, detail, beyond=_beyond(row, used, raised, p.get("outcome") or "abort"))


def _beyond(
    row: TransactionFacts, used: Incarnation, raised: shutting_out.ShutOut | None, outcome: str
) -> str | None:
    if raised is not None and not raised.proven:
        name = row.transactional_id
        if raised.other is not None:
            return taken_over(name, raised.other, cut_short=raised.cut_short)
        return f"{raised.error}. {NOT_FENCED}, then `eoctl txn fence {name} --owner-is-gone`"
    if raised is not None and remedy_raise.goes_on(row, raised):
        return f"an owner goes on with epoch {row.producer_epoch}: it was not shut out"
    return beyond_fence(row, used, outcome=outcome)
