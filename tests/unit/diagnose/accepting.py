"""What the commands that plan a remedy say of a judged transaction: their own rules, no brokers."""

from collections.abc import Coroutine
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from eoctl.kafka.ask import configs
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.remedy import commit, fence, marker, raising
from eoctl.operations.remedy.remedy_plan import RemedyRequest, refusal
from recovery.diagnose.diagnosis import Judged
from recovery.errors import EoctlError
from recovery.inspect.observation import Settings
from recovery.remedy.repairs import remedy_allowed
from recovery.values import replace

MOST_TIMEOUT_MS = 3_600_000  # transaction.max.timeout.ms of the brokers


def accepted(j: Judged, request: RemedyRequest, transaction_version: int) -> str | None:
    """Return what planning this remedy says against it; None: its plan is shown."""
    cluster = cast("Cluster", SimpleNamespace(transaction_version=transaction_version))
    try:
        with ExitStack() as stack:
            _brokers(stack, j)
            _plan(cluster, j, request)
    except EoctlError as error:
        return error.sentence
    return None


def _plan(cluster: Cluster, j: Judged, request: RemedyRequest) -> None:
    if request.action == "fence":
        _fence(cluster, j, request)
    elif request.owner_is_gone:
        _commit(cluster, j)
    else:
        if request.without_proof:  # its second look is taken by the command
            verdict = replace(j.verdict, samples=2)
            j = Judged(j.about, j.start, j.first, j.second, j.history, verdict)
        marker.refuse(j, request, cluster.transaction_version)
        done(marker._raise(cluster, j, _row(j)))


def _row(j: Judged) -> Any:
    row = j.newest.producer(j.about.producer_id or 0)
    if row is None:
        raise EoctlError("its producer state was not seen")
    return row


def _fence(cluster: Cluster, j: Judged, request: RemedyRequest) -> None:
    v = j.verdict
    if v.owner is None or v.owner.state != "Ongoing":  # no id has this transaction open
        why = remedy_allowed(v, "fence", owner_is_gone=request.owner_is_gone)
        if why is not None:
            raise refusal(j, why, cluster.transaction_version)
    assert v.owner is not None
    look = fence.Look(v.owner, (), (j,))
    done(fence.judged_for(cluster, v.owner, request, Settings(), 0, look))
    done(fence.end_of(cluster, v.owner))


def _commit(cluster: Cluster, j: Judged) -> None:
    """What `commit.plan` and `commit.judged` check, without the reads."""
    version = cluster.transaction_version
    why = remedy_allowed(j.verdict, "resolve", owner_is_gone=True)
    if why is not None:
        raise refusal(j, why, version)
    assert j.verdict.owner is not None
    done(commit.refuse_life(cluster, j.verdict.owner, (j,), {}, {}))
    done(fence.end_of(cluster, j.verdict.owner))


def _brokers(stack: ExitStack, j: Judged) -> None:
    """Answer what planning asks brokers once more from what was seen."""
    s = j.newest

    async def broker_configs(*_: object) -> object:
        return {str(n): {raising.MAX_TIMEOUT: str(MOST_TIMEOUT_MS)} for n in range(10)}, []

    async def life(*_: object) -> object:
        return SimpleNamespace(groups=s.groups, groups_missing=s.groups_missing)

    async def log_of(_: object, name: str) -> object:
        return s.transactions.log_of(name)

    async def end_version(*_: object) -> int:
        return 5

    for module, name, answer in (
        (configs, "broker_configs", broker_configs),
        (commit, "look_for_life", life),
        (raising, "log_of", log_of),
        (raising, "end_version", end_version),
    ):
        stack.enter_context(patch.object(module, name, answer))


def done(planning: Coroutine[Any, Any, object]) -> None:
    """Run what asks no broker, as it never waits."""
    try:
        planning.send(None)
    except StopIteration:
        return
    raise AssertionError("a broker was asked")
