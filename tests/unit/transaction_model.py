"""A model of coordinators and partitions that knows the truth, and what an observer sees of it.

`World` does what Kafka 4.3 does (coordinator states and epochs of transactions v1 and v2, markers,
lost and repeated markers, timeouts, epoch exhaustion, compaction), each clock off by its own
amount, and what happens to a cluster: topics made anew, leaders that change, `__transaction_state`
made anew, cut short or given more partitions. `Eyes` says what the observer may see and what its
cache holds. The truth is kept beside each batch and never shown.
Sources: Kafka's TransactionCoordinator, TransactionMetadata, ProducerStateManager, Cleaner.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from recovery.facts import (
    CoordinatorFacts,
    Missing,
    PartitionFacts,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
    Transactions,
)
from recovery.formats.coordinator import coordinator_partition
from recovery.formats.transaction_state import TransactionState, TransactionValue
from recovery.inspect.history import History, Marker, StateLog, StateRecord, read_history
from recovery.inspect.id_facts import IdFacts, NamedPartition
from recovery.inspect.observation import OpenTransaction, Sample, Settings, StartBatch
from recovery.inspect.topic_sightings import Sighting, Sightings
from recovery.values import Value, replace

STATE_PARTITIONS = 3
MAX_EPOCH = 32_767
TEN_YEARS = 10 * 365 * 86_400_000


@dataclass(eq=False)
class Txn:
    """The truth of one transaction. fate: live, commit, abort or stray (no owner ever)."""

    fate: str


@dataclass
class Batch:
    offset: int
    pid: int
    epoch: int
    txn: Txn
    producer_time: int
    leader_time: int


@dataclass
class Producer:
    epoch: int
    sequence: int = 0
    last_time: int = 0
    coordinator_epoch: int | None = None
    start: int | None = None
    open: list[Batch] = field(default_factory=list)


@dataclass
class DataLog:
    append_time: bool = False
    topic_id: str = "first"
    leader_epoch: int = 0
    clock: int = 0
    born: int = 0
    end: int = 0
    batches: list[Batch] = field(default_factory=list)
    markers: list[tuple[int, Marker]] = field(default_factory=list)
    """(producer id, marker), all producers'."""
    producers: dict[int, Producer] = field(default_factory=dict)


@dataclass
class Id:
    name: str
    version: int
    pid: int
    epoch: int
    timeout: int
    state: str = "Empty"
    started: int = -1
    started_true: int = 0
    partitions: set[TopicPartition] = field(default_factory=set)
    txn: Txn | None = None
    home: int = 0
    lost_ever: bool = False
    ended_by_server: bool = False
    gone: bool = False
    """Its coordinator went back to an earlier record: its application is refused from then on."""
    retired: list[int] = field(default_factory=list)


@dataclass
class Kept:
    """What the observer's cache holds of a partition of `__transaction_state`; records as read.

    reads: the offset at which each read after the first began.
    """

    records: list[StateRecord] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1 if self.records else 0

    def log(self, number: int, end: int) -> StateLog:
        present = {r.offset for r in self.records}
        whole = next((n for n in range(end, 0, -1) if n - 1 not in present), 0)
        stands = max((at for at in self.reads if at < whole), default=0)
        return StateLog(number, tuple(self.records), whole, end=end, stands_from=stands)


