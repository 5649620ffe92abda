"""`offsets history`: a group's commits, what stands out among them, and what else knows of them."""

from collections.abc import Sequence

from eoctl.host.clock import now_ms
from eoctl.kafka.ask.configs import broker_configs
from eoctl.kafka.ask.groups import NOT_FOUND, find_groups
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import group_commits
from eoctl.operations.diagnose.live import Live
from eoctl.operations.inspect.history_answer import history
from eoctl.operations.inspect.lists import look_at_owners
from eoctl.stores.journal_files import Journal
from recovery.answers import Answer, error_rows
from recovery.change.journal import JournalEntry
from recovery.errors import EoctlError, RefusedError
from recovery.facts import GroupFacts, Missing, TopicPartition
from recovery.inspect.cluster_rows import HistoryRow
from recovery.inspect.commits.commit_history import CommitHistory, CommitRecord
from recovery.inspect.commits.commit_rows import OffsetsHistoryRow, history_row, producer_ids
from recovery.row import ErrorRow
from recovery.selectors import Selector
from recovery.times import rfc3339
from recovery.values import Value

NEWEST = 1000
"""Commits of each partition that are shown."""
RETENTION = "offsets.retention.minutes"
CLOCKS_MS = 60_000
"""By how much this host's clock may differ from a coordinator's where the journal is compared."""


async def commit_history(
    cluster: Cluster,
    group: str,
    selectors: Sequence[Selector] = (),
    window: tuple[int | None, int | None] = (None, None),
    newest: int | None = NEWEST,
) -> Answer:
    """Return the group's commits, oldest first. selectors: none = of all partitions.

    window: commits from this time and before that one (epoch ms). newest: so many of each
    partition, and all that stand out; None = all. Raises RefusedError for a share group.
    """
    facts, missing = await _group(cluster, group)
    since, until = window

    def selects(partition: TopicPartition) -> bool:
        return not selectors or any(s.matches(*partition) for s in selectors)

    past, home, more = await group_commits.commit_history(
        cluster, group, lambda: CommitHistory(group, selects, newest=newest, since=since)
    )
    missing += more
    commits = [c for c in past.commits() if until is None or c.timestamp < until]
    if facts.state == "Dead" and not past.first and not missing:
        missing.append(Missing("group", NOT_FOUND, "no such group, and no commit of it", id=group))
    ids, states, unseen = await _owners(cluster, commits)
    retention = None
    if any(c.event == "deleted" for c in commits):
        retention = await _retention(cluster)
    written = _written(group, cluster.cluster_id)
    rows: list[OffsetsHistoryRow] = [
        history_row(
            c,
            group,
            -1 if home is None else home,
            ids=ids,
            states=states,
            retention_ms=retention,
            entry=next((w.entry for w in written if w.wrote(c)), None),
        )
        for c in commits
    ]
    return Answer(
        "offsets-history",
        cluster.cluster_id,
        now_ms(),
        rows,
        [*error_rows(missing), *unseen],
        extra={
            "group": group,
            "type": facts.type,
            "state": facts.state,
            "coordinator_partition": home,
            "whole": not more and past.whole_from == 0,
            "complete_since": rfc3339(past.complete_since),
            "left_out": past.left_out,
            "offsets_retention_ms": retention,
        },
        notes=[
            f"no commit for {s.text} is left in __consumer_offsets"
            for s in selectors
            if not more and not any(s.matches(*p) for p in past.first)
        ],
    )


async def _group(cluster: Cluster, group: str) -> tuple[GroupFacts, list[Missing]]:
    """Return the group as its coordinator knows it now. Raises RefusedError for a share group."""
    found, missing = await find_groups(cluster, [group])
    facts = found[0] if found else GroupFacts(group, None)
    if (facts.type or "").lower() == "share":
        raise RefusedError(
            "a share group commits no offsets: its records are acknowledged one by one",
            where=f"group {group}",
            remedy="see its start offsets with `eoctl offsets show --group`",
        )
    return facts, missing


async def _owners(
    cluster: Cluster, commits: Sequence[CommitRecord]
) -> tuple[dict[int, str], list[HistoryRow], list[ErrorRow]]:
    """Return the transactional ids by producer id, and what could not be seen.

    Of commits with an event also the records of `__transaction_state` between the commit before and
    this one.
    """
    pids = producer_ids(commits)
    if not pids:
        return {}, [], []
    owners = await look_at_owners(cluster, pids)
    ids = {t.producer_id: t.transactional_id for t in owners.rows}
    errors = error_rows(owners.missing)
    moves = [c for c in commits if c.event is not None and c.producer_id is not None]
    if not moves:
        return ids, [], errors
    window = min(c.before_timestamp or 0 for c in moves), max(c.timestamp for c in moves) + 1
    answer = await history(Live(cluster), (), producer_ids(moves), window)
    states = [row for row in answer.rows if isinstance(row, HistoryRow)]
    former = {s.producer_id: s.transactional_id for s in states if s.producer_id is not None}
    return former | ids, states, [*errors, *answer.errors]


async def _retention(cluster: Cluster) -> int | None:
    """Return how long brokers keep offsets now, in ms: the shortest; None: hidden."""
    values, _ = await broker_configs(cluster, [RETENTION])
    minutes = [int(v) for of in values.values() if (v := of.get(RETENTION)) is not None]
    return min(minutes) * 60_000 if minutes else None


class _Written(Value):
    """An offset that a journal entry wrote, or deleted (None), between two times in epoch ms."""

    entry: str
    partition: TopicPartition
    offset: int | None
    begun: int
    ended: int

    def wrote(self, commit: CommitRecord) -> bool:
        """Return True if the commit is this one: outside of a transaction, then, with its value."""
        return (
            commit.outcome is None
            and (commit.topic_partition, commit.offset) == (self.partition, self.offset)
            and self.begun - CLOCKS_MS <= commit.timestamp <= self.ended + CLOCKS_MS
        )


def _written(group: str, cluster_id: str | None) -> list[_Written]:
    """Return what this host's journal says was written to the group; none if it is unreadable."""
    try:
        entries = Journal().find().entries
        return [w for entry in entries for w in _of_entry(entry, group, cluster_id)]
    except EoctlError:
        return []


def _of_entry(entry: JournalEntry, group: str, cluster_id: str | None) -> list[_Written]:
    if entry.begun.data["plan"]["cluster_id"] != cluster_id:
        return []
    begun, done = entry.steps("step-started"), entry.steps("step-done")
    return [
        _Written(
            entry.id,
            TopicPartition(row["topic"], row["partition"]),
            None if row["after"] is None else row["after"]["offset"],
            begun[number].at,
            done[number].at if number in done else entry.ended_at or now_ms(),
        )
        for number, step in enumerate(entry.plan.steps, 1)
        if step.target == f"group {group}" and number in begun
        for row in step.parameters.get("writes", ())
    ]
