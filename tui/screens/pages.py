"""Pages of text, made from values: the story of `why`, evidence, a timeline, help."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from eoctl.render.diagnose_words import contest_words, contests_of, who_runs
from eoctl.render.explain import explain_lines, explained, find, means
from eoctl.render.sanitise import visible
from eoctl.render.why import last_blocks, last_lines, why_lines
from eoctl.render.width import LABEL, cut_end, labelled
from eoctl.render.words import age as age_words
from recovery.diagnose.diagnosis_rows import ContestRow, TxnHangingRow
from recovery.diagnose.why_rows import WhyRow
from recovery.inspect.cluster_rows import HistoryRow, StripRow
from recovery.plurals import counted
from recovery.quoting import quoted
from recovery.row import Row
from recovery.times import rfc3339
from tui.screens.keys import KEYS, commands_of, exists
from tui.screens.views import View, numbered
from tui.widgets.lines import Line
from tui.widgets.strip import strip_page
from tui.widgets.text import command_lines, error_lines, wrapped
from tui.widgets.timeline import newest_transaction, transaction_lines

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot

"""Begin the last lines of `why`: commands, which a page shows in its own way or not at all."""
HEADLINES = {"STUCK": "act", "HELD": "look", "NOT": "good"}
_LANES = {"Ongoing": "=", "Prepare": "~", "CompleteCommit": "c", "CompleteAbort": "a", "Empty": "."}


def why_page(s: "Snapshot | None", subject: str, width: int) -> list[Line]:
    """Return the page of `eoctl why`; subject: TOPIC:P, or "" for the worst."""
    if s is None or s.why is None or s.why_about != subject:
        name = visible(subject) if subject else "the worst partition"
        return [((f" looking at {name}: two looks, some seconds apart", "dim"),)]
    lines: list[Line] = []
    for row in s.why.rows:
        assert isinstance(row, WhyRow)
        lines += _story(row, s, width)
    lines += error_lines(s.why.errors, width, named=True)
    if not s.why.rows:
        lines = [*_contested(s, subject, width), *lines]
        sentence = "nothing is held back" if not s.why.errors else "nothing could be judged"
        lines.insert(0, ((f" {sentence}", "good" if not s.why.errors else "unknown"),))
    if s.why.rows:
        row = s.why.rows[0]
        assert isinstance(row, WhyRow)
        if row.topic is not None:
            lines += [((" the log around the LSO", "title"),)]
            lines += strip_page(s, row.where, width)
    return lines


def _contested(s: "Snapshot", subject: str, width: int) -> Iterator[Line]:
    """Yield what is known of a contested id that holds nothing; subject "": of every such id."""
    for c in contests_of(s.hanging):
        if subject in ("", f"id {c.transactional_id}"):
            yield from contest_lines(c, s.taken_at, width)


def contest_lines(c: ContestRow, now: int, width: int) -> list[Line]:
    """Return what is known of a contested id, and whom to ask."""
    contested = f"{c.transactional_id}: {contest_words(c, now)}"
    return labelled_lines((("contested", contested), ("ask", who_runs(c))), width)


def labelled_lines(
    parts: Iterable[tuple[str, str]], width: int, *, safe: bool = False
) -> list[Line]:
    """Return texts wrapped after their labels. safe: they went through `visible` already."""
    return [
        ((line[:LABEL], "dim"), (line[LABEL:], "text"))
        for label, text in parts
        for line in labelled(label, text if safe else visible(text), width - 1, "…")
    ]


def headline(row: WhyRow, text: str) -> Line:
    """Return a story's first line; text: in the colour of what the story says."""
    role = HEADLINES.get(row.headline.split(" ")[0], "text")
    return ((f" {visible(text)}", role),)


def _story(row: WhyRow, s: "Snapshot", width: int) -> list[Line]:
    lines_told = why_lines(row, context=s.title, collected_at=s.taken_at, width=width - 1)
    lines: list[Line] = [headline(row, f"{row.where}  {row.headline}")]
    last = last_lines(row, width - 1)
    body = lines_told[1 : len(lines_told) - len(last)]
    lines += [((text[:LABEL], "dim"), (text[LABEL:], "text")) for text in body]
    return [*lines, *closing_lines(row, width), ()]


