"""Walk through a plan's steps under its lock: journal, act and verify each in turn.

An operation (abort, fence, restart, ...) provides four callbacks, see `Operation`. If a walk is
killed at any point, the journal says how far it came; the same walk again finishes it.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

from eoctl.host.clock import now_ms
from eoctl.stores.journal_files import Journal, Writer
from recovery.answers import worst
from recovery.change.journal import JournalEntry, ways_out
from recovery.change.plan import Plan, Step
from recovery.errors import EoctlError, Exit, IncompleteError, RefusedError, UnverifiedError
from recovery.inspect.rights import Need, ungranted_error
from recovery.plurals import counted
from recovery.values import Value

if TYPE_CHECKING:  # a list of changes loads no cluster
    from eoctl.kafka.connection.cluster import Cluster
    from eoctl.settings.context import Context

SETTLE_SECONDS = 10.0  # how long a change may take to become visible
_POLL_SECONDS = 0.2


NOT_PLANNED = "NOT PLANNED:"
"""Begins what a step did beyond its plan, in its sentence."""


class Effect(Value):
    """The visible effect of a step. done: None if it cannot be seen.

    saw: what was read, for the journal (JSON without floats); detail: the same as a sentence.
    untouched: the step is not done, and everything it would change was seen as before. final:
    waiting will not change what was seen. resumable: a part of the step was done, which changed
    what the step was planned on: `perform` does the rest. beyond: changes of a step that is done
    which the plan did not name, as a sentence; None = none.
    """

    done: bool | None
    saw: object
    detail: str
    untouched: bool = False
    final: bool = False
    beyond: str | None = None
    resumable: bool = False

    @property
    def sentence(self) -> str:
        """Return the complete effect as a sentence."""
        return self.detail if self.beyond is None else f"{self.detail}; {NOT_PLANNED} {self.beyond}"


class Operation(Protocol):
    """One kind of change on an open cluster. Errors are of recovery.errors."""

    async def cluster_id(self) -> str:
        """Return the id of the cluster that answers now."""
        ...

    async def observe(self, steps: Sequence[Step]) -> Mapping[str, object]:
        """Read again, from the cluster, all facts that these steps rest on, by subject.

        Raises IncompleteError or UnreachableError if one cannot be seen.
        """
        ...

    async def perform(self, step: Step, ensure_held: Callable[[], None]) -> object:
        """Do the step; return what to journal. Call ensure_held before each write but the first.

        RefusedError: the cluster refused, nothing changed. Any other EoctlError: not known.
        """
        ...

    async def verify(self, step: Step) -> Effect:
        """Check whether the step is done. Only reads, and does not wait for completion."""
        ...


Op = TypeVar("Op", bound=Operation)


def on_cluster(
    operation: Callable[["Cluster", "Context", Plan], Op],
) -> Callable[[Plan, "Context", float | None], AbstractAsyncContextManager[Op]]:
    """Return the `opened` of a kind of plan that needs only its cluster."""

    @asynccontextmanager
    async def opened(plan: Plan, context: "Context", seconds: float | None) -> AsyncIterator[Op]:
        async with context.open(seconds) as cluster:
            yield operation(cluster, context, plan)

    return opened


@runtime_checkable
class Together(Operation, Protocol):
    """An operation that does all its steps at the first `perform`. Later calls only return their
    own step's answer."""

    def left(self, steps: Sequence[Step]) -> None:
        """Accept the steps that were not found done. Called before the first perform."""
        ...


@runtime_checkable
class NeedsRights(Operation, Protocol):
    """An operation whose steps need rights that brokers report."""

    def needs(self, step: Step) -> frozenset[Need]:
        """Return what the step needs, its reading back included."""
        ...

    async def ungranted(self, needs: Collection[Need]) -> frozenset[Need]:
        """Return those that are reported as not granted."""
        ...


Status = Literal["done", "already-done", "beyond-plan", "refused", "unverified"]
_EXIT = {
    "done": Exit.OK,
    "already-done": Exit.OK,
    "beyond-plan": Exit.UNVERIFIED,
    "refused": Exit.REFUSED,
    "unverified": Exit.UNVERIFIED,
}


class StepOutcome(Value):
    """The result of one step. number: from 1; detail: a sentence."""

    number: int
    step: Step
    status: Status
    detail: str


