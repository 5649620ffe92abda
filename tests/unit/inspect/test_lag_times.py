"""`offsets show --lag-seconds`: from timestamps and settings to the row, and what is not known."""

import asyncio
from typing import cast

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read.fetch import ENOUGH, Ended, Range
from eoctl.operations.inspect import unread
from recovery.facts import GroupOffsetFacts, Missing, PartitionFacts, TopicPartition
from recovery.inspect.cluster_rows import OffsetsShowRow
from recovery.inspect.group_offsets import (
    FirstUnread,
    Retention,
    TimeLags,
    offsets_show_rows,
    retention_of,
)

NOW = 1_700_000_000_000
HERE = TopicPartition("orders", 3)
LOG = PartitionFacts(*HERE, log_start_offset=10, last_stable_offset=100, high_watermark=110)
HOUR = Retention(3_600_000, None)


def row(
    committed: int | None,
    first: FirstUnread | None,
    retention: Retention | None = HOUR,
    *,
    share: bool = False,
) -> OffsetsShowRow:
    offset = GroupOffsetFacts("g", *HERE, committed, is_share=share)
    read = {} if first is None or committed is None else {HERE: {max(committed, 10): first}}
    times = TimeLags(NOW, read, {} if retention is None else {"orders": retention})
    [made] = offsets_show_rows([offset], {HERE: LOG}, data_records={}, times=times)
    return made


def lags(r: OffsetsShowRow) -> tuple[float | None, float | None, str | None]:
    return r.lag_seconds, r.retention_margin_seconds, r.retention


def test_age_and_margin_come_from_the_record_that_is_read_next() -> None:
    assert lags(row(50, FirstUnread(NOW - 600_500))) == (600.5, 2999.5, "time")


def test_a_record_past_retention_has_a_margin_below_zero() -> None:
    assert lags(row(50, FirstUnread(NOW - 3_700_000))) == (3700.0, -100.0, "time")


def test_nothing_waits_is_zero_and_has_no_margin() -> None:
    assert lags(row(100, FirstUnread(None))) == (0.0, None, "time")


def test_an_offset_below_the_log_start_has_no_time_left() -> None:
    assert lags(row(9, None)) == (None, 0.0, "time")
    assert lags(row(9, FirstUnread(NOW - 1_500))) == (1.5, 0.0, "time")  # the first that is left
    assert lags(row(9, FirstUnread(None))) == (0.0, 0.0, "time")  # none is left
    assert lags(row(10, FirstUnread(NOW))) == (0.0, 3600.0, "time")  # the first that is left


@pytest.mark.parametrize(
    ("retention", "limit", "margin"),
    [
        (Retention(3_600_000, 10), "time-and-size", 3540.0),
        (Retention(None, 10), "size", None),
        (Retention(None, None), "none", None),
        (None, None, None),  # hidden
    ],
)
def test_only_an_age_limit_gives_a_margin(
    retention: Retention | None, limit: str | None, margin: float | None
) -> None:
    assert lags(row(50, FirstUnread(NOW - 60_000), retention)) == (60.0, margin, limit)


def test_what_was_not_read_is_not_known() -> None:
    assert lags(row(50, None)) == (None, None, "time")
    assert lags(row(None, None)) == (None, None, None)
    assert lags(row(50, FirstUnread(NOW - 1), share=True)) == (None, None, None)
    [plain] = offsets_show_rows([GroupOffsetFacts("g", *HERE, 50)], {HERE: LOG}, data_records={})
    assert lags(plain) == (None, None, None)


def test_a_clock_that_runs_ahead_gives_no_age() -> None:
    assert lags(row(50, FirstUnread(NOW + 5_000))) == (None, 3605.0, "time")


@pytest.mark.parametrize(
    ("policy", "ms", "size", "retention"),
    [
        ("delete", "60000", "-1", Retention(60_000, None)),
        ("delete", "-1", "1024", Retention(None, 1024)),
        ("compact,delete", "60000", "5", Retention(60_000, 5)),
        ("compact", "60000", "5", Retention(None, None)),  # it deletes no record for its age
        ("delete", None, "-1", None),
        (None, "60000", "-1", None),
    ],
)
def test_the_settings_of_a_topic(
    policy: str | None, ms: str | None, size: str | None, retention: Retention | None
) -> None:
    settings = {"cleanup.policy": policy, "retention.ms": ms, "retention.bytes": size}
    assert retention_of(settings) == retention


@pytest.mark.parametrize(
    ("error", "detail", "missing"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", "READ on the topic is not granted", True),
        ("LEADER_NOT_AVAILABLE", "no broker leads this partition", True),
        (ENOUGH, "", False),  # its first bytes show no record: a longer read could
    ],
)
def test_a_read_that_is_refused_is_missing_and_no_timestamp(
    error: str, detail: str, monkeypatch: pytest.MonkeyPatch, *, missing: bool
) -> None:
    async def refused(*_: object, **__: object) -> object:
        return {HERE: []}, {HERE: Ended(*HERE, 50, error, detail)}

    monkeypatch.setattr(unread, "read_all", refused)
    found, why = asyncio.run(
        unread.first_timestamps(cast("Cluster", None), [Range(*HERE, 50, 100)])
    )
    assert found == {}
    assert why == ([Missing("partition", error, detail, None, *HERE)] if missing else [])


def test_a_range_without_an_end_was_not_read_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(*_: object, **__: object) -> object:
        return {HERE: []}, {}

    monkeypatch.setattr(unread, "read_all", late)
    found, [why] = asyncio.run(
        unread.first_timestamps(cast("Cluster", None), [Range(*HERE, 50, 100)])
    )
    assert (found, why.error, why.topic_partition) == ({}, "TIMED_OUT", HERE)
