"""Read groups' offset commits from `__consumer_offsets`, and the last batches of outputs, with
which the commits are compared."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing

from eoctl.kafka.ask import collect
from eoctl.kafka.ask.groups import CONSUMER_OFFSETS, offsets_partitions
from eoctl.kafka.connection.cluster import Cluster, PartitionMetadata
from eoctl.kafka.read.fetch import Chunk, Range, read, read_all
from eoctl.kafka.read.recent_log import OF_RECORDS, Records, Tail, newest, ranges_since
from recovery.doctor.commit_ways import GroupRecord, group_records
from recovery.facts import CommitTime, GroupTimes, Missing, TopicPartition, grouped, known
from recovery.formats.batches import verify_crcs
from recovery.formats.consumer_offsets import OffsetKey
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.reader import CorruptError
from recovery.inspect.commits.commit_history import CommitHistory
from recovery.inspect.log_part import LogPart, part_of
from recovery.inspect.rights import and_grant
from recovery.quoting import quoted, some
from recovery.restart.commits import GroupCommit, LastCommits
from recovery.values import Value, replace

TAIL = 1000  # offsets at the end of an output
TRIES = 3  # of a log that is compacted while it is read
MOST_BYTES = 256 << 20
"""What is read of `__consumer_offsets` to see when groups last committed."""


async def last_commits(
    cluster: Cluster, group: str
) -> tuple[Mapping[TopicPartition, GroupCommit], str | None]:
    """Return each input partition's latest valid commit, or why none could be read.

    Reads the group's complete partition of `__consumer_offsets`, which needs READ on that topic:
    a part of it could miss the commit.
    """
    homes = await offsets_partitions(cluster)
    if isinstance(homes, Missing):
        return {}, _why(homes.error)
    if not homes:
        return {}, "this cluster has no __consumer_offsets"
    number = coordinator_partition(group, len(homes))
    commits = LastCommits({group}, number)
    failed = await _read(cluster, [p for p in homes if p.partition == number], {number: commits})
    if number in failed:
        return {}, failed[number].detail
    return {key.topic_partition: c for key, c in commits.commits.items()}, None


async def commit_history(
    cluster: Cluster, group: str, begin: Callable[[], CommitHistory]
) -> tuple[CommitHistory, int | None, list[Missing]]:
    """Read the group's partition of `__consumer_offsets`, as it is, into a history from `begin`.

    Returns the history, that partition's number (None: no group was ever known here), and what
    could not be read. Nothing of it is kept but what the history keeps.
    """
    homes = await offsets_partitions(cluster)
    if isinstance(homes, Missing):
        return begin(), None, [homes]
    if not homes:
        return begin(), None, []
    home = homes[coordinator_partition(group, len(homes))]
    for _ in range(TRIES):
        history = begin()
        [p], _ = await collect.partition_offsets(cluster, (), [home])
        if p.error or p.log_start_offset is None or p.high_watermark is None:
            why = _Unread(p.error or "NO_ANSWER", _why(p.error or "its leader did not answer"))
            return history, home.partition, [_missing(group, why)]
        log = Range(*p.topic_partition, p.log_start_offset, p.high_watermark)
        unread, brokers = await _read_history(cluster, log, history)
        if unread is None and (first := _compacted(history)):
            below = replace(log, start=min(first), end=history.whole_from)
            again = begin()
            unread, more = await _read_history(cluster, below, again)
            brokers |= more
            if not first <= set(again.first.values()):
                unread = unread or _CHANGED
        if unread is None and len(brokers) > 1:  # replicas are compacted independently
            unread = _CHANGED
        if unread is not _CHANGED:
            break
    if group in history.unreadable:
        unread = _NEWER
    return history, home.partition, [] if unread is None else [_missing(group, unread)]


def _compacted(history: CommitHistory) -> set[int]:
    """Return the offsets of first records that compaction may remove while they are read."""
    return {at for at in history.first.values() if at < history.whole_from}


async def _read_history(
    cluster: Cluster, log: Range, history: CommitHistory
) -> "tuple[_Unread | None, set[int]]":
    """Add a range to a history. Returns why it was not read to its end, and who gave it."""
    brokers: set[int] = set()
    async for item in read(cluster, [log]):
        if not isinstance(item, Chunk):
            history.ended(log.end)
            error = None if item.error is None else _Unread(item.error, _why(item.error))
            return error, brokers
        brokers.add(item.broker)
        try:
            part = part_of(item.records)
            verify_crcs(item.records, part.scan)
            history.add_part(part)
        except CorruptError as error:
            return _Unread("CORRUPT", error.sentence), brokers
    return _Unread("TIMED_OUT", _why("TIMED_OUT")), brokers


def _missing(group: str, why: "_Unread") -> Missing:
    return Missing("group", why.error, why.detail, topic=CONSUMER_OFFSETS, id=group)


async def recent_commits(
    cluster: Cluster, since: int, groups: Collection[str] = ()
) -> Tail[Records[GroupRecord]] | Missing:
    """Return the newest commits and members of groups, within the bounds of `recent_log`.

    since: epoch ms. groups: only their partitions are read; none: all. Missing: the topic may not
    be seen.
    """
    homes = await offsets_partitions(cluster)
    if isinstance(homes, Missing):
        return homes
    numbers = {coordinator_partition(name, len(homes)) for name in groups} if homes else set()
    wanted = [p for p in homes if not groups or p.partition in numbers]
    return await newest(
        cluster, CONSUMER_OFFSETS, wanted, since, lambda: Records(_group_records), OF_RECORDS
    )


def _group_records(part: LogPart, partition: int) -> Iterable[GroupRecord]:
    return group_records(part.data, partition)


async def group_times(
    cluster: Cluster, groups: Sequence[str], since: int
) -> tuple[dict[str, GroupTimes], list[Missing]]:
    """Return when these groups last committed and changed their state, if that was since `since`.

    since: epoch ms. Reads the groups' partitions of `__consumer_offsets` from then on, at most
    MOST_BYTES, which needs READ on that topic. A group that could not be seen is not in the first
    part.
    """
    homes = await offsets_partitions(cluster) if groups else ()
    if isinstance(homes, Missing):
        return {}, [homes]
    if not homes:
        return {}, []
    named = grouped((coordinator_partition(name, len(homes)), name) for name in groups)
    commits = {number: LastCommits(names, number) for number, names in named.items()}
    mine = [p for p in homes if p.partition in named]
    failed = await _read(cluster, mine, commits, since, MOST_BYTES)
    unseen = grouped((why, name) for number, why in failed.items() for name in named[number])
    times: dict[str, GroupTimes] = {}
    for number in commits.keys() - failed.keys():
        last: dict[OffsetKey, CommitTime | None] = {
            **dict.fromkeys(commits[number].deleted),
            **{k: CommitTime(c.timestamp, c.expires) for k, c in commits[number].commits.items()},
        }
        of_group = grouped((key.group, (key, time)) for key, time in last.items())
        unmoved = commits[number].since
        for name in named[number]:
            if name in commits[number].unreadable:
                unseen.setdefault(_NEWER, []).append(name)
                continue
            state = commits[number].state(name)
            times[name] = GroupTimes(
                state_since=None if state is None else known(state.state_timestamp),
                members=None if state is None else state.members,
                commits={k.topic_partition: time for k, time in of_group.get(name, ())},
                unmoved_since={k.topic_partition: t for k, t in unmoved.items() if k.group == name},
                last_clients=commits[number].last_clients(name),
            )
    missing = [
        Missing(
            "group",
            why.error,
            f"when {some([quoted(n) for n in sorted(names)])} committed last is not known: "
            f"{why.detail}",
            topic=CONSUMER_OFFSETS,
        )
        for why, names in unseen.items()
    ]
    return times, missing


class _Unread(Value):
    """Why a partition of `__consumer_offsets` could not be read: Kafka's error, and a sentence."""

    error: str
    detail: str


