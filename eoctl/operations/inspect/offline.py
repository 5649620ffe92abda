"""Answer as a Source from a bundle: read commands' requests, from what was seen."""

from collections.abc import Iterable, Mapping, Sequence

from eoctl.kafka.ask.coordinators import (
    NONE_VISIBLE,
    NOT_DESCRIBED,
    NOT_FOUND,
    TRANSACTION_STATE,
    state_partitions_of,
)
from eoctl.kafka.ask.groups import CONSUMER_OFFSETS, group_partition
from eoctl.kafka.connection.cluster import ClusterMetadata, PartitionMetadata, TopicMetadata
from eoctl.operations.inspect.lists import (
    Scope,
    TxnFilter,
    choose,
    ever_begun,
    matching_nothing,
    topics_named,
)
from eoctl.operations.inspect.source import Configs, OnFirstLook, StateLogs
from eoctl.settings.context import Context
from eoctl.stores.bundle_files import Bundle, facts_of, judged_again
from recovery.diagnose.contest import Contests
from recovery.diagnose.diagnosis import Diagnosis
from recovery.diagnose.group_verdict import Unread
from recovery.diagnose.waiting_records import Waiting
from recovery.doctor.findings import NOT_KEPT, DoctorFacts
from recovery.doctor.from_partitions import examined_topics, from_partitions
from recovery.errors import UsageError
from recovery.facts import (
    BrokerFacts,
    Facts,
    GroupFacts,
    GroupTimes,
    Missing,
    PartitionFacts,
    TopicPartition,
    Transactions,
)
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.transaction_state import TransactionValue
from recovery.inspect.cluster_rows import StripRow
from recovery.inspect.observation import Settings
from recovery.quoting import quoted, some
from recovery.values import replace

_OLDER = "not in this bundle, which an older eoctl made"


