"""The actions on a plan file or a journal entry: carry out, resume, undo, verify.

Each does what the command line does, with eoctl.operations.change.acting, in a thread. `about` is a
journal entry's id, or `plan FILE`.
"""

import asyncio
from typing import TYPE_CHECKING

from recovery.errors import RefusedError
from tui.screens.change import Ready

if TYPE_CHECKING:
    from eoctl.operations.change.steps import Effect
    from eoctl.settings.context import Context
    from recovery.change.plan import Plan

SECONDS = 60.0


def begun_or_planned(about: str) -> Ready:
    """Return the plan of a plan file, or the rest of an unfinished entry. Raises EoctlError."""
    from eoctl.operations.change import changes

    plan = changes.plan_of(about)
    context = changes.named_context(plan)
    if about.startswith(changes.PLAN):
        return Ready(plan, context=context)
    one = changes.entry_of(about)
    if one.state != "unfinished":
        raise RefusedError(f"it is {one.state}: there is nothing to resume", where=about)
    notes = ("this change was begun and not finished; what is done already stays",)
    return Ready(plan, notes, context, one.undoes)


def undo(about: str) -> Ready:
    """Return the plan that puts an entry back. Raises EoctlError; RefusedError if nothing can."""
    from eoctl.operations.change import changes
    from eoctl.operations.change.undo import undo_plan

    one = changes.entry_of(about)
    context = changes.named_context(one.plan)
    return Ready(undo_plan(one, context, SECONDS), (), context, undoes=one.id)


def verify(about: str) -> Ready:
    """Check whether everything is as the plan leaves it. Raises EoctlError."""
    from eoctl.operations import kinds  # noqa: F401 - the plan may be of any kind
    from eoctl.operations.change import changes
    from eoctl.operations.change.acting import kind_module

    plan = changes.plan_of(about)
    context = changes.named_context(plan)
    if plan.kind == "restart":
        return _verify_restart(plan, context)

    async def look() -> "list[Effect]":
        async with kind_module(plan.kind).opened(plan, context, SECONDS) as operation:
            answering = await operation.cluster_id()
            if answering != plan.cluster_id:
                raise RefusedError(
                    f"the plan is for cluster {plan.cluster_id}, but {answering} answers"
                )
            return [await operation.verify(step) for step in plan.steps]

    effects = asyncio.run(look())
    words = {True: "done", False: "not done", None: "cannot be seen"}
    lines = [
        f"step {n} ({step.target}): {words[effect.done]}; {effect.detail}"
        for n, (step, effect) in enumerate(zip(plan.steps, effects, strict=True), 1)
    ]
    finding = not all(effect.done for effect in effects)
    return Ready(None, lines or ["the plan has no steps"], finding=finding)


def _verify_restart(plan: "Plan", context: "Context") -> Ready:
    """Check as `restart verify` does, also for a zombie's commit or write after the counted end."""
    from eoctl.operations.restart.restart_verify import verify as look_again
    from eoctl.operations.session.session import with_cluster
    from recovery.restart.verify_rows import RestartVerifyRow

    answer = with_cluster(context, SECONDS, lambda c: look_again(c, plan, pause=5.0))
    lines = [f"{r.where}: {r.detail}" for r in answer.rows if isinstance(r, RestartVerifyRow)]
    lines += [f"not seen: {e.detail} ({e.error})" for e in answer.errors]
    return Ready(None, lines or ["everything is as the plan left it"], finding=bool(lines))
