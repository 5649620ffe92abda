"""What the dashboard shows, as one frozen value: the answers of the same operations as the CLI.

Two rounds run side by side, each over a session of its own: `look` (offsets, transactions, groups,
producers: quick, often) and `judge` (verdicts, the page of `why`, a history: with a pause between
its two looks). Each gives the parts it renewed and what that cost the brokers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eoctl.config import Context
from eoctl.kafka import committed, groups
from eoctl.kafka.cluster import Cluster
from eoctl.operations.diagnose import diagnose
from eoctl.operations.history import history
from eoctl.operations.inspect import (
    Scope,
    TxnFilter,
    look_at_partitions,
    lso_answer,
    producers,
    txn_list,
)
from eoctl.operations.session import Session, now_ms
from eoctl.operations.verdict_rows import hanging_answer
from eoctl.operations.why import why
from recovery.answers import Answer, error_rows
from recovery.errors import EoctlError
from recovery.facts import Facts, GroupFacts, Missing
from recovery.group_rows import offsets_show_rows
from recovery.observation import Settings
from recovery.rows import BrokerRow
from recovery.selectors import parse_selector

PARTS = (
    "brokers",
    "partitions",
    "transactions",
    "groups",
    "producers",
    "hanging",
    "why",
    "history",
)


@dataclass(frozen=True, slots=True)
class Wants:
    """What the screen asks for beyond what is always collected.

    producers: of every partition, not only of the held ones. why: TOPIC:P, or None. group: why
    this group stands. history: a transactional id.
    """

    producers: bool = False
    why: str | None = None
    group: str | None = None
    history: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything known of a cluster, each part an answer with its own collected_at (epoch ms).

    A part that was not asked for yet is None. taken_at: when the last round ended. cost: seconds
    in which answered requests of the last round of each kind were under way; share: of the time
    between two rounds. intervals: seconds between two rounds of `look` and of `judge`. problem: why
    the last round failed; the parts are then older. why_about, history_about: of what these are.
    """

    title: str
    taken_at: int
    cluster_id: str | None = None
    read_only: bool = False
    protected: bool = False
    argv: tuple[str, ...] = ()
    brokers: Answer | None = None
    partitions: Answer | None = None
    transactions: Answer | None = None
    groups: Answer | None = None
    producers: Answer | None = None
    hanging: Answer | None = None
    why: Answer | None = None
    why_about: str | None = None
    history: Answer | None = None
    history_about: str | None = None
    cost: float = 0.0
    requests: int = 0
    share: float = 0.0
    intervals: Mapping[str, float] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """What one round renewed: fields of Snapshot. cost: seconds; requests: how many."""

    parts: dict[str, object] = field(default_factory=dict)
    cost: float = 0.0
    requests: int = 0
    problem: str | None = None


