"""Every change is made here, in one order: permit, lock, read again, journal, act, verify.

Everything that makes a change safe is here and in eoctl.operations.change.steps, for the command
line, the dashboard and cron. A command makes a Plan, shows it, asks `permit`, then calls `execute`.
"""

import asyncio
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from eoctl.host.clock import now_ms
from eoctl.operations.change import rehearsals
from eoctl.operations.change.steps import (
    Effect,
    Operation,
    Outcome,
    StepOutcome,
    Walk,
    die_here_in_tests,
)
from eoctl.settings.context import Context
from eoctl.stores import plan_files
from eoctl.stores.journal_files import Journal, who
from eoctl.stores.locks.lock import held_by
from eoctl.stores.locks.scope_lock import locked
from recovery.change.journal import JournalEntry, unfinished, ways_out
from recovery.change.plan import TRIES, Plan
from recovery.errors import RefusedError, UsageError
from recovery.remedy.life import warning, writing
from recovery.times import not_done_within
from recovery.values import Value

__all__ = [
    "KINDS",
    "Door",
    "Effect",
    "Opened",
    "Operation",
    "Outcome",
    "StepOutcome",
    "execute",
    "kind_module",
    "permit",
    "refuse_beside_running",
    "unfinished_entry",
]

Opened = Callable[[Plan, Context, float | None], AbstractAsyncContextManager[Operation]]

KINDS: dict[str, Callable[[], Any]] = {}
"""Plan kind -> what gives the module that carries it out: `eoctl.operations.kinds` fills it.

The module has `opened(plan, context, seconds)`, an asynchronous context manager of an Operation;
where a change can be put back, `undo_plan(entry, context, seconds) -> Plan`; and where it commits
on its way, so that the same command goes on where it ended, `GOES_ON = True`."""


def kind_module(kind: str) -> Any:
    """Return the module that carries a kind of plan out. Raises UsageError for an unknown kind."""
    if kind not in KINDS:
        raise UsageError(f"this version of eoctl does not carry out plans of kind {kind!r}")
    return KINDS[kind]()


def can_undo(kind: str) -> bool:
    """Return True if this kind of change can be undone. A written marker cannot."""
    return kind in KINDS and hasattr(kind_module(kind), "undo_plan")


class Door(Value):
    """The operator's consent, at the command line or in the dashboard.

    although_it_writes: `yes` accepts a plan whose owner wrote between two checks. confirm(question,
    word): True if the operator typed exactly the word, False for another one (it is asked again),
    None if the operator typed nothing. argv: for the journal.
    """

    context: Context
    confirm: Callable[[str, str], bool | None]
    execute: bool = False
    yes: bool = False
    plan_sha256: str | None = None
    although_it_writes: bool = False
    argv: Sequence[str] = msgspec.field(default_factory=lambda: ("eoctl", *sys.argv[1:]))


def permit(plan: Plan, door: Door, undoes: str | None = None) -> bool:
    """Return True if a plan may be carried out, False if it is only shown; ask if necessary.

    undoes: the journal entry that this plan undoes. Raises RefusedError: read-only, expired (unless
    it was begun in time), another plan than was approved, not confirmed.
    """
    if not door.execute:
        return False
    if door.context.read_only:
        raise RefusedError("this context is read-only: nothing is sent", where=door.context.title)
    if _begun(plan, undoes) is None:
        plan.check_expiry(now_ms())
    if door.plan_sha256 is not None and door.plan_sha256.lower() != plan.sha256:
        raise RefusedError(
            f"the plan is {plan.sha256}, not {door.plan_sha256}",
            where="--plan-sha256",
            remedy="look at the plan as it is now",
        )
    _refuse_unrehearsed(plan, door, undoes)
    if not door.yes:
        if not _confirmed(plan, door):
            raise RefusedError("not confirmed: nothing was sent", where=plan.scope)
    elif door.context.protected and door.plan_sha256 is None:
        raise RefusedError(
            "this context is protected: --yes needs --plan-sha256",
            where=door.context.title,
            remedy=f"the plan is {plan.sha256}",
        )
    if door.yes and not door.although_it_writes and _begun(plan, undoes) is None:
        for step in writing(plan):
            raise RefusedError(
                f"{warning(step)} --yes alone does not end its transaction; nothing was sent",
                where=plan.scope,
                remedy="stop it first; or end it all the same: --although-it-writes",
            )
    return True


def _refuse_unrehearsed(plan: Plan, door: Door, undoes: str | None) -> None:
    """Raise RefusedError if the context wants this plan rehearsed, and it was not."""
    wanted = door.context.require_rehearsal
    if not wanted or rehearsals.why_not(plan) or rehearsals.find(plan.sha256):
        return
    if _begun(plan, undoes) is None:
        file = shlex.quote(str(plan_files.keep(plan)))
        where = shlex.join(door.context.argv)
        restart = plan.kind == rehearsals.RESTART
        taken, apply = (f"--for {file} ", "restart") if restart else ("", "txn")
        raise RefusedError(
            f"this context wants a rehearsal first, and plan {plan.sha256[:16]} had none here",
            where=door.context.title,
            remedy=f"this plan is kept: `eoctl bundle create incident.eoctl {taken}{where}`, then "
            f"`eoctl lab rehearse {file} incident.eoctl`, then `eoctl {apply} apply {file} "
            f"--execute {where}`, before it expires. If the rehearsal says that a twin cannot show "
            "it, take `require_rehearsal` out of the context",
        )


