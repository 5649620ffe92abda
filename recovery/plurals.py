"""Write numbers of things in a sentence: `1 record is`, `1,204 records are`.

Separators occur only in sentences; tables and JSON have plain digits.
"""

from collections.abc import Sequence


def count(number: int) -> str:
    """Return a number with separators: `1,204`."""
    return f"{number:,}"


def listed(names: Sequence[object], one: str, more: str | None = None) -> str:
    """Return the noun and the names that it is for: `group billing`, `brokers 1, 2`."""
    return f"{one if len(names) == 1 else more or one + 's'} {', '.join(map(str, names))}"


def counted(number: int, one: str, more: str | None = None) -> str:
    """Return the number and its noun; either form may include words that agree with it, as a verb.

    >>> counted(1, "entry is", "entries are"), counted(1204, "partition")
    ('1 entry is', '1,204 partitions')
    """
    return f"{count(number)} {one if number == 1 else more or one + 's'}"