class Outcome(Value):
    """The result of a plan. entry: its journal entry."""

    entry: str
    steps: Sequence[StepOutcome]

    @property
    def already_done(self) -> bool:
        """Return True if this run found every step done and sent nothing."""
        return all(step.status == "already-done" for step in self.steps)

    @property
    def exit_status(self) -> Exit:
        return worst(_EXIT[step.status] for step in self.steps)


class Walk:
    """One walk through the steps of a plan. entry: the one to continue, None for a new one.

    can_undo: True if this kind of change can be put back.
    """

    def __init__(
        self,
        plan: Plan,
        operation: Operation,
        ensure_held: Callable[[], None],
        entry: JournalEntry | None,
        *,
        can_undo: bool = False,
    ) -> None:
        self._plan = plan
        self._can_undo = can_undo
        self._operation = operation
        self._ensure_held = ensure_held
        self._entry = entry
        self._outcomes: dict[int, StepOutcome] = {}
        self._sent = entry is not None and entry.touched
        self._started = set[int]()
        self._resumed = set[int]()  # begun by an earlier run; `perform` resumes them
        self._job_began = False  # a `Together` does the other steps too

    async def found_done(self, entry: JournalEntry) -> Outcome | None:
        """Return the outcome if everything is still as this plan left it in a finished entry."""
        for number, step in self._steps():
            effect = await self._operation.verify(step)
            if not effect.done:
                return None
            self._note_done(number, "already-done", effect)
        return self._outcome(entry.id)

    async def to_the_end(self, argv: Sequence[str], undoes: str | None) -> Outcome:
        """Carry out the plan. Raises what eoctl.operations.change.acting says."""
        if self._entry is None:
            self._plan.check_expiry(now_ms())
            self._refuse_ungranted(self._plan.steps, await self._ungranted())
            if not self._plan.independent or self._plan.all_or_none:
                await self._refuse_changes(self._plan.steps)
            die_here_in_tests("read-again")
            writer = Journal().begin(self._plan, argv, undoes)
        else:
            undoes = self._entry.undoes
            writer = Journal().reopen(self._entry.id)
        try:
            die_here_in_tests("begun")
            return await self._walk(writer, undoes)
        except asyncio.CancelledError:
            if not self._sent:
                raise
            raise self._unsure(writer, "stopped before the end") from None
        finally:
            writer.close()

    async def _walk(self, writer: Writer, undoes: str | None) -> Outcome:
        if self._entry is not None:
            await self._look_what_is_done(writer, self._entry)
        if isinstance(self._operation, Together):
            left = {n: step for n, step in self._steps() if n not in self._outcomes}
            for number in left:
                self._start(writer, number)
            self._operation.left(tuple(left.values()))
        for number, step in self._steps():
            if number in self._outcomes:
                continue
            try:
                await self._step(writer, number, step)
            except (RefusedError, UnverifiedError) as error:
                if not self._plan.independent:
                    raise
                unsure = isinstance(error, UnverifiedError)
                self._note(number, "unverified" if unsure else "refused", error.sentence)
        await self._verify_again(writer)
        if any(o.status == "unverified" for o in self._outcomes.values()):
            return self._outcome(writer.entry)  # stays unfinished
        if undoes is not None:
            self._record(writer, "undone", entry=undoes, by=writer.entry)
            die_here_in_tests("undone")
        self._record(writer, "verified")
        die_here_in_tests("verified")
        writer.finished()
        return self._outcome(writer.entry)

    async def _look_what_is_done(self, writer: Writer, entry: JournalEntry) -> None:
        """Check an unfinished entry: done steps stay done; the others must still be valid."""
        started, done = entry.steps("step-started"), entry.steps("step-done")
        ungranted = await self._ungranted()  # first: what is read below is newer
        untouched = True
        for number, step in self._steps():
            if number not in started:
                continue
            effect = await self._operation.verify(step)
            if effect.done is None:
                raise IncompleteError(
                    f"cannot see whether step {number} was done: {effect.detail}", where=entry.id
                )
            if effect.done:
                if number not in done:
                    self._record_done(writer, number, effect, found=True)
                self._note_done(number, "already-done", effect)
            elif effect.resumable:
                self._resumed.add(number)
            elif number in done:
                changed = f"step {number} ({step.target}) was done and has changed since: "
                if not self._plan.independent:
                    raise RefusedError(
                        changed + effect.detail, where=entry.id, remedy=self._ways_out(entry.id)
                    )
                self._note(number, "refused", changed + effect.detail)
            untouched = untouched and effect.untouched
        self._sent = bool(self._outcomes) or not untouched
        await self._refuse_rest(writer, ungranted, may_refuse_all=not started)

    async def _refuse_rest(
        self, writer: Writer, ungranted: frozenset[Need], *, may_refuse_all: bool
    ) -> None:
        left = self._left()
        try:
            self._refuse_ungranted(left, ungranted)
            left = self._left(self._resumed)
            all_or_none = self._plan.all_or_none and may_refuse_all
            if left and (all_or_none or not self._plan.independent):
                await self._refuse_changes(left)
        except RefusedError as error:
            if self._sent and await self._all_found_done(writer, left):
                return
            if self._sent:
                raise self._half_done(writer, error.what, error.remedy) from None
            self._record(writer, "abandoned", detail=error.sentence)
            writer.finished()
            raise RefusedError(
                f"{error.what}; nothing of {writer.entry} happened, it is closed",
                where=error.where,
                remedy=error.remedy,
            ) from None

    def _left(self, but: Collection[int] = ()) -> list[Step]:
        return [s for n, s in self._steps() if n not in self._outcomes and n not in but]

    async def _found_done(self, writer: Writer, number: int, step: Step) -> bool:
        """Check whether the step was done all the same.

        This walk's job may have done it, or another host after this one lost the lock.
        """
        effect = await (self._wait_until_done(step) if self._job_began else self._look(step))
        if not effect.done:
            return False
        self._record_done(writer, number, effect, found=True)
        self._note_done(number, "done" if self._job_began else "already-done", effect)
        return True

    async def _all_found_done(self, writer: Writer, left: Sequence[Step]) -> bool:
        numbers = {id(step): number for number, step in self._steps()}
        for step in left:
            if not await self._found_done(writer, numbers[id(step)], step):
                return False
        return True

    async def _step(self, writer: Writer, number: int, step: Step) -> None:
        all_were_read = self._job_began or (self._plan.all_or_none and self._entry is None)
        if self._plan.independent and not all_were_read and number not in self._resumed:
            try:
                await self._refuse_changes([step])
            except RefusedError as error:
                self._record(writer, "step-refused", step=number, detail=error.sentence)
                raise
        self._start(writer, number)
        die_here_in_tests(f"step-{number}-started")
        answer, trouble = await self._perform(writer, number, step)
        if number in self._outcomes:
            return
        die_here_in_tests(f"step-{number}-performed")
        effect = await self._wait_until_done(step)
        if not effect.done:
            why = f"{trouble.sentence}; {effect.detail}" if trouble else effect.detail
            raise self._unsure(
                writer, f"step {number} ({step.target}) was not seen to be done: {why}"
            )
        self._record_done(writer, number, effect, answer=answer)
        die_here_in_tests(f"step-{number}-done")
        self._note_done(number, "done", effect)

    def _start(self, writer: Writer, number: int) -> None:
        if number not in self._started:
            self._record(writer, "step-started", step=number)
            self._started.add(number)

    async def _perform(
        self, writer: Writer, number: int, step: Step
    ) -> tuple[object, EoctlError | None]:
        """Return the answer, or why it is unknown. Raises RefusedError: it changed nothing."""
        sent_before = self._sent
        try:
            self._ensure_held()
            self._sent = True
            self._job_began = isinstance(self._operation, Together)
            return await self._operation.perform(step, self._ensure_held_midway), None
        except RefusedError as error:
            self._sent = sent_before or self._job_began  # the job may have done other steps
            if self._sent and await self._found_done(writer, number, step):
                return None, error  # nothing is left to do
            self._record(writer, "step-refused", step=number, detail=error.sentence)
            if not self._sent and not self._plan.independent:
                self._record(writer, "failed", detail=error.sentence)
                writer.finished()
            if self._sent and not self._plan.independent:
                why = f"{step.target}: {error.what}"
                raise self._half_done(writer, why, error.remedy) from None
            raise
        except EoctlError as error:
            return None, error  # the answer was lost: only reading again shows the effect

    def _ensure_held_midway(self) -> None:
        try:
            self._ensure_held()
        except RefusedError as error:
            raise UnverifiedError.of(error) from None

    async def _look(self, step: Step) -> Effect:
        try:
            return await self._operation.verify(step)
        except EoctlError as error:
            return Effect(None, None, error.sentence)

    async def _wait_until_done(self, step: Step) -> Effect:
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            effect = await self._look(step)
            if effect.done or effect.final or time.monotonic() >= end:
                return effect
            await asyncio.sleep(_POLL_SECONDS)

    async def _verify_again(self, writer: Writer) -> None:
        for number, step in self._steps():
            if self._outcomes[number].status not in ("done", "already-done", "beyond-plan"):
                continue
            effect = await self._look(step)
            if effect.done:
                continue
            difference = "has changed since" if effect.done is False else "cannot be seen again"
            detail = f"step {number} ({step.target}) was done and {difference}: {effect.detail}"
            if not self._plan.independent:
                raise self._unsure(writer, detail)
            self._note(number, "unverified", detail)

    async def _ungranted(self) -> frozenset[Need]:
        """Ask once a walk, and before the facts: no question comes between them and a write."""
        if not isinstance(self._operation, NeedsRights):
            return frozenset()
        return await self._operation.ungranted(self._needs(self._plan.steps))

    def _refuse_ungranted(self, steps: Sequence[Step], ungranted: frozenset[Need]) -> None:
        if lacking := self._needs(steps) & ungranted:
            raise ungranted_error(lacking, self._plan.scope)

    def _needs(self, steps: Sequence[Step]) -> frozenset[Need]:
        if not isinstance(self._operation, NeedsRights):
            return frozenset()
        return frozenset[Need]().union(*map(self._operation.needs, steps))

    async def _refuse_changes(self, steps: Sequence[Step]) -> None:
        self._plan.refuse_changed(await self._operation.observe(steps), steps)

    def _record_done(self, writer: Writer, number: int, effect: Effect, **data: Any) -> None:
        self._record(
            writer, "step-done", step=number, saw=effect.saw, detail=effect.sentence, **data
        )

    def _record(self, writer: Writer, event: Any, **data: Any) -> None:
        try:
            writer.append(event, **data)
        except RefusedError as error:
            if not self._sent:
                raise
            raise self._unsure(writer, f"acted, but {error.what}") from None

    def _unsure(self, writer: Writer, what: str) -> UnverifiedError:
        return UnverifiedError(what, where=writer.entry, remedy=self._ways_out(writer.entry))

    def _half_done(self, writer: Writer, why: str, remedy: str | None) -> RefusedError:
        """Return the refusal of the rest of an entry, which stays unfinished.

        Of the refusal's own remedy a right to grant comes first; another, such as to plan again,
        would leave the entry behind.
        """
        number = sum(o.status not in ("refused", "unverified") for o in self._outcomes.values())
        done = f"{number} of {counted(len(self._plan.steps), 'step')} done"
        if not number:
            done = "some of it may have been done"
        first = f"{remedy}; then " if remedy and remedy.startswith("grant ") else ""
        return RefusedError(
            f"{why}; {done}, the entry stays unfinished",
            where=writer.entry,
            remedy=first + self._ways_out(writer.entry),
        )

    def _ways_out(self, entry: str) -> str:
        return ways_out(entry, can_undo=self._can_undo)

    def _steps(self) -> list[tuple[int, Step]]:
        return list(enumerate(self._plan.steps, 1))

    def _note(self, number: int, status: Status, detail: str) -> None:
        step = self._plan.steps[number - 1]
        self._outcomes[number] = StepOutcome(number, step, status, detail)

    def _note_done(self, number: int, status: Status, effect: Effect) -> None:
        self._note(number, status if effect.beyond is None else "beyond-plan", effect.sentence)

    def _outcome(self, entry: str) -> Outcome:
        return Outcome(entry, [self._outcomes[number] for number, _ in self._steps()])


def die_here_in_tests(point: str) -> None:
    """Kill this process if EOCTL_TEST_KILL_AT, which tests of crashes set, names this point."""
    if os.environ.get("EOCTL_TEST_KILL_AT") == point:
        os.kill(os.getpid(), signal.SIGKILL)
