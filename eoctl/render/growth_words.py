"""What grows, in sentences: the internal topics, and what the log cleaner cannot pass."""

from collections.abc import Mapping
from typing import Any

from eoctl.render.words import size, spoken_age
from recovery.plurals import count, counted
from recovery.quoting import quoted


def prefix_name(prefix: str) -> str:
    """Return a prefix as people read it: with `*` for what follows in an id.

    >>> prefix_name("pay-"), prefix_name("")
    ('pay-*', '*')
    """
    return f"{prefix}*"


def internal_topic_line(row: Mapping[str, Any]) -> str:
    """Return how full an internal topic is, and where the log cleaner stops. row: as in JSON."""
    parts = [counted(row["partitions"], "partition")]
    parts.append(
        "offsets not known" if row["offsets"] is None else f"{count(row['offsets'])} offsets"
    )
    if row["bytes"] is not None:
        parts.append(size(row["bytes"]))
    if row["largest_bytes"] is not None:
        largest = "largest is" if row["bytes"] is not None else "largest seen is"
        parts.append(f"{largest} {row['largest_partition']} with {size(row['largest_bytes'])}")
    else:
        parts.append("sizes not known")
    text = f"{row['topic']}: {', '.join(parts)}"
    held = sum(bool(log["held"]) for log in row["logs"])
    if held:
        least = "at least " if row["held"] is None else ""
        text += (
            f"; open transactions stop the log cleaner in {least}{counted(held, 'partition')}: "
            f"`eoctl lso {row['topic']}`"
        )
    elif row["held"] is None:
        text += "; where the log cleaner stops is not known"
    return text


def growth_line(row: Mapping[str, Any]) -> str:
    """Return what grows and should not, with what to look at. row: a GrowthRow as in JSON."""
    partition = f"{row['topic']}:{row['partition']}"
    if row["kind"] == "cleaner-held":
        whose = (
            f"producer id {row['producer_id']}"
            if row["prefix"] is None
            else f"prefix {quoted(prefix_name(row['prefix']))}"
        )
        by_producer = row["age_clock"] == "producer"
        age = spoken_age(row["age_seconds"], producer_clock=by_producer)
        return (
            f"the log cleaner cannot pass offset {row['last_stable_offset']} of {partition}: a "
            f"transaction of {whose} has been open for {age}"
            f"{' by its own timestamps' if by_producer else ''}, and "
            f"{counted(row['held'], 'offset')} from there on stay uncompacted"
        )
    text = f"{partition} has {size(row['bytes'])}, over the limit of {size(row['limit'])}"
    if row["prefix"] is not None:
        ids = counted(row["transactional_ids"], "transactional id")
        text += f": prefix {quoted(prefix_name(row['prefix']))} has {ids}"
    return f"{text} (`eoctl txn list --summary`)"
