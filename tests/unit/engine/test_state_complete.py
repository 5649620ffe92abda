"""What a rebuild proves: which batches of a response are the range's, and when it is complete."""

from typing import Any

import pytest

from eoctl.engine.rebuild import RebuildJob, _added, _compacted
from eoctl.engine.rebuild_task import Making
from eoctl.stores.state.folder import TaskRow
from recovery.audit.range_counts import RangeCounts
from recovery.facts import PartitionFacts, TopicPartition
from recovery.shared.cut import Cut, CutPartition, CutTopic
from recovery.state.changelogs.changelog import changelog_format
from recovery.state.manifest import compacted_from_above, completeness, of_several_replicas
from recovery.times import rfc3339
from recovery.values import replace
from tests.unit.formats_build import COMMIT, Item, batch, decoded, marker


def test_what_lies_behind_the_range_is_not_the_ranges() -> None:
    """A response is not cut at the range's end, nor at its start."""
    written = [
        batch(0, [Item(0, key=b"k")], producer=(7, 4, 0), transactional=True),
        marker(1, 7, COMMIT, epoch=4),
        batch(2, [Item(0, key=b"k")], producer=(7, 5, 0), transactional=True),
        batch(3, [Item(0, key=b"k")], producer=(7, 6, 0), transactional=True),
        marker(4, 7, COMMIT, epoch=6),
        batch(5, [Item(0, key=b"k")], producer=(8, 1, 0), transactional=True),
    ]
    counts = RangeCounts(2, 3)
    counts.visible(decoded(b"".join(written), (), start=2, end=3))
    assert counts.producers() == {
        "7": {
            "epoch": 5,
            "last_offset": 2,
            "outcome": "committed",
            "marker": None,
            "marker_epoch": None,
        }
    }
    assert counts.counts()["data"] == 1


DAY_MS = 86_400_000
WINDOWS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(2 * DAY_MS),
    "delete.retention.ms": "5000",
}


@pytest.mark.parametrize(
    ("form", "log_start", "took_ms", "reasons", "proven"),
    [
        ("streams-window", 0, 1000, (), True),
        ("streams-window", 0, 6000, ("delete.retention.ms",), False),
        ("streams-window", 3, 1000, ("starts at 3", "deletes"), False),
        ("streams-window", 3, 6000, ("starts at 3", "deletes", "delete.retention.ms"), False),
        ("plain", 0, 6000, ("deletes", "delete.retention.ms"), False),
    ],
)
def test_a_proof_of_the_start_says_nothing_of_tombstones(
    form: str, log_start: int, took_ms: int, reasons: tuple[str, ...], proven: bool
) -> None:
    made = changelog_format(form, {"retention_ms": DAY_MS} if form != "plain" else {})
    found, proof = completeness(made, WINDOWS, log_start, {"max": 5}, (10_000, 10_000 + took_ms))
    assert len(found) == len(reasons)
    assert all(word in why for word, why in zip(reasons, found, strict=True))
    assert (proof is not None) == proven


SEGMENTS = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": "1000",
    "segment.ms": "60000",
    "segment.bytes": "1000000",
}


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ({}, True),
        ({"config": SEGMENTS | {"cleanup.policy": "delete,compact"}}, True),
        ({"config": SEGMENTS | {"cleanup.policy": "delete"}}, None),
        ({"config": None}, None),  # which is a reason of its own
        ({"above": 0}, None),  # nobody could take a place
        ({"missing": 0}, None),  # nobody took one
        ({"missing": None}, True),
        ({"age_ms": 1000}, None),
        ({"config": SEGMENTS | {"min.compaction.lag.ms": "70000"}}, None),
        ({"age_ms": 60_000}, False),  # the active segment is not known to have been closed
        ({"age_ms": 60_000, "size": 1_000_000}, True),
        ({"age_ms": 2000, "config": SEGMENTS | {"segment.ms": "1000"}}, True),
        ({"age_ms": 2000, "config": {"cleanup.policy": "compact"}}, True),  # of an older request
    ],
)
def test_records_above_an_old_cut_may_cost_it_some_below(
    changed: dict[str, Any], counts: bool | None
) -> None:
    """K at 50 and at 500, the cut at 1000, K at 5000: the cleaner keeps only the last."""
    asked: dict[str, Any] = {
        "config": SEGMENTS,
        "above": 4001,
        "missing": 2,
        "size": 1000,
        "age_ms": 60_001,
    }
    found = compacted_from_above(**asked | changed)
    assert (found and found[1]) is counts
    assert found is None or "4,001 offsets above its cut, which was " in found[0]


