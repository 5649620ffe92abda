"""Build the series that `exporter` adds to those of `check`: group lags, and one per finding.

Their number is bounded, since clusters may have any number of groups and transactional ids (Flink's
naming INCREMENTING creates an id per transaction). What a limit leaves out is counted, never
silently dropped. An unknown value is NaN, so that sums over it are unknown too.
"""

import math
from collections.abc import Callable, Iterable, Sequence

from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.inspect.cluster_rows import OffsetsShowRow
from recovery.values import Value
from recovery.watch.metrics import Sample

Labels = tuple[tuple[str, str], ...]


class Limits(Value):
    """The maximum number of series per context: for groups, for their partitions, for findings.

    records: offsets of logs read per check to count records; 0 = records are not counted. in_time:
    whether lags in seconds are read and served.
    """

    groups: int = 200
    partitions: int = 1000
    findings: int = 100
    records: int = 100_000
    in_time: bool = False


def group_samples(
    context: str, names: Sequence[str], rows: Iterable[OffsetsShowRow], limits: Limits
) -> list[Sample]:
    """Return the lags of groups and of their partitions, each by name, and what was left out.

    names: all groups that were checked, including those without an offset. A group's lag is the sum
    over its partitions, including those without a series; a partition that was read beyond the last
    stable offset adds nothing, and an unknown one makes the sum NaN.
    """
    cluster = (("context", context),)
    by_group: dict[str, list[OffsetsShowRow]] = {}
    for row in rows:
        by_group.setdefault(row.group, []).append(row)
    samples = [Sample("eoctl_groups", len(names), cluster)]
    partitions: list[tuple[Labels, OffsetsShowRow]] = []
    for group in sorted(by_group)[: limits.groups]:
        named = (*cluster, ("group", group))
        lags, records = zip(*map(_lags, by_group[group]), strict=True)
        samples += [
            Sample("eoctl_group_lag_offsets", sum(max(lag, 0.0) for lag in lags), named),
            Sample("eoctl_group_lag_records", sum(records), named),
        ]
        if limits.in_time:
            samples += _time_samples("eoctl_group", by_group[group], named)
        partitions += [
            ((*named, ("topic", row.topic), ("partition", str(row.partition))), row)
            for row in by_group[group]
        ]
    for labels, row in partitions[: limits.partitions]:
        lag, waiting = _lags(row)
        samples += [
            Sample("eoctl_group_partition_lag_offsets", lag, labels),
            Sample("eoctl_group_partition_lag_records", waiting, labels),
        ]
        if limits.in_time:
            samples += _time_samples("eoctl_group_partition", [row], labels)
    left_out = {
        "group": max(0, len(by_group) - limits.groups),
        "partition": sum(map(len, by_group.values())) - len(partitions[: limits.partitions]),
        "record-count": sum(
            row.data_records is None and row.lag is not None
            for mine in by_group.values()
            for row in mine
        ),
    }
    return samples + [
        Sample("eoctl_exporter_left_out", count, (*cluster, ("kind", kind)))
        for kind, count in left_out.items()
    ]


def _lags(row: OffsetsShowRow) -> tuple[float, float]:
    """Return the lag in offsets and in records; NaN = unknown, kept by max(NaN, 0) and by sums."""
    return (
        math.nan if row.lag is None else row.lag,
        math.nan if row.data_records is None else row.data_records,
    )


def _time_samples(metric: str, rows: Iterable[OffsetsShowRow], labels: Labels) -> list[Sample]:
    """Return the oldest age of these rows, and the shortest margin if there is one.

    NaN: of a row it is not known, so that a longer age or a shorter margin is possible.
    """
    ages, margins = [], []
    for row in rows:
        ages.append(math.nan if row.lag_seconds is None else row.lag_seconds)
        if row.retention_margin_seconds is not None:
            margins.append(row.retention_margin_seconds)
        elif row.lag_seconds != 0 and row.retention in (None, "time", "time-and-size"):
            margins.append(math.nan)
    samples = [Sample(f"{metric}_lag_seconds", _unless_unknown(ages, max), labels)]
    if margins:
        margin = _unless_unknown(margins, min)
        samples.append(Sample(f"{metric}_retention_margin_seconds", margin, labels))
    return samples


def _unless_unknown(values: Sequence[float], chosen: Callable[[Sequence[float]], float]) -> float:
    return math.nan if any(map(math.isnan, values)) else chosen(values)


def finding_samples(
    context: str, findings: Iterable[TxnHangingRow], limits: Limits
) -> list[Sample]:
    """Return one series per finding, the oldest first, and how many were left out."""
    cluster = (("context", context),)
    ages: dict[Labels, float] = {}
    for row in findings:
        labels = (
            *cluster,
            ("verdict", row.verdict),
            ("transactional_id", row.transactional_id or ""),
            ("topic", row.topic or ""),
            ("partition", "" if row.partition is None else str(row.partition)),
        )
        age = -1.0 if row.age_seconds is None else row.age_seconds  # no known age is negative
        ages[labels] = max(age, ages.get(labels, age))  # the older of two on one partition
    oldest = sorted(ages.items(), key=lambda item: (-item[1], item[0]))[: limits.findings]
    left_out = len(ages) - len(oldest)
    return [
        *(
            Sample("eoctl_finding_age_seconds", math.nan if age < 0 else age, labels)
            for labels, age in oldest
        ),
        Sample("eoctl_exporter_left_out", left_out, (*cluster, ("kind", "finding"))),
    ]