class World:
    """Time in ms; clocks: how far each is off the true one."""

    def __init__(
        self, *, coordinator: int = 0, leader: int = 0, producer: int = 0, topics: int = 3
    ) -> None:
        self.now = 2_000_000_000_000
        self.coordinator, self.leader, self.producer = coordinator, leader, producer
        self.logs: dict[TopicPartition, DataLog] = {
            TopicPartition("t", n): DataLog(append_time=n == 2, clock=leader) for n in range(topics)
        }
        self.ids: dict[str, Id] = {}
        self.versions: dict[str, int] = {}
        self.ghosts: list[Id] = []
        """Ids that a broker still lists from a partition that is not their home any more."""
        self.state: dict[int, list[StateRecord]] = {n: [] for n in range(STATE_PARTITIONS)}
        self.ends = dict.fromkeys(range(STATE_PARTITIONS), 0)
        self.epochs = dict.fromkeys(range(STATE_PARTITIONS), 0)
        self.clocks = dict.fromkeys(range(STATE_PARTITIONS), coordinator)
        self.kept = {n: Kept() for n in range(STATE_PARTITIONS)}
        self.former: dict[int, list[Kept]] = {n: [] for n in range(STATE_PARTITIONS)}
        self.cut_epochs: dict[int, int] = {}
        self.sightings: dict[TopicPartition, list[Sighting]] = {}
        self.next_pid = 4000
        self.unread: set[int] = set()
        """Producer ids of which a log lost an end that nobody had read: it may say Ongoing of
        what was decided."""
        self.looked = 0
        """When the observer looked first."""
        self.compacted = False
        self.by_hand: set[tuple[TopicPartition, str, int]] = set()
        """Markers that no coordinator sent: partition, topic id, offset."""

    def tick(self, ms: int = 3) -> None:
        self.now += ms

    # Coordinators.

    def _record(
        self, i: Id, state: str, *, version: int | None = None, named: Iterable[TopicPartition] = ()
    ) -> None:
        number = i.home
        when = self.now + self.clocks[number]
        value = TransactionValue(
            producer_id=i.pid,
            producer_epoch=i.epoch,
            timeout_ms=i.timeout,
            state=TransactionState(state),
            partitions=tuple(sorted(named)),
            last_update_ms=when,
            start_ms=i.started,
            previous_producer_id=i.retired[-1] if i.epoch == 0 and i.retired else i.pid,
            client_transaction_version=2 if (version or i.version) == 2 else 0,
        )
        self.state[number].append(
            StateRecord(i.name, number, self.ends[number], when, value, self.epochs[number])
        )
        self.ends[number] += 1
        self.tick(1)

    def init(self, name: str, version: int = 2, timeout: int = 60_000, epoch: int = 0) -> Id:
        """InitProducerId: a new id, or a bumped epoch; an open transaction is fenced first."""
        i = self.ids.get(name)
        if i is None:
            version = self.versions.setdefault(name, version)
            i = self.ids[name] = Id(name, version, self._pid(), epoch, timeout)
            i.home = coordinator_partition(name, len(self.state))
        elif i.gone or i.state.startswith("Prepare"):
            return i
        else:
            if i.state == "Ongoing":
                self.server_abort(i)
            i.epoch += 1
            if i.epoch >= MAX_EPOCH - 1:
                self._rotate(i)
        i.state, i.partitions = "Empty", set()
        i.started = -1
        self._record(i, "Empty")
        return i

    def _pid(self) -> int:
        self.next_pid += 1
        return self.next_pid

    def _rotate(self, i: Id) -> None:
        i.retired.append(i.pid)
        i.pid, i.epoch = self._pid(), 0

    def write(self, i: Id, tp: TopicPartition) -> None:
        """The owner writes a batch: the partition is added first."""
        if i.gone or i.state.startswith("Prepare"):
            return
        held = self.logs[tp].producers.get(i.pid)
        if held is not None and held.epoch > i.epoch:
            return
        open_here = held is not None and held.start is not None and held.epoch == i.epoch
        if i.version == 2 and open_here and tp not in i.partitions:
            # v2: the leader adds the partition, but not where this epoch has a transaction open
            self._append(tp, i.pid, i.epoch, Txn("stray"))
            return
        if i.state != "Ongoing":
            i.state, i.partitions, i.txn = "Ongoing", set(), Txn("live")
            i.started = self.now + self.clocks[i.home]
            i.started_true = self.now
        if tp not in i.partitions:
            i.partitions.add(tp)
            self._record(i, "Ongoing", named=i.partitions)
        assert i.txn is not None
        self._append(tp, i.pid, i.epoch, i.txn)

    def _append(self, tp: TopicPartition, pid: int, epoch: int, txn: Txn) -> None:
        log = self.logs[tp]
        batch = Batch(log.end, pid, epoch, txn, self.now + self.producer, self.now + log.clock)
        log.end += 1
        log.batches.append(batch)
        p = log.producers.setdefault(pid, Producer(epoch))
        p.epoch, p.sequence = epoch, p.sequence + 1
        p.last_time = batch.leader_time if log.append_time else batch.producer_time
        p.start = batch.offset if p.start is None else p.start
        p.open.append(batch)
        self.tick()

    def marker(
        self, tp: TopicPartition, pid: int, epoch: int, outcome: str, coordinator_epoch: int
    ) -> None:
        """A marker as the partition's leader appends it, whoever sent it."""
        log = self.logs[tp]
        before = max((m.offset for who, m in log.markers if who == pid), default=-1)
        since = [b.epoch for b in log.batches if b.pid == pid and b.offset > before]
        marker = Marker(
            log.end,
            outcome,
            epoch,
            coordinator_epoch,
            self.now + log.clock,
            data=bool(since),
            leader_epoch=log.leader_epoch,
            data_epoch=since[-1] if since else None,
        )
        log.markers.append((pid, marker))
        log.end += 1
        p = log.producers.setdefault(pid, Producer(epoch))
        p.epoch, p.coordinator_epoch, p.start, p.open = epoch, coordinator_epoch, None, []
        self.tick()

    def end(
        self,
        i: Id,
        outcome: str,
        *,
        lost: Iterable[TopicPartition] = (),
        stalled: bool = False,
        resumed: bool = False,
    ) -> None:
        """EndTxn. lost: partitions without a leader, skipped; stalled: no marker is written yet.

        resumed: by a client of v2, whatever began the transaction, as Flink's restore does.
        """
        if i.state == "Ongoing":
            i.version = 2 if resumed else i.version
            self._decide(i, outcome, i.epoch + 1 if i.version == 2 else i.epoch, lost, stalled)

    def server_abort(
        self, i: Id, *, lost: Iterable[TopicPartition] = (), stalled: bool = False
    ) -> None:
        """A fence or a timeout: the epoch is raised on v1 too, and its records say v2 always.

        TransactionCoordinator gives its own version there, not that of the id's client.
        """
        if i.state == "Ongoing":
            self._decide(i, "abort", i.epoch + 1, lost, stalled, by_server=True)

    def _decide(
        self,
        i: Id,
        outcome: str,
        epoch: int,
        lost: Iterable[TopicPartition],
        stalled: bool,
        *,
        by_server: bool = False,
    ) -> None:
        if i.gone:
            return
        assert i.txn is not None
        i.ended_by_server = by_server
        i.txn.fate = outcome
        i.epoch = epoch
        i.state = "Prepare" + outcome.title()
        self._record(i, i.state, version=2 if by_server else None, named=i.partitions)
        self.tick(5)
        if not stalled:
            self.finish(i, lost=lost)

    def finish(self, i: Id, *, lost: Iterable[TopicPartition] = ()) -> None:
        """The coordinator writes the markers that it can, then Complete*."""
        if i.gone or not i.state.startswith("Prepare"):
            return
        outcome = i.state.removeprefix("Prepare").lower()
        for tp in sorted(i.partitions):
            if tp in lost:
                i.lost_ever = True
            else:
                self.marker(tp, i.pid, i.epoch, outcome, self.epochs[i.home])
        if i.version == 2 and i.epoch >= MAX_EPOCH:
            self._rotate(i)
        i.state, i.partitions, i.txn = "Complete" + outcome.title(), set(), None
        self._record(i, i.state, version=2 if i.ended_by_server else None)

    def upgrade(self, i: Id) -> None:
        """Its client speaks v2 from its next transaction on, on the epoch that it has.

        So do clients that learn of transaction.version 2 meanwhile (franz-go's BeginTransaction);
        Java's raises its epoch first.
        """
        if i.state != "Ongoing":
            i.version = 2

    # Strays: verification switched off.

    def fresh(self, tp: TopicPartition, *, marked: bool = False) -> Id:
        """Of an id that was initialised and did nothing else, or committed here before."""
        i = self.init(f"stray-{self.next_pid}")
        if marked:
            self.write(i, tp)
            self.end(i, "commit")
        self.stray(i, tp)
        return i

    def nameless(self, tp: TopicPartition) -> None:
        """Of a producer id that no transactional id ever bore."""
        self._append(tp, self._pid(), 0, Txn("stray"))

    def stray(self, i: Id, tp: TopicPartition) -> None:
        """late (the id has ended) or foreign (it is Ongoing, but not on this partition)."""
        held = self.logs[tp].producers.get(i.pid)
        if tp in i.partitions or (held is not None and held.epoch > i.epoch):
            return
        self._append(tp, i.pid, i.epoch, Txn("stray"))

    # `__transaction_state` is compacted up to an offset: of each key the newest record stays.

    def compact(self, number: int, upto: int) -> None:
        records = self.state[number]
        newest = {r.transactional_id: r.offset for r in records if r.offset < upto}
        kept = [r for r in records if r.offset >= upto or r.offset == newest[r.transactional_id]]
        self.compacted |= len(kept) < len(records)
        self.state[number] = kept

    # What happens to a cluster.

    def remake(self, tp: TopicPartition) -> None:
        """The topic is deleted and made anew under its name: no batch, no marker, no producer."""
        old = self.logs[tp]
        self.logs[tp] = DataLog(old.append_time, f"{old.topic_id}'", clock=old.clock, born=self.now)

    def lead(self, tp: TopicPartition, clock: int) -> None:
        """Another broker leads the partition, with a clock of its own."""
        log = self.logs[tp]
        log.leader_epoch, log.clock = log.leader_epoch + 1, clock

    def fail_over(self, number: int, clock: int) -> None:
        """Another broker leads a partition of `__transaction_state`."""
        self.epochs[number] += 1
        self.clocks[number] = clock

    def repeat(self, i: Id, tp: TopicPartition) -> None:
        """The last decision's marker is sent again (failover, a lost answer): before any write."""
        log = self.logs[tp]
        p = log.producers.get(i.pid)
        last = [m for pid, m in log.markers if pid == i.pid][-1:]
        if p is None or p.open or not last or last[0].producer_epoch != p.epoch:
            return
        if (tp, log.topic_id, last[0].offset) in self.by_hand:
            return
        self.marker(tp, i.pid, p.epoch, last[0].outcome, self.epochs[i.home])

    def replace_state(self, *, seen: bool) -> None:
        """`__transaction_state` is deleted and made anew. seen: the observer reads it before."""
        for i in self.ids.values():
            self._abandon(i)
        self.ids.clear()
        self.ghosts.clear()
        if seen:
            self.read()
        for number in self.state:
            self.former[number].append(self.kept[number])
            self.kept[number] = Kept()
            self.state[number], self.ends[number], self.epochs[number] = [], 0, 0
        self.cut_epochs.clear()
        self.sightings.clear()

    def cut(self, i: Id, *, seen: bool) -> None:
        """An unclean election: the id's partition of `__transaction_state` loses its end.

        seen: the observer had read it. Else all that bears the id's last two epochs is lost: of a
        shorter end that nobody read nothing tells.
        """
        number, records = i.home, self.state[i.home]
        since = i.epoch - 1
        first = next(
            (
                n
                for n, r in enumerate(records)
                if r.transactional_id == i.name
                and isinstance(r.value, TransactionValue)
                and (r.value.producer_id, r.value.producer_epoch >= since) == (i.pid, True)
            ),
            None,
        )
        if first is None:
            return
        if not seen and {r.transactional_id for r in records[first:]} != {i.name}:
            return  # it would be another id's shorter end
        if seen:
            first = max(first, len(records) - 3)
            self.read()
        kept = self.kept[number]
        if kept.end > records[first].offset:
            self.former[number].append(kept)
            self.cut_epochs[number] = kept.records[-1].leader_epoch
            self.kept[number] = Kept()
        self.state[number], lost = records[:first], records[first:]
        self.ends[number] = lost[0].offset
        self.epochs[number] += 1
        if not seen:
            self.unread |= {i.pid, *i.retired}
        for name in {r.transactional_id for r in lost}:
            self._reload(name, number)

    def _reload(self, name: str, number: int) -> None:
        """Its coordinator knows what is left in its log."""
        i = self.ids.get(name)
        if i is None or i.home != number:
            return
        left = [r.value for r in self.state[number] if r.transactional_id == name]
        if not left:
            self._abandon(i)
            del self.ids[name]
            return
        value = left[-1]
        assert isinstance(value, TransactionValue)
        if value.state != "Ongoing":
            self._abandon(i)
        i.gone, i.state, i.started = True, value.state.value, value.start_ms
        i.pid, i.epoch, i.partitions = value.producer_id, value.producer_epoch, {*value.partitions}

    def grow(self) -> None:
        """`__transaction_state` gets two partitions more, and all brokers restart."""
        size = len(self.state) + 2
        if size > STATE_PARTITIONS + 2:
            return
        for number in (size - 2, size - 1):
            self.state[number], self.ends[number], self.epochs[number] = [], 0, 0
            self.clocks[number] = self.coordinator
            self.kept[number], self.former[number] = Kept(), []
        for name, i in list(self.ids.items()):
            if coordinator_partition(name, size) != i.home:
                self._abandon(i)
                self.ghosts.append(self.ids.pop(name))

    def _abandon(self, i: Id) -> None:
        """Its coordinator forgets it: what is not decided will never be."""
        if i.state == "Ongoing" and i.txn is not None:
            i.txn.fate = "stray"

    def read(self) -> None:
        """The observer reads what is new of `__transaction_state`; its cache keeps all it read."""
        for number, records in self.state.items():
            kept = self.kept[number]
            new = [r for r in records if r.offset >= kept.end]
            if new and kept.records:
                kept.reads.append(kept.end)
            kept.records += new

    def sight(self) -> None:
        """The observer notes the ids of the topics, and then the ends of the state partitions."""
        for tp, log in self.logs.items():
            rows = self.sightings.setdefault(tp, [])
            if not rows or rows[-1].topic_id != log.topic_id:
                rows.append(Sighting(log.topic_id, dict(self.ends), {}))
            else:  # seen again: what stood there at the first look was written before
                rows[-1] = replace(rows[-1], before=rows[-1].after)

    # The truth.

    def open_fates(self, about: OpenTransaction) -> list[str]:
        """Fates of all batches that one marker for this producer would decide now."""
        assert about.producer_id is not None
        p = self.logs[about.topic_partition].producers[about.producer_id]
        return [b.txn.fate for b in p.open]

    def open_transactions(self) -> list[OpenTransaction]:
        return [
            OpenTransaction(*tp, pid, p.start)
            for tp, log in self.logs.items()
            for pid, p in log.producers.items()
            if p.start is not None
        ]


