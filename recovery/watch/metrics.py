"""Define the metrics of `check --textfile` and `exporter`: names, help, and text format (0.0.4).

Names, units and types follow Prometheus's conventions: base units in the name, and gauges except
for names in `_total`, since each check reports a current state. Source: Prometheus, "Exposition
formats" and "Metric and label naming".
"""

import math
from collections.abc import Iterable, Mapping
from typing import Literal

from recovery.values import Value
from recovery.watch.check_rows import CheckRow
from recovery.watch.check_rules import (
    Observed,
    holders,
    pending_groups,
    unavailable,
    verdict_counts,
)

HELP: Mapping[str, str] = {
    "eoctl_up": "Whether a broker answered and accepted the credentials.",
    "eoctl_complete": "Whether nothing that was asked for was left out.",
    "eoctl_check_timestamp_seconds": "When the check ended, in seconds since 1970.",
    "eoctl_check_duration_seconds": "How long the check took.",
    "eoctl_check_rule": "1 for the state of the rule: ok, finding or unknown.",
    "eoctl_transactions": "Open transactions and ids not at rest, by verdict.",
    "eoctl_partitions": "Partitions looked at.",
    "eoctl_held_partitions": "Partitions whose last stable offset is below the high watermark.",
    "eoctl_held_offsets": "Offsets between last stable offset and high watermark, all partitions.",
    "eoctl_held_offsets_worst": "The same of the partition that is held most.",
    "eoctl_held_age_seconds": "Age of the oldest transaction that holds a partition.",
    "eoctl_coordinators": "Partitions of __transaction_state, each with a coordinator.",
    "eoctl_coordinators_unavailable": "Those whose coordinator did not answer.",
    "eoctl_groups_pending": "Groups with an offset commit that waits for a transaction to end.",
    "eoctl_contested_ids": "Transactional ids whose owners fence each other, or restart for ever.",
    "eoctl_producer_id_expiry_seconds": "Until the first needed transactional id may be dropped.",
    "eoctl_producer_states_worst": "Producers that one broker keeps as leader, the most of any.",
    "eoctl_transactional_ids": "Transactional ids of all coordinators.",
    "eoctl_internal_topic_bytes_worst": "The largest log of Kafka's internal topics.",
    "eoctl_mirror_map_age_seconds": "Age of the oldest mirror map.",
}
"""Metric → its help: what every check of a cluster produces."""
SERIES_HELP: Mapping[str, str] = {
    "eoctl_groups": "Consumer groups looked at.",
    "eoctl_groups_complete": "Whether all groups, their offsets and their partitions were seen.",
    "eoctl_group_lag_offsets": "Last stable offset minus committed offset, all partitions.",
    "eoctl_group_lag_records": "Records that wait for a read_committed reader, all partitions.",
    "eoctl_group_partition_lag_offsets": "Last stable offset minus committed offset.",
    "eoctl_group_partition_lag_records": "Records that wait for a read_committed reader.",
    "eoctl_group_lag_seconds": "Age of the oldest record that could be read now, all partitions.",
    "eoctl_group_retention_margin_seconds": "Until the first waiting record is past retention.ms.",
    "eoctl_group_partition_lag_seconds": "Age of the oldest record that could be read now.",
    "eoctl_group_partition_retention_margin_seconds": "Until that record is past retention.ms.",
    "eoctl_finding_age_seconds": "Age of a transaction that is a finding.",
    "eoctl_exporter_left_out": "Series that were left out because a limit was reached, by kind.",
    "eoctl_exporter_counts_records": "Whether this exporter reads logs to count records.",
    "eoctl_exporter_looks_total": "Looks at the cluster that ended, by result.",
    "eoctl_exporter_snapshot_age_seconds": "How long ago what is served here was seen.",
}
"""Metric → its help: what only `exporter` serves."""
OF_RULES = {
    "producer_id_expiry": "eoctl_producer_id_expiry_seconds",
    "producer_states": "eoctl_producer_states_worst",
    "transactional_ids": "eoctl_transactional_ids",
    "internal_topic_bytes": "eoctl_internal_topic_bytes_worst",
    "contested_ids": "eoctl_contested_ids",
    "mirror_map_age": "eoctl_mirror_map_age_seconds",
}
"""Rule → the metric of what it observes, where the rule is on."""
RESULTS = {True: "ok", False: "finding", None: "unknown"}


