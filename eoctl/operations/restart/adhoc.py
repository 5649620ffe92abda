"""Resolve the partitions of a plan that has no application file."""

from eoctl.kafka.ask.groups import CONSUMER_OFFSETS, find_groups
from eoctl.kafka.ask.log_dirs import Denied, denied_topics
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import committed, group_commits
from eoctl.operations.inspect.lists import Scope, selected
from eoctl.operations.restart.restart_request import AdHoc
from eoctl.stores.offsets.group import refuse_kind
from eoctl.stores.offsets.opening import open_store
from recovery.errors import IncompleteError, RefusedError, UsageError
from recovery.facts import GroupFacts, TopicPartition
from recovery.inspect.commits.commit_history import CommitHistory, CommitRecord
from recovery.quoting import some
from recovery.restart.adhoc import Target
from recovery.restart.decision import Check
from recovery.restart.store_words import WORDS, parse_store
from recovery.selectors import Selector
from recovery.shared.app_file import named
from recovery.times import rfc3339
from recovery.values import Value, replace


class MoveRequest(Value):
    """selectors: none = every partition that the group has committed, or that the file names."""

    group: str
    target: Target
    selectors: tuple[Selector, ...] = ()


async def resolve_move(cluster: Cluster, request: MoveRequest) -> AdHoc:
    """Return the move with its partitions. Raises IncompleteError, RefusedError if none match."""
    partitions: list[TopicPartition]
    target = request.target
    if target.kind in ("from-file", "from-store"):
        partitions = sorted(target.offsets)
    elif target.kind == "as-of":
        partitions = sorted(target.commits)
    elif request.selectors:
        _, chosen, missing = await selected(cluster, Scope(request.selectors))
        if missing:
            raise IncompleteError(missing[0].detail, where=missing[0].topic)
        partitions = sorted(p.topic_partition for p in chosen)
    else:
        denied = await denied_topics(cluster)
        refuse_denied(denied, f"group {request.group}")
        target = replace(target, checks=(*target.checks, *none_hidden(denied, "the cluster")))
        found, _ = await find_groups(cluster, [request.group])
        facts = found[0] if found else GroupFacts(request.group, None)
        refuse_kind((facts.type or "classic").lower(), f"group {request.group}")
        [group_facts], missing = await committed.with_offsets(cluster, [facts])
        if missing:
            raise IncompleteError(missing[0].detail, where=f"group {request.group}")
        partitions = sorted(o.topic_partition for o in group_facts.offsets)
    if not partitions:
        raise RefusedError(
            "there is no partition to move: the group has committed nothing, or nothing matches",
            where=f"group {request.group}",
            remedy="name topics with --topic",
        )
    return AdHoc(request.group, target, tuple(partitions))


def refuse_denied(denied: Denied, where: str) -> None:
    """Raise IncompleteError if a group may have committed on topics that are hidden."""
    if denied.topics:
        raise IncompleteError(
            f"DESCRIBE is not granted on {some(denied.topics)}: whether the group has committed "
            "there is hidden",
            where=where,
            remedy="grant it, or name the topics that move with --topic",
        )


def none_hidden(denied: Denied, cluster: str) -> list[Check]:
    """Return what a plan assumes if topics may be hidden. cluster: as the plan calls it."""
    if denied.all_known:
        return []
    text = f"the group has committed nothing on topics of {cluster} that are hidden: not every "
    return [Check("topics", None, text + "broker named its logs (DESCRIBE on the cluster)")]


async def stored(cluster: Cluster, word: str, selectors: tuple[Selector, ...]) -> Target:
    """Return the target of the offsets that a store holds. selectors: none = all of its partitions.

    word: as `offsets show --store` takes it. Raises UsageError, RefusedError if it holds no offset
    of a partition, IncompleteError.
    """
    described = parse_store(word)
    if described is None:
        raise UsageError(
            "is not a store",
            where="--from-store",
            remedy=f"write {WORDS.removesuffix(' or APP.toml')}",
        )
    async with open_store(described, cluster=cluster) as store:
        contents = await store.read()
    offsets = {entry.topic_partition: entry.position.input.offset for entry in contents.entries}
    unread = {} if contents.flink is None else contents.flink.unread
    if selectors:
        _, chosen, missing = await selected(cluster, Scope(selectors))
        if missing:
            raise IncompleteError(missing[0].detail, where=missing[0].topic)
        partitions = {p.topic_partition for p in chosen}
        offsets = {
            partition: offset for partition, offset in offsets.items() if partition in partitions
        }
        unread = {
            partition: begins for partition, begins in unread.items() if partition in partitions
        }
    if unread:
        first = min(unread)
        raise RefusedError(
            f"it holds no offset of {named(first)}, which its source begins at {unread[first]}",
            where=store.name,
            remedy="name the others with --topic, and this one with --to-earliest or --to-offset",
        )
    return Target("from-store", offsets=offsets, source=store.name)


async def as_of(
    cluster: Cluster, group: str, instant: int, selectors: tuple[Selector, ...]
) -> Target:
    """Return the target of the commits that counted at an instant, in epoch ms.

    selectors: none = every partition that the group had an offset of. Raises RefusedError where
    what counted then is not known, IncompleteError.
    """
    history, home, missing = await group_commits.commit_history(
        cluster, group, lambda: CommitHistory(group, newest=0, as_of=instant)
    )
    if missing:
        raise IncompleteError(missing[0].detail, where=f"group {group}")
    partitions = history.partitions()
    if selectors:
        _, chosen, unseen = await selected(cluster, Scope(selectors))
        if unseen:
            raise IncompleteError(unseen[0].detail, where=unseen[0].topic)
        partitions = sorted(p.topic_partition for p in chosen)
    stood = {p: _stood(history, p, instant) for p in partitions}
    gone = [p for p, commit in stood.items() if commit is None or commit.offset is None]
    if gone and selectors:
        raise RefusedError(
            f"the group had no offset of it at {rfc3339(instant)}",
            where=named(gone[0]),
            remedy="leave it out, or name an offset with --to-offset",
        )
    commits = {p: commit for p, commit in stood.items() if commit is not None and p not in gone}
    source = f"{CONSUMER_OFFSETS}:{home}"
    text = "the group had no offset of it then: nothing moves here"
    checks = [Check("no-commit", None, text, named(p)) for p in gone]
    if not selectors and history.whole_from:
        text = f"{source} was compacted: a partition of which no commit is left is not seen"
        checks.append(Check("no-commit", None, text))
    return Target("as-of", instant, commits=commits, source=source, checks=tuple(checks))


def _stood(history: CommitHistory, partition: TopicPartition, instant: int) -> CommitRecord | None:
    """Return what counted then; None: nothing did. Raises RefusedError where that is unknown."""
    commit = history.stood.get(partition)
    if partition in history.disordered:
        why = "the times of its commits run backwards there: clocks of coordinators differ"
    elif commit is None and history.whole_from:
        why = "compaction may have removed its commits before that time"
    elif commit is not None and commit.topic_id is None and partition in history.deleted_since:
        why = "its offset was deleted since, as when a topic is deleted and created again"
    else:
        return commit
    raise RefusedError(
        f"what the group had committed at {rfc3339(instant)} is not known: {why}",
        where=named(partition),
        remedy=f"see `eoctl offsets history` of {named(partition)}, then choose a later time, or "
        "an offset with --to-offset",
    )
