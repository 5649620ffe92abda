"""Make the dashboard's snapshots in rounds, from a live cluster or a bundle.

Three kinds run in parallel: `look` (offsets, transactions, groups, producers: quick, often),
`judge` (verdicts, the page of `why`, a history: with a pause between two snapshots) and `keep`
(plans, journal and jobs of this host). Each returns the parts it renewed and their cost. `examine`,
`count` and `commits` are asked once, when their screens open.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import committed
from eoctl.kafka.read.pending_offsets import groups_with_pending
from eoctl.operations.change import changes
from eoctl.operations.dashboard import bundling, counting, examining
from eoctl.operations.dashboard.ends import EndsCount
from eoctl.operations.dashboard.lanes import lanes
from eoctl.operations.dashboard.once import commits_of, home_was_read
from eoctl.operations.dashboard.prospects import prospects
from eoctl.operations.dashboard.snapshot import Counted, Round, Snapshot, Wants
from eoctl.operations.diagnose.live import Live
from eoctl.operations.diagnose.recent_contests import with_found
from eoctl.operations.diagnose.verdict_rows import hanging_answer
from eoctl.operations.diagnose.why_answer import why
from eoctl.operations.doctor.doctor_answer import doctor
from eoctl.operations.inspect.history_answer import history
from eoctl.operations.inspect.listing import lso_answer, producers, txn_list
from eoctl.operations.inspect.lists import Scope, TxnFilter
from eoctl.operations.inspect.offline import Offline
from eoctl.operations.inspect.partition_strip import strip
from eoctl.operations.inspect.source import Source
from eoctl.operations.session.session import Session
from eoctl.settings.context import Context
from recovery.answers import Answer, error_rows
from recovery.errors import EoctlError, UsageError
from recovery.facts import Facts, GroupFacts, Missing
from recovery.inspect.cluster_rows import BrokerRow
from recovery.inspect.group_offsets import offsets_show_rows
from recovery.inspect.observation import Settings
from recovery.row import ErrorRow
from recovery.selectors import parse_selector
from recovery.values import replace

PENDING_BYTES = 256 << 10  # read of a partition of __consumer_offsets in each round
KEPT_COMMITS = 8  # groups whose commits are remembered, the newest that were looked at
READING_SECONDS = 300.0  # for a group's complete partition of __consumer_offsets
Parts = dict[str, object]
"""Fields of Snapshot."""


class Collection(Protocol):
    """The questions of the dashboard. An error that ends everything is of recovery.errors.

    progress: how many brokers have answered, of how many; None before the first one.
    """

    @property
    def progress(self) -> tuple[int, int] | None: ...
    def empty(self) -> Snapshot: ...
    async def look(self, wants: Wants) -> Round: ...
    async def judge(self, wants: Wants) -> Round: ...
    async def keep(self, wants: Wants) -> Round: ...
    async def examine(self, about: str) -> Round: ...
    async def count(self, what: Counted) -> Round: ...
    async def commits(self, group: str) -> Round: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class LiveCollection:
    """The sessions of one dashboard with one cluster. Use within one event loop."""

    context: Context
    seconds: float = 10.0
    pause: float = 5.0
    settings: Settings = field(default_factory=Settings)
    _known: dict[int, BrokerRow] = field(default_factory=dict)
    _ends: EndsCount = field(default_factory=EndsCount)
    _commits: dict[str, Answer] = field(default_factory=dict)
    _looking: Session | None = None
    _judging: Session | None = None
    _paging: Session | None = None

    @property
    def progress(self) -> tuple[int, int] | None:
        return self._looking.progress if self._looking is not None else None

    def empty(self) -> Snapshot:
        """Return the snapshot before the first answer."""
        c = self.context
        return Snapshot(
            c.title, now_ms(), read_only=c.read_only, protected=c.protected, argv=c.argv
        )

    async def look(self, wants: Wants) -> Round:
        """Return offsets, transactions, groups, producers. If all fail, the round has a problem."""
        if self._looking is None:
            self._looking = Session(self.context, self.seconds)

        async def use(cluster: Cluster) -> Parts:
            source = Live(cluster)
            facts, listed, offsets = await asyncio.gather(
                source.look(Scope()), txn_list(source, TxnFilter()), _committed(cluster)
            )
            ended = self._ends.since(listed, facts)
            listed = replace(listed, extra={**listed.extra, **ended})
            parts = _looked(source, facts, listed, offsets)
            parts["brokers"] = self._brokers(cluster, facts)
            parts["producers"] = await _producers(source, facts, wants)
            if wants.strip is not None:
                parts |= {"strip": await strip(cluster, wants.strip), "strip_about": wants.strip}
            return parts

        return await _round(self._looking, use)

    async def judge(self, wants: Wants) -> Round:
        """Return verdicts on every open transaction, and the pages that the screen wants."""
        if self._judging is None:
            self._judging = Session(self.context, self.seconds + self.pause)

        async def use(cluster: Cluster) -> Parts:
            return await _judged(
                Live(cluster, often=True), self.context, self.settings, self.pause, wants, cluster
            )

        return await _round(self._judging, use)

    async def pages(self, several: Sequence[Wants]) -> tuple[list[Parts], float]:
        """Return the pages that each of several viewers wants, and their cost.

        Where one cannot be answered its parts are why; the others are not disturbed.
        """
        if self._paging is None:
            self._paging = Session(self.context, self.seconds + self.pause)

        async def use(cluster: Cluster) -> Parts:
            source = Live(cluster, often=True)
            asked = (_page(source, self.context, self.settings, self.pause, w) for w in several)
            return {"of": await asyncio.gather(*asked)}

        finished = await _round(self._paging, use)
        failed: Parts = {"problem": finished.problem, "problem_of": "judge"}
        found = finished.parts.get("of", [failed] * len(several))
        assert isinstance(found, list)
        return found, finished.cost

    async def keep(self, wants: Wants) -> Round:
        """Return plans, journal and jobs of this host."""
        return await asyncio.to_thread(_host_round, wants)

    async def examine(self, about: str) -> Round:
        """Return what doctor finds. about: names as a shell takes them, "": everything."""
        return await examining.examined(self.context, self.seconds, about)

    async def count(self, what: Counted) -> Round:
        """Return what grows, counted twice for its rate."""
        return await counting.counted(self.context, self.seconds, self.pause, self.settings, what)

    async def commits(self, group: str) -> Round:
        """Return a group's commits, also those that compaction took since the first look."""
        before = self._commits.pop(group, None)
        answer = await commits_of(self.context, READING_SECONDS, group, before)
        if answer.rows and home_was_read(answer):
            before = answer
        if before is not None:
            self._commits[group] = before
        while len(self._commits) > KEPT_COMMITS:
            del self._commits[next(iter(self._commits))]
        return Round({"commits": answer, "commits_about": group})

    def close(self) -> None:
        """Close every connection."""
        for session in (self._looking, self._judging, self._paging):
            if session is not None:
                session.close()

    def _brokers(self, cluster: Cluster, facts: Facts) -> Answer:
        """Return every broker that was ever seen, or that a partition names; up: it answered."""
        silent = cluster.silent
        for b in cluster.brokers.values():
            self._known[b.id] = BrokerRow(broker=b.id, host=b.host, port=b.port, up=True)
        named = {replica for p in facts.partitions for replica in p.replicas}
        for broker in named - self._known.keys():
            self._known[broker] = BrokerRow(broker=broker, host="not listed", port=0, up=False)
        rows = [
            replace(row, up=row.broker in cluster.brokers and row.broker not in silent)
            for _, row in sorted(self._known.items())
        ]
        return Answer("brokers", cluster.cluster_id, facts.collected_at, rows)


