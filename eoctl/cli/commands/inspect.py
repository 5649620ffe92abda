"""`lso`, `txn list`, `txn describe`, `producers`."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from eoctl.cli.emit import emit
from eoctl.cli.options import AllContexts, Connection, Output, Topics, argument, option
from eoctl.cli.runner import show, show_all
from eoctl.operations.inspect import listing, lists
from eoctl.render.columns.inspect import BLOCKS, LSO, PRODUCERS, TXN_DESCRIBE, TXN_LIST
from eoctl.render.sanitise import visible
from recovery.errors import UsageError
from recovery.inspect.cluster_rows import SegmentRow
from recovery.times import duration

LEAST_INTERVAL = 0.1  # seconds


def lso(
    connection: Connection,
    output: Output,
    topics: Topics,
    all_: Annotated[bool, option("--all", "healthy partitions too")] = False,
    internal: Annotated[bool, option("--internal", "healthy internal partitions too")] = False,
    all_contexts: AllContexts = False,
) -> int:
    """Show log start, LSO, high watermark, records held, and what blocks.

    Without TOPIC only partitions that are held back are shown; --all shows every one.
    """
    scope = lists.Scope(topics.selectors(), internal)
    return show_all(
        connection,
        output,
        LSO,
        lambda cluster, _: listing.lso(cluster, scope, show_all=all_),
        all_contexts=all_contexts,
    )


TOP = 20
Top = Annotated[
    int | None, option("--top N", f"with --summary: the most first; 0: all [{TOP}]", min=0)
]
SampleInterval = Annotated[
    str | None,
    option("--sample-interval D", "with --summary: look twice, and say how many are new"),
]


def _summary_options(
    connection: Connection, top: int | None, sample_interval: str | None, *, summary: bool
) -> tuple[int, float | None]:
    """Return how many rows are shown and the seconds between two looks. Raises UsageError."""
    if not summary and (top is not None or sample_interval is not None):
        raise UsageError(
            "only a summary counts", where="--top, --sample-interval", remedy="add --summary"
        )
    if sample_interval is not None and connection.from_ is not None:
        raise UsageError(
            "a bundle does not change", where="--sample-interval", remedy="leave it out"
        )
    pause = None
    if sample_interval is not None:
        pause = duration(sample_interval, where="--sample-interval")
        if pause < LEAST_INTERVAL:
            raise UsageError(f"must be {LEAST_INTERVAL} s or more", where="--sample-interval")
    return TOP if top is None else top, pause


def txn_list(
    connection: Connection,
    output: Output,
    state: Annotated[list[str] | None, option("--state STATE", "Ongoing, Empty, ...")] = None,
    pid: Annotated[list[int] | None, option("--pid, --producer-id N")] = None,
    pattern: Annotated[
        str | None,
        option("--pattern, --transactional-id-pattern RE", "ids whose full name matches"),
    ] = None,
    longer_than: Annotated[
        str | None,
        option("--longer-than, --duration-filter D", "open for longer, by the coordinator's clock"),
    ] = None,
    summary: Annotated[
        bool, option("--summary", "count ids by prefix: without numbers and UUIDs at their end")
    ] = False,
    top: Top = None,
    sample_interval: SampleInterval = None,
) -> int:
    """List every coordinator's transactions: state, age, timeout, partitions.

    --summary counts them by prefix: how many, in which states, how fast they grow.
    """
    most, pause = _summary_options(connection, top, sample_interval, summary=summary)
    filter_ = lists.TxnFilter(
        states=tuple(lists.transaction_state(s) for s in state or ()),
        producer_ids=tuple(pid or ()),
        pattern=None if pattern is None else _pattern(pattern),
        longer_than=None
        if longer_than is None
        else duration(_kafka_habit(longer_than), where="--longer-than"),
    )
    if summary:
        from eoctl.operations.inspect import growth
        from eoctl.render.columns.growth import TXN_SUMMARY

        return show(
            connection,
            output,
            TXN_SUMMARY,
            lambda c: growth.count_ids(c, filter_, pause=pause, top=most),
        )
    return show(connection, output, TXN_LIST, lambda c: listing.txn_list(c, filter_))


def _kafka_habit(text: str) -> str:
    """Kafka's own --duration-filter takes milliseconds without a unit."""
    return f"{text}ms" if text.isdigit() else text


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"not a regular expression: {error}", where="--pattern") from None


