"""Topics and partitions as typed: `orders`, `orders:3`, `orders:0,2,5-9`, `'orders-*'`.

Every command that takes TOPIC[:P] parses it here. Pure: the caller knows what exists.
"""

import fnmatch
import re
import warnings
from collections.abc import Iterable, Mapping

from recovery.errors import UsageError
from recovery.facts import TopicPartition
from recovery.quoting import quoted
from recovery.values import Value

MAX_TOPIC_LENGTH = 249  # org.apache.kafka.common.internals.Topic
MAX_PARTITION = 2**31 - 1

# Patterns are compiled when a selector is read, since many commands get none.
_LEGAL = "[a-zA-Z0-9._-]+"
_GLOB_CHARACTERS = frozenset("*?[")
_PARTITIONS = "[0-9,-]+"
_RANGE = "([0-9]{1,10})(?:-([0-9]{1,10}))?"

_PRINTED = "(.+)-([0-9]{1,5})"

Ranges = tuple[tuple[int, int], ...]


class Selector(Value):
    """One selector. text: as typed. partitions: inclusive ranges, ascending and disjoint; None =
    all. literal: the one topic named exactly; None = a pattern."""

    text: str
    pattern: re.Pattern[str]
    partitions: Ranges | None = None
    literal: str | None = None

    def matches_topic(self, topic: str) -> bool:
        """Return True if any partition of this topic matches."""
        return self.pattern.fullmatch(topic) is not None

    def matches(self, topic: str, partition: int) -> bool:
        """Return True if this partition is selected."""
        return self.matches_topic(topic) and (
            self.partitions is None
            or any(low <= partition <= high for low, high in self.partitions)
        )


def parse_selector(
    text: str, *, partitions: str | None = None, where: str | None = None
) -> Selector:
    """Parse TOPIC[:P]: TOPIC is a name or a glob (`*`, `?`, `[a-z]`, `[!x]`; it matches complete
    names, case matters), P is `3` or `0,2,5-9`.

    partitions: the text of a separate option (`--partition 3`). where: the option or argument, for
    the error. Raises UsageError.
    """
    topic, colon, rest = text.rpartition(":")
    if not colon or not re.fullmatch(_PARTITIONS, rest):
        topic, rest = text, ""
    if rest and partitions is not None:
        raise UsageError(f"{quoted(text)} and --partition both name partitions", where=where)
    chosen = rest or partitions
    _refuse_illegal(topic, where)
    ranges = None if chosen is None else _ranges(chosen, where)
    if _GLOB_CHARACTERS.isdisjoint(topic):
        return Selector(text, re.compile(re.escape(topic)), ranges, literal=topic)
    return Selector(text, re.compile(fnmatch.translate(topic)), ranges)


def regex_selector(expression: str, *, where: str | None = "--regex") -> Selector:
    """Return a selector of topics whose complete name matches a Python regular expression.

    Raises UsageError with the position of the error in it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "possible nested set" would reach the terminal
            return Selector(expression, re.compile(expression))
    except re.error as error:
        at = "" if error.pos is None else f" at character {error.pos + 1}"
        reason = f"{error.msg}{at}"
    except (OverflowError, RecursionError) as error:
        reason = str(error)
    raise UsageError(
        f"{quoted(expression)} is not a regular expression: {reason}",
        where=where,
        remedy="for a glob give the topic as an argument in quotes, like 'orders-*'",
    )


def _as_logs_print(selector: Selector) -> str:
    """Return a hint for `orders-3`, which is how brokers' logs write `orders:3`."""
    match = re.fullmatch(_PRINTED, selector.literal or "")
    if match is None or selector.partitions is not None:
        return ""
    return f"; partition {match[2]} of topic {match[1]} is written {match[1]}:{match[2]}"


def missing(selectors: Iterable[Selector], partition_counts: Mapping[str, int]) -> list[str]:
    """Return a sentence for each exactly named topic or partition that does not exist.

    partition_counts: existing topics and their number of partitions (Kafka counts from 0).
    """
    sentences = []
    for selector in selectors:
        if selector.literal is None:
            continue
        count = partition_counts.get(selector.literal)
        if count is None:
            sentences.append(f"topic {selector.literal} does not exist{_as_logs_print(selector)}")
            continue
        absent = [
            (max(low, count), high) for low, high in selector.partitions or () if high >= count
        ]
        if absent:
            named = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in absent)
            there = "only partition 0" if count == 1 else f"partitions 0-{count - 1}"
            sentences.append(f"{selector.literal}:{named} does not exist; the topic has {there}")
    return sentences


def unmatched(
    selectors: Iterable[Selector], partitions: Iterable[TopicPartition]
) -> tuple[str, ...]:
    """Return a sentence for each pattern that matches none of these partitions: likely misspelt."""
    there = list(partitions)
    return tuple(
        f"no partition matches {quoted(s.text)}"
        for s in selectors
        if s.literal is None and not any(s.matches(*topic_partition) for topic_partition in there)
    )


def _refuse_illegal(topic: str, where: str | None) -> None:
    """Apply Kafka's rules for topic names (Topic.validate); a glob may also have its characters."""
    glob = not _GLOB_CHARACTERS.isdisjoint(topic)
    remedy = None
    if not topic:
        reason = "no topic is named"
        remedy = "write TOPIC, TOPIC:3 or TOPIC:0,2,5-9"
    elif topic in (".", ".."):
        reason = f"Kafka does not allow a topic named {topic}"
    elif not glob and len(topic) > MAX_TOPIC_LENGTH:
        reason = (
            f"{quoted(topic)} is longer ({len(topic)}) than the {MAX_TOPIC_LENGTH} characters of "
            "a topic name"
        )
    else:
        illegal = [
            character
            for character in topic
            if not re.match(_LEGAL, character) and not (glob and character in "*?[]!")
        ]
        if illegal:
            reason = (
                f"{quoted(topic)} is not a topic name: Kafka does not allow {illegal[0]!r} in it"
            )
            remedy = (
                "partitions are written TOPIC:3 or TOPIC:0,2,5-9"
                if illegal[0] == ":"
                else "allowed are letters, digits, dot, underscore and dash"
            )
        elif glob and not _closed(topic):
            reason = f"in the glob {quoted(topic)} a [ is not closed"
            remedy = "write [a-z], or use --regex"
        else:
            return
    raise UsageError(reason, where=where, remedy=remedy)


def _closed(glob: str) -> bool:
    """Return False if a [ is never closed: fnmatch takes it literally, and no topic name has it."""
    return "[" not in re.sub(r"\[!?\]?[^\]]*\]", "", glob)


def _ranges(text: str, where: str | None) -> Ranges:
    ranges: list[tuple[int, int]] = []
    for part in text.split(","):
        if not (match := re.fullmatch(_RANGE, part.strip())):
            raise UsageError(
                f"{quoted(text)} does not name partitions",
                where=where,
                remedy="write 3 or 0,2,5-9",
            )
        low, high = int(match[1]), int(match[2] or match[1])
        if low > high:
            raise UsageError(f"the partitions {part} run backwards", where=where)
        if high > MAX_PARTITION:
            raise UsageError(f"partition {high} is above {MAX_PARTITION}", where=where)
        ranges.append((low, high))
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)