@dataclass(slots=True)
class BundleCollection:
    """A bundle in place of a cluster. Everything is from the time when it was created."""

    path: Path
    settings: Settings = field(default_factory=Settings)
    _source: Offline | None = None

    @property
    def source(self) -> Offline:
        """Open the bundle. Raises UsageError for a file that is not a complete bundle."""
        if self._source is None:
            self._source = bundling.source(self.path)
        return self._source

    @property
    def progress(self) -> None:
        """Return None: no broker is asked."""

    def empty(self) -> Snapshot:
        """Return the first snapshot, read-only since a bundle cannot change. Raises as `source`."""
        return Snapshot(
            self.source.context.title,
            self.source.now(),
            cluster_id=self.source.cluster_id,
            read_only=True,
            argv=("--from", str(self.path)),
        )

    async def look(self, wants: Wants) -> Round:
        """Return what a cluster's look would; a bundle has no record batches, so no strip."""
        source = self.source
        facts, listed = await source.look(Scope()), await txn_list(source, TxnFilter())
        parts = _looked(source, facts, listed, await source.groups(None))
        silent = {m.broker for m in facts.missing if m.scope == "broker"}
        rows = [
            BrokerRow(broker=b.id, host=b.host, port=b.port, up=b.id not in silent)
            for b in source.brokers
        ]
        parts["brokers"] = Answer("brokers", source.cluster_id, source.now(), rows)
        parts["producers"] = await producers(source, Scope(), resolve=True)
        if wants.strip is not None:
            text = "a bundle holds no record batches"
            missing = error_rows([Missing("feature", "NOT_IN_BUNDLE", text)])
            parts["strip"] = Answer("strip", source.cluster_id, source.now(), [], missing)
            parts["strip_about"] = wants.strip
        return Round(parts)

    async def judge(self, wants: Wants) -> Round:
        """Return the verdicts by this version's rules."""
        try:
            return Round(await _judged(self.source, self.source.context, self.settings, 0, wants))
        except EoctlError as error:
            return Round(problem=error.sentence)

    async def keep(self, wants: Wants) -> Round:
        """Return plans, journal and jobs of this host, not of the bundle's."""
        return await asyncio.to_thread(_host_round, wants)

    async def examine(self, about: str) -> Round:
        """Return what doctor finds in the bundle. about: as of a cluster."""
        named = shlex.split(about)
        return Round({"doctor": await doctor(self.source, self.source.context, named)})

    async def count(self, what: Counted) -> Round:
        """Return what grows, counted; a bundle gives no rate."""
        try:
            return Round({"growth": await counting.of(self.source, self.settings, 0, what)})
        except EoctlError as error:
            return Round(problem=error.sentence)

    async def commits(self, group: str) -> Round:
        """Return why a bundle has none."""
        answer = await commits_of(None, 0.0, group)
        return Round({"commits": answer, "commits_about": group})

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _looked(
    source: Source,
    facts: Facts,
    listed: Answer,
    offsets: tuple[Sequence[GroupFacts], Sequence[Missing]],
) -> Parts:
    return {
        "cluster_id": source.cluster_id,
        "partitions": lso_answer(facts, Scope(internal=False), show_all=True),
        "transactions": listed,
        "groups": _groups(source, facts, *offsets),
    }


