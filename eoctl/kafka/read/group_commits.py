"""A group's offset commits, from its partition of `__consumer_offsets`; and the last batches of
outputs, beside which they are held.
"""

from collections.abc import Mapping

from eoctl.kafka.ask import collect
from eoctl.kafka.ask.groups import offsets_partitions
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.fetch import Chunk, Range, read, read_all
from recovery.facts import Missing, TopicPartition
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.reader import CorruptError
from recovery.restart.commits import GroupCommit, LastCommits

TAIL = 1000  # offsets at the end of an output


async def last_commits(
    cluster: Cluster, group: str
) -> tuple[Mapping[TopicPartition, GroupCommit], str | None]:
    """The commit of each input partition that counts, and else why none could be read.

    Reads the group's whole partition of `__consumer_offsets`, which needs READ on that topic.
    """
    homes = await offsets_partitions(cluster)
    if isinstance(homes, Missing):
        return {}, _why(homes.error)
    if not homes:
        return {}, "this cluster has no __consumer_offsets"
    number = coordinator_partition(group, len(homes))
    home = [p for p in homes if p.partition == number]
    [facts], _ = await collect.partition_offsets(cluster, (), home)
    if facts.error or facts.log_start_offset is None or facts.high_watermark is None:
        return {}, _why(facts.error or "its leader did not answer")
    commits = LastCommits(group, number)
    whole = Range(facts.topic, number, facts.log_start_offset, facts.high_watermark)
    async for item in read(cluster, [whole]):
        if not isinstance(item, Chunk):
            if item.error is not None:
                return {}, _why(item.error)
            continue
        try:
            commits.add(item.records)
        except CorruptError as error:
            return {}, error.sentence
    return commits.commits, None


def _why(error: str) -> str:
    text = f"the group's partition of __consumer_offsets could not be read: {error}"
    return f"{text}; grant READ on that topic" if "AUTHORIZATION" in error else text


async def tails(
    cluster: Cluster, outputs: Mapping[TopicPartition, tuple[int, int]]
) -> tuple[dict[TopicPartition, list[bytes]], dict[TopicPartition, str]]:
    """The last batches of these partitions (log start, end), and why others could not be read."""
    ranges = [
        Range(*place, max(start, end - TAIL), end)
        for place, (start, end) in outputs.items()
        if start < end
    ]
    chunks, ended = await read_all(cluster, ranges)
    return (
        {place: [bytes(c.records) for c in mine] for place, mine in chunks.items()},
        {place: e.error for place, e in ended.items() if e.error is not None},
    )
