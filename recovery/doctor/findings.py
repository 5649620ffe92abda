"""What the rules of `doctor` judge, and what they answer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from recovery.doctor.commit_ways import CommitWays
from recovery.doctor.versions import Protocol, VersionRange
from recovery.facts import Facts, GroupFacts, Missing, Transactions, grouped
from recovery.formats.consumer_offsets import OffsetKey
from recovery.values import Reason, Value

SubjectKind = Literal["cluster", "broker", "topic", "group", "transactional-id"]
NOT_GRANTED = "AUTHORIZATION_FAILED"
ALL = "*"
"""The subject of a finding that is about the cluster as one, or about any of a kind."""
NOT_KEPT = "NOT_IN_BUNDLE"
"""The error of what a bundle does not hold."""
NOT_READ = "NOT_READ"
"""The error of what the bounds of a reading left out."""
NOT_SEEN = "not-seen"
"""The code of a sign that says what is among the facts' `missing`, and why."""
MOST_NAMED = 3  # in a sign; its `number` counts all

Settings = Mapping[str, str | None]
"""Settings in force by name; None: Kafka keeps the value to itself, or it is empty."""


class Replicas(Value):
    """The copies of a topic, from Metadata. partitions: how many it has.

    replication_factor: the least among its partitions.
    """

    partitions: int
    replication_factor: int


class Outage(Value):
    """A transaction that was aborted past its timeout, and when its sink was silent around that.

    Times: epoch ms, by the coordinators' clocks. started, aborted: of the transaction. silent_from:
    the last record before the abort that an id of the sink asked for; back: the first one after it.
    """

    transactional_id: str
    started: int
    timeout_ms: int
    aborted: int
    silent_from: int
    back: int


class DoctorFacts(Value):
    """One reading of what `doctor` judges. What could not be seen is absent, and named as missing.

    now: epoch ms, our clock. brokers: ids of those that Metadata lists, and of those that are away
    and have copies. broker_settings: by broker id. topics: all that Metadata describes;
    topic_settings: of those examined. held: topics whose records wait for a transaction now;
    missing_held: partitions and brokers that hide others. transactions: every id described.
    groups: those listed, with members if a rule needs them. missing_topics: not described;
    missing_settings: of topics.
    protocols: by broker id, of those that answered. broker_version: what somebody says that the
    brokers run; None: nobody does. client_versions: id → version of its newest transaction, of ids
    that began or committed one within minutes; missing_versions: partitions that hide others.
    commit_ways: how groups commit, by group and partition, of what was read of
    `__consumer_offsets`. versions_from, commits_from: epoch ms from which on all partitions were
    read, None = as far back as asked, or `missing` says it; commits_unfinished: partitions that
    were not read to their end. outages, outages_from: of `__transaction_state` too, over a day,
    read only if an id is named as Flink's sinks form it. outputs: producers of exclusive outputs,
    with their owners; None: no application file was given.
    """

    now: int
    brokers: tuple[int, ...] = ()
    broker_settings: Mapping[int, Settings] = msgspec.field(default_factory=dict)
    topics: Mapping[str, Replicas] = msgspec.field(default_factory=dict)
    topic_settings: Mapping[str, Settings] = msgspec.field(default_factory=dict)
    held: tuple[str, ...] = ()
    missing_held: tuple[Missing, ...] = ()
    transactions: Transactions = Transactions()
    groups: tuple[GroupFacts, ...] = ()
    named: tuple[str, ...] = ()
    missing_brokers: tuple[Missing, ...] = ()
    missing_topics: tuple[Missing, ...] = ()
    missing_settings: tuple[Missing, ...] = ()
    missing_groups: tuple[Missing, ...] = ()
    protocols: Mapping[int, Protocol] = msgspec.field(default_factory=dict)
    broker_version: VersionRange | None = None
    client_versions: Mapping[str, int] = msgspec.field(default_factory=dict)
    versions_from: int | None = None
    missing_versions: tuple[Missing, ...] = ()
    commit_ways: Mapping[OffsetKey, CommitWays] = msgspec.field(default_factory=dict)
    commits_from: int | None = None
    commits_unfinished: int = 0
    missing_commits: tuple[Missing, ...] = ()
    outages: tuple[Outage, ...] = ()
    outages_from: int | None = None
    missing_outages: tuple[Missing, ...] = ()
    outputs: Facts | None = None

    @property
    def missing(self) -> tuple[Missing, ...]:
        """Return everything that could not be seen."""
        return (
            *self.missing_brokers,
            *self.missing_topics,
            *self.missing_held,
            *self.missing_settings,
            *self.transactions.missing,
            *self.missing_groups,
            *self.missing_versions,
            *self.missing_commits,
            *self.missing_outages,
            *(self.outputs.missing if self.outputs is not None else ()),
        )

    def by_value(self, setting: str) -> dict[str, list[int]]:
        """Return the values of a broker setting that were seen, each with its brokers."""
        return grouped(
            (value, broker)
            for broker, settings in sorted(self.broker_settings.items())
            if (value := settings.get(setting)) is not None
        )

    def least(self, setting: str) -> tuple[int, list[int]] | None:
        """Return the least value of a numeric broker setting and its brokers; None: not seen."""
        values = {int(value): brokers for value, brokers in self.by_value(setting).items()}
        return min(values.items(), default=None)

    @property
    def written(self) -> dict[str, list[str]]:
        """Return the topics that transactions write now, each with their transactional ids."""
        return grouped(
            (topic, t.transactional_id)
            for t in self.transactions.rows
            for topic in sorted({p.topic for p in t.partitions or ()})
        )


