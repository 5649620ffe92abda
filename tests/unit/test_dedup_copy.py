"""What a copy may take, and when its transactions end, without a broker."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kafka.record.memory_records import MemoryRecordsBuilder

from eoctl.stores import dedup_task
from recovery.combine.dedup import Deduplicator, visible
from recovery.combine.record_ids import parse_record_id
from recovery.dedup_request import Job, Part, Wish
from recovery.errors import RefusedError
from recovery.formats.columns import OPEN, ColumnBatch, decode


def batch(keys: list[bytes], timestamp: int = 1, headers: list[Any] | None = None) -> ColumnBatch:
    builder = MemoryRecordsBuilder(2, 0, 1 << 20)
    for key in keys:
        builder.append(timestamp=timestamp, key=key, value=b"", headers=headers or [])
    builder.close()
    return decode(builder.buffer(), None)


def test_a_record_of_an_open_transaction_is_not_passed_over() -> None:
    records = batch([b"a"])
    opened = replace(records.batches, outcome=np.full(1, OPEN, np.int8))
    with pytest.raises(RefusedError, match="its transaction is open"):
        visible(replace(records, batches=opened))


def test_what_a_copy_would_change_is_refused() -> None:
    with pytest.raises(RefusedError, match="1970"):
        visible(batch([b"a"], timestamp=0))
    assert len(visible(batch([b"a"], headers=[("café", b"1")]))) == 1


class Noted:
    """Notes what a writer is told."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def begin(self) -> None:
        self.calls.append("begin")

    def send(self, *_given: Any, **_named: Any) -> None:
        self.calls.append("send")

    def commit(self, positions: dict[Any, Any]) -> None:
        self.calls += [position.offset for position in positions.values()]


def test_a_transaction_does_not_grow_old_over_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup_task, "TRANSACTION_SECONDS", -1.0)
    wish = Wish("in", "out", parse_record_id("key"), "job")
    noted, memory = Noted(), Deduplicator("in", 0, wish.by)
    part, told = Part(partition=0, begin=0, start=0, end=9), list[str]()
    copy = dedup_task._Copy(noted, Job(wish, ""), part, lambda: None, told.append)  # type: ignore[arg-type]
    copy.send(batch([b"a"]), 1, memory)
    assert noted.calls == ["begin", "send", 1]
    monkeypatch.setattr(dedup_task, "TRANSACTION_SECONDS", 1000.0)
    copy.send(batch([b"b", b"a"]), 3, memory)
    copy._until = 0.0
    copy.send(batch([b"a", b"b"]), 5, memory)
    assert noted.calls == ["begin", "send", 1, "begin", "send", 5]
