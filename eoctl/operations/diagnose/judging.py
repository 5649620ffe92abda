"""Read and judge every open transaction of a cluster: the start of `status`, `why`, `txn hanging`,
`check` and the remedies.

Only partitions with LSO < HW are asked further; the history is read and a second snapshot is taken
only if the first leaves a verdict open. The rules are `recovery.diagnose.verdicts`.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from eoctl.host.clock import now_ms
from eoctl.kafka.ask import collect, coordinators
from eoctl.kafka.connection.cluster import Cluster, TopicMetadata
from eoctl.kafka.read import start_batches
from eoctl.operations.diagnose import looking
from eoctl.operations.diagnose.histories import histories
from eoctl.operations.diagnose.ids import JudgedIds, judge_ids
from eoctl.operations.diagnose.looking import Look, open_transactions
from eoctl.operations.diagnose.pause import refuse_pause
from eoctl.operations.inspect.lists import Scope, matching_nothing, selected
from eoctl.operations.inspect.source import OnFirstLook
from recovery.diagnose.diagnosis import Diagnosis, Judged, JudgedId
from recovery.diagnose.verdicts import judge
from recovery.errors import IncompleteError
from recovery.facts import Missing, PartitionFacts, TopicPartition, Transactions, grouped
from recovery.inspect.history import History, bearers_in_log
from recovery.inspect.observation import OpenTransaction, Settings, StartBatch, continues, is_over
from recovery.values import replace

SECOND_LOOK_RULES = frozenset(
    {
        "one-sample",
        "lost-seen-once",
        "past-timeout",
        "past-long",
        "refused-seen-once",
        "no-open-transaction",
    }
)
MARKER_SECONDS = 10.0
"""How long the followers of a healthy partition may take for a marker."""
QUIET = frozenset({"open", "prepare"})  # verdicts that hold even if the history cannot be read
NOT_JUDGED = frozenset({"partition-not-seen", "producers-not-seen", "no-open-transaction"})


async def diagnose(
    cluster: Cluster,
    scope: Scope,
    settings: Settings,
    *,
    pause: float = 5.0,
    on_first_look: OnFirstLook = None,
) -> Diagnosis:
    """Judge every open transaction on the held partitions in scope.

    Without selectors also every transactional id that is not at rest and holds no partition.
    on_first_look: called before the pause if a second snapshot is needed, with the first one's
    verdicts; ids that hold no partition are checked later. Raises IncompleteError if the second
    snapshot does not fit into the deadline.
    """
    metadata, chosen, missing = await selected(cluster, scope)
    offsets, more = await collect.partition_offsets(cluster, metadata.topics.values(), chosen)
    behind = {p.topic_partition for p in offsets if p.held}
    held = [p for p in chosen if p.topic_partition in behind]
    known = {p.id for p in metadata.brokers.values()} | {
        replica for p in chosen for replica in p.replicas
    }
    unseen = [p for p, facts in zip(chosen, offsets, strict=True) if facts.error is not None]
    judging = Judging(cluster, tuple(metadata.topics.values()), settings, behind)
    look: Look | None = None
    if held or unseen:
        look = await looking.look(cluster, judging.topics, [*held, *unseen], settings)
    judged: list[Judged] = []
    paused: float | None = None

    def diagnosis(judged: Sequence[Judged], ids: Sequence[JudgedId]) -> Diagnosis:
        newest = [judging.newest.get(p.topic_partition, p) for p in offsets]
        return Diagnosis(
            cluster_id=cluster.cluster_id,
            collected_at=now_ms(),
            scanned=len(chosen),
            transaction_version=cluster.transaction_version,
            brokers_up=len(metadata.brokers) - len(cluster.silent),
            brokers_known=len(known),
            partitions=tuple(p for p in newest if p.held or p.error is not None),
            judged=tuple(judged),
            transactions=look.transactions if look else Transactions(),
            missing=tuple(dict.fromkeys(missing)),
            pause=None,
            settings=settings,
            notes=matching_nothing(scope, chosen),
            ids=tuple(ids),
        )

    def first_look(judged: Sequence[Judged], ids: Sequence[JudgedId] = ()) -> None:
        if on_first_look is not None:
            on_first_look(diagnosis(judged, ids))

    if look is not None:
        judged, paused = await judging.judged(look, pause, first_look)
        missing += judging.missing
    looked = judging.newest
    missing += [m for m in more if m.topic is None or m.topic_partition not in looked]
    others = JudgedIds((), look.transactions if look else Transactions(), ())
    if not scope.selectors:
        holding = {
            t.transactional_id
            for j in judged
            if (t := j.verdict.owner) and j.about.topic_partition in (t.partitions or ())
        }
        others = await judge_ids(
            cluster,
            holding,
            settings,
            pause=pause,
            on_first_look=lambda ids: first_look(judged, ids),
        )
        missing += others.missing
    return replace(
        diagnosis(judged, others.ids),
        transactions=look.transactions if look else others.transactions,
        pause=paused if others.pause is None else others.pause,
    )


async def look_again(
    cluster: Cluster, before: Sequence[Judged], settings: Settings
) -> list[Judged | None]:
    """Judge each again on a fresh second snapshot; None: the transaction is over.

    For the moment before a remedy acts: first snapshot and history are those of `before`.
    """
    names = sorted({j.about.topic for j in before})
    metadata = await cluster.metadata(names)
    partitions = {j.about.topic_partition for j in before}
    topics = tuple(metadata.topics.values())
    here = [p for t in topics for p in t.partitions if p.topic_partition in partitions]
    look = await looking.look(cluster, topics, here, settings)
    result: list[Judged | None] = []
    for j in before:
        second = look.samples.get(j.about.topic_partition)
        if second is None:
            raise IncompleteError("the partition no longer exists", where=j.about.name)
        verdict = judge(j.about, j.start, j.first, second, j.history, settings)
        result.append(None if verdict is None else replace(j, second=second, verdict=verdict))
    return result


class Judging:
    """The verdicts of one diagnosis: a snapshot, and the requests repeated before one is given.

    A cluster moves on between two answers. So a verdict that asks for action, and an `unknown`, is
    given only if the leader still shows the transaction afterwards (docs/verdicts.md, "In motion").
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[TopicMetadata],
        settings: Settings,
        held: Collection[TopicPartition],
    ) -> None:
        """held: the partitions that were held when the snapshot began."""
        self.topics = topics
        self._cluster = cluster
        self._settings = settings
        self._held = held
        self._partitions = {p.topic_partition: p for t in topics for p in t.partitions}
        self.newest: dict[TopicPartition, PartitionFacts] = {}
        self._began: dict[TopicPartition, float] = {}  # of the snapshot on which the verdicts rest
        self._of_partitions: dict[TopicPartition, tuple[Missing, ...]] = {}
        self._of_ids: tuple[Missing, ...] = ()
        self._others: list[Missing] = []

    @property
    def missing(self) -> list[Missing]:
        """Return what remains unseen, of partitions and of coordinators, in the newest snapshot."""
        of_partitions = [m for of_partition in self._of_partitions.values() for m in of_partition]
        return [*self._others, *of_partitions, *self._of_ids]

    async def judged(
        self, look: Look, pause: float, on_first_look: Callable[[Sequence[Judged]], None]
    ) -> tuple[list[Judged], float | None]:
        """Return the verdicts, and the pause if a second snapshot was taken after one."""
        judged = await self._settled(await self._once(look))
        waiting = [j for j in judged if j.verdict.rule in SECOND_LOOK_RULES]
        if not waiting:
            return judged, None
        since = max(self._began[j.about.topic_partition] for j in waiting)
        refuse_pause(self._cluster.deadline, max(0.0, since + pause - time.monotonic()), pause)
        on_first_look(judged)
        await asyncio.sleep(max(0.0, since + pause - time.monotonic()))
        second = await self._with_coordinators(await self._moment(waiting))
        self._note(second, with_ids=True)
        again = {id(j): self._second(j, second) for j in waiting}
        judged = [k for j in judged if (k := again.get(id(j), j)) is not None]
        return await self._confirmed(
            [j for j in judged if j.verdict.name not in QUIET], judged
        ), pause

    async def _settled(self, judged: Sequence[Judged]) -> list[Judged]:
        """Judge again what is still open among the verdicts that no later snapshot settles."""
        doubtful = _doubtful(judged)
        if not doubtful:
            return list(judged)
        seen = await self._moment(doubtful)
        there = [j for j in doubtful if not _gone(j, seen)]
        asked = {id(j) for j in doubtful}
        settled = [j for j in judged if id(j) not in asked]
        if there:
            settled += await self._once(await self._with_coordinators(seen), there)
            settled.sort(key=lambda j: (j.about.topic_partition, j.about.start_offset or 0))
        return await self._confirmed(_doubtful(settled), settled)

    async def _confirmed(
        self, doubtful: Sequence[Judged], judged: Sequence[Judged]
    ) -> list[Judged]:
        """Return the verdicts without those of `doubtful` that have ended since.

        A marker that only its leader has keeps the LSO where it was until its followers have it:
        such partitions are asked again until then, for MARKER_SECONDS at most.
        """
        over: set[int] = set()
        end = time.monotonic() + self._cluster.deadline.half_for(MARKER_SECONDS)
        while doubtful:
            seen = await self._moment(doubtful)
            over |= {id(j) for j in doubtful if _gone(j, seen)}
            doubtful = [
                j for j in doubtful if id(j) not in over and j.verdict.rule == "no-open-transaction"
            ]
            if time.monotonic() > end:
                break
            await asyncio.sleep(0.2 if doubtful else 0)
        return [j for j in judged if id(j) not in over]

    async def _moment(self, judged: Sequence[Judged]) -> Look:
        partitions = sorted({j.about.topic_partition for j in judged})
        here = [
            self._partitions[partition] for partition in partitions if partition in self._partitions
        ]
        look = await looking.moment(self._cluster, self.topics, here)
        self._note(look, with_ids=False)
        return look

    async def _with_coordinators(self, seen: Look) -> Look:
        return await looking.with_coordinators(self._cluster, seen, self._settings)

    async def _once(self, look: Look, again: Sequence[Judged] | None = None) -> list[Judged]:
        """Judge what one snapshot shows. again: only those with that verdict, if still open."""
        self._began |= dict.fromkeys(look.samples, look.at)
        self._note(look, with_ids=True)
        opened = open_transactions(look, self._held)
        if again is not None:
            opened = [o for o in opened if any(_is_same(o, j) for j in again)]
        facts = {partition: sample.partition for partition, sample in look.samples.items()}
        batches = await start_batches.start_batches(
            self._cluster,
            [o for o in opened if o.producer_id is not None],
            facts,
            _last_epochs(look, opened),
        )
        starts = batches.read
        if again is not None:
            opened = [o for o in opened if not _is_rewritten(o, starts.get(o), again)]
        look = _with_unread(look, batches.unread)
        judged = _judge(opened, starts, look, {}, self._settings)
        # even for open ones: under transactions v1 a lost marker may be below, with the same epoch
        unclear = [j.about for j in judged if j.verdict.rule not in NOT_JUDGED]
        if unclear:
            past, missing = await histories(
                self._cluster, unclear, starts, look, facts, self.topics
            )
            look = await self._with_hidden(look, past)
            judged = _judge(opened, starts, look, past, self._settings)
            if any(j.about in unclear and j.verdict.name not in QUIET for j in judged):
                self._others += missing
        return judged

    def _note(self, look: Look, *, with_ids: bool) -> None:
        """Note what the snapshot saw and did not see, replacing earlier snapshots."""
        for partition, sample in look.samples.items():
            self.newest[partition] = sample.partition
            mine = (m for m in look.missing if m.topic_partition == partition)
            self._of_partitions[partition] = tuple(mine)
        of_ids = [m for m in look.missing if m.scope in ("coordinator", "transaction")]
        if with_ids:
            self._of_ids = tuple(of_ids)
        noted = {m for of_partition in self._of_partitions.values() for m in of_partition} | set(
            of_ids
        )
        self._others += [m for m in look.missing if m not in noted]

    async def _with_hidden(self, look: Look, past: Mapping[OpenTransaction, History]) -> Look:
        """Return the snapshot with ids that have the producer id by their log and are not listed.

        One that began after the listing is described now; its coordinator says if it is hidden.
        """
        listed = {t.transactional_id for t in look.transactions.rows}
        named = {r.transactional_id for h in past.values() for r in bearers_in_log(h)} - listed
        if not named:
            return look
        found, missing = await coordinators.find(self._cluster, sorted(named))
        denied = tuple(m for m in missing if m.id is not None)
        unseen = [m for m in missing if not m.refused and m.error != coordinators.NOT_FOUND]
        transactions = replace(
            look.transactions,
            rows=(*look.transactions.rows, *found),
            missing=(*look.transactions.missing, *unseen),
        )
        samples = {
            partition: replace(sample, transactions=transactions, denied=denied)
            for partition, sample in look.samples.items()
        }
        return replace(look, samples=samples, transactions=transactions)

    def _second(self, j: Judged, look: Look) -> Judged | None:
        second = look.samples.get(j.about.topic_partition)
        if second is None:
            return j
        verdict = judge(j.about, j.start, j.first, second, j.history, self._settings)
        return None if verdict is None else replace(j, second=second, verdict=verdict)