class Change(Value):
    """A setting to change with kafka-configs.sh. entity: its --entity-type, name: of the entity.

    entity features: a feature of the cluster, changed with kafka-features.sh.
    """

    entity: Literal["topics", "brokers", "features"]
    name: str
    setting: str
    value: str


class Finding(Value):
    """What a rule says about one subject. state unknown: `signs` say what was hidden.

    lacks: the right that would show it (of `recovery.inspect.rights`); None: no right is missing.
    change: what would remedy it, if one setting of a running cluster does. bug: the number of the
    known bug that it is about; its entry says harm and remedy.
    """

    kind: SubjectKind
    name: str
    signs: tuple[Reason, ...]
    state: Literal["finding", "unknown"] = "finding"
    lacks: str | None = None
    change: Change | None = None
    bug: str | None = None


class DoctorRule(Value):
    """One rule. needs: the rights without which it answers unknown. sources: Kafka's own words.

    judge returns nothing if all is well. needs_app: it judges only with an application file.
    """

    name: str
    needs: tuple[str, ...]
    sources: tuple[str, ...]
    judge: Callable[[DoctorFacts], Iterable[Finding]]
    needs_app: bool = False


def judged(facts: DoctorFacts, rules: Sequence[DoctorRule]) -> list[tuple[DoctorRule, Finding]]:
    """Return what the rules find, in their order: certain findings first."""
    found = [(rule, finding) for rule in rules for finding in rule.judge(facts)]
    return sorted(found, key=lambda one: one[1].state == "unknown")


def setting_sign(setting: str, value: object, brokers: Sequence[int] = ()) -> Reason:
    """Return the sign of a setting in force; brokers: those where it is, of a broker's setting."""
    return Reason("setting", {"setting": setting, "value": value, "brokers": list(brokers)})


def names_sign(code: str, names: Iterable[str]) -> Reason:
    """Return a sign that names some of many: the first ones, and how many there are."""
    every = sorted(names)
    return Reason(code, {"names": every[:MOST_NAMED], "number": len(every)})


def unseen(
    missing: Iterable[Missing], right: str, kind: SubjectKind = "cluster", name: str = ALL
) -> list[Finding]:
    """Return that a rule cannot tell, once for each reason; nothing if nothing is missing.

    right: what shows it if a broker refused; a broker that did not answer lacks none. kind: of the
    subjects that may be hidden.
    """
    reasons = grouped(((m.error, m.detail), m) for m in missing)
    return [
        Finding(
            kind,
            name,
            (_not_seen(error, detail, mine),),
            state="unknown",
            lacks=right if error.endswith(NOT_GRANTED) else None,
        )
        for (error, detail), mine in reasons.items()
    ]


def _not_seen(error: str, detail: str, missing: Sequence[Missing]) -> Reason:
    brokers = sorted({m.broker for m in missing if m.broker is not None})
    names = {name for m in missing if (name := m.topic or m.id) is not None}
    return Reason(
        NOT_SEEN,
        {**names_sign(NOT_SEEN, names).data, "error": error, "detail": detail, "brokers": brokers},
    )
