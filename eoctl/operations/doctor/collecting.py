"""Read what the rules of `doctor` judge: only Metadata, List, Describe and Fetch requests.

The number of requests does not grow with the partitions, except that DescribeConfigs takes 500
topics at a time.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import configs, coordinators, groups
from eoctl.kafka.ask.protocols import protocols
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.group_commits import recent_commits
from eoctl.kafka.read.recent_log import OF_HEADS, OF_RECORDS, Tail, newest_states
from eoctl.operations.inspect.lists import Scope, ever_begun, look_at_offsets
from eoctl.render.words import spoken_age
from recovery.diagnose.contest import NAMED_WITHIN_MS, WINDOW_MS
from recovery.doctor.commit_ways import COMMITS_MS, commit_ways
from recovery.doctor.expiry_rules import near_ids
from recovery.doctor.findings import NOT_READ, DoctorFacts, Outage, Settings
from recovery.doctor.from_partitions import examined_topics, from_partitions
from recovery.doctor.outages import BY_CLIENT, Sinks, precommitting
from recovery.doctor.setting_names import BROKER_SETTINGS, DAY, TOPIC_SETTINGS
from recovery.doctor.version_rules import BEGUN, STRICT, newest_versions
from recovery.facts import Missing, Transactions, grouped
from recovery.formats.batches import has_numpy
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.transaction_state import TransactionState
from recovery.inspect.connect_ids import possible_groups, runs_on_connect
from recovery.inspect.log_part import LogPart, heads
from recovery.values import replace

CHUNK = 500  # topics in one DescribeConfigs
Part = dict[str, Any]
"""Some fields of DoctorFacts."""
_BY_HEAD = (*BY_CLIENT, TransactionState.COMPLETE_COMMIT)


class RecentStates:
    """The protocol that ids spoke since `versions_since`, epoch ms, and what sinks did.

    Nearly all records are read by their heads; decoded are aborts, and of each id the newest
    transaction's.
    """

    full = False

    def __init__(self, versions_since: int) -> None:
        self.versions: dict[str, int] = {}
        self.sinks = Sinks()
        self._since = versions_since

    def add(self, part: LogPart, partition: int) -> None:
        """Take the next part of a partition. Raises CorruptError."""
        begun = {}
        for row, head in (known := heads(part, _BY_HEAD)).items():
            name = bytes(part.data[head.begin : head.end]).decode("utf-8", "replace")
            if head.state in BY_CLIENT:
                self.sinks.acted(name, head.at)
            if head.state in BEGUN and head.at >= self._since:
                begun[name] = row
        others = {row for row in range(len(part.scan)) if row not in known}
        recent = []
        for row in sorted(others.union(begun.values())):
            for record in part.decoded(partition, [row]):
                if row in others:
                    self.sinks.take(record)
                if record.timestamp >= self._since:
                    recent.append(record)
        self.versions |= newest_versions(recent)


def versions_seen(recent: Tail[RecentStates], now: int) -> dict[str, Any]:
    """Return the protocol that ids spoke in the last WINDOW_MS, as fields of DoctorFacts.

    now: epoch ms. Ids of partitions that were not read to the end are left out: their newest
    records are not known.
    """
    unread = {*recent.ends, *recent.failed}
    versions = {
        name: version
        for name, version in recent.sink.versions.items()
        if coordinator_partition(name, recent.tails.partitions) not in unread
    }
    begin = recent.read_from
    if begin is not None and begin <= now - WINDOW_MS:
        begin = None
    found = any(version < STRICT for version in versions.values())
    result = "which protocol ids there speak is not seen"
    few = [] if found else _too_few(recent, begin, now, result)
    return {
        "client_versions": versions,
        "versions_from": None if few else begin,
        "missing_versions": (*_not_read(recent, result), *few),
    }


def outages_seen(
    recent: Tail[RecentStates],
    of_jobs: Iterable[Outage],
    now: int,
) -> dict[str, Any]:
    """Return those of the outages of jobs that count, as fields of DoctorFacts. now: epoch ms.

    An outage counts only where all partitions were read, since a sink's other ids, which may have
    been active meanwhile, are on any of them. A busy log is read for less than a timeout: how far
    back is said then, and none found is no finding, else each busy cluster would have an unknown.
    """
    begin, unread = recent.read_from, {*recent.ends, *recent.failed}
    found = [
        outage
        for outage in of_jobs
        if not unread and (begin is None or outage.silent_from >= begin)
    ]
    result = "which jobs there were away for longer than their timeout is not seen"
    few = [] if found else _too_few(recent, begin, now, result)
    return {
        "outages": tuple(found),
        "outages_from": None if few else begin,
        "missing_outages": (*_not_read(recent, result), *few),
    }


def _not_read(recent: Tail[RecentStates], result: str) -> list[Missing]:
    return [*recent.not_read(result), *recent.not_reached(result, partly=True)]


def _too_few(recent: Tail[RecentStates], begin: int | None, now: int, result: str) -> list[Missing]:
    """Return a `Missing` if all partitions were read from less than NAMED_WITHIN_MS ago only.

    begin: from when; None: as far back as asked. now: epoch ms.
    """
    if begin is None or begin <= now - NAMED_WITHIN_MS:
        return []
    topic, span = recent.tails.topic, spoken_age(max(0, now - begin) / 1000)
    text = (
        f"only the last {span} of {topic} were read, since it has more records than are read in "
        f"one look, so {result}"
    )
    return [Missing("topic", NOT_READ, text, topic=topic)]


async def collect(
    cluster: Cluster,
    named: Sequence[str] = (),
    transactions: Transactions | None = None,
) -> DoctorFacts:
    """Return the facts of the cluster. named: topics to examine besides those that ids write.

    transactions: every id described, if they were read already.
    """
    (
        seen,
        (broker_settings, missing_brokers),
        described,
        (listed, missing_groups),
        answered,
    ) = await asyncio.gather(
        look_at_offsets(cluster, Scope()),
        configs.broker_configs(cluster, BROKER_SETTINGS),
        _transactions(cluster, transactions),
        groups.list_groups(cluster),
        protocols(cluster),
    )
    facts = from_partitions(seen, cluster.brokers, now_ms())
    facts = replace(
        facts,
        broker_settings={int(broker): values for broker, values in broker_settings.items()},
        transactions=described,
        groups=tuple(listed),
        named=tuple(named),
        missing_brokers=(*missing_brokers, *facts.missing_brokers),
        missing_groups=tuple(missing_groups),
        protocols=answered,
    )
    (topic_settings, missing_settings), *parts = await asyncio.gather(
        _topic_settings(cluster, examined_topics(facts)),
        _members(cluster, facts),
        _states(cluster, facts),
        _commits(cluster, facts),
    )
    for part in parts:
        facts = replace(facts, **part)
    return with_settings(facts, topic_settings, missing_settings)


async def _transactions(cluster: Cluster, seen: Transactions | None) -> Transactions:
    """Return every transactional id described; none on a cluster that never had one."""
    if seen is not None:
        return ever_begun(seen)
    listed = await coordinators.transactions(cluster)
    described, missing = await coordinators.described(cluster, listed.rows)
    return replace(listed, rows=tuple(described), missing=(*listed.missing, *missing))


async def _topic_settings(
    cluster: Cluster, topics: Sequence[str]
) -> tuple[dict[str, dict[str, str | None]], list[Missing]]:
    values: dict[str, dict[str, str | None]] = {}
    missing: list[Missing] = []
    for start in range(0, len(topics), CHUNK):
        chunk = topics[start : start + CHUNK]
        mine, more = await configs.topic_configs(cluster, chunk, TOPIC_SETTINGS)
        values |= mine
        missing += more
    return values, missing


def with_settings(
    facts: DoctorFacts, settings: Mapping[str, Settings], missing: Iterable[Missing]
) -> DoctorFacts:
    """Return the facts with topics' settings, without the topics that were deleted meanwhile."""
    by_gone = grouped((m.error == configs.GONE, m) for m in missing)
    gone = {m.topic for m in by_gone.get(True, ())}
    return replace(
        facts,
        topics={name: replicas for name, replicas in facts.topics.items() if name not in gone},
        topic_settings=settings,
        missing_settings=tuple(by_gone.get(False, ())),
    )