def txn_describe(
    connection: Connection,
    output: Output,
    ids: Annotated[list[str] | None, argument("ID...")] = None,
    transactional_id: Annotated[list[str] | None, option("--transactional-id ID")] = None,
) -> int:
    """Describe ids: coordinator, PID, epoch, state, timeout, start, age, partitions."""
    named = [*(ids or ()), *(transactional_id or ())]
    if not named:
        raise UsageError("no transactional id is named", remedy="eoctl txn describe ID...")
    return show(connection, output, TXN_DESCRIBE, lambda c: listing.txn_describe(c, named))


def producers(
    connection: Connection,
    output: Output,
    topics: Topics,
    pid: Annotated[list[int] | None, option("--pid, --producer-id N")] = None,
    resolve: Annotated[
        bool, option("--resolve", "with transactional ids and zombies, from coordinators")
    ] = False,
    internal: Annotated[bool, option("--internal", "internal topics too")] = False,
    segment: Annotated[
        list[str] | None, option("--segment DIR", "a broker's own files: LOG_DIR/TOPIC-P")
    ] = None,
    blocks: Annotated[
        bool, option("--blocks", "PID blocks handed out, by --segment or --zookeeper")
    ] = False,
    zookeeper: Annotated[str | None, option("--zookeeper HOST:PORT", "for --blocks")] = None,
    summary: Annotated[
        bool, option("--summary", "count by broker, topic, partition; with --resolve by prefix")
    ] = False,
    top: Top = None,
    sample_interval: SampleInterval = None,
) -> int:
    """List producer ids, epochs, last sequences and open transactions, partition by partition.

    --summary counts them instead: what leaders keep in memory, and how fast it grows.
    """
    most, pause = _summary_options(connection, top, sample_interval, summary=summary)
    if segment or blocks or zookeeper:
        unfit = resolve or summary or topics.selectors() or connection.from_
        if output.interval is not None or unfit:
            raise UsageError(
                "files are read once, without topics, --watch, --resolve, --summary or --from",
                where="--segment, --blocks",
            )
        if not blocks and zookeeper is None:
            return _show_segments(output, segment or (), pid or ())
        if not blocks or pid:
            raise UsageError("works only with --blocks", where="--zookeeper", remedy="add --blocks")
        return _show_blocks(output, segment or (), zookeeper)
    scope = lists.Scope(topics.selectors(), internal or summary)  # a broker keeps all producers
    if summary:
        from eoctl.operations.inspect import growth
        from eoctl.render.columns.growth import PRODUCERS_SUMMARY

        if pid:
            raise UsageError("a summary counts all producer ids", where="--pid")
        return show(
            connection,
            output,
            PRODUCERS_SUMMARY,
            lambda c: growth.count_producers(c, scope, resolve=resolve, pause=pause, top=most),
        )
    return show(
        connection,
        output,
        PRODUCERS,
        lambda c: listing.producers(c, scope, producer_ids=pid or (), resolve=resolve),
    )


def _show_segments(output: Output, folders: Sequence[str], producer_ids: Sequence[int]) -> int:
    """Show the producers of partition folders, and in words what else their files hold."""
    from eoctl.operations.inspect import segment_answer

    answer = segment_answer.producers([Path(f) for f in folders], producer_ids)
    emit(answer, PRODUCERS, output)
    if output.output in ("table", "wide"):
        segments = answer.extra["segments"]
        for line in (line for s in segments for line in _segment_words(SegmentRow.read(s))):
            print(visible(line, spaces=False), file=sys.stderr)
    return answer.exit_status


def _segment_words(s: SegmentRow) -> list[str]:
    words = [
        f"{s.topic_partition}: log {s.log_start_offset} to {s.log_end_offset}",
        f"LSO {s.last_stable_offset} as far as files show",
        f"HW {'not known' if s.high_watermark is None else s.high_watermark} by its checkpoint",
        "no snapshot" if s.snapshot_offset is None else f"snapshot of {s.snapshot_offset}",
        f"{s.aborted_transactions} aborted in the index",
        "cleanly shut down" if s.clean_shutdown else "its broker runs, or was killed",
    ]
    return [", ".join(words), *(f"note: {note}" for note in s.notes)]


def _show_blocks(output: Output, folders: Sequence[str], zookeeper: str | None) -> int:
    """Show the producer id blocks of a metadata log folder or of ZooKeeper."""
    from eoctl.operations.inspect import producer_blocks

    if zookeeper is not None and not folders:
        answer = producer_blocks.in_zookeeper(zookeeper)
    elif zookeeper is None and len(folders) == 1:
        answer = producer_blocks.in_folder(Path(folders[0]))
    else:
        raise UsageError(
            "give one place to look",
            where="--blocks",
            remedy="--segment METADATA_LOG_DIR/__cluster_metadata-0, or --zookeeper CONNECT",
        )
    emit(answer, BLOCKS, output)
    return answer.exit_status
