"""Numbers of things in a sentence: `1 record is`, `1,204 records are`.

Separators occur only in sentences; tables and JSON hold plain digits.
"""

from collections.abc import Sequence


def count(number: int) -> str:
    """`1,204`."""
    return f"{number:,}"


def listed(names: Sequence[object], one: str, more: str | None = None) -> str:
    """Return the noun and the names that it is of: `group billing`, `brokers 1, 2`."""
    return f"{one if len(names) == 1 else more or one + 's'} {', '.join(map(str, names))}"


def counted(number: int, one: str, more: str | None = None) -> str:
    """Return the number and its noun; both forms may have words that agree with them, as a verb.

    >>> counted(1, "entry is", "entries are"), counted(1204, "partition")
    ('1 entry is', '1,204 partitions')
    """
    return f"{count(number)} {one if number == 1 else more or one + 's'}"