def _last_epochs(look: Look, opened: Sequence[OpenTransaction]) -> dict[OpenTransaction, int]:
    """Return the epoch of each producer's last batch, as the partition's leader describes it."""
    rows = {o: look.samples[o.topic_partition].producer(o.producer_id or 0) for o in opened}
    return {o: row.producer_epoch for o, row in rows.items() if row is not None}


def _doubtful(judged: Sequence[Judged]) -> list[Judged]:
    """Return verdicts that ask for action, or are unknown, and wait for no second snapshot."""
    return [
        j for j in judged if j.verdict.name not in QUIET and j.verdict.rule not in SECOND_LOOK_RULES
    ]


def _gone(j: Judged, later: Look) -> bool:
    sample = later.samples.get(j.about.topic_partition)
    return sample is not None and is_over(j.about, j.newest, sample)


def _is_same(about: OpenTransaction, j: Judged) -> bool:
    p = j.partition
    return continues(about, j.about, None if p.error is not None else p.last_stable_offset)


def _is_rewritten(
    about: OpenTransaction, batch: StartBatch | None, again: Sequence[Judged]
) -> bool:
    """Return True if the start offset has a batch of another epoch: the log lost its end."""
    return any(
        j.about == about
        and j.start is not None
        and batch is not None
        and j.start.producer_epoch != batch.producer_epoch
        for j in again
    )


def _with_unread(look: Look, unread: Mapping[OpenTransaction, Missing]) -> Look:
    if not unread:
        return look
    by_partition = grouped(
        (w.topic_partition, (w.start_offset, m))
        for w, m in unread.items()
        if w.start_offset is not None
    )
    samples = {
        partition: replace(sample, unread=tuple(by_partition.get(partition, ())))
        for partition, sample in look.samples.items()
    }
    return replace(look, samples=samples)


def _judge(
    opened: Sequence[OpenTransaction],
    starts: Mapping[OpenTransaction, StartBatch],
    look: Look,
    past: Mapping[OpenTransaction, History],
    settings: Settings,
) -> list[Judged]:
    judged: list[Judged] = []
    for about in opened:
        sample, start, history = (
            look.samples[about.topic_partition],
            starts.get(about),
            past.get(about),
        )
        verdict = judge(about, start, sample, None, history, settings)
        if verdict is not None:
            judged.append(Judged(about, start, sample, None, history, verdict))
    return judged
