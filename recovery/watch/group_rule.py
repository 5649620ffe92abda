"""Warn before Kafka deletes the offsets of a group without members (a rule of `check`).

After `offsets.retention.minutes` a group that comes back starts where auto.offset.reset says. Kafka
counts from when a classic group lost its last member. For one that never had a member (such as a
Flink job's) and for the newer group types, Kafka counts from each offset's own commit. A group with
members keeps what it reads. Source: KIP-211; Kafka's offsetExpirationCondition of ClassicGroup,
ConsumerGroup and StreamsGroup, and OffsetMetadataManager.cleanupExpiredOffsets.
"""

from collections.abc import Iterable

from recovery.facts import CommitTime, GroupFacts, GroupTimes
from recovery.values import Reason
from recovery.watch.check_rows import Judgement
from recovery.watch.check_rules import Observed, judgement

AT_WORK_MS = 6 * 3_600_000
"""A group that committed this recently is at work even without members, like a Flink job's.

Offsets of it that expire are for partitions or topics it left, or will be committed again.
"""


def without_members(groups: Iterable[GroupFacts]) -> list[GroupFacts]:
    """Return the groups whose offsets Kafka may delete; share groups have no such offsets."""
    return [
        g
        for g in groups
        if g.state == "Empty"
        and (g.type or "").lower() != "share"
        and any(o.committed_offset is not None and not o.pending for o in g.offsets)
    ]


def ends_at(g: GroupFacts, times: GroupTimes, retention_ms: int, now: int) -> int | None:
    """Return when Kafka may delete the first of a group's offsets, epoch ms; None: it keeps all.

    times: from the last `retention_ms`; anything older is due now. Kafka keeps an offset whose
    commit waits for a transaction; an offset that was deleted meanwhile is left out.
    """
    due = now - retention_ms
    ends = []
    for o in g.offsets:
        if o.committed_offset is None or o.pending:
            continue
        commit = times.commits.get(o.topic_partition, CommitTime(due))
        if commit is None:
            continue
        if commit.expires_at is not None:
            ends.append(commit.expires_at)
            continue
        counts_from = commit.committed_at
        written_without_time = times.members is not None and times.state_since is None
        if g.protocol is not None and not written_without_time:  # a classic group's
            counts_from = due if times.state_since is None else times.state_since
        ends.append(counts_from + retention_ms)
    return min(ends, default=None)


def group_expiry(observed: Observed, threshold: float) -> Judgement:
    """Judge the groups without members. At most half of the retention counts as near, so a group
    that commits more often than that is never a finding."""
    retention = observed.offsets_retention_ms
    groups = without_members(observed.groups or ())
    unseen = sum(g.group not in observed.group_times for g in groups)
    near: list[tuple[int, str]] = []
    reasons = []
    if retention is None:
        reasons.append(Reason("retention-hidden"))
    else:
        limit = min(threshold * 1000, retention / 2)
        near = sorted(
            (left, g.group)
            for g in groups
            if (times := observed.group_times.get(g.group)) is not None
            and (left := _left(g, times, retention, limit, observed.now)) is not None
        )
        if unseen:
            data = {"number": unseen, "total": len(groups)}
            reasons.append(Reason("without-members-not-seen", data))
    if observed.groups is None or observed.groups_missing:
        reasons.append(Reason("groups-not-seen"))
    unsure = bool(reasons)
    if retention is not None:
        reasons.insert(0, Reason("offsets-go", {"groups": [name for _, name in near]}))
    seconds = near[0][0] / 1000 if near else None
    rule, finding = "group_expiry", bool(near)
    return judgement(rule, threshold, seconds, "seconds", *reasons, finding=finding, unsure=unsure)


def _left(
    g: GroupFacts, times: GroupTimes, retention_ms: int, limit_ms: float, now: int
) -> int | None:
    """Return the ms until Kafka may delete offsets; None: not soon, or the group is at work."""
    end = ends_at(g, times, retention_ms, now)
    last = max((c.committed_at for c in times.commits.values() if c), default=now - retention_ms)
    at_work = times.members or now - last < min(limit_ms, AT_WORK_MS)
    return None if end is None or at_work or end - now > limit_ms else end - now
