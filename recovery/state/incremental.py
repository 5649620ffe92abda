"""The rule for continuing an earlier state, so that its changelogs are not read again.

It applies only if the result provably equals a full rebuild. A key that was deleted after the
earlier cut may vanish from the log, value and tombstone, before the next read, so time is limited.
"""

from collections.abc import Mapping
from typing import Any

from recovery.facts import TopicPartition
from recovery.shared.cut import Cut
from recovery.shared.log_position import Standing
from recovery.state.changelogs.changelog import ChangelogFormat
from recovery.state.manifest import Manifest
from recovery.times import instant, span


def why_full(
    earlier: Manifest,
    cut: Cut,
    form: ChangelogFormat,
    format_name: str,
    options: Mapping[str, Any],
    configs: Mapping[str, Mapping[str, str | None] | None],
    standings: Mapping[TopicPartition, Standing],
    now_ms: int,
) -> str | None:
    """Return why everything must be read again; None: the earlier state suffices up to its cut.

    standings: whether each log is the one at the end of the earlier cut.
    """
    if (earlier.format, earlier.options) != (format_name, dict(options)):
        return "the earlier state has another format"
    if not form.in_ranges or form.needs_retention:
        return f"a {format_name} state needs records that it does not keep"
    if earlier.cluster_id != cut.cluster_id:
        return "the earlier state is of another cluster"
    if not earlier.complete:
        return "the earlier state is not provably complete"
    if earlier.cut.at != "lso":
        return "the earlier cut was not made at lso"
    before, now = earlier.cut.by_partition(), cut.by_partition()
    ids = {t.topic: t.topic_id for t in earlier.cut.topics}
    if before.keys() != now.keys() or any(ids[t.topic] != t.topic_id for t in cut.topics):
        return "the changelogs or their partitions are others now"
    shortest = None
    for topic in ids:
        for config in (earlier.topic_configs.get(topic), configs.get(topic)):
            if config is None or config.get("cleanup.policy") != "compact":
                return f"{topic} is not only compacted"
            kept = int(config.get("delete.retention.ms") or 0)
            shortest = kept if shortest is None else min(shortest, kept)
    for topic_partition, p in before.items():
        name = f"{topic_partition[0]}-{topic_partition[1]}"
        if now[topic_partition].start != p.start:
            return f"the log start of {name} moved from {p.start} to {now[topic_partition].start}"
        if now[topic_partition].end < p.end:
            return f"the cut of {name} is below the earlier one"
        if (standing := standings[topic_partition]).held is False:
            return (
                f"the log of {name} was cut off at {standing.divergence} and written again, below "
                f"the earlier cut at {p.end}: {standing.because}"
            )
        if standing.held is None:
            return f"the log of {name} is not proven to go on from the earlier cut: " + (
                standing.because
            )
    age = now_ms - instant(earlier.cut.created_at, now_ms)
    if shortest is None or age + earlier.seconds * 1000 >= shortest:
        gone_after = span(shortest or 0)
        return f"the earlier cut is {span(age)} old, and tombstones may go after {gone_after}"
    return None
