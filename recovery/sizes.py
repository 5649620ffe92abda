"""Sizes and rates as people type them: `500k`, `20MiB`, `1.5GB/s`."""

import re

from recovery.errors import UsageError
from recovery.quoting import quoted

_SIZE = r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([kmgt]?)(i?b)?(?:/s)?"


def byte_rate(text: str, *, where: str | None = None) -> float:
    """Return bytes per second. Raises UsageError, also for zero: nothing would ever be read."""
    rate = _bytes(text, where)
    if rate < 1:
        raise UsageError("must be 1 byte per second or more", where=where)
    return rate


def byte_size(text: str, *, where: str | None = None) -> int:
    """Return bytes. Raises UsageError, also for zero."""
    size = int(_bytes(text, where))
    if size < 1:
        raise UsageError("must be 1 byte or more", where=where)
    return size


def _bytes(text: str, where: str | None) -> float:
    """Return a number: `k M G T` and `KiB ...` are powers of 1024, `kB MB ...` of 1000."""
    match = re.fullmatch(_SIZE, text.strip(), re.IGNORECASE)
    if match is None:
        raise UsageError(
            f"{quoted(text)} is not a number of bytes",
            where=where,
            remedy="write 500k, 20MiB or 50MB",
        )
    number, unit, suffix = match.groups()
    base = 1000 if unit and (suffix or "").lower() == "b" else 1024
    return float(float(number) * base ** " kmgt".index(unit.lower() or " "))
