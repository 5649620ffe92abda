"""Words of what is watched: the rules of `check`, its metrics for Prometheus, and what grows."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal

from eoctl.render.words import Words, sentence, size, spoken_age
from recovery.plurals import count, counted
from recovery.quoting import quoted, some
from recovery.times import rfc3339
from recovery.values import Value
from recovery.watch.check_rows import CheckRow, Judgement
from recovery.watch.metrics import Sample


def check_row(judged: Judgement) -> CheckRow:
    """Return what a rule of [check] says as the row that is printed."""
    return CheckRow(
        rule=judged.rule,
        threshold=judged.threshold,
        observed=judged.observed,
        unit=judged.unit,
        ok=judged.ok,
        detail="; ".join(sentence(REASONS, r) for r in judged.reasons),
    )


def _named(names: Sequence[str]) -> str:
    return some(names) or "none"


def _not_seen(number: int) -> str:
    return f"{counted(number, 'partition')} not seen"


def _offsets_go(groups: Sequence[str]) -> str:
    names = some([quoted(name) for name in groups])
    if not groups:
        return "no group without members loses its offsets so soon"
    if len(groups) == 1:
        return (
            f"group {names} has no members and commits nothing: Kafka may delete its offsets then"
        )
    return (
        f"groups {names} have no members and commit nothing: Kafka may delete offsets of the first "
        "then"
    )


def _largest(name: object, refused: Sequence[str], *, all_seen: bool) -> str:
    """Return which log is the largest; None: there is none, or no size is known."""
    if name is None:
        text = "there is no internal topic" if all_seen else "no size is known"
    else:
        text = f"{name} is the largest{'' if all_seen else ' of those that were seen'}"
    rights = {"cluster": "DESCRIBE on the cluster", "topics": "DESCRIBE on the internal topics"}
    return text + (f": grant {' and '.join(rights[right] for right in refused)}" if refused else "")


def _map(path: str) -> str:
    return quoted(PurePath(path).name)


def _subject(kind: str, name: str) -> str:
    return kind if kind == "cluster" else f"{kind} {name if kind == 'broker' else quoted(name)}"


_CLOCKS = {"coordinator": "its coordinator's clock", "host": "this host's clock"}
REASONS: Mapping[str, Words] = {
    "nothing-held": "nothing is held",
    "held-most": "{name} is held most",
    "held-longest": "{name}, by the {clock}'s clock",
    "partitions-not-seen": _not_seen,
    "ages-not-known": lambda number: f"of {counted(number, 'partition')} it is not known",
    "named": _named,
    "not-judged": "{number} could not be judged",
    "groups-not-seen": "not all groups were seen",
    "answered": "{seen} of {total} answered",
    "not-all-may-be-asked": "not all may be asked",
    "history-goes": "{name}: its history goes with it, and {held} is {verdict}",
    "client-lives": "{name}: its client {client} lives, and its next transaction would fail",
    "no-needed-id-expires": "nothing depends on an id that expires so soon",
    "expiration-not-known": "transactional.id.expiration.ms is not known",
    "no-producer": "no partition has a producer",
    "most-producers": lambda broker, topic, producers: (
        f"broker {broker} leads with the most; topic {quoted(topic)} has {producers} in all"
    ),
    "no-id": "there is no transactional id",
    "prefix": lambda prefix, ids: f"{counted(ids, 'id')} of prefix {quoted(prefix)}",
    "coordinators-not-seen": "not all coordinators were seen",
    "none-seen": "none was seen",
    "largest": _largest,
    "no-deadline-near": "no transaction has used three quarters of its timeout",
    "aborted-then": lambda name, clock: (
        f"its coordinator aborts the transaction of {quoted(name)} then, by {_CLOCKS[clock]}"
    ),
    "no-two-phase": "no two-phase transaction is open",
    "only-its-system-ends-it": lambda name, clock: (
        f"only its own system ends the transaction of {quoted(name)}, by {_CLOCKS[clock]}"
    ),
    "no-id-expires": "no transactional id expires so soon",
    "dropped-first": lambda name, ids: (
        f"{quoted(name)} may be dropped first, of {counted(ids, 'id')}"
    ),
    "highest-epoch": lambda name, epoch: (
        f"{quoted(name)} has epoch {epoch}; "
        "its coordinator gives it a new producer id after the last one"
    ),
    "coordinator-partitions-not-seen": lambda number, total: (
        f"{number} of {counted(total, 'coordinator partition')} not seen"
    ),
    "ids-not-seen": "not all transactional ids were seen",
    "retention-hidden": "offsets.retention.minutes is hidden: grant DESCRIBE_CONFIGS on the "
    "cluster",
    "without-members-not-seen": lambda number, total: (
        f"{number} of {counted(total, 'group')} without members not seen"
    ),
    "offsets-go": _offsets_go,
    "no-map": "no map is named: see mirror_maps",
    "map": lambda path, problem: f"{quoted(path)} {problem}",
    "map-until": lambda path, at: f"{_map(path)} knows its source up to {rfc3339(at)}",
    "map-of-later": lambda path: f"{_map(path)} is of a later time than now: a clock is wrong",
    "only-the-last-read": "only the last {seconds} s were read",
    "states-not-read": "not all of __transaction_state was read",
    "subjects": lambda subjects: _named([_subject(*one) for one in subjects]),
    "without-answer": lambda number: f"{counted(number, 'question')} without an answer",
    "accepted": "{number} accepted",
    "error": "{sentence}",
}
"""A reason's code → its sentence, of the reason's data."""

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


def prefix_name(prefix: str) -> str:
    """Return a prefix as people read it: with `*` for what follows in an id.

    >>> prefix_name("pay-"), prefix_name("")
    ('pay-*', '*')
    """
    return f"{prefix}*"


def internal_topic_line(row: Mapping[str, Any]) -> str:
    """Return how full an internal topic is, and where the log cleaner stops. row: as in JSON."""
    parts = [counted(row["partitions"], "partition")]
    parts.append(
        "offsets not known" if row["offsets"] is None else f"{count(row['offsets'])} offsets"
    )
    if row["bytes"] is not None:
        parts.append(size(row["bytes"]))
    if row["largest_bytes"] is not None:
        largest = "largest is" if row["bytes"] is not None else "largest seen is"
        parts.append(f"{largest} {row['largest_partition']} with {size(row['largest_bytes'])}")
    else:
        parts.append("sizes not known")
    text = f"{row['topic']}: {', '.join(parts)}"
    held = sum(bool(log["held"]) for log in row["logs"])
    if held:
        least = "at least " if row["held"] is None else ""
        text += (
            f"; open transactions stop the log cleaner in {least}{counted(held, 'partition')}: "
            f"`eoctl lso {row['topic']}`"
        )
    elif row["held"] is None:
        text += "; where the log cleaner stops is not known"
    return text


def growth_line(row: Mapping[str, Any]) -> str:
    """Return what grows and should not, with what to look at. row: a GrowthRow as in JSON."""
    partition = f"{row['topic']}:{row['partition']}"
    if row["kind"] == "cleaner-held":
        whose = (
            f"producer id {row['producer_id']}"
            if row["prefix"] is None
            else f"prefix {quoted(prefix_name(row['prefix']))}"
        )
        by_producer = row["age_clock"] == "producer"
        age = spoken_age(row["age_seconds"], producer_clock=by_producer)
        return (
            f"the log cleaner cannot pass offset {row['last_stable_offset']} of {partition}: a "
            f"transaction of {whose} has been open for {age}"
            f"{' by its own timestamps' if by_producer else ''}, and "
            f"{counted(row['held'], 'offset')} from there on stay uncompacted"
        )
    text = f"{partition} has {size(row['bytes'])}, over the limit of {size(row['limit'])}"
    if row["prefix"] is not None:
        ids = counted(row["transactional_ids"], "transactional id")
        text += f": prefix {quoted(prefix_name(row['prefix']))} has {ids}"
    return f"{text} (`eoctl txn list --summary`)"