async def _producers(source: Source, facts: Facts, wants: Wants) -> Answer:
    """Return the producers of all partitions if the screen wants them, else of the held ones."""
    held = [str(p.topic_partition) for p in facts.partitions if p.held]
    if not wants.producers and not held:
        return Answer("producers", source.cluster_id, now_ms(), [])
    chosen = () if wants.producers else tuple(parse_selector(name) for name in held)
    return await producers(source, Scope(chosen), resolve=True)


async def _judged(
    source: Source,
    context: Context,
    settings: Settings,
    pause: float,
    wants: Wants,
    cluster: Cluster | None = None,
) -> Parts:
    """Return verdicts and pages. cluster: None for a bundle, which has no records."""
    parts: Parts = {}
    for more in await asyncio.gather(
        _verdicts(source, context, settings, pause),
        _pages(source, context, settings, pause, wants, cluster),
    ):
        parts |= more
    return parts


async def _page(
    source: Live, context: Context, settings: Settings, pause: float, wants: Wants
) -> Parts:
    """Return one viewer's pages and log, or the problem with them."""
    try:
        parts = await _pages(source, context, settings, pause, wants, source.cluster)
        if wants.strip is not None:
            found = await strip(source.cluster, wants.strip)
            parts |= {"strip": found, "strip_about": wants.strip}
    except Exception as error:
        return problem_with(error)
    return parts


def problem_with(error: Exception) -> Parts:
    """Return why one viewer's page could not be answered: the others are not disturbed."""
    words = f"an internal error of eoctl on this page; please report: {type(error).__name__}"
    sentence = error.sentence if isinstance(error, EoctlError) else words
    return {"problem": sentence, "problem_of": "judge"}


async def _pages(
    source: Source,
    context: Context,
    settings: Settings,
    pause: float,
    wants: Wants,
    cluster: Cluster | None = None,
) -> Parts:
    """Return the pages that a screen wants. cluster: None for a bundle, which has no records."""
    jobs: list[Awaitable[Parts]] = []
    if wants.why is not None:
        jobs.append(_why(source, context, settings, pause, wants.why))
    if wants.history is not None:
        jobs.append(_history(source, wants.history, cluster))
    if wants.merge is not None:
        jobs.append(_merge(cluster, wants.merge))
    if wants.checkpoint is not None:
        jobs.append(_checkpoint(cluster, wants.checkpoint))
    parts: Parts = {}
    for more in await asyncio.gather(*jobs):
        parts |= more
    return parts


