"""Put a plan into words, one labelled fact per line: for the command line and the dashboard."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eoctl.render.group_offset_words import offset_lines
from eoctl.render.words import MOST_PARTITIONS_SHOWN, not_seen, size
from recovery.change.plan import Plan, Step
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS
from recovery.plurals import counted
from recovery.quoting import some
from recovery.remedy.life import looks_words, members_words, warning, writing
from recovery.remedy.repairs import MARKER_ACTION
from recovery.row import ErrorRow
from recovery.times import rfc3339

MOST_GROUPS = 6
_OFFSETS = f"{CONSUMER_OFFSETS}:"
HOST_UNKNOWN = (
    "Kafka does not record the host of a producer. Look for this transactional.id in your "
    "deployments."
)


def plan_facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield (label, text) for all that an operator must read before typing the plan's word."""
    for step in writing(plan):
        yield "WRITES", warning(step)
    yield "what", plan.summary
    unseen: set[tuple[str, str]] = set()  # shown once, not with each of a thousand steps
    for number, step in enumerate(plan.steps, 1):
        yield f"step {number}", step.does
        yield from _group_offsets(step)
        yield from _judged(step)
        yield from _reach(step)
        yield from _life(step)
        for fact in _unseen(step):
            if fact not in unseen:
                unseen.add(fact)
                yield fact
        for text in step.harms:
            yield "harm", text
    for row in _left_out(plan):
        yield "left out", f"{subject(row)}: {row['reason']}"
    yield "lock", plan.lock
    yield "expires", rfc3339(plan.expires_at) or "-"
    yield "sha256", plan.sha256


def subject(row: Mapping[str, Any]) -> str:
    """Return for instance `orders:3 pid 4001 billing-1 orphan (nobody-owns-it)`."""
    words = [row["partition"] or "no partition", f"pid {row['producer_id']}"]
    if row["transactional_id"] is not None:
        words.append(row["transactional_id"])
    return "  ".join([*words, f"{row['verdict']} ({row['rule']})"])


def _left_out(plan: Plan) -> list[Mapping[str, Any]]:
    details = plan.details
    return list(details.get("left_out", ())) if isinstance(details, Mapping) else []


def _group_offsets(step: Step) -> Iterator[tuple[str, str]]:
    """Say which groups' offsets the transaction holds, and what they are afterwards."""
    more = sum(row.get("group_offsets_more", 0) for row in step.about)
    for offset in (o for row in step.about for o in row.get("group_offsets", ())):
        yield from zip(("groups", ""), offset_lines(offset), strict=True)
    if more:
        yield "", f"and {counted(more, 'more offset')} of groups"


def _judged(step: Step) -> Iterator[tuple[str, str]]:
    """Say what a remedy's step was judged from."""
    for row in step.about:
        yield "on", subject(row)
        yield "records", _records(row)
        if (stake := row.get("at_stake")) is not None:
            yield "at stake", _stake(stake)
        for evidence in row["evidence"]:
            yield "because", evidence["text"]
        for text in row.get("asked", ())[:1]:
            yield "asked", text


def _records(row: Mapping[str, Any]) -> str:
    if row["dropped"] is None:
        return "not counted"
    least = "" if row["counted_whole"] else "at least "
    octets = f" ({size(row['bytes'])})" if row.get("bytes") else ""
    mine = row.get("records")
    if mine and not row["dropped"]:
        others = row["freed"] - mine
        freed = f", {least}{counted(others, 'other')} freed" if others else ""
        delivered = f"{least}{counted(mine, 'record')} delivered{octets}"
        return f"{delivered}{freed}; an abort drops the {mine}"
    octets = octets if row["dropped"] else ""
    return f"{least}{row['dropped']} dropped{octets}, {least}{row['freed']} freed"


def _reach(step: Step) -> Iterator[tuple[str, str]]:
    """Say which other partitions are affected, and which groups are past the first record.

    Empty for a plan of an earlier version.
    """
    rows = [row for row in step.about if "also_holds" in row]
    if not rows:
        return
    yield "also", _also_held(step, rows)
    held = [row for row in rows if row["partition"] is not None]
    # that no group has read __consumer_offsets says nothing of the offsets that it holds there
    if told := [r for r in held if r["groups_beyond"] or not r["partition"].startswith(_OFFSETS)]:
        yield "groups", _groups(told)


def _life(step: Step) -> Iterator[tuple[str, str]]:
    """Say whether the owner writes and who it is. Empty for an earlier version's plan."""
    rows = [row for row in step.about if row.get("looks") is not None]
    for row in rows:
        subject_name = row["partition"] or row["transactional_id"]
        yield "looks", f"{subject_name}: {looks_words(row)}"
    known = [row for row in step.about if "members" in row]
    if known:
        yield "members", members_words(known)
        yield "host", HOST_UNKNOWN


def _also_held(step: Step, rows: Sequence[Mapping[str, Any]]) -> str:
    others = rows[0]["also_holds"]
    number = len(others) + rows[0]["also_holds_more"]
    if step.action == MARKER_ACTION:
        if number:
            names = some(others, MOST_PARTITIONS_SHOWN, number)
            return f"Its producer id also holds {names}. This step does not end it there."
        seen = " that can be seen" if rows[0]["partitions_unseen"] else ""
        return f"Its producer id holds no other partition{seen}."
    here = [row["partition"] for row in rows if row["partition"] is not None]
    number += rows[0]["partition"] is not None
    if not number:
        return "The transaction is on no partition yet."
    if not others:
        return f"The transaction is on {here[0]} alone."
    names = some(list(dict.fromkeys([*here, *others])), MOST_PARTITIONS_SHOWN, number)
    return (
        f"The transaction is on {counted(number, 'partition')}: {names}. "
        "This step ends it on all of them."
    )


def _groups(rows: Sequence[Mapping[str, Any]]) -> str:
    """Name the groups that have read records of the transaction, each with its position."""
    names = [
        f"{g['group']} ({row['partition']}, at {g['committed_offset']})"
        for row in rows
        for g in row["groups_beyond"]
    ]
    number = len(names) + sum(row["groups_beyond_more"] for row in rows)
    if not number:
        seen = " that can be seen" if any(row["groups_unseen"] for row in rows) else ""
        return f"No group{seen} has committed an offset past its first record."
    return (
        f"Past its first record: {some(names, MOST_GROUPS, number)}. Unless that offset was set "
        "by hand, such a group reads uncommitted records: it may have used some that an abort "
        "drops."
    )


def _unseen(step: Step) -> Iterator[tuple[str, str]]:
    """Say what of this evidence could not be seen: more may exist."""
    for field, what in (
        ("partitions_unseen", "partitions"),
        ("groups_unseen", "groups"),
        ("group_offsets_unseen", "offsets of groups in this transaction"),
    ):
        for row in step.about:
            errors = [not_seen(ErrorRow.read(e)) for e in row.get(field, ())]
            more = row.get(f"{field}_more", 0)
            if errors:
                tail = f"; and {more} more" if more else ""
                yield "unseen", f"There may be more {what}: {'; '.join(errors)}{tail}."


def _stake(stake: Mapping[str, Any]) -> str:
    least = "" if stake["whole"] else "at least "
    text = f"{least}{counted(stake['records'], 'record')}"
    if stake["first_offset"] is not None:
        text += f", offsets {stake['first_offset']} to {stake['last_offset']}"
    return text + (f", keys {', '.join(stake['keys'])}" if stake["keys"] else "")
