"""`check`: read once and compare with the thresholds of [check], for cron."""

import time
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path

from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose.recent_contests import not_named
from eoctl.operations.diagnose.verdict_rows import unknown_as_missing
from eoctl.operations.doctor.doctor_check import Doctor, DoctorRows, doctor_rows
from eoctl.operations.inspect.lists import Scope, TxnFilter
from eoctl.operations.inspect.source import Configs, Source
from eoctl.render.watch_words import check_row
from eoctl.settings.context import CheckThresholds, Context
from eoctl.stores.locks.running import only_one
from eoctl.stores.offsets import mirror_maps
from recovery.answers import Answer, error_rows
from recovery.diagnose.diagnosis import Diagnosis
from recovery.doctor.accepting import refuse_unknown
from recovery.doctor.rules import RULES
from recovery.errors import EoctlError, UsageError
from recovery.facts import GroupFacts, GroupTimes, Missing
from recovery.inspect.observation import Settings
from recovery.sizes import byte_size
from recovery.times import duration
from recovery.values import Value, replace
from recovery.watch.check_rules import (
    Observed,
    Thresholds,
    ages_unknown,
    check_rules,
    near_expiry,
    split_accepted,
    verdict_counts,
)
from recovery.watch.contest_rule import contested_ids
from recovery.watch.group_rule import group_expiry, without_members
from recovery.watch.growth_rules import INTERNAL_TOPICS, Growth, growth_rules
from recovery.watch.headroom_rules import headroom_rules
from recovery.watch.map_rule import KeptMap, mirror_map_age
from recovery.watch.metrics import Sample, check_samples

EXPIRATION = "transactional.id.expiration.ms"
RETENTION = "offsets.retention.minutes"


class Checked(Value):
    """The answer, and the metrics and verdicts of the same snapshot."""

    answer: Answer
    samples: tuple[Sample, ...]
    diagnosis: Diagnosis


def thresholds(configured: CheckThresholds) -> Thresholds:
    """Return [check] as numbers. Raises UsageError for an invalid duration or verdict."""

    def seconds(text: str | None, name: str) -> float | None:
        return None if text is None else duration(text, where=f"[check] {name}")

    if configured.mirror_maps and configured.mirror_map_age is None:
        raise UsageError("are not judged without mirror_map_age", where="[check] mirror_maps")
    return Thresholds(
        held_records=configured.held_records,
        held_age=seconds(configured.held_age, "held_age"),
        verdicts=configured.verdicts,
        groups_pending=configured.groups_pending,
        coordinators_unavailable=configured.coordinators_unavailable,
        producer_id_expiry=seconds(configured.producer_id_expiry, "producer_id_expiry"),
        deadline=seconds(configured.deadline, "deadline"),
        two_phase_age=seconds(configured.two_phase_age, "two_phase_age"),
        id_expiry=seconds(configured.id_expiry, "id_expiry"),
        epochs_left=configured.epochs_left,
        group_expiry=seconds(configured.group_expiry, "group_expiry"),
        producer_states=configured.producer_states,
        transactional_ids=configured.transactional_ids,
        internal_topic_bytes=None
        if (size := configured.internal_topic_bytes) is None
        else byte_size(size, where="[check] internal_topic_bytes"),
        contested_ids=configured.contested_ids,
        mirror_map_age=seconds(configured.mirror_map_age, "mirror_map_age"),
        mirror_maps=tuple(configured.mirror_maps),
    )


async def check(
    source: Source,
    context: Context,
    limits: Thresholds,
    settings: Settings,
    *,
    pause: float,
    doctor: Doctor | None = None,
) -> Checked:
    """Return one row per rule that is on, and the metrics. Known gaps of the context are notes.

    doctor: judge settings too, with a row per rule of `doctor`; what the context accepts is noted.
    """
    split_accepted((), context.accept_missing)  # report a wrong name before any request
    refuse_unknown(context.accept_findings, RULES)
    began = time.monotonic()
    observed = await _observe(source, limits, settings, pause, all_ids=doctor is not None)
    growth = await _growth(source, limits)
    rules = DoctorRows()
    if doctor is not None:
        rules = await doctor_rows(source, context, doctor, observed.transactions)
    seconds = time.monotonic() - began
    judged = [*check_rules(observed, limits), *headroom_rules(observed, limits)]
    if limits.group_expiry is not None:
        judged.append(group_expiry(observed, limits.group_expiry))
    judged += growth_rules(growth, observed.transactions, limits)
    contests = observed.contests
    if limits.contested_ids is not None and contests is not None:
        judged.append(contested_ids(contests, observed.now, limits.contested_ids))
    if limits.mirror_map_age is not None:
        maps = _maps(limits.mirror_maps)
        judged.append(mirror_map_age(maps, observed.now, limits.mirror_map_age))
    rows = [*map(check_row, judged), *rules.rows]
    d = observed.diagnosis
    missing = [*d.missing, *observed.transactions.missing, *observed.groups_missing]
    if limits.held_age is not None:
        missing += ages_unknown(d)
    missing += [*observed.expiration_missing, *observed.group_times_missing]
    if contests is not None:
        missing += not_named(contests, error_rows(missing))
    missing += [*growth.missing, *unknown_as_missing(d)]
    missing += rules.missing
    errors, notes = split_accepted(missing, context.accept_missing)
    answer = Answer(
        schema="check",
        cluster_id=source.cluster_id,
        collected_at=d.collected_at,
        rows=rows,
        errors=error_rows(errors),
        extra={
            "context": context.title,
            "scanned": d.scanned,
            "verdicts": verdict_counts(d),
            "notes": [row.json_values() for row in error_rows([*notes, *rules.accepted])],
        },
        judging=True,
        finding=any(row.ok is False for row in rows),
        finding_first=True,
        notes=rules.notes,
    )
    samples = check_samples(
        context.title, observed, rows, complete=answer.complete, seconds=seconds
    )
    return Checked(answer, tuple(samples), d)


