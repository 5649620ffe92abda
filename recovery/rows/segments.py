"""A broker's own files, as `producers --segment` and `producers --blocks` show them."""

from recovery.facts import HasPartition
from recovery.rows.row import Row


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
