"""Write the page of `why`: one partition's story, top to bottom, as lines of text."""

from collections.abc import Sequence

from eoctl.render.diagnose_words import contest_words, who_runs
from eoctl.render.ends import Block, ends_blocks
from eoctl.render.explain import part, what_to_do, whom_to_ask
from eoctl.render.sanitise import visible
from eoctl.render.strip_drawing import marker_words, strip_lines
from eoctl.render.width import LABEL, cells, labelled, wrapped
from eoctl.render.words import MOST_PARTITIONS_SHOWN, Age, age, remedy_said, size
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.diagnose.why_rows import WaitingRow, WhyRow
from recovery.plurals import counted
from recovery.quoting import some
from recovery.times import rfc3339

MOST_MARKERS = 3
PIPED = 80  # cells of the drawing without a terminal


def why_lines(
    row: WhyRow,
    *,
    context: str,
    collected_at: int,
    width: int | None,
    ascii_only: bool = False,
    first_look: bool = False,
) -> list[str]:
    """Return the page. width: the terminal's, None without one; the command has its own line.

    first_look: the verdict still needs a second snapshot: show only what was seen.
    """
    title = f"{row.where}  {'FIRST LOOK' if first_look else row.headline}"
    clock = (rfc3339(collected_at) or "")[11:19] + "Z"
    looked_at = f"{context}  {clock}  saw {row.brokers_up}/{row.brokers_known} brokers"
    dots = "..." if ascii_only else "…"
    lines = first_lines(
        visible(title, ascii_only=ascii_only),
        visible(looked_at, ascii_only=ascii_only),
        width,
        dots,
    )
    for label, text in seen_parts(row, collected_at):
        lines += labelled(label, visible(text, ascii_only=ascii_only), width, dots)
    if first_look:
        return lines
    lines += _log(row, width)
    for label, text in judged_parts(row, collected_at):
        lines += labelled(label, visible(text, ascii_only=ascii_only), width, dots)
    return [*lines, *last_lines(row, width, ascii_only=ascii_only)]


def last_lines(row: WhyRow, width: int | None, *, ascii_only: bool = False) -> list[str]:
    """Return the end of the page: what watches it, and what can be done. Commands stay whole."""
    lines: list[str] = []
    for b in last_blocks(row):
        if b.kind == "command":
            lines.append(f"   {b.text}")
        elif b.kind == "heading":
            lines.append(f" {b.text}")
        else:
            text = visible(b.text, ascii_only=ascii_only)
            lines += labelled(b.label, text, width, "..." if ascii_only else "…")
    return lines


def last_blocks(row: WhyRow) -> list[Block]:
    """Return what watches a partition, the command for now, and what is left otherwise."""
    blocks: list[Block] = []
    if row.again is not None:
        blocks += [Block("heading", "watch it:"), Block("command", row.again)]
    if row.held_by is not None and row.error is None:
        held = row.held_by
        blocks += ends_blocks(held, do=what_to_do(held), ask=whom_to_ask(held))
    return blocks


def _log(row: WhyRow, width: int | None) -> list[str]:
    """Return the drawing of the log around the LSO, after its label."""
    lso, high = row.last_stable_offset, row.high_watermark
    if not row.strip or lso is None or high is None:
        return []
    room = max((width or PIPED) - LABEL - 1, 20)
    drawing = strip_lines(row.strip, lso, high, room)
    return [
        f" {'' if number else 'the log':<{LABEL - 1}}{line}" for number, line in enumerate(drawing)
    ]


def first_lines(title: str, looked_at: str, width: int | None, dots: str) -> list[str]:
    """Return the subject and how it was seen: on one line, or on two if that is too long."""
    line = f"{title}    {looked_at}"
    if width is None or cells(line) <= width:
        return [line]
    room = max(width - 1, 20)
    return [part for text in (title, looked_at) for part in wrapped(text, room, dots)]


def seen_parts(row: WhyRow, now: int) -> Sequence[tuple[str, str]]:
    """Return what snapshots show: how far readers get, who holds them, since when, the owner."""
    parts: list[tuple[str, str]] = []
    if row.topic is not None:
        parts.append(("readers see", _readers(row, now)))
    if row.error is not None:
        parts.append(("error", row.error))
        do = part(row.error, "error", "do")
        return [*parts, ("do", do)] if do is not None else parts
    held = row.held_by
    if held is not None:
        parts.append(("held by" if row.topic is not None else "id", _held_by(held)))
        if held.age_seconds is not None:
            clock = f"the {held.age_clock}'s clock"
            if any(e.data.get("clock_measured") is False for e in held.evidence):
                clock = "our clock"
            since = Age(held.age_seconds, producer_clock=held.age_clock == "producer")
            label = "held since" if row.topic is not None else "since"
            parts.append((label, f"{since} ago by {clock}"))
    if row.owner is not None:
        parts.append(("owner", row.owner.said))
    return parts


