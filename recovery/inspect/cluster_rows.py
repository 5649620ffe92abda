"""The rows that show a cluster as it is: brokers, partitions, producers, ids, offsets."""

from typing import Annotated, Literal

from msgspec import Meta

from recovery.facts import HasPartition
from recovery.row import FROM, TO, Row, Timestamp


class MarkerRow(Row):
    """A marker that no coordinator decided. origin: ours (in this host's journal), or foreign: the
    producer id's history is complete over it and no decision fits it. timestamp: by the leader's
    clock.
    """

    topic: str
    partition: int
    offset: int
    timestamp: Timestamp
    outcome: Literal["commit", "abort"]
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    origin: Literal["ours", "foreign"]


RecordFormat = Literal["text", "json", "avro", "protobuf", "hex"]

FoundBeside = Literal["same-value", "same-key", "not-in-range", "no-key"]


class HeaderRow(Row):
    """A record's header. value: in base64; value_decoded: its text, or `0x` and hexadecimal."""

    name: str
    value: str | None
    value_decoded: str | None


class BesideRow(Row):
    """Whether a committed record of the output has a held record's key.

    found: same-value if its bytes are equal too; not-in-range: none in the offsets that were read,
    which the envelope names; no-key: the record has none, so this cannot be answered. offset: of
    the first such record.
    """

    found: FoundBeside
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


class BesideRangeRow(Row):
    """The offsets of an output's partition that were searched for keys.

    from_timestamp: the time that `from` was looked up for. complete: read up to the last stable
    offset.
    """

    topic: str
    partition: int
    start: Annotated[int, FROM]
    end: Annotated[int, TO, Meta(description="not included")]
    last_stable_offset: int
    from_timestamp: Timestamp
    complete: bool


class RecordRow(HasPartition, Row):
    """A record of the transaction in question (held), or one that waits for it to end (waiting).

    key, value: in base64. key_decoded, value_decoded: readable, in the format that key_format and
    value_format name; `0x` and digits for hex. value_bytes: the value's length. With --keys-only
    there is no value but its length; headers: null unless requested. problem: why something is
    shown as hex. beside: of held records, with --beside.
    """

    topic: str
    partition: int
    which: Literal["held", "waiting"]
    offset: int
    timestamp: Timestamp
    producer_id: int | None
    key: str | None
    key_decoded: object
    key_format: RecordFormat | None
    value: str | None
    value_decoded: object
    value_format: RecordFormat | None
    value_bytes: int | None
    headers: list[HeaderRow] | None = None
    problem: str | None = None
    beside: BesideRow | None = None


AgeClock = Literal["coordinator", "producer"]


class Blocking(Row):
    """The transaction at a partition's LSO. age_clock: whose clock age_seconds trusts."""

    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    start_offset: int
    last_timestamp: Timestamp
    age_seconds: float | None
    age_clock: AgeClock | None


class LsoRow(HasPartition, Row, gc=False):
    """A partition's offsets. held = high_watermark - last_stable_offset."""

    topic: str
    topic_id: str | None
    partition: int
    leader: int | None
    leader_epoch: int | None
    log_start_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    held: int | None
    blocking: Blocking | None = None
    blocking_known: Annotated[
        bool,
        Meta(
            description="false: what blocks this partition could not be asked; blocking is then "
            "null"
        ),
    ]
    error: str | None = None