class Sample(Value):
    """One value of one metric. name: a key of HELP or SERIES_HELP."""

    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


def check_samples(
    context: str, observed: Observed, rows: Iterable[CheckRow], *, complete: bool, seconds: float
) -> list[Sample]:
    """Return all metrics of a cluster that answered. seconds: the check's duration."""
    d, t = observed.diagnosis, observed.transactions
    held = [p.held for p in d.partitions if p.held]
    ages = [j.verdict.age_seconds for j in holders(d) if j.verdict.age_seconds is not None]
    cluster = (("context", context),)
    samples = [
        Sample("eoctl_up", 1, cluster),
        Sample("eoctl_complete", int(complete), cluster),
        Sample("eoctl_check_timestamp_seconds", observed.now / 1000, cluster),
        Sample("eoctl_check_duration_seconds", seconds, cluster),
        *(
            Sample("eoctl_transactions", n, (*cluster, ("verdict", name)))
            for name, n in verdict_counts(d).items()
        ),
        Sample("eoctl_partitions", d.scanned, cluster),
        Sample("eoctl_held_partitions", len(held), cluster),
        Sample("eoctl_held_offsets", sum(held), cluster),
        Sample("eoctl_held_offsets_worst", max(held, default=0), cluster),
        Sample("eoctl_held_age_seconds", max(ages, default=0.0), cluster),
        Sample("eoctl_coordinators", len(t.coordinators), cluster),
        Sample("eoctl_coordinators_unavailable", unavailable(t), cluster),
    ]
    for row in rows:
        samples += rule_samples(context, row)
        if row.rule in OF_RULES and row.observed is not None:
            samples.append(Sample(OF_RULES[row.rule], row.observed, cluster))
        if row.rule == "groups_pending":
            pending = len(pending_groups(observed.groups or ()))
            samples.append(Sample("eoctl_groups_pending", pending, cluster))
    return samples


def rule_samples(context: str, row: CheckRow) -> list[Sample]:
    """Return a rule's state: 1 for the one that it is in, 0 for the others."""
    labels = (("context", context), ("rule", row.rule))
    return [
        Sample("eoctl_check_rule", int(RESULTS[row.ok] == result), (*labels, ("result", result)))
        for result in RESULTS.values()
    ]


def unseen_samples(context: str, now: int, *, up: bool) -> list[Sample]:
    """Return the metrics of a cluster that could not be checked. now: epoch ms."""
    cluster = (("context", context),)
    return [
        Sample("eoctl_up", int(up), cluster),
        Sample("eoctl_complete", 0, cluster),
        Sample("eoctl_check_timestamp_seconds", now / 1000, cluster),
    ]


def exposition(samples: Iterable[Sample]) -> str:
    """Return the text of a .prom file: every family once, with HELP and TYPE first."""
    lines: list[str] = []
    for family in families(samples):
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        lines += [f"{s.name}{_labels(s.labels)} {_value(s.value)}" for s in family.samples]
    return "".join(line + "\n" for line in lines)


class Family(Value):
    """One metric with all its samples, at least one."""

    name: str
    help: str
    kind: Literal["gauge", "counter"]
    samples: tuple[Sample, ...]


def families(samples: Iterable[Sample]) -> list[Family]:
    """Return samples by metric, in the order of HELP and SERIES_HELP, with labels as UTF-8."""
    known = {**HELP, **SERIES_HELP}
    mine: dict[str, list[Sample]] = {name: [] for name in known}
    for sample in samples:
        # a lone surrogate cannot be encoded as UTF-8, the text's encoding
        labels = tuple((k, v.encode("utf-8", "replace").decode()) for k, v in sample.labels)
        mine[sample.name].append(Sample(sample.name, sample.value, labels))
    return [
        Family(name, known[name], "counter" if name.endswith("_total") else "gauge", tuple(values))
        for name, values in mine.items()
        if values
    ]


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _value(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