def closing_lines(row: WhyRow, width: int) -> list[Line]:
    """Return the end of a story: what to run now, and what is left otherwise."""
    lines: list[Line] = []
    for b in last_blocks(row):
        if b.kind == "heading":
            lines += [] if b.text.startswith(" ") else [()]
            lines += [((part, "dim"),) for part in wrapped(b.text, width - 1, " ")]
        elif b.kind == "command":
            # can be copied with `e`: on the screen the line may wrap
            lines += [((part, "key"),) for part in command_lines(b.text, width)]
        else:
            lines += labelled_lines(((b.label, b.text),), width)
    return lines


def timeline_page(s: "Snapshot | None", subject: str, width: int) -> list[Line]:
    """Return states and epochs of one transactional id: two lanes over time, then every record."""
    if s is None or s.history is None or s.history_about != subject:
        return [((f" reading the history of {visible(subject)}", "dim"),)]
    rows = [r for r in s.history.rows if isinstance(r, HistoryRow)]
    lines = error_lines(s.history.errors, width)
    if not rows:
        if lines:
            return lines  # what was not seen may still exist
        return [((" __transaction_state has no record of it any more", "dim"),)]
    lines += _newest(s, rows, width)
    lines += _lanes(rows, s.history.collected_at, width)
    if s.history.extra.get("left_out"):
        text = f" earlier records are left out: eoctl txn history {quoted(subject)} --newest N"
        lines.append(((visible(text), "dim"),))
    elif not s.history.extra.get("whole", True):
        lines.append(((" older records were compacted away, or not kept", "dim"),))
    lines.append(())
    before: int | None = None
    for r in rows:
        lines.append(_record(r, before, width))
        before = r.timestamp
    return lines


def _newest(s: "Snapshot", rows: Sequence[HistoryRow], width: int) -> list[Line]:
    """Return the newest transaction with a lane for each partition whose log was read."""
    transaction = newest_transaction(rows)
    if transaction is None or s.lanes is None or s.history is None:
        return []
    pid = transaction.producer_id
    judged = [h for h in (s.hanging.rows if s.hanging else ()) if isinstance(h, TxnHangingRow)]
    lost = {h.where for h in judged if h.verdict == "marker-lost" and h.producer_id == pid}
    strips = [r for r in s.lanes.rows if isinstance(r, StripRow)]
    names: list[str] = s.lanes.extra["partitions"]
    now = s.history.collected_at
    lines = transaction_lines(transaction, names, strips, lost, now, width)
    if left_out := s.lanes.extra["left_out"]:
        lines.append(((f" and {counted(left_out, 'more partition')}", "dim"),))
    return [*lines, *error_lines(s.lanes.errors, width), ()]


def _lanes(rows: Sequence[HistoryRow], now: int, width: int) -> list[Line]:
    timed = [r for r in rows if r.timestamp is not None]
    if not timed:
        return []
    label = 9
    room = max(width - label - 2, 10)
    begin = timed[0].timestamp or 0
    span = max(now - begin, 1)
    states, epochs = "", ""
    last_epoch: int | None = None
    for cell in range(room):
        until = begin + span * (cell + 1) // room
        here = [r for r in timed if (r.timestamp or 0) <= until]
        newest = here[-1] if here else timed[0]
        states += _lane(newest)
        epoch = newest.producer_epoch
        if epoch != last_epoch:
            text = str(epoch) if epoch is not None else "?"
            epochs = epochs[:cell].ljust(cell) + text
            last_epoch = epoch
    begin_text = (rfc3339(begin) or "?")[11:19]
    end_text = f"{(rfc3339(now) or '?')[11:19]}Z, {age_words(span / 1000)}"
    blank = " " * max(1, room - len(begin_text) - len(end_text))
    return [
        ((" state   ", "dim"), (states, "spark")),
        ((" epoch   ", "dim"), (epochs[:room].ljust(room), "text")),
        ((" " * label + begin_text + blank + end_text, "dim"),),
        ((" = ongoing  ~ prepared  c committed  a aborted  . empty", "dim"),),
    ]