class Offline:
    """A bundle as a Source: answers from its content."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._topics = {t.name: t for t in bundle.topics}

    @property
    def cluster_id(self) -> str | None:
        return self._bundle.cluster_id

    @property
    def context(self) -> Context:
        """Return the context that the bundle was made with; it allows no connection."""
        o = self._bundle.origin
        return Context(
            name=o.name,
            properties={"bootstrap.servers": o.bootstrap_servers},
            argv=o.argv,
            read_only=o.read_only,
            protected=o.protected,
            two_phase_patterns=o.two_phase_patterns,
            accept_missing=o.accept_missing,
            accept_findings=o.accept_findings,
        )

    @property
    def brokers(self) -> tuple[BrokerFacts, ...]:
        """Return the brokers that were listed."""
        return self._bundle.brokers

    def now(self) -> int:
        return self._bundle.created_at

    def _metadata(self, names: Sequence[str] | None) -> ClusterMetadata:
        return ClusterMetadata(
            cluster_id=self._bundle.cluster_id,
            controller=None,
            brokers={b.id: b for b in self._bundle.brokers},
            topics={n: self._topic(n) for n in (self._topics if names is None else names)},
        )

    def _topic(self, name: str) -> TopicMetadata:
        unknown = TopicMetadata(name, None, False, (), "UNKNOWN_TOPIC_OR_PARTITION")
        return self._topics.get(name, unknown)

    def _chosen(
        self, scope: Scope, missing: Iterable[Missing]
    ) -> tuple[list[PartitionMetadata], tuple[Missing, ...]]:
        """Return the partitions in scope, and all missing facts that concern these."""
        chosen, vain = choose(self._metadata(topics_named(scope)), scope)
        partitions = {p.topic_partition for p in chosen}
        topics = {topic for topic, _ in partitions}
        mine = [
            m
            for m in missing
            if m.topic is None
            or m.topic == TRANSACTION_STATE
            or (m.topic in topics if m.partition is None else m.topic_partition in partitions)
        ]
        return chosen, tuple(dict.fromkeys([*vain, *mine]))

    async def look(self, scope: Scope) -> Facts:
        facts = facts_of(self._bundle.offsets)
        chosen, missing = self._chosen(scope, facts.missing)
        by_partition = {p.topic_partition: p for p in facts.partitions}
        return replace(
            facts,
            scanned=len(chosen),
            partitions=tuple(
                by_partition[p.topic_partition] for p in chosen if p.topic_partition in by_partition
            ),
            missing=missing,
            notes=matching_nothing(scope, chosen),
        )

    async def producers(self, scope: Scope, producer_ids: Sequence[int], *, resolve: bool) -> Facts:
        facts = facts_of(self._bundle.producers)
        owners = facts.transactions or Transactions()
        relevant = [m for m in facts.missing if resolve or m not in owners.missing]
        chosen, missing = self._chosen(scope, relevant)
        return replace(
            facts,
            scanned=len(chosen),
            partitions=tuple(PartitionFacts(p.topic, p.partition, leader=p.leader) for p in chosen),
            producers={
                key: tuple(
                    row for row in rows if not producer_ids or row.producer_id in producer_ids
                )
                for p in chosen
                if (rows := facts.producers.get(key := p.topic_partition)) is not None
            },
            transactions=owners if resolve else None,
            missing=missing,
            notes=matching_nothing(scope, chosen),
        )

    async def transactions(self, filter_: TxnFilter, *, describe: bool) -> Transactions:
        transactions, longer = self._bundle.transactions, filter_.longer_than_ms
        rows = (
            t
            for t in transactions.rows
            if (not filter_.states_meant or t.state in filter_.states_meant)
            and (not filter_.producer_ids or t.producer_id in filter_.producer_ids)
            and filter_.names(t.transactional_id)
            and (
                longer is None
                or (
                    t.start_timestamp is not None
                    and self.now() + (transactions.ahead(t.coordinator) or 0) - t.start_timestamp
                    > longer
                )
            )
        )
        return replace(transactions, rows=tuple(rows))

    async def find(self, ids: Sequence[str]) -> tuple[Transactions, int]:
        partitions = state_partitions_of(self._topic(TRANSACTION_STATE))
        if isinstance(partitions, Missing):
            return Transactions(missing=(partitions,)), 0
        if not partitions and (unseen := ever_begun(self._bundle.transactions).missing):
            return Transactions(missing=unseen), 0
        known = {t.transactional_id: t for t in self._bundle.transactions.rows}
        if not partitions:
            absent_ids = (Missing("transaction", NOT_FOUND, NONE_VISIBLE, id=name) for name in ids)
            return Transactions(missing=tuple(absent_ids)), 0
        # a listing that saw all coordinators left out only what did not exist
        absent = NOT_FOUND if self._bundle.transactions.complete else "NOT_IN_BUNDLE"
        missing = tuple(
            Missing(
                "transaction",
                (row.error or NOT_FOUND if (row := known.get(name)) else absent),
                NOT_DESCRIBED,
                broker=partitions[coordinator_partition(name, len(partitions))].leader,
                id=name,
            )
            for name in ids
            if name not in known or known[name].error is not None
        )
        rows = tuple(known[name] for name in ids if name in known and known[name].error is None)
        clocks = self._bundle.transactions.clocks
        return Transactions(rows, missing=missing, clocks=clocks), len(partitions)

    async def state_logs(
        self, ids: Sequence[str], producer_ids: Sequence[int], newest: int | None = None
    ) -> StateLogs:
        del newest  # the bundle is in memory
        history = self._bundle.history
        named = set(ids)
        for log in history.logs:
            for r in log.records:
                if isinstance(r.value, TransactionValue) and r.value.producer_id in producer_ids:
                    named.add(r.transactional_id)
        unknown = (
            []
            if history.everything
            else [
                *(n for n in ids if n not in history.ids),
                *(f"pid {n}" for n in producer_ids if n not in history.producer_ids),
            ]
        )
        absent = [
            Missing(
                "transaction",
                "NOT_IN_BUNDLE",
                "the bundle has no history of it: it was made without --history",
                id=name,
            )
            for name in unknown
        ]
        logs = tuple(
            replace(
                log,
                records=tuple(r for r in log.records if r.transactional_id in named),
                cuts={name: cut for name, cut in log.cuts.items() if name in named},
            )
            for log in history.logs
        )
        return StateLogs(history.partitions, logs, (*history.missing, *absent))

    async def diagnose(
        self, scope: Scope, settings: Settings, *, pause: float, on_first_look: OnFirstLook = None
    ) -> Diagnosis:
        del on_first_look  # both checks were made
        d = judged_again(self._bundle)
        default = Settings(two_phase_patterns=d.settings.two_phase_patterns)
        comparable = replace(settings, two_phase_patterns=d.settings.two_phase_patterns)
        if comparable not in (d.settings, default):
            raise UsageError(
                "a bundle is judged by the limits it was made with",
                where="--long-after, --stuck-after, --clock-skew",
                remedy="leave them out",
            )
        chosen, missing = self._chosen(scope, d.missing)
        inside = {p.topic_partition for p in chosen}
        judged = tuple(j for j in d.judged if j.about.topic_partition in inside)
        ids = () if scope.selectors else d.ids
        return replace(
            d,
            scanned=len(chosen),
            brokers_known=len(
                {b.id for b in self._bundle.brokers} | {r for p in chosen for r in p.replicas}
            ),
            partitions=tuple(p for p in d.partitions if p.topic_partition in inside),
            judged=judged,
            missing=missing,
            notes=matching_nothing(scope, chosen),
            pause=d.pause if any(j.second for j in judged) or any(j.second for j in ids) else None,
            ids=ids,
        )

    async def contests(self) -> Contests:
        if self._bundle.contests is not None:
            return self._bundle.contests
        text = "which ids were contested is not in this bundle: an older eoctl made it"
        return Contests(missing=(Missing("feature", "NOT_IN_BUNDLE", text),))

    async def examined(
        self, named: Sequence[str], transactions: Transactions | None = None
    ) -> DoctorFacts:
        seen = ever_begun(self._bundle.transactions if transactions is None else transactions)
        kept = self._bundle.doctor
        facts = self._examined_before(seen) if kept is None else kept.with_transactions(seen)
        facts = replace(facts, named=tuple(named))
        text = f"its settings are {_OLDER}"
        if kept is not None:
            text = "a bundle has the settings of topics that transactions write, and of changelogs"
        missing = (
            Missing("topic", NOT_KEPT, text, topic=name)
            for name in examined_topics(facts)
            if name not in facts.topic_settings
        )
        return replace(
            facts, missing_settings=tuple(dict.fromkeys([*facts.missing_settings, *missing]))
        )

    def _examined_before(self, transactions: Transactions) -> DoctorFacts:
        """Return what doctor knows from a bundle that was made before it was asked."""
        b = self._bundle
        facts = from_partitions(facts_of(b.offsets), [k.id for k in b.brokers], b.created_at)
        unseen = f"its settings and version are {_OLDER}"
        hidden = (Missing("broker", NOT_KEPT, unseen, broker=k.id) for k in b.brokers)
        records = f"its newest records are {_OLDER}"
        return replace(
            facts,
            transactions=transactions,
            groups=b.groups,
            missing_brokers=(*hidden, *facts.missing_brokers),
            missing_versions=(Missing("topic", NOT_KEPT, records, topic=TRANSACTION_STATE),),
            missing_commits=(Missing("topic", NOT_KEPT, records, topic=CONSUMER_OFFSETS),),
            missing_outages=(Missing("topic", NOT_KEPT, records, topic=TRANSACTION_STATE),),
        )

    async def groups(
        self, partitions: Sequence[TopicPartition] | None
    ) -> tuple[list[GroupFacts], list[Missing]]:
        missing = list(self._bundle.groups_missing)
        if partitions is None:
            return list(self._bundle.groups), missing
        here = set(partitions)
        matching = [
            replace(g, offsets=tuple(o for o in g.offsets if o.topic_partition in here))
            for g in self._bundle.groups
        ]
        # hidden topics matter only to a request for all of them
        return [g for g in matching if g.offsets], [
            m for m in missing if m.scope != "topic" or m.topic
        ]

    async def named_groups(self, names: Sequence[str]) -> tuple[list[GroupFacts], list[Missing]]:
        known = {g.group: g for g in self._bundle.groups}
        missing = [m for m in self._bundle.groups_missing if m.id is None or m.id in names]
        dead = {n: GroupFacts(n, "Dead", members=()) for n in names} if not missing else {}
        by_name = {**dead, **known}
        return [by_name[name] for name in dict.fromkeys(names) if name in by_name], missing

    async def group_again(self, group: str, pause: float) -> GroupFacts | None:
        return None

    async def unread(
        self, offsets: Mapping[TopicPartition, int], partitions: Sequence[PartitionFacts]
    ) -> Mapping[TopicPartition, Unread]:
        return {}  # a bundle holds no records

    async def group_times(
        self, groups: Sequence[str], since: int
    ) -> tuple[Mapping[str, GroupTimes], list[Missing]]:
        names = some([quoted(name) for name in groups])
        text = f"when {names} committed last is not in a bundle: ask the cluster"
        missing = Missing("group", "NOT_IN_BUNDLE", text, topic=CONSUMER_OFFSETS)
        return {}, [missing] if groups else []

    async def group_partition(self, group: str) -> TopicPartition | Missing | None:
        return group_partition(self._topic(CONSUMER_OFFSETS), group)

    async def waiting(self, p: PartitionFacts, producer_id: int | None) -> Waiting | None:
        return next((w for t, n, w in self._bundle.waiting if (t, n) == p.topic_partition), None)

    async def strip(self, p: PartitionFacts) -> list[StripRow] | None:
        found = (rows for t, n, rows in self._bundle.strips if (t, n) == p.topic_partition)
        return next((None if rows is None else list(rows) for rows in found), None)

    async def log_sizes(
        self, topics: Sequence[str]
    ) -> tuple[Mapping[TopicPartition, int], list[Missing]]:
        text = "sizes of logs are not in a bundle: ask the cluster"
        return {}, [Missing("topic", "NOT_IN_BUNDLE", text, topic=name) for name in topics]

    async def topic_configs(self, topics: Sequence[str]) -> tuple[Configs, list[Missing]]:
        configs = {t: v for t, v in self._bundle.topic_configs.items() if t in topics}
        return configs, [m for m in self._bundle.topic_configs_missing if m.topic in topics]

    async def expirations(self) -> tuple[Configs, list[Missing]]:
        return self._bundle.expirations, list(self._bundle.expirations_missing)
