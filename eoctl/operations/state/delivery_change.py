"""`state deliver`: deliver a finished state to another place, as a planned change.

After a kill anywhere, the same command or `journal resume` continues from the finished state; the
changelog is not read again.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from eoctl.engine.delivered import DeliveredState
from eoctl.operations.change import acting
from eoctl.operations.change.new_plan import known_id, new_plan
from eoctl.operations.change.steps import Operation
from eoctl.operations.state.delivery import STREAMS, DeliveryRequest, sources
from eoctl.operations.state.into_streams import IntoStreams
from eoctl.operations.state.into_table import IntoTable
from eoctl.operations.state.into_topic import IntoTopic
from eoctl.settings.context import Context
from recovery.change.plan import Plan, Step

KIND = "state-deliver"
GOES_ON = True


class Delivery(Operation, Protocol):
    """The place that receives a state. name: without secrets."""

    @property
    def name(self) -> str: ...

    @property
    def note(self) -> str:
        """Return what the plan's summary says after the name, once the steps are known."""
        ...

    async def steps(self) -> Sequence[Step]:
        """Return the steps. Raises RefusedError if the target does not fit."""
        ...


async def plan(request: DeliveryRequest, context: Context, seconds: float | None) -> Plan | None:
    """Plan what to write, or return an unfinished run's plan. None: everything is delivered.

    Raises RefusedError, with the reason, if the delivery would be wrong.
    """
    request.check()
    states = sources(request)
    async with _delivery(request, states, context, seconds) as delivery:
        cluster_id = known_id(await delivery.cluster_id(), context.title)
        scope = f"deliver {delivery.name}"
        begun = acting.unfinished_entry(KIND, cluster_id, scope)
        if begun is not None and _wish_of(begun.plan) == (request, _facts(request, states)):
            return begun.plan
        steps = await delivery.steps()
        done = [(await delivery.verify(step)).done for step in steps]
        observed = await delivery.observe(steps)  # refuses what no step checks
        if all(done):
            return None
    return new_plan(
        context,
        cluster_id,
        kind=KIND,
        action="deliver",
        scope=scope,
        summary=f"{', '.join(s.words() for s in states)} into {delivery.name}{delivery.note}",
        observed=observed,
        steps=steps,
    )


def _facts(request: DeliveryRequest, states: list[DeliveredState]) -> Any:
    """Return the content of a plan's observed `state`."""
    facts = [state.facts for state in states]
    return facts if request.into.startswith(STREAMS) else facts[0]


def _wish_of(plan: Plan) -> tuple[DeliveryRequest, Any]:
    return DeliveryRequest(**plan.steps[0].parameters["wish"]), plan.observed["state"]


@asynccontextmanager
async def opened(plan: Plan, context: Context, seconds: float | None) -> AsyncIterator[Operation]:
    """Yield the operation that carries out a delivery's plan."""
    request = DeliveryRequest(**plan.steps[0].parameters["wish"])
    async with _delivery(request, sources(request), context, seconds) as delivery:
        yield delivery


@asynccontextmanager
async def _delivery(
    request: DeliveryRequest, states: list[DeliveredState], context: Context, seconds: float | None
) -> AsyncIterator[Delivery]:
    """Yield the delivery. A table needs no cluster: its plan names the state's cluster."""
    streams = request.into.startswith(STREAMS)
    if request.topic is None and not streams:
        yield IntoTable(request, states[0])
        return
    async with context.open(seconds) as cluster:
        if streams:
            yield IntoStreams(cluster, request, states)
        else:
            yield IntoTopic(cluster, cluster.settings, request, states[0])
