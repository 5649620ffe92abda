"""Put data into words for people: sentences, ages (`3m`, `~14m`, `6d 2h`) and sizes."""

import textwrap
from collections.abc import Callable, Mapping
from math import floor
from typing import TYPE_CHECKING

from recovery.values import Reason, Value

if TYPE_CHECKING:
    from recovery.row import ErrorRow

Words = str | Callable[..., str]
"""A sentence: a format string, or a function, of a reason's data by name."""
MOST_PARTITIONS_SHOWN = 6  # of the partitions that a transaction holds
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_SPOKEN = {"d": "d", "h": "h", "m": "min", "s": "s"}


def sentence(table: Mapping[str, Words], reason: Reason) -> str:
    """Return the sentence that a table has for a reason.

    >>> sentence({"held": "{name} is held"}, Reason("held", {"name": "orders:3"}))
    'orders:3 is held'
    """
    words, data = table[reason.code], {**reason.data, **reason.more}
    return words.format(**data) if isinstance(words, str) else words(**data)


class Age(Value, order=True):
    """Time since something, for a table's cell. seconds: may be negative (a clock that runs ahead).
    producer_clock: measured by a client's clock, so only approximate."""

    seconds: float
    producer_clock: bool = False

    def __str__(self) -> str:
        return age(self.seconds, producer_clock=self.producer_clock)


def age(seconds: float, *, producer_clock: bool = False) -> str:
    """Return `42s`, `3m`, `2h 5m`, `6d 2h`: rounded down; two units from an hour on; with `~` if
    the clock is a producer's."""
    words = " ".join(f"{number}{unit}" for number, unit in _coarse(seconds))
    return f"{'~' if producer_clock else ''}{'-' if seconds <= -1 else ''}{words}"


def spoken_age(seconds: float, *, producer_clock: bool = False) -> str:
    """Return an age for a sentence: `42 s`, `14 min`, `6 d 2 h`."""
    words = " ".join(f"{number} {_SPOKEN[unit]}" for number, unit in _coarse(seconds))
    return f"{'~' if producer_clock else ''}{'-' if seconds <= -1 else ''}{words}"


def _coarse(seconds: float) -> list[tuple[int, str]]:
    whole = floor(abs(seconds))
    for index, (unit, factor) in enumerate(_UNITS):
        if whole >= factor:
            parts = [(whole // factor, unit)]
            if unit in "dh":
                finer, finer_factor = _UNITS[index + 1]
                if rest := whole % factor // finer_factor:
                    parts.append((rest, finer))
            return parts
    return [(0, "s")]


def hanging(head: str, text: str, width: int) -> list[str]:
    """Return `head` and the text in lines of at most `width`, later ones aligned with the text.

    Words are never broken: a longer one (a SHA-256, a topic's name) gets its own line.

    >>> hanging(" harm  ", "its owner is shut out", 20)
    [' harm  its owner is', '       shut out']
    """
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [head.rstrip()]


def size(count_of_bytes: int) -> str:
    """Return `512 B`, `1.5 KiB`, `20 GiB`: at least three digits, in powers of 1024."""
    if abs(count_of_bytes) < 1024:
        return f"{count_of_bytes} B"
    value = float(count_of_bytes)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        value /= 1024
        # 1023.96 KiB would round to a four-digit number.
        if abs(value) < 1023.5 or unit == "EiB":
            break
    return f"{value:.1f} {unit}" if abs(value) < 99.95 else f"{value:.0f} {unit}"


def not_seen(error: "ErrorRow") -> str:
    """Say what could not be seen, and why; with names as the cluster gave them."""
    where = []
    if error.broker is not None:
        where.append(f"broker {error.broker}")
    if error.topic is not None:
        part = "" if error.partition is None else f":{error.partition}"
        where.append(f"{error.topic}{part}")
    if error.id is not None:
        where.append(error.id)
    return f"{', '.join(where) or error.scope}: {error.detail} ({error.error})"
