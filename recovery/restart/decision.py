"""What a strategy answers and what is decided on it: the values from strategies to the plan."""

from typing import Annotated, Literal

from msgspec import Meta, field

from recovery.errors import RefusedError
from recovery.facts import HasPartition, TopicPartition
from recovery.quoting import some
from recovery.restart.stored import StoredOffset, StoredOutput, StoredPartition
from recovery.row import FROM, Row, Timestamp
from recovery.values import Value

Direction = Literal["rewind", "skip", "none"]
Guarantee = Literal["exactly-once", "at-least-once", "at-most-once"]


class Owner(Value):
    """An id that provably holds commits of the group, with the producer that a fence expects."""

    transactional_id: str
    producer_id: int | None
    producer_epoch: int | None


class PendingError(RefusedError):
    """An open transaction holds commits of the group: fence its owners first, then plan again.

    owners: all of them; () where a fence does not free the group (its marker was lost, nobody owns
    the transaction, or it could not be judged).
    """

    def __init__(self, what: str, *, where: str, remedy: str, owners: tuple[Owner, ...]) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.owners = owners

    @property
    def transactional_ids(self) -> tuple[str, ...]:
        """Return the names of the owners."""
        return tuple(owner.transactional_id for owner in self.owners)


class Check(Value):
    """One condition. held: None = not checked but assumed.

    where: the partitions concerned; a sentence that several share is shown once.
    """

    name: str
    held: bool | None
    detail: str
    where: str | None = None


class RestartState(HasPartition, Row, kw_only=False):
    """The state that belongs to the restart: a changelog's partition up to end_offset."""

    topic: str
    partition: int
    end_offset: int


class Basis(Value):
    """The restart offset of an input partition, and the output offsets that belong to it.

    outputs: the restart writes again what was written from these offsets on. merge: where its merge
    log restarts. until: the exact end, if the restart has one (Spark's batch). stored: the store's
    entry, or one from a changelog or checkpoint. promise: None = exactly-once, for the strategy's
    own reason.
    """

    input: StoredOffset
    outputs: tuple[StoredOutput, ...]
    merge: tuple[TopicPartition, int] | None = None
    until: int | None = None
    state: tuple[RestartState, ...] = ()
    checks: tuple[Check, ...] = ()
    stored: StoredPartition | None = None
    promise: "Promise | None" = None


class Promise(Value):
    """The guarantee of one partition's restart. because: the evidence, or what is missing."""

    guarantee: Guarantee
    because: str


class InputDecision(HasPartition, Value):
    """Where an input goes. records: visible data records between both offsets; None: uncountable.
    from_time, to_time: timestamps of the records at the current and restart offset, epoch ms."""

    topic: str
    partition: int
    current_offset: int | None
    restart_offset: int
    direction: Direction
    records: int | None
    from_time: int | None = None
    to_time: int | None = None
    checks: tuple[Check, ...] = ()


class OutputDecision(HasPartition, Value):
    """The first drop_first outputs, those in [start, end_offset), must be dropped."""

    topic: str
    partition: int
    start: int
    end_offset: int
    leader_epoch: int | None
    drop_first: int
    fed_by: tuple[TopicPartition, ...]
    checks: tuple[Check, ...] = ()


class RestartSource(Row, kw_only=False):
    """A source partition of Kafka Connect and its source offsets, as JSON text. null: none."""

    partition: str
    current_offset: str | None
    restart_offset: str | None


class RestartOrigin(HasPartition, Row, kw_only=False):
    """Where an input's offset comes from: the offset that the group committed in another cluster.

    earliest_offset, latest_offset: between these the group continues; equal where one is exact.
    """

    topic: str
    partition: int
    source_topic: str
    source_partition: int
    source_offset: int
    source_leader_epoch: Annotated[int | None, Meta(description="of the commit; null: it has none")]
    earliest_offset: Annotated[int, Meta(description="from here on nothing is left out")]
    latest_offset: Annotated[int, Meta(description="from here on nothing comes again")]
    pairs: Annotated[int, Meta(description="records that both logs have")]
    read_again: Annotated[int, Meta(description="records that come again from the new offset on")]
    left_out: Annotated[int, Meta(description="records not read that the group will not get")]
    not_mirrored: Annotated[int, Meta(description="records that the mirror has still to copy")]


class StoreChange(Value):
    """One compare-and-set on a store: `after` instead of exactly `before`. None: no entry."""

    before: StoredPartition | None
    after: StoredPartition


class RestartPlan(Value):
    """The complete decision. Each list is sorted by topic and partition.

    store: the store's content once the plan is applied, as positions, without partitions that are
    not written; `recovery.restart.decide.changes` returns what differs. starting_offsets: Spark's
    option. sources: those of a source connector, which has no inputs. origins: of each input's
    offset, if it comes from another cluster.
    """

    app: str
    strategy: str
    inputs: tuple[InputDecision, ...]
    outputs: tuple[OutputDecision, ...]
    state: tuple[RestartState, ...]
    guarantee: Guarantee
    because: str
    checks: tuple[Check, ...]
    store: tuple[StoredPartition, ...]
    starting_offsets: str | None = None
    sources: tuple[RestartSource, ...] = ()
    origins: tuple[RestartOrigin, ...] = ()


def gathered(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """Merge equal sentences into one that lists their places: `orders:0, orders:1 and 8 more`."""
    wheres_of: dict[tuple[str, bool | None, str], dict[str, None]] = {}
    for check in checks:
        wheres = wheres_of.setdefault((check.name, check.held, check.detail), {})
        if check.where is not None:
            wheres.setdefault(check.where)
    return tuple(
        Check(name, held, detail, some(list(wheres)) if wheres else None)
        for (name, held, detail), wheres in wheres_of.items()
    )


class RestartInput(Row):
    """An input partition. Offsets are positions: the next record to read."""

    topic: str
    partition: int
    current_offset: Annotated[int | None, Meta(description="null: the store has none")]
    restart_offset: int
    direction: Literal["rewind", "skip", "none"]
    records: Annotated[
        int | None, Meta(description="data records in between; null: cannot be counted")
    ]
    from_time: Timestamp
    to_time: Timestamp


class FedBy(HasPartition, Row):
    topic: str
    partition: int


class RestartOutput(HasPartition, Row):
    """An output partition: its first drop_first outputs after the restart are in [from,
    end_offset) already. Valid with exactly these numbers."""

    topic: str
    partition: int
    start: Annotated[int, FROM]
    end_offset: int
    leader_epoch: int | None
    drop_first: int
    fed_by: list[FedBy]


class RestartCheck(Row):
    """held: null = could not be checked, is assumed. where: partitions it is about."""

    name: str
    held: bool | None
    detail: str
    where: str | None = None


class RestartPlanRow(Row):
    """One plan: where each input partition restarts, and how many outputs are to be dropped."""

    app: Annotated[str, Meta(description="the application's name, or the group of an ad-hoc plan")]
    strategy: str
    inputs: list[RestartInput]
    outputs: list[RestartOutput]
    state: list[RestartState]
    guarantee: Literal["exactly-once", "at-least-once", "at-most-once"]
    because: str
    checks: list[RestartCheck]
    starting_offsets: Annotated[
        str | None, Meta(description="spark-checkpoint: the value of Spark's startingOffsets")
    ] = None
    sources: Annotated[
        list[RestartSource], Meta(description="connect: of a source connector, which has no inputs")
    ] = field(default_factory=list)
    origins: Annotated[
        list[RestartOrigin], Meta(description="from-cluster: where each input's offset comes from")
    ] = field(default_factory=list)