_CHANGED = _Unread(
    "COMPACTED_WHILE_READ",
    "the group's partition of __consumer_offsets was compacted, or got another leader, while it "
    "was read; run this again",
)
_NEWER = _Unread("UNSUPPORTED_VERSION", "their records are of a version that eoctl cannot read")


async def _read(
    cluster: Cluster,
    homes: Sequence[PartitionMetadata],
    commits: Mapping[int, LastCommits],
    since: int | None = None,
    most: int | None = None,
) -> dict[int, _Unread]:
    """Add what these partitions hold to their `commits`; return those not read completely.

    since: epoch ms; earlier records are left out. None: from the log start. most: bytes of all
    partitions together; None: all.
    """
    ranges, errors = await ranges_since(cluster, homes, since)
    failed = {number: _Unread(error, _why(error)) for number, error in errors.items()}
    ends, size = {r.partition: r.end for r in ranges}, 0
    async with aclosing(read(cluster, ranges)) as reading:
        async for item in reading:
            if isinstance(item, Chunk):
                _add(commits[item.partition], item, failed)
                size += len(item.records)
                if item.next_offset >= ends.get(item.partition, 0):
                    ends.pop(item.partition, None)
            else:
                ends.pop(item.partition, None)
                if item.error is not None:
                    failed.setdefault(item.partition, _Unread(item.error, _why(item.error)))
            if most is not None and size >= most:
                break
    return {**{number: _too_much(most or 0) for number in ends}, **failed}


def _add(commits: LastCommits, chunk: Chunk, failed: dict[int, _Unread]) -> None:
    """Add a chunk to the commits of its partition; nothing more after an error."""
    if chunk.partition in failed:
        return
    try:
        commits.add(chunk.records)
    except CorruptError as error:
        failed[chunk.partition] = _Unread("CORRUPT", error.sentence)


def _too_much(most: int) -> _Unread:
    """Return that there is more than `most` bytes."""
    return _Unread(
        "NOT_READ",
        "the group's partition of __consumer_offsets was not read to its end, since there are more "
        f"than {most >> 20} MiB",
    )


def _why(error: str) -> str:
    text = f"the group's partition of __consumer_offsets could not be read: {error}"
    return and_grant(text, error, "READ on that topic")


async def tails(
    cluster: Cluster, outputs: Mapping[TopicPartition, tuple[int, int]]
) -> tuple[dict[TopicPartition, list[bytes]], dict[TopicPartition, str]]:
    """Return the last batches of these partitions (log start, end), and why others are unread."""
    ranges = [
        Range(*partition, max(start, end - TAIL), end)
        for partition, (start, end) in outputs.items()
        if start < end
    ]
    chunks, ended = await read_all(cluster, ranges)
    return (
        {partition: [bytes(c.records) for c in mine] for partition, mine in chunks.items()},
        {partition: e.error for partition, e in ended.items() if e.error is not None},
    )
