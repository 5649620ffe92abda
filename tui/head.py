"""The fixed lines: header, tabs, titles of panes, status, footer. Values in, lines out."""

from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from eoctl.render.width import cut_middle
from eoctl.render.words import age as age_words
from eoctl.render.words import count, counted
from tui.keys import footer
from tui.lines import Line, clipped, line_width, spread
from tui.views import NUMBERED, TIMELINE, WHY

if TYPE_CHECKING:
    from eoctl.operations.snapshot import Snapshot
    from tui.app import Dashboard

STALE_INTERVALS = 3
LOOK, JUDGE = "look", "judge"


def aged(app: "Dashboard", collected_at: int | None, kind: str) -> tuple[str, str]:
    """The age of a number and its role: `2s old`, or `STALE 42s` beyond three intervals."""
    if collected_at is None or app.frame is None:
        return ("no answer yet", "dim")
    seconds = max(0.0, (app.feed.now() - collected_at) / 1000)
    if is_stale(app, collected_at, kind):
        return (f" STALE {age_words(seconds)} ", "stale")
    return (f"{age_words(seconds)} old", "dim")


def is_stale(app: "Dashboard", collected_at: int | None, kind: str) -> bool:
    """Older than three intervals of its kind of round?"""
    if collected_at is None or app.frame is None:
        return False
    limit = STALE_INTERVALS * app.frame.snapshot.intervals.get(kind, app.feed.interval)
    return app.feed.now() - collected_at > limit * 1000


def looked_at(s: "Snapshot | None") -> int | None:
    """When the offsets were read."""
    return s.partitions.collected_at if s is not None and s.partitions else None


def head_lines(app: "Dashboard", width: int) -> tuple[Line, Line]:
    """Line 1: context, cluster id, what may be done, age. Line 2: the screens."""
    s = app.frame.snapshot if app.frame else None
    name = visible(s.title) if s else visible(getattr(app.feed, "title", "connecting"))
    words = [(f" {cut_middle(name, max(12, width // 4))}", "head")]
    if s is not None and s.cluster_id:
        words.append((f"  {cut_middle(visible(s.cluster_id), 24)}", "head"))
    if s is not None and s.protected:
        words.append(("  PROTECTED", "head"))
    if s is not None and s.read_only:
        words.append(("  READ-ONLY", "head"))
    if app.frame is not None and app.frame.position is not None:
        at, of = app.frame.position
        words.append((f"  REPLAY {at}/{of}", "head"))
    if app.paused:
        words.append(("  PAUSED", "head"))
    text, role = aged(app, looked_at(s), LOOK)
    right: Line = ((f"{text} ", role if role == "stale" else "head"),)
    return spread(tuple(words), right, width, fill="head"), _tabs(app, width)


def _tabs(app: "Dashboard", width: int) -> Line:
    parts: list[tuple[str, str]] = []
    for v in NUMBERED:
        here = v is app.place.view
        parts += [(f" {v.number} {v.title} ", "tab" if here else "dim")]
    if app.place.view is TIMELINE:
        parts.append((" Timeline ", "tab"))
    return clipped(tuple(parts), width)


def says(app: "Dashboard") -> tuple[Line, ...]:
    """The overview's sentences."""
    width = app.size.width
    if app.frame is None:
        return (((" connecting", "dim"),), (), (), ())
    return tuple(clipped(line, width) for line in app.frame.says)


def table_title(app: "Dashboard", width: int) -> Line:
    """Name, counts, filter, sort; on the right how old the rows are."""
    state = app.table.state
    shown = len(state.order) - len(state.gone)
    everything = len(state.data.rows)
    text = count(shown) if shown == everything else f"{count(shown)} of {count(everything)}"
    parts: list[tuple[str, str]] = [(f" {app.place.view.title} ", "title"), (f" {text}", "dim")]
    if len(state.order) > app.table.room:
        parts.append((f"  line {count(app.table.place + 1)}", "dim"))
    if state.filter is not None:
        parts.append((f"  /{visible(state.filter.text)}", "key"))
    if state.sort is not None:
        title = state.data.columns[state.sort].title
        parts.append((f"  by {title}{' down' if state.descending else ''}", "dim"))
    if state.selected:
        parts.append((f"  {count(len(state.selected))} marked", "marked"))
    if state.gone:
        parts.append((f"  {count(len(state.gone))} gone", "dim"))
    return spread(tuple(parts), (aged(app, state.data.collected_at, LOOK), (" ", "text")), width)


def side_title(app: "Dashboard", width: int) -> Line:
    """Above the evidence: how old the verdicts are."""
    s = app.frame.snapshot if app.frame else None
    at = s.hanging.collected_at if s is not None and s.hanging else None
    return spread(((" Verdict", "title"),), (aged(app, at, JUDGE), (" ", "text")), width)


def page_title(app: "Dashboard", width: int) -> Line:
    """Above a page: what it is about and how old it is."""
    s = app.frame.snapshot if app.frame else None
    view, about = app.place.view, app.place.about
    answer = None
    if s is not None:
        answer = s.why if view is WHY else s.history
        if (s.why_about if view is WHY else s.history_about) != about:
            answer = None
    named = visible(about) if about else "the worst partition" if view is WHY else ""
    left: Line = ((f" {view.title} ", "title"), (f" {named}", "dim"))
    at = answer.collected_at if answer else None
    return spread(left, (aged(app, at, JUDGE), (" ", "text")), width)


def status_line(app: "Dashboard", width: int) -> Line:
    """A message or what is wrong with the asking; on the right what the asking costs."""
    s = app.frame.snapshot if app.frame else None
    text, role = app.message
    if not text and s is not None and s.problem:
        text, role = s.problem, "act"
    right: Line = ()
    if s is not None and not app.feed.replay:
        every = s.intervals.get(LOOK, app.feed.interval)
        cost = f"every {age_words(every)}: {counted(s.requests, 'request')}, "
        cost += f"{s.cost:.2f} s, {s.share:.1%} of the time "
        right = ((cost, "dim"),)
        if line_width(right) + len(text) > width - 2:
            right = ((f"{s.share:.1%} ", "dim"),)
    return spread(((f" {visible(text)}", role),), right, width)


def foot_line(app: "Dashboard", width: int) -> Line:
    """The keys of this screen."""
    parts: list[tuple[str, str]] = []
    room = width
    keys = list(footer(app.place.view, replay=app.feed.replay, may_change=app.may_change))
    # help is always told, whatever else does not fit
    last = [(f" {keys[-1].shown}", "key"), (f" {keys[-1].footer} ", "dim")]
    room -= line_width(tuple(last))
    for k in keys[:-1]:
        word = "resume" if k.action == "pause" and app.paused else k.footer
        if k.action == "retreat" and app.trail:
            word = "back"
        made = [(f" {k.shown}", "key"), (f" {word} ", "dim")]
        if line_width(tuple(made)) > room:
            break
        room -= line_width(tuple(made))
        parts += made
    return (*parts, *last)
