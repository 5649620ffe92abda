"""Count transactions that ended between two snapshots, from facts that these have anyway."""

from collections.abc import Sequence
from typing import cast

from eoctl.kafka.ask.coordinators import TRANSACTION_STATE
from recovery.answers import Answer
from recovery.facts import Facts
from recovery.inspect.cluster_rows import TxnListRow
from recovery.watch.ends import ends_between


class EndsCount:
    """Compares each snapshot with the previous one. Keeps the rows of one list only."""

    def __init__(self) -> None:
        self._list: Answer | None = None
        self._state_end: int | None = None

    def since(self, listed: Answer, facts: Facts) -> dict[str, object]:
        """Return more fields of the list's envelope; none at the first snapshot.

        ended: at least so many ended, split into commits and aborts; records: of
        `__transaction_state` in these seconds, None if a partition was not seen.
        """
        before, self._list = self._list, listed
        ends = [p.high_watermark for p in facts.partitions if p.topic == TRANSACTION_STATE]
        begin, end = self._state_end, None if None in ends else sum(e or 0 for e in ends)
        self._state_end = end
        if before is None:
            return {}
        rows = [cast("Sequence[TxnListRow]", answer.rows) for answer in (before, listed)]
        ended = ends_between(*rows, all_before=not before.errors)
        records = None if begin is None or end is None or end < begin else end - begin
        return {
            "since_last_look": {
                "seconds": (listed.collected_at - before.collected_at) / 1000,
                "ended": ended.ended,
                "commits": ended.commits,
                "aborts": ended.aborts,
                "records": records,
            }
        }