def _confirmed(plan: Plan, door: Door) -> bool:
    """Ask for the plan's word, again after a wrong one. Raises RefusedError once it has expired."""
    question = plan.question
    for left in reversed(range(TRIES)):
        answer = door.confirm(question, plan.word)
        if answer is not False or left == 0:
            return bool(answer)
        plan.check_expiry(now_ms())
        question = plan.asked_again(left)
    return False


def execute(
    plan: Plan,
    door: Door,
    timeout: float | None,
    undoes: str | None = None,
    opened: Opened | None = None,
    replaces: str | None = None,
) -> Outcome:
    """Carry a permitted plan out within `timeout` seconds; see _execute for the errors.

    undoes: the journal entry that this plan undoes. opened: the operation, if it is not the one of
    the plan's kind (KINDS). replaces: an unfinished entry that commits as it goes; it is closed,
    and this plan continues where it ended.
    """
    if replaces is not None:
        detail = "another plan took its place; what it sent stays, with its position"
        Journal().abandon(replaces, detail)
    open_operation: Opened = opened or kind_module(plan.kind).opened

    async def bounded() -> Outcome:
        async with (
            asyncio.timeout(None if timeout is None else timeout + 0.5),
            open_operation(plan, door.context, timeout) as operation,
        ):
            return await _execute(plan, operation, door, undoes)

    try:
        return asyncio.run(bounded())
    except TimeoutError:
        if getattr(kind_module(plan.kind), "GOES_ON", False):
            raise not_done_within(
                timeout, remedy="run the same command again: it goes on there"
            ) from None
        raise not_done_within(timeout, "nothing was sent") from None


async def _execute(plan: Plan, operation: Operation, door: Door, undoes: str | None) -> Outcome:
    """Lock, read again, journal, act, verify.

    A plan of independent steps gives an outcome for each; an all-or-none plan refuses all of them
    until the first has begun. Any other plan ends at the first step that fails: RefusedError
    (nothing more was sent), UnverifiedError (it was sent, with unknown effect). The error names an
    entry that stays unfinished.
    """
    answering = await operation.cluster_id()
    if answering != plan.cluster_id:
        raise RefusedError(
            f"the plan is for cluster {plan.cluster_id}, but {answering} answers",
            where=door.context.title,
        )
    zookeeper = door.context.lock_zookeeper
    async with locked(zookeeper, plan.cluster_id, lock_scope(plan), who()) as ensure_held:
        die_here_in_tests("locked")
        entry = _begun(plan, undoes)
        if entry is not None and entry.state == "done":
            if outcome := await Walk(entry.plan, operation, ensure_held, None).found_done(entry):
                return outcome
            entry = None
        walk = Walk(
            entry.plan if entry else plan,
            operation,
            ensure_held,
            entry,
            can_undo=can_undo(plan.kind),
        )
        return await walk.to_the_end(door.argv, undoes)


def lock_scope(plan: Plan) -> str:
    """Return the lock's scope: all remedies of a cluster exclude each other."""
    return "transactions" if plan.kind.startswith("txn-") else plan.scope


def _begun(plan: Plan, undoes: str | None) -> JournalEntry | None:
    """Return this change's entry that was begun and not finished, or done by this very plan.

    Raises RefusedError if another change of the same scope is unfinished.
    """
    content = Journal().find()
    if content.damaged:
        raise RefusedError(
            f"line {content.damaged[0]} of the journal is damaged, and may hide unfinished changes",
            where=str(Journal().path),
            remedy="inspect that file, then move it away",
        )
    same: JournalEntry | None = None
    for entry in unfinished(content.entries):
        there = entry.begun.data["plan"]
        if (there["cluster_id"], there["scope"]) != (plan.cluster_id, plan.scope):
            continue
        if entry.plan.same_change(plan):
            same = entry
        elif entry.id != undoes:
            if entry.id in content.running:
                raise _at_work(entry, plan.scope)
            raise RefusedError(
                f"journal entry {entry.id} is unfinished there: {there['summary']}",
                where=plan.scope,
                remedy=f"end that first: {ways_out(entry.id, can_undo=can_undo(there['kind']))}",
            )
    if same is None:
        for entry in content.entries:
            if entry.begun.data["sha256"] == plan.sha256 and entry.state == "done":
                same = entry
    return same


def _at_work(entry: JournalEntry, scope: str) -> RefusedError:
    return RefusedError(
        f"{entry.id} is being carried out by {held_by(entry.begun.data['who'])}",
        where=scope,
        remedy="wait until it has ended",
    )


def refuse_beside_running(cluster_id: str, scope: str) -> None:
    """Raise RefusedError while a process of this host carries out a change of this scope."""
    content = Journal().find()
    for entry in unfinished(content.entries):
        plan = entry.begun.data["plan"]
        there = (plan["cluster_id"], plan["scope"])
        if entry.id in content.running and there == (cluster_id, scope):
            raise _at_work(entry, scope)


def unfinished_entry(kind: str, cluster_id: str, scope: str) -> JournalEntry | None:
    """Return the entry that an earlier run left unfinished, for the same command run again."""
    for entry in unfinished(Journal().find().entries):
        plan = entry.begun.data["plan"]
        if (plan["kind"], plan["cluster_id"], plan["scope"]) == (kind, cluster_id, scope):
            return entry
    return None