async def _members(cluster: Cluster, facts: DoctorFacts) -> Part:
    """Return the groups with their members, if a rule compares them with idle ids."""
    if not near_ids(facts):
        return {}
    described, missing = await groups.describe_groups(cluster, facts.groups)
    return {
        "groups": tuple(described),
        "missing_groups": (*facts.missing_groups, *missing),
    }


async def _states(cluster: Cluster, facts: DoctorFacts) -> Part:
    """Return what the newest part of `__transaction_state` shows, if it matters.

    That is the protocol that ids spoke within minutes, and the outages of a day if a job may
    pre-commit.
    """
    since = facts.now - WINDOW_MS
    versions = cluster.transaction_version >= STRICT
    jobs = bool(precommitting(t.transactional_id for t in facts.transactions.rows))
    if not versions and not jobs:
        return {}
    begin = facts.now - DAY if jobs else since
    bounds = OF_HEADS if has_numpy() else OF_RECORDS
    recent = await newest_states(cluster, begin, lambda: RecentStates(since), bounds)
    if isinstance(recent, Missing):
        return {"missing_versions": (recent,) * versions, "missing_outages": (recent,) * jobs}
    part = versions_seen(recent, facts.now) if versions else {}
    return part | await _outages(cluster, facts, recent) if jobs else part


async def _outages(cluster: Cluster, facts: DoctorFacts, recent: Tail[RecentStates]) -> Part:
    """Return the outages of a day, of jobs that pre-commit."""
    of_jobs, missing = await _not_of_connect(cluster, recent.sink.sinks.outages)
    part = outages_seen(recent, of_jobs, facts.now)
    return part | {"missing_outages": (*part["missing_outages"], *missing)}


async def _not_of_connect(
    cluster: Cluster, found: Sequence[Outage]
) -> tuple[list[Outage], list[Missing]]:
    """Return the outages without those of tasks of Kafka Connect, which does not pre-commit.

    Left out, and named: those whose groups cannot be seen.
    """
    names = {name for o in found for name in possible_groups(o.transactional_id)}
    workers, missing = await groups.find_groups(cluster, sorted(names)) if names else ([], [])
    hidden = {m.id for m in missing}
    kept = [
        o
        for o in found
        if not runs_on_connect(o.transactional_id, workers)
        and None not in hidden
        and hidden.isdisjoint(possible_groups(o.transactional_id))
    ]
    return kept, missing


async def _commits(cluster: Cluster, facts: DoctorFacts) -> Part:
    """Return the ways in which groups committed; of named ones, more of them."""
    since = facts.now - COMMITS_MS
    recent = await recent_commits(cluster, since, facts.named)
    if isinstance(recent, Missing):
        return {"missing_commits": (recent,)}
    result = "how groups there commit is not seen"
    one = f"{result}; `eoctl doctor GROUP` reads only the partition of that group"
    return {
        "commit_ways": commit_ways(recent.sink.records),
        "commits_from": recent.read_from,
        "commits_unfinished": len(recent.ends),
        "missing_commits": (*recent.not_read(result), *recent.not_reached(one)),
    }
