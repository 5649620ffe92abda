"""Bounds of a range of offsets, as people type them: `1042`, `earliest`, `lso`, `hw`, or an
instant. Pure: the caller passes in what they mean in a partition.
"""

import re

from recovery.errors import UsageError
from recovery.facts import PartitionFacts
from recovery.quoting import quoted
from recovery.times import instant
from recovery.values import Value

MAX_OFFSET = 2**63 - 1


class Bound(Value):
    """One end of a range. kind: offset, earliest, lso, hw or time; value: offset or epoch ms."""

    text: str
    kind: str
    value: int = 0

    def resolve(self, facts: PartitionFacts, offset_at_time: int | None) -> int:
        """Return the bound's offset. offset_at_time: that of the first record not older than the
        instant; None = no such record, which means the high watermark. Facts must know all three
        offsets.
        """
        assert facts.log_start_offset is not None
        assert facts.last_stable_offset is not None
        assert facts.high_watermark is not None
        if self.kind == "offset":
            return self.value
        if self.kind == "time":
            return facts.high_watermark if offset_at_time is None else offset_at_time
        return {
            "earliest": facts.log_start_offset,
            "lso": facts.last_stable_offset,
            "hw": facts.high_watermark,
        }[self.kind]


def parse_bound(text: str, now_ms: int, *, where: str | None = None) -> Bound:
    """Return the bound in a text. Digits are an offset, never epoch ms. Raises UsageError."""
    given = text.strip()
    if given.lower() in ("earliest", "lso", "hw"):
        return Bound(text, given.lower())
    if re.fullmatch(r"[0-9]+", given):
        if int(given) > MAX_OFFSET:
            raise UsageError(f"{quoted(given)} is above any offset", where=where)
        return Bound(text, "offset", int(given))
    try:
        return Bound(text, "time", instant(given, now_ms, where=where))
    except UsageError as error:
        if re.match(r"[0-9]{4}-", given) or "ago" in given:
            raise
        raise UsageError(
            f"{quoted(given)} is not an offset",
            where=where,
            remedy="write a number, earliest, lso, hw, or an instant like '2h ago'",
        ) from error


def range_problem(start: int, end: int, facts: PartitionFacts) -> tuple[str, str] | None:
    """Return Kafka's error name and a sentence if [start, end) cannot be counted, else None."""
    assert facts.high_watermark is not None
    low, lso = facts.log_start_offset, facts.last_stable_offset
    if start > end and low is not None and end == lso and lso < low:
        text = (
            f"the last stable offset {lso} is below the log start {low}: a transaction whose first "
        )
        return "INVALID_REQUEST", text + "records were deleted is still open"
    if start > end:
        return "INVALID_REQUEST", f"the range runs backwards: {start} is above {end}"
    if end > facts.high_watermark:
        text = f"{end} is above the high watermark {facts.high_watermark}"
        return "OFFSET_OUT_OF_RANGE", text
    return None