HOUR_MS = 3_600_000
NOW = 1_800_000_000_000
YEAR_OLD_SEGMENTS = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(HOUR_MS),
    "segment.ms": str(365 * DAY_MS),
    "segment.bytes": str(1 << 30),
}


@pytest.mark.parametrize("from_file", [False, True])
@pytest.mark.parametrize(
    ("ago", "high_watermark", "missing", "counts"),
    [
        (2 * DAY_MS, 6_000, 50, True),  # K stood at 50 and at 5000: the cleaner was there since
        (2 * HOUR_MS, 1_001, 1, True),
        (HOUR_MS // 2, 6_000, 50, None),  # whatever is above, nothing may be cleaned with it yet
        (2 * DAY_MS, 1_000, 50, None),  # nothing above
        (2 * DAY_MS, 6_000, 0, None),  # nothing gone
        (-HOUR_MS, 6_000, 50, None),  # an instant to come: the cut is not older than itself
    ],
)
def test_a_cut_at_an_instant_is_as_old_as_the_instant(
    ago: int, high_watermark: int, missing: int, counts: bool | None, from_file: bool
) -> None:
    cut_partition = CutPartition(
        partition=0,
        start=0,
        end=1_000,
        last_stable_offset=high_watermark,
        high_watermark=high_watermark,
        leader_epoch=None,
    )
    cut = Cut(
        cluster_id=None,
        created_at=rfc3339(NOW) or "",
        at="time",
        instant=NOW - ago,
        topics=(CutTopic(topic="t", topic_id=None, partitions=(cut_partition,)),),
    )
    request = RebuildJob(
        cut=cut,
        how=Making("plain", {}, ""),
        started_ms=NOW,
        configs={"t": YEAR_OLD_SEGMENTS},
        fresh=not from_file,
    )
    row = TaskRow(
        topic="t",
        partition=0,
        start=0,
        end=1_000,
        bucket=None,
        buckets=None,
        counts={"data": 1_000 - missing, "missing": missing},
        files=(),
        runs=(),
        digest_rows=0,
        digest="",
        expired=0,
        seen={},
        producers={},
        bytes_read=100_000,
        seconds=1.0,
        last_read_ms=NOW + 1_000,
        peak_bytes=0,
        versions={},
    )
    log = PartitionFacts("t", 0, high_watermark=high_watermark)
    found = _compacted(request, TopicPartition("t", 0), [row], log)
    assert (found and found[1]) is counts
    # the same cut at the log's end is a second old
    plain = replace(request, cut=cut.model_copy(update={"instant": None}))
    assert _compacted(plain, TopicPartition("t", 0), [row], log) is None


def test_a_base_that_never_counted_headers_leaves_them_unknown() -> None:
    earlier, now = {"data": 4, "missing": 1}, {"data": 2, "missing": 0, "with_headers": 0}
    expected = {"data": 6, "missing": 1, "with_headers": None}
    assert _added([earlier, now]) == _added([now, earlier]) == expected
    assert _added([now, {**now, "with_headers": 3}]) == {"data": 4, "missing": 0, "with_headers": 3}
    assert _added([]) == {}


@pytest.mark.parametrize(
    ("policy", "brokers", "missing", "said"),
    [
        ("compact", {1, 2}, 5, True),
        ("compact,delete", {1, 2}, 5, True),
        ("compact", {1, 2}, None, True),  # the reader cannot tell
        (None, {1, 2}, 5, True),  # nobody may see the policy
        ("compact", {1, 2}, 0, False),  # no copy has lost a record
        ("compact", {2}, 5, False),
        ("delete", {1, 2}, 5, False),
    ],
)
def test_parts_of_two_copies_are_no_whole(
    policy: str | None, brokers: set[int], missing: int | None, said: bool
) -> None:
    """K's value from a copy that is not cleaned yet, its tombstone gone from another."""
    config = None if policy is None else {"cleanup.policy": policy}
    found = of_several_replicas(config, brokers, missing)
    assert (found is not None) is said
    assert found is None or "brokers 1, 2" in found
