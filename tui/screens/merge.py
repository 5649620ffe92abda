"""The page of a merge log: how far a replay came, what it reads, the newest entries."""

from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from recovery.merge.log_rows import MergePlanRow
from recovery.plurals import counted
from tui.widgets.lines import Line
from tui.widgets.text import error_lines

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot

BAR = 30


def merge_page(s: "Snapshot | None", app_file: str, width: int) -> list[Line]:
    """Return the page. app_file: its path."""
    answer = s.merge if s is not None and s.merge_about == app_file else None
    if answer is None:
        return [((f" reading the merge log of {visible(app_file)}", "dim"),)]
    lines = error_lines(answer.errors, width)
    entries = answer.extra.get("entries")
    for row in answer.rows:
        assert isinstance(row, MergePlanRow)
        mine = [
            e
            for e in (entries if isinstance(entries, list) else ())
            if isinstance(e, dict) and e["partition"] == row.partition
        ]
        # after the last entry only markers may follow
        end = int(mine[-1]["merge_offset"]) + 1 if mine else row.tip
        lines += [*_partition(row, end), (), ((" newest entries", "title"),)]
        before: dict[object, int] = {}
        for e in mine:
            lines.append(_entry(e, before))
        if not mine:
            lines.append(((" none", "dim"),))
        lines.append(())
    if answer.rows:
        advice = " holes, repeats and disorder: Recover, Merge log: verify (it reads everything)"
        lines.append(((advice, "dim"),))
    return lines


def _partition(row: MergePlanRow, end: int) -> list[Line]:
    name = visible(str(row.topic_partition))
    lines: list[Line] = [((f" {name}", "title"), (f"  tip {row.tip}", "text"))]
    at = row.start if row.position is None else row.position
    span = end - row.start
    done = BAR if span <= 0 else min((at - row.start) * BAR // span, BAR)
    bar = "#" * done + "." * (BAR - done)
    state = "nothing was replayed" if row.position is None else f"replayed to {at}"
    if span > 0 and at >= end:
        state = "replayed to the tip"
    lines.append(((" replay   ", "dim"), (f"[{bar}]", "spark"), (f" {state}", "text")))
    left = row.drop_first if row.drop_left is None else row.drop_left
    words = f"{counted(row.entries, 'entry', 'entries')} from {row.start} to the tip"
    lines.append(((" log      ", "dim"), (words, "text")))
    out = visible(str(row.output.topic_partition))
    words = f"{out} ends at {row.output.end}; "
    words += f"{counted(left, 'output is', 'outputs are')} dropped first"
    lines.append(((" output   ", "dim"), (words, "text")))
    for i in row.inputs:
        partition = visible(str(i.topic_partition))
        words = f"{partition} from {i.start} to {i.end}, {counted(i.entries, 'entry', 'entries')}"
        lines.append(((" input    ", "dim"), (words, "text")))
    return lines


def _entry(e: "dict[str, object]", before: dict[object, int]) -> Line:
    head = f" {e['merge_offset']!s:>12}  "
    if "error" in e:
        return ((head, "dim"), (visible(f"no entry: {e['error']}"), "act"))
    key, offset = (e["topic"], e["input_partition"]), e["offset"]
    assert isinstance(offset, int)
    last = before.get(key)
    before[key] = offset
    skipped = "" if last is None or offset == last + 1 else f"  after {last}"
    text = visible(f"{e['topic']}:{e['input_partition']}")
    return ((head, "dim"), (f"{text}  {offset}", "text"), (skipped, "dim"))
