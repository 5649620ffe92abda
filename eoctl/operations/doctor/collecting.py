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
from recovery.diagnose.contest import WINDOW_MS
from recovery.doctor.commit_ways import COMMITS_MS, commit_ways
from recovery.doctor.expiry_rules import near_ids
from recovery.doctor.findings import NOT_READ, DoctorFacts, Outage, Settings
from recovery.doctor.from_partitions import examined_topics, from_partitions
from recovery.doctor.outages import precommitting
from recovery.doctor.recent_states import (
    Read,
    RecentStates,
    Shown,
    outages_shown,
    versions_shown,
)
from recovery.doctor.setting_names import BROKER_SETTINGS, DAY, TOPIC_SETTINGS
from recovery.doctor.version_rules import STRICT
from recovery.facts import Missing, Transactions, grouped
from recovery.formats.batches import has_numpy
from recovery.inspect.connect_ids import possible_groups, runs_on_connect
from recovery.values import replace

CHUNK = 500  # topics in one DescribeConfigs
Part = dict[str, Any]
"""Some fields of DoctorFacts."""


def versions_seen(recent: Tail[RecentStates], now: int) -> Part:
    """Return the protocol that ids spoke lately, and what hides that of others. now: epoch ms."""
    shown = versions_shown(recent.sink.versions, _read(recent, now))
    return {
        "client_versions": shown.versions,
        "versions_from": None if shown.is_too_little else shown.begin,
        "missing_versions": _missing(
            recent, shown, now, "which protocol ids there speak is not seen"
        ),
    }


def outages_seen(recent: Tail[RecentStates], of_jobs: Iterable[Outage], now: int) -> Part:
    """Return those of the outages of jobs that count, and what hides others. now: epoch ms."""
    shown = outages_shown(of_jobs, _read(recent, now))
    return {
        "outages": shown.outages,
        "outages_from": None if shown.is_too_little else shown.begin,
        "missing_outages": _missing(
            recent,
            shown,
            now,
            "which jobs there were away for longer than their timeout is not seen",
        ),
    }


def _read(recent: Tail[RecentStates], now: int) -> Read:
    unread = frozenset({*recent.ends, *recent.failed})
    return Read(now, recent.tails.partitions, unread, recent.read_from)


def _missing(
    recent: Tail[RecentStates], shown: Shown, now: int, result: str
) -> tuple[Missing, ...]:
    """Return what was not read, so that `result`; also if all was read, for too short a time."""
    missing = [*recent.not_read(result), *recent.not_reached(result, partly=True)]
    if shown.begin is not None and shown.is_too_little:
        topic, span = recent.tails.topic, spoken_age(max(0, now - shown.begin) / 1000)
        text = (
            f"only the last {span} of {topic} were read, since it has more records than are read "
            f"in one look, so {result}"
        )
        missing.append(Missing("topic", NOT_READ, text, topic=topic))
    return tuple(missing)


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
