"""A plan in words, one labelled fact a line: the same for the command line and the dashboard."""

from collections.abc import Iterator, Mapping
from typing import Any

from eoctl.render.words import size
from recovery.change.plan import Plan, Step
from recovery.times import rfc3339


def plan_facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """(label, text) of all that an operator must read before the plan's word is typed."""
    yield "what", plan.summary
    for number, step in enumerate(plan.steps, 1):
        yield f"step {number}", step.does
        yield from _judged(step)
    for row in _left_out(plan):
        yield "left out", f"{subject(row)}: {row['reason']}"
    yield "lock", plan.lock
    yield "expires", rfc3339(plan.expires_at) or "-"
    yield "sha256", plan.sha256


def subject(row: Mapping[str, Any]) -> str:
    """`orders:3  pid 4001  billing-1  orphan (nobody-owns-it)`."""
    words = [row["partition"] or "no partition", f"pid {row['producer_id']}"]
    if row["transactional_id"] is not None:
        words.append(row["transactional_id"])
    return "  ".join([*words, f"{row['verdict']} ({row['rule']})"])


def _left_out(plan: Plan) -> list[Mapping[str, Any]]:
    details = plan.details
    return list(details.get("left_out", ())) if isinstance(details, Mapping) else []


def _judged(step: Step) -> Iterator[tuple[str, str]]:
    """Say what a remedy's step was judged from, and who is harmed by it."""
    for row in step.about:
        yield "on", subject(row)
        yield "records", _records(row)
        if (stake := row.get("at_stake")) is not None:
            yield "at stake", _stake(stake)
        for evidence in row["evidence"]:
            yield "because", evidence["text"]
        for text in row.get("asked", ())[:1]:
            yield "asked", text
    for text in step.harms:
        yield "harm", text


def _records(row: Mapping[str, Any]) -> str:
    if row["dropped"] is None:
        return "not counted"
    least = "" if row["counted_whole"] else "at least "
    octets = f" ({size(row['bytes'])})" if row["dropped"] and row.get("bytes") else ""
    return f"{least}{row['dropped']} dropped{octets}, {least}{row['freed']} freed"


def _stake(stake: Mapping[str, Any]) -> str:
    least = "" if stake["whole"] else "at least "
    text = f"{least}{stake['records']} records"
    if stake["first_offset"] is not None:
        text += f", offsets {stake['first_offset']} to {stake['last_offset']}"
    return text + (f", keys {', '.join(stake['keys'])}" if stake["keys"] else "")
