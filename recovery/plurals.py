"""Numbers of things in a sentence: `1 record is`, `1,204 records are`.

Separators stand only in sentences; tables and JSON hold plain digits.
"""


def count(number: int) -> str:
    """`1,204`."""
    return f"{number:,}"


def counted(number: int, one: str, more: str | None = None) -> str:
    """Return the number and its noun; both forms may have words that agree with them, as a verb.

    >>> counted(1, "entry is", "entries are"), counted(1204, "partition")
    ('1 entry is', '1,204 partitions')
    """
    return f"{count(number)} {one if number == 1 else more or one + 's'}"
