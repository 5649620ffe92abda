"""Make the samples of `check --textfile` and `exporter`.

Names and units follow Prometheus's conventions, base units in the name. Source: Prometheus, "Metric
and label naming". Help and text format: `eoctl.render.watch_words`.
"""

from collections.abc import Iterable

from recovery.values import Value
from recovery.watch.check_rows import CheckRow
from recovery.watch.check_rules import (
    Observed,
    holders,
    pending_groups,
    unavailable,
    verdict_counts,
)

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
    """One value of one metric."""

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