@dataclass(slots=True)
class Collection:
    """The sessions of one dashboard with one cluster. Use within one event loop."""

    context: Context
    seconds: float = 10.0
    sample_interval: float = 5.0
    settings: Settings = field(default_factory=Settings)
    _known: dict[int, BrokerRow] = field(default_factory=dict)
    _looking: Session | None = None
    _judging: Session | None = None

    def empty(self) -> Snapshot:
        """The snapshot before the first answer."""
        c = self.context
        return Snapshot(
            c.title, now_ms(), read_only=c.read_only, protected=c.protected, argv=c.argv
        )

    async def look(self, wants: Wants) -> Round:
        """Offsets, transactions, groups, producers. What fails whole is the round's problem."""
        if self._looking is None:
            self._looking = Session(self.context, self.seconds)

        async def use(cluster: Cluster) -> dict[str, object]:
            facts, listed, offsets = await asyncio.gather(
                look_at_partitions(cluster, Scope()),
                txn_list(cluster, TxnFilter()),
                _committed(cluster),
            )
            scope = Scope()
            if not wants.producers:
                held = [f"{p.topic}:{p.partition}" for p in facts.partitions if p.held]
                scope = Scope(tuple(parse_selector(name) for name in held))
            empty = not wants.producers and not scope.selectors
            return {
                "cluster_id": cluster.cluster_id,
                "brokers": self._brokers(cluster, facts),
                "partitions": lso_answer(facts, Scope(internal=False), show_all=True),
                "transactions": listed,
                "groups": _groups(facts, *offsets),
                "producers": Answer("producers", cluster.cluster_id, now_ms(), [])
                if empty
                else await producers(cluster, scope, resolve=True),
            }

        return await _round(self._looking, use)

    async def judge(self, wants: Wants) -> Round:
        """Verdicts on every open transaction, and the pages that the screen wants."""
        if self._judging is None:
            self._judging = Session(self.context, self.seconds + self.sample_interval)

        async def use(cluster: Cluster) -> dict[str, object]:
            jobs: list[Awaitable[dict[str, object]]] = [self._verdicts(cluster)]
            if wants.why is not None or wants.group is not None:
                jobs.append(self._why(cluster, wants))
            if wants.history is not None:
                jobs.append(_history(cluster, wants.history))
            parts: dict[str, object] = {}
            for more in await asyncio.gather(*jobs):
                parts |= more
            return parts

        return await _round(self._judging, use)

    def close(self) -> None:
        """Close every connection."""
        for session in (self._looking, self._judging):
            if session is not None:
                session.close()

    async def _verdicts(self, cluster: Cluster) -> dict[str, object]:
        found = await diagnose(
            cluster, Scope(), self.settings, sample_interval=self.sample_interval
        )
        return {"hanging": hanging_answer(found, self.context.argv, show_all=True)}

    async def _why(self, cluster: Cluster, wants: Wants) -> dict[str, object]:
        answer = await why(
            cluster,
            self.context,
            [] if wants.why is None else [parse_selector(wants.why)],
            wants.group,
            self.settings,
            sample_interval=self.sample_interval,
        )
        return {"why": answer, "why_about": wants.why or f"group {wants.group}"}

    def _brokers(self, cluster: Cluster, facts: Facts) -> Answer:
        """Every broker that was ever seen, or that a partition names; up: it answered."""
        silent = cluster.silent
        for b in cluster.brokers.values():
            self._known[b.id] = BrokerRow(broker=b.id, host=b.host, port=b.port, up=True)
        named = {replica for p in facts.partitions for replica in p.replicas}
        for broker in named - self._known.keys():
            self._known[broker] = BrokerRow(broker=broker, host="not listed", port=0, up=False)
        rows = [
            row.model_copy(
                update={"up": row.broker in cluster.brokers and row.broker not in silent}
            )
            for _, row in sorted(self._known.items())
        ]
        return Answer("brokers", cluster.cluster_id, facts.collected_at, rows)


async def _committed(cluster: Cluster) -> tuple[list[GroupFacts], list[Missing]]:
    listed, missing = await groups.list_groups(cluster)
    found, more = await committed.with_offsets(cluster, listed)
    return found, [*missing, *more]


def _groups(facts: Facts, found: Sequence[GroupFacts], missing: Sequence[Missing]) -> Answer:
    """As `offsets show`, against the partitions of the same round."""
    rows = offsets_show_rows(
        [o for g in found for o in g.offsets],
        {(p.topic, p.partition): p for p in facts.partitions},
        pending_producers={},
        data_records={},
    )
    return Answer(
        "offsets-show",
        facts.cluster_id,
        now_ms(),
        rows,
        error_rows(missing),
        extra={"groups": [{"group": g.group, "type": g.type, "state": g.state} for g in found]},
    )


async def _history(cluster: Cluster, transactional_id: str) -> dict[str, object]:
    answer = await history(cluster, [transactional_id], [])
    return {"history": answer, "history_about": transactional_id}


async def _round(session: Session, use: Callable[[Cluster], Awaitable[dict[str, object]]]) -> Round:
    busy, sent = session.busy, session.requests_sent
    problem = None
    parts: dict[str, object] = {}
    try:
        parts = await session.ask(use)
    except EoctlError as error:
        problem = error.sentence
    return Round(parts, session.busy - busy, session.requests_sent - sent, problem)


def renewed(snapshot: Snapshot, newest: Round, rounds: Sequence[Round]) -> Snapshot:
    """The snapshot with the newest round's parts; cost and requests of the last of each kind."""
    return replace(
        replace(snapshot, **newest.parts),  # type: ignore[arg-type]
        taken_at=now_ms(),
        cost=sum(r.cost for r in rounds),
        requests=sum(r.requests for r in rounds),
        problem=next((r.problem for r in rounds if r.problem is not None), None),
    )