class Eyes(Value):
    """What the observer may see, and how far its own clock is off."""

    topic_read: bool = True
    topic_describe: bool = True
    ids_describe: bool = True
    denied: frozenset[str] = frozenset()
    unseen: frozenset[int] = frozenset()
    """Partitions of `__transaction_state` whose coordinator moves or is down: ids are omitted."""
    no_leader: frozenset[TopicPartition] = frozenset()
    history: bool = True
    log_error: str | None = None  # the answer by which no log is read
    undescribed: frozenset[str] = frozenset()
    filters: bool = True
    clock: int = 0

    @property
    def clear(self) -> bool:
        return replace(self, clock=0, filters=True) == Eyes()


def sample(w: World, tp: TopicPartition, eyes: Eyes, settings: Settings) -> Sample:
    """One look at a partition, and after it at the coordinators."""
    log = w.logs[tp]
    starts = [p.start for p in log.producers.values() if p.start is not None]
    led = tp not in eyes.no_leader and eyes.topic_describe
    partition = PartitionFacts(
        *tp,
        topic_id=log.topic_id,
        leader=1 if led else None,
        last_stable_offset=min(starts, default=log.end) if led else None,
        high_watermark=log.end if led else None,
        log_start_offset=0 if led else None,
        error=None if led else "LEADER_NOT_AVAILABLE",
    )
    producers = None
    if led and eyes.topic_read:
        producers = tuple(
            ProducerFacts(*tp, pid, p.epoch, p.sequence, p.last_time, p.coordinator_epoch, p.start)
            for pid, p in log.producers.items()
        )
    rows, over_timeout, over_long, over_stuck = [], set(), set(), set()
    for i in (*w.ids.values(), *w.ghosts):
        number = i.home
        if i.name in eyes.denied or number in eyes.unseen or not eyes.ids_describe:
            continue
        ran = w.now - i.started_true
        if i.started >= 0:
            over_timeout |= {i.name} if ran > i.timeout else set()
            over_long |= {i.name} if ran > settings.long_after else set()
            over_stuck |= {i.name} if ran > settings.stuck_after else set()
        row = TransactionFacts(i.name, 1, i.pid, i.state)
        if i.name not in eyes.undescribed:
            named = tuple(sorted(i.partitions)) if eyes.topic_describe else ()
            started = i.started if i.started >= 0 else None
            row = replace(
                row,
                producer_epoch=i.epoch,
                timeout_ms=i.timeout,
                start_timestamp=started,
                partitions=named,
            )
        if i in w.ghosts:
            row = replace(row, ghost=True, error="TRANSACTIONAL_ID_NOT_FOUND")
        rows.append(row)
    seen = {n: eyes.ids_describe and n not in eyes.unseen for n in w.state}
    holes = tuple(Missing("coordinator", "NOT_COORDINATOR", "") for s in seen.values() if not s)
    return Sample(
        partition=partition,
        producers=producers,
        transactions=Transactions(
            tuple(rows), tuple(CoordinatorFacts(n, 1, s) for n, s in seen.items()), holes
        ),
        collected_at=w.now + eyes.clock,
        topic_describe=eyes.topic_describe,
        producers_missing=None if producers else Missing("partition", "DENIED", ""),
        over_timeout=frozenset(over_timeout) if eyes.filters else None,
        over_long=frozenset(over_long) if eyes.filters else None,
        over_stuck=frozenset(over_stuck) if eyes.filters else None,
        list_version=2 if eyes.filters else 0,
        named=tuple(PartitionFacts(*t, leader=None if t in eyes.no_leader else 1) for t in w.logs),
        ids=tuple(standing(w, row, eyes) for row in rows if row.state.startswith("Prepare")),
        denied=tuple(
            Missing("transaction", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "", id=name)
            for name in sorted(eyes.denied)
        ),
    )