async def _observe(
    source: Source, limits: Thresholds, settings: Settings, pause: float, *, all_ids: bool
) -> Observed:
    """Read everything that the enabled rules need, and no more. all_ids: described, for doctor."""
    d = await source.diagnose(Scope(), settings, pause=pause)
    within = limits.producer_id_expiry
    transactions = await source.transactions(TxnFilter(), describe=limits.need_ids or all_ids)
    expiration: int | None = None
    retention: int | None = None
    hidden: list[Missing] = []
    near = False
    if within is not None or limits.id_expiry is not None or limits.group_expiry is not None:
        configs, hidden = await source.expirations()
        expiration, minutes = _shortest(configs, EXPIRATION), _shortest(configs, RETENTION)
        retention = None if minutes is None else minutes * 60_000
        if expiration is not None and within is not None:
            near = bool(near_expiry(transactions.rows, expiration, source.now(), within))
    groups: list[GroupFacts] | None = None
    groups_missing: list[Missing] = []
    if near or limits.groups_pending is not None or limits.group_expiry is not None:
        groups, groups_missing = await source.groups(None)
    times: Mapping[str, GroupTimes] = {}
    times_missing: list[Missing] = []
    if limits.group_expiry is not None and retention is not None:
        names = [g.group for g in without_members(groups or ())]
        times, times_missing = await source.group_times(names, source.now() - retention)
    return Observed(
        diagnosis=d,
        transactions=transactions,
        groups=None if groups is None else tuple(groups),
        groups_missing=tuple(groups_missing),
        expiration_ms=expiration,
        expiration_missing=tuple(hidden),
        now=source.now(),
        offsets_retention_ms=retention,
        group_times=times,
        group_times_missing=tuple(times_missing),
        contests=None if limits.contested_ids is None else await source.contests(),
    )


async def _growth(source: Source, limits: Thresholds) -> Growth:
    """Read what the enabled rules of growth need: each is off by default, for its cost."""
    growth = Growth()
    if limits.producer_states is not None:
        growth = replace(growth, producers=await source.producers(Scope(), (), resolve=False))
    if limits.internal_topic_bytes is not None:
        sizes, hidden = await source.log_sizes(INTERNAL_TOPICS)
        growth = replace(growth, sizes=sizes, sizes_missing=tuple(hidden))
    return growth


def _maps(paths: Sequence[str]) -> list[KeptMap]:
    """Return what the files of mirror maps say of themselves."""
    maps = []
    for path in paths:
        try:
            known = mirror_maps.read(Path(path).expanduser()).looked_at
            problem = "" if known else "does not know all of its partitions yet"
            maps.append(KeptMap(path, known or None, problem))
        except EoctlError as error:
            maps.append(KeptMap(path, None, error.what))
        except (RuntimeError, ValueError) as error:  # a home that is none, or no name of a file
            maps.append(KeptMap(path, None, f"cannot be read: {error}"))
    return maps


def _shortest(configs: Configs, key: str) -> int | None:
    """Return the least value of a setting among the brokers; None: unknown."""
    known = [values.get(key) for values in configs.values()]
    return min((int(v) for v in known if v is not None), default=None)


async def alone(cluster: Cluster, checking: Coroutine[None, None, Checked]) -> Checked:
    """Run a check only if no other check of this cluster runs. Raises BusyError."""
    try:
        with only_one("check", f"cluster {cluster.cluster_id}"):
            return await checking
    finally:
        checking.close()