def _lane(r: HistoryRow) -> str:
    if r.tombstone:
        return " "
    return next((sign for name, sign in _LANES.items() if (r.state or "").startswith(name)), "?")


def _record(r: HistoryRow, before: int | None, width: int) -> Line:
    time = (rfc3339(r.timestamp) or "?")[:23].replace("T", " ")
    gap = "" if before is None or r.timestamp is None else f"+{(r.timestamp - before) / 1000:.3f}s"
    state = "forgotten" if r.tombstone else r.state or "?"
    role = "act" if r.epoch_bump in ("fence", "past-timeout") else "text"
    text = f"{state:<15} pid {r.producer_id} epoch {r.producer_epoch}"
    if r.epoch_bump:
        text += f" ({r.epoch_bump})"
    if r.partitions:
        text += "  " + ", ".join(r.partitions)
    head = f" {time} {gap:>11}  " if width >= 100 else f" {time[11:]} {gap:>9}  "
    return ((head, "dim"), (cut_end(visible(text), max(width - len(head), 10)), role))


def help_page(
    view: View,
    *,
    replay: bool,
    may_change: bool,
    width: int,
    explains: Sequence[str] = (),
    web: bool = False,
) -> list[Line]:
    """Return every key on this screen, every command, and what marks and `explains` mean."""
    lines: list[Line] = [((" Screens", "title"),)]
    for v in numbered(web=web):
        lines += _entry(f"  {v.number:<10}", "key", f"{v.title}: {v.says}", width)
    lines += [(), ((f" Keys on {view.title}", "title"),)]
    for k in KEYS:
        if exists(k, view, replay=replay, may_change=may_change, web=web):
            lines += _entry(f"  {k.shown:<10}", "key", k.help, width)
    lines += [(), ((" Commands after :", "title"),)]
    for c in commands_of(web=web):
        words = f"{'|'.join(c.words)} {c.takes}".strip()
        lines += _entry(f"  {words:<34} ", "key", c.help, width)
    lines += [(), ((" Marks", "title"),)]
    for sign, role in (("!!", "act"), ("!", "look"), ("?", "unknown"), ("~14m", "text")):
        lines += _entry(f"  {sign:<10}", role, means(sign, "term"), width)
    for name in explains:
        lines += [(), *explain_page(name, width)]
    return lines


def _entry(head: str, role: str, text: str, width: int) -> list[Line]:
    """Return a word and what it means, further lines indented below the meaning."""
    first, *rest = wrapped(text, width - len(head))
    indent = " " * len(head)
    return [((head, role), (first, "text")), *(((indent + part, "text"),) for part in rest)]


def explain_page(word: str, width: int) -> list[Line]:
    """Return the page of `eoctl explain` about a word. Raise UsageError for an unknown word."""
    lines: list[Line] = []
    for entry in explained(word):
        first, *rest = explain_lines(entry, width - 1)
        lines += [((f" {first}", "title"),), *(((text, "text"),) for text in rest), ()]
    return lines


def words_of(rows: Iterable[object], others: Iterable[str] = ()) -> list[str]:
    """Return the verdicts among these rows and what is known of the others: `?` explains them."""
    judged = [row for row in rows if isinstance(row, TxnHangingRow)]
    words = ["mixed" if row.mixed else row.verdict for row in judged]
    return list(dict.fromkeys([*words, *(word for word in others if find(word))]))


def json_lines(source: object) -> list[str]:
    """Return a row as indented JSON; ASCII, so nothing in it reaches the terminal raw."""
    import json

    from eoctl.render.envelope import values

    if isinstance(source, Row):
        return json.dumps(values(source), indent=1).split("\n")
    return ["null"]
