"""A cluster of many partitions, made up: what matters is how long drawing it takes."""

from eoctl.operations.dashboard.snapshot import Snapshot
from recovery.answers import Answer
from recovery.diagnose.diagnosis_rows import RemedyRow, TxnHangingRow
from recovery.inspect.cluster_rows import Blocking, BrokerRow, LsoRow, TxnListRow
from recovery.values import replace
from tui.feed.asking import Post
from tui.feed.frame import Builder, Frame

AT = 1_795_000_000_000


def large(partitions: int, round_: int = 0) -> Snapshot:
    """The snapshot of one round: every 50th partition held, one in ten moved since the last."""
    rows = []
    for n in range(partitions):
        topic, number = f"topic-{n // 50:04d}", n % 50
        moved = n + (round_ * 17 if n % 10 == round_ % 10 else 0)
        held = 100 + round_ * 3 + n if n % 50 == 7 else 0
        blocking = None
        if held:
            blocking = Blocking(
                producer_id=n,
                producer_epoch=0,
                transactional_id=f"app-{n}",
                start_offset=moved,
                last_timestamp=AT,
                age_seconds=60.0 + n / 20,
                age_clock="coordinator",
            )
        rows.append(
            LsoRow(
                topic=topic,
                topic_id=None,
                partition=number,
                leader=n % 3,
                leader_epoch=1,
                log_start_offset=0,
                last_stable_offset=moved,
                high_watermark=moved + held,
                held=held,
                blocking=blocking,
                blocking_known=True,
            )
        )
    at = AT + round_ * 5000
    ids = [
        TxnListRow(
            transactional_id=f"app-{n}",
            coordinator=n % 3,
            producer_id=n,
            producer_epoch=0,
            state="Ongoing",
            timeout_ms=900_000,
            start_timestamp=AT,
            age_seconds=60.0 + n / 20,
            partitions=1,
        )
        for n in range(7, partitions, 50)
    ]
    judged = [_open(row, at) for row in rows if row.blocking is not None]
    brokers = [BrokerRow(broker=n, host="b", port=9092, up=True) for n in range(3)]
    known = Snapshot(
        "large", at, cluster_id="5L6g3nShT-eMCtK--X86sw", intervals={"look": 5.0, "judge": 10.0}
    )
    return replace(
        known,
        brokers=Answer("brokers", None, at, brokers),
        partitions=Answer("lso", None, at, rows, extra={"scanned": partitions}),
        transactions=Answer("txn-list", None, at, ids, extra={"open": len(ids)}),
        groups=Answer("offsets-show", None, at, [], extra={"groups": []}),
        producers=Answer("producers", None, at, []),
        hanging=Answer("txn-hanging", None, at, judged),
        journal=Answer("journal-list", None, at, []),
    )


def _open(row: LsoRow, at: int) -> TxnHangingRow:
    """The judgement of a transaction within its limits."""
    b = row.blocking
    assert b is not None
    return TxnHangingRow(
        topic=row.topic,
        topic_id=None,
        partition=row.partition,
        leader=row.leader,
        producer_id=b.producer_id,
        producer_epoch=b.producer_epoch,
        start_batch_epoch=b.producer_epoch,
        coordinator_epoch=0,
        transactional_id=b.transactional_id,
        start_offset=b.start_offset,
        last_timestamp=at,
        age_seconds=b.age_seconds,
        age_clock=b.age_clock,
        timeout_ms=900_000,
        start_timestamp=AT,
        state="Ongoing",
        samples=2,
        verdict="open",
        rule="within-its-limits",
        mixed=False,
        offsets_pending=False,
        proven_outcome=None,
        groups=[],
        evidence=[],
        remedy=RemedyRow(
            action="wait",
            does="it is within its limits",
            caveats=[],
            refused=[],
            argv=None,
            command=None,
        ),
    )


class LargeFeed:
    """Posts one frame at once; more with `again`."""

    replay = True
    web = False
    label = ""
    ascii_only = False
    next_look: int | None = None
    interval = 5.0

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._builder = Builder()
        self._now = AT
        self._round = 0
        self._post: Post = lambda frame: None

    def start(self, post: Post) -> None:
        self._post = post
        self.again()

    def again(self) -> None:
        """The next round."""
        self._post(self.frame(self._round))
        self._round += 1

    def frame(self, round_: int) -> Frame:
        """The frame of one round."""
        snapshot = large(self._partitions, round_)
        self._now = snapshot.taken_at
        return self._builder.frame(snapshot)

    def now(self) -> int:
        return self._now

    def waiting(self) -> str:
        return "making"

    def stop(self) -> None: ...
    def want(self, **changes: object) -> None: ...
    def pause(self, paused: bool) -> None: ...
    def wake(self) -> None: ...
    def pace(self, interval: float) -> None: ...
    def seek(self, step: int) -> None: ...
    def seek_to(self, number: int) -> None: ...