def standing(w: World, row: TransactionFacts, eyes: Eyes) -> IdFacts:
    """What is seen of an id in Prepare* and of the partitions that it names."""
    named = []
    for tp in row.partitions or ():
        p = w.logs[tp].producers.get(row.producer_id)
        seen = tp not in eyes.no_leader and eyes.topic_read
        producer = None
        if seen and p is not None:
            epochs = (p.coordinator_epoch, p.start)
            producer = ProducerFacts(
                *tp, row.producer_id, p.epoch, p.sequence, p.last_time, *epochs
            )
        facts = PartitionFacts(*tp, error=None if tp not in eyes.no_leader else "NO_LEADER")
        named.append(NamedPartition(facts, seen, producer))
    number = coordinator_partition(row.transactional_id, STATE_PARTITIONS)
    return IdFacts(
        row, w.now + eyes.clock, number, coordinator_epoch=w.epochs[number], named=tuple(named)
    )


def start_batch(w: World, about: OpenTransaction, eyes: Eyes) -> StartBatch | None:
    """The batch at the start offset, with the markers next to it as bounds in time."""
    if not eyes.topic_read or about.topic_partition in eyes.no_leader:
        return None
    log = w.logs[about.topic_partition]
    batch = next((b for b in log.batches if b.offset == about.start_offset), None)
    if batch is None:
        return None
    times = [(m.offset, m.timestamp) for _, m in log.markers]
    return StartBatch(
        batch.pid,
        batch.epoch,
        batch.leader_time if log.append_time else batch.producer_time,
        log.append_time,
        max((t for o, t in times if o < batch.offset), default=None),
        min((t for o, t in times if o > batch.offset), default=None),
    )