class ProducerRow(HasPartition, Row):
    """A producer's state in one partition, and whether a process of an older epoch writes."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp: Timestamp
    coordinator_epoch: int | None
    current_txn_start_offset: int | None
    transactional_id: str | None = None
    stale_epoch: Annotated[
        bool | None,
        Meta(
            description="true: a zombie, a process of an earlier incarnation writes here. false: "
            "its epoch is the id's present one. null: not resolved, no coordinator knows the "
            "producer id, or not proven: a higher epoch of the id (`older_epoch`) is that of a "
            "newer process, or of the same one, which raised it after an error (KIP-360). A fence "
            "settles it: `txn fence ID --owner-is-gone`"
        ),
    ] = None
    wrote_after_fence: Annotated[
        bool | None,
        Meta(
            description="of an older epoch. true: it has a transaction open here, which its fence "
            "would have ended: it was begun later, or its marker was lost (`why` says which). "
            "false: it is merely listed here, with nothing open. null: not older, or not known"
        ),
    ] = None
    older_epoch: Annotated[
        bool | None,
        Meta(
            description="true: its id was initialised again since its last write here, whoever "
            "did it. null: not resolved, or not known"
        ),
    ] = None
    error: str | None = None


class TxnListRow(Row):
    """A transactional id as its coordinator lists it; partitions is their number."""

    transactional_id: str
    coordinator: int | None
    producer_id: int | None
    producer_epoch: int | None
    state: str | None
    timeout_ms: int | None
    start_timestamp: Timestamp
    age_seconds: float | None
    partitions: int | None
    error: str | None = None


class TxnPartition(HasPartition, Row):
    topic: str
    partition: int


class ConnectRow(Row):
    """Which part of Kafka Connect owns a transactional id, by its name. said: in a sentence.

    group_exists: a group that speaks Connect's protocol has this name; else it is a hint. connector
    and task: null for the leader's id. workers: REST addresses, of the worker that runs the task or
    else of all. runs: one of them was given the task; null for the leader's id.
    """

    group: str
    group_exists: bool
    connector: str | None
    task: int | None
    workers: list[str]
    runs: bool | None
    said: str


class TxnDescribeRow(Row):
    """A transactional id with the partitions of its current transaction."""

    transactional_id: str
    coordinator: int | None
    coordinator_partition: int
    producer_id: int | None
    producer_epoch: int | None
    state: str | None
    timeout_ms: int | None
    start_timestamp: Timestamp
    age_seconds: float | None
    partitions: list[TxnPartition]
    error: str | None = None
    connect: Annotated[
        ConnectRow | None,
        Meta(description="null: neither its name nor a group says that it is Connect's"),
    ] = None


class BrokerRow(Row):
    """A broker of the lab or the cluster."""

    broker: int
    host: str
    port: int
    up: bool | None


class HistoryRow(Row):
    """One record of `__transaction_state`, oldest first.

    epoch_bump: why the epoch is above that of the record before: `end` (transactions v2 raise it
    at every end), `fence` (a producer was initialised again), `past-timeout` (aborted after its
    timeout had passed, by that timeout or by a fence: the record is the same), null where it is
    not above. `timeout` is no longer given: it named fences so.
    """

    transactional_id: str
    offset: int
    coordinator_partition: int
    timestamp: Timestamp
    state: str | None
    producer_id: int | None
    producer_epoch: int | None
    epoch_bump: Literal["end", "fence", "timeout", "past-timeout"] | None
    timeout_ms: int | None
    start_timestamp: Timestamp
    client_transaction_version: int | None
    previous_producer_id: int | None
    next_producer_id: int | None
    partitions: list[str]
    tombstone: bool


class SegmentRow(HasPartition, Row):
    """One partition's folder, as far as its files show.

    snapshot_offset: of the producer snapshot that was used; null: none was. last_stable_offset:
    the first open transaction, else log_end_offset: true once all below is replicated.
    high_watermark: the broker's checkpoint, up to 5 s old. aborted_transactions: entries of the
    `.txnindex` files. clean_shutdown: the broker left its mark; false: it runs, or was killed.
    notes: what was skipped.
    """

    folder: str
    topic: str
    topic_id: str | None
    partition: int
    segments: int
    snapshot_offset: int | None
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    high_watermark: int | None
    aborted_transactions: int
    clean_shutdown: bool
    notes: list[str]


class ProducerBlockRow(Row):
    """A block of producer ids that was handed out: first to last, both included.

    broker, broker_epoch: null where the source does not say. offset: of the record in the
    metadata log.
    """

    first_producer_id: int
    last_producer_id: int
    broker: int | None
    broker_epoch: int | None
    offset: int | None
    source: str


class OffsetsCountRow(Row):
    """The fate of the offsets [from, to) of a partition: the five counts add up to to - from.

    All five are null where they could not be counted; nothing is guessed.
    """

    topic: str
    partition: int
    start: Annotated[int | None, FROM]
    end: Annotated[int | None, TO, Meta(description="not included")]
    data_records: Annotated[
        int | None, Meta(description="records that a read_committed reader gets")
    ]
    aborted_records: Annotated[int | None, Meta(description="records of aborted transactions")]
    control_records: Annotated[int | None, Meta(description="transaction markers")]
    open_records: Annotated[
        int | None,
        Meta(
            description="data records at or above the last stable offset, whatever their "
            "transaction"
        ),
    ]
    missing_offsets: Annotated[
        int | None, Meta(description="offsets without a record: compacted, deleted, never used")
    ]
    error: str | None = None


class OffsetsShowRow(HasPartition, Row):
    """A committed offset of a group, or of another store, which `group` then names, on a
    partition, against what its readers can see.

    lag = last_stable_offset - committed_offset, lag_hw = high_watermark - committed_offset, both in
    offsets, markers and holes included; below 0 where the group read further (read_uncommitted).
    Of a share group both are the lag that Kafka itself reports (KIP-1226), null where it does not:
    records above its start offset may be acknowledged already.
    """

    group: str
    topic: str
    partition: int
    committed_offset: Annotated[
        int | None, Meta(description="the last stable one; null: the first commit is still pending")
    ]
    leader_epoch: int | None
    metadata: str | None
    pending: Annotated[
        bool | None,
        Meta(
            description="a transaction holds a newer commit that is not decided; null: too old "
            "a broker"
        ),
    ]
    pending_offset: Annotated[
        int | None,
        Meta(
            description="the value of that commit, the newest of several; null where "
            "__consumer_offsets was not read, or the commit deletes the offset"
        ),
    ] = None
    pending_producer_id: Annotated[
        int | None, Meta(description="of that transaction; null where __consumer_offsets is hidden")
    ] = None
    last_stable_offset: int | None
    high_watermark: int | None
    lag: int | None
    lag_hw: int | None
    data_records: Annotated[
        int | None,
        Meta(
            description="records that wait for a read_committed reader up to the last stable "
            "offset; null unless counted"
        ),
    ] = None
    lag_seconds: Annotated[
        float | None,
        Meta(
            description="age of the first record that could be read now, by its own timestamp and "
            "this host's clock. 0: none could, which says nothing of records that wait after the "
            "last stable offset. null: not read (`--lag-seconds`), or not known"
        ),
    ] = None
    retention_margin_seconds: Annotated[
        float | None,
        Meta(
            description="until that record is older than retention.ms: Kafka does not delete its "
            "segment for its age before. 0: the committed offset is below the log start already; "
            "below 0: it may be deleted at any time. null: none waits, no age limits the topic, or "
            "not known"
        ),
    ] = None
    retention: Annotated[
        Literal["time", "size", "time-and-size", "none"] | None,
        Meta(
            description="what the topic deletes records by: retention.ms, retention.bytes (which "
            "may come first), both, none. null: not read, or its settings are hidden"
        ),
    ] = None
    error: str | None = None


StripKind = Literal[
    "plain", "committed", "aborted", "open", "undecided", "control", "missing", "unread"
]


class StripRow(Row):
    """A stretch [first_offset, end_offset) of one partition's log that is of one kind and producer.

    plain: written outside any transaction. committed, aborted: of transactions that were decided;
    at or above the LSO such records wait anyway. open: no marker follows up to the high
    watermark. undecided: the same, but the log was not read that far. control: a marker, outcome
    says which. missing: no record there (compacted, deleted, never used). unread: more than is
    read for a strip. batches, records: how many; what compaction took out of the middle of a batch
    is no record, though its offset lies in the stretch. first_timestamp, last_timestamp: of
    its data, by the producer's clock unless the topic has LogAppendTime; null: none, or not known.

    Of a marker also its coordinator_epoch, its timestamp by the leader's clock, and its origin:
    decided by its coordinator, ours (in this host's journal), foreign (nobody decided it, proven by
    the id's history), decision-gone (its decision is no longer in the log); null: not judged.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    kind: StripKind
    outcome: Literal["commit", "abort"] | None = None
    producer_id: int | None = None
    batches: int = 0
    records: int = 0
    producer_epoch: int | None = None
    coordinator_epoch: int | None = None
    timestamp: Timestamp = None
    origin: Literal["decided", "ours", "foreign", "decision-gone"] | None = None
    first_timestamp: Timestamp = None
    last_timestamp: Timestamp = None