def judged_parts(row: WhyRow, now: int) -> Sequence[tuple[str, str]]:
    """Return what the verdict rests on, who is harmed, and what to do."""
    parts: list[tuple[str, str]] = []
    held = row.held_by
    if row.error is not None:
        return parts
    if row.history:
        parts.append(("history", _history(row)))
    parts += _markers(row)
    if row.contest is not None:
        parts.append(("contested", contest_words(row.contest, now)))
        parts.append(("ask", who_runs(row.contest)))
    if held is not None:
        parts += [("because" if n == 0 else "", e.text) for n, e in enumerate(held.evidence)]
    if row.others:
        others = ", ".join(
            f"pid {o.producer_id} from {o.start_offset} ({o.verdict})" for o in row.others
        )
        parts.append(("also open", others))
    if row.also_holds:
        parts.append(("also holds", some(row.also_holds, MOST_PARTITIONS_SHOWN)))
    parts.append(("groups", row.groups_said))
    if row.if_you_wait is not None:
        parts.append(("if you wait", _waiting(row, now)))
    if row.waiting is not None and row.waiting.mine and row.held_by is not None:
        parts.append(("at stake", _at_stake(row, row.waiting)))
    if held is not None:
        parts.append(("remedy", remedy_said(held.remedy.action, held.remedy.does)))
        parts += [("but", caveat) for caveat in held.remedy.caveats]
        parts += [
            ("not", f"{action}: {reason}") for action, reason in map(tuple, held.remedy.refused)
        ]
    return parts


def _markers(row: WhyRow) -> list[tuple[str, str]]:
    """Return the newest markers that no coordinator decided, and what they leave unproven."""
    newest = row.markers[-MOST_MARKERS:]
    parts = [("marker", marker_words(m)) for m in newest]
    if earlier := len(row.markers) - len(newest):
        parts.append(("", f"and {counted(earlier, 'earlier one')} that no coordinator decided"))
    foreign = any(m.origin == "foreign" for m in row.markers)
    if foreign and row.held_by is not None and row.held_by.rule == "order-unclear":
        text = "It hides whether the last decision is about the records that are held now."
        parts.append(("", text))
    return parts


def _held_by(held: TxnHangingRow) -> str:
    if held.producer_id is None:
        return "not known"
    epoch = held.producer_epoch if held.topic is None else held.start_batch_epoch
    text = f"pid {held.producer_id} epoch {_or_unknown(epoch)}"
    if held.topic is not None:
        text += f", first offset {_or_unknown(held.start_offset)}"
    text += f", {held.transactional_id or 'no transactional id'}"
    return text + (f", {held.state}" if held.state else "")


def _readers(row: WhyRow, now: int) -> str:
    text = f"LSO {_or_unknown(row.last_stable_offset)}  HW {_or_unknown(row.high_watermark)}"
    w = row.waiting
    if w is None:
        return text if not row.held else f"{text}  {counted(row.held, 'offset')} held"
    text += (
        f"  {'at least ' if w.at_least else ''}{counted(w.records, 'record waits', 'records wait')}"
    )
    if w.oldest_timestamp is not None:
        text += f", oldest ~{age(max(0.0, (now - w.oldest_timestamp) / 1000))}"
    return text


def _or_unknown(value: int | None) -> str:
    return "not known" if value is None else str(value)


def _history(row: WhyRow) -> str:
    words = []
    for h in row.history:
        word = (rfc3339(h.timestamp) or "")[11:19] or "?"
        word += f" {'forgotten' if h.tombstone else h.state or 'not understood'}"
        word += "" if h.producer_epoch is None else f" epoch {h.producer_epoch}"
        words.append(word + (f" ({h.epoch_bump})" if h.epoch_bump else ""))
    return ", ".join(words)


def _waiting(row: WhyRow, now: int) -> str:
    wait = row.if_you_wait
    assert wait is not None
    text = wait.said
    if wait.ending is not None:
        return text
    # rows without an ending: from an older recording, or an id's own
    if wait.ends_at is not None:
        left = (wait.ends_at - now) / 1000
        text += f"; timeout in {age(left)}" if left > 0 else "; its timeout has passed"
    if wait.deleted_at is not None and wait.deleted_at > now:
        text += f" in {age((wait.deleted_at - now) / 1000)}"
    return text


def _at_stake(row: WhyRow, w: WaitingRow) -> str:
    """Return what each outcome makes of this partition's records."""
    octets = "" if w.mine_bytes is None else f" ({size(w.mine_bytes)})"
    least = "at least " if w.at_least else ""
    text = (
        f"{least}{counted(w.mine, 'record')}{octets} here: an abort drops, a commit delivers them"
    )
    text += f"; either frees {least}{counted(w.freed, 'other')}"
    return text + (" (as far as nothing else holds them)" if row.others else "")