async def _verdicts(source: Source, context: Context, settings: Settings, pause: float) -> Parts:
    diagnosis = await source.diagnose(Scope(), settings, pause=pause)
    answer = hanging_answer(diagnosis, context.argv, show_all=True)
    found = await source.contests()
    answer = with_found(answer, found)
    known = {
        "prospects": await prospects(source, diagnosis),
        "decided": found.decided.as_dict() if found.decided else None,
    }
    return {"hanging": replace(answer, extra={**answer.extra, **known})}


async def _why(
    source: Source, context: Context, settings: Settings, pause: float, about: str
) -> Parts:
    name = about[3:] if about.startswith("id ") else None
    named = [parse_selector(about)] if about and name is None else []  # none: the worst one
    answer = await why(
        source,
        context,
        named,
        settings,
        pause=pause,
        transactional_id=name,
    )
    return {"why": answer, "why_about": about}


async def _history(source: Source, transactional_id: str, cluster: Cluster | None) -> Parts:
    answer = await history(source, [transactional_id], [])
    logs = await lanes(cluster, answer) if cluster is not None else None
    return {"history": answer, "history_about": transactional_id, "lanes": logs}


async def _merge(cluster: Cluster | None, path: str) -> Parts:
    """Read merge logs; their errors must not hide the verdicts."""
    from eoctl.operations.merge.tail import merge_tail

    try:
        if cluster is None:
            raise UsageError("a bundle holds no records", where=path)
        answer = await merge_tail(cluster, Path(path))
    except EoctlError as error:
        row = ErrorRow(scope="merge", id=path, error="REFUSED", detail=error.sentence)
        answer = Answer("merge-plan", None, now_ms(), [], [row])
    return {"merge": answer, "merge_about": path}


async def _checkpoint(cluster: Cluster | None, path: str) -> Parts:
    """Look at a Flink checkpoint's transactions; their errors must not hide the verdicts."""
    from eoctl.operations.remedy.flink_transactions import committables
    from eoctl.stores import flink_checkpoint

    try:
        if cluster is None:
            raise UsageError("a bundle holds no records", where=path)
        folder = await asyncio.to_thread(flink_checkpoint.read, path)
        answer = await committables(cluster, folder)
    except EoctlError as error:
        row = ErrorRow(scope="checkpoint", id=path, error="REFUSED", detail=error.sentence)
        answer = Answer("txn-commit", None, now_ms(), [], [row])
    return {"checkpoint": answer, "checkpoint_about": path}


async def _committed(cluster: Cluster) -> tuple[list[GroupFacts], list[Missing]]:
    listed, missing = await groups.list_groups(cluster)
    with_commits, more = await committed.with_offsets(cluster, listed)
    with_commits = await groups_with_pending(cluster, with_commits, most_bytes=PENDING_BYTES)
    return with_commits, [*missing, *more]


def _groups(
    source: Source, facts: Facts, groups: Sequence[GroupFacts], missing: Sequence[Missing]
) -> Answer:
    """Return the rows of `offsets show`, against the partitions of the same round."""
    rows = offsets_show_rows(
        [o for g in groups for o in g.offsets],
        {p.topic_partition: p for p in facts.partitions},
        data_records={},
    )
    listed = [{"group": g.group, "type": g.type, "state": g.state} for g in groups]
    return Answer(
        "offsets-show",
        facts.cluster_id,
        source.now(),
        rows,
        error_rows(missing),
        extra={"groups": listed},
    )


def _host_round(wants: Wants) -> Round:
    """Read what this host keeps; an unreadable part has an error."""
    questions: dict[str, Callable[[], Answer]] = {
        "plans": changes.plans,
        "journal": changes.journal,
        "jobs": changes.jobs,
    }
    about = wants.detail
    if about is not None:
        questions["detail"] = lambda: changes.detail(about)
    parts: Parts = {"detail_about": about}
    for name, ask in questions.items():
        try:
            parts[name] = ask()
        except EoctlError as error:
            row = ErrorRow(scope=name, error="UNREADABLE", detail=error.sentence)
            parts[name] = Answer(name, None, now_ms(), [], [row])
    return Round(parts)


async def _round(session: Session, use: Callable[[Cluster], Awaitable[Parts]]) -> Round:
    busy, sent = session.busy, session.requests_sent
    problem = None
    parts: Parts = {}
    try:
        parts = await session.ask(use)
    except EoctlError as error:
        problem = error.sentence
    return Round(parts, session.busy - busy, session.requests_sent - sent, problem)