def state_logs(w: World) -> list[StateLog]:
    """`__transaction_state` as read now, with what the observer's cache holds."""
    cached = {number: kept.end for number, kept in w.kept.items()}
    w.read()
    return [
        replace(
            w.kept[number].log(number, w.ends[number]),
            leader_epoch=w.epochs[number],
            cached_until=cached[number],
            former=tuple(kept.log(number, kept.end) for kept in w.former[number]),
            cut_epoch=w.cut_epochs.get(number),
        )
        for number in w.state
    ]


def history(w: World, about: OpenTransaction, start: StartBatch, eyes: Eyes) -> History | None:
    """`__transaction_state` as read now, and the producer's markers in the data log."""
    if not eyes.history:
        return None
    log = w.logs[about.topic_partition]
    if eyes.log_error is not None:
        unread = [StateLog(number, (), 0, eyes.log_error) for number in w.state]
        return read_history(start, about.topic_partition, unread, len(w.state))
    return read_history(
        start,
        about.topic_partition,
        state_logs(w),
        len(w.state),
        known_ids=[i.name for i in (*w.ids.values(), *w.ghosts) if i.pid == start.producer_id],
        confirmed_ids=[i.name for i in w.ids.values() if i.pid == start.producer_id],
        sightings=Sightings(log.topic_id, w.sightings.get(about.topic_partition, ())),
        markers=[m for pid, m in log.markers if pid == about.producer_id],
        markers_from=0,
    )
