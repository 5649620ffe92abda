"""The fixed lines: header, tabs, titles of panes, status, footer. Values in, lines out."""

from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from eoctl.render.width import cut_end, cut_middle
from eoctl.render.words import age as age_words
from eoctl.render.words import spoken_age
from recovery.plurals import count, counted
from tui.board import STALE_INTERVALS
from tui.screens.keys import footer
from tui.screens.views import (
    CHANGE,
    CHECKPOINT,
    JOB,
    JOBS,
    MERGE,
    NUMBERED,
    PARTITIONS,
    PLANS,
    RECOVER,
    WHY,
)
from tui.widgets.lines import Line, clipped, line_width, spread

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.rows.answers import Answer
    from tui.shell import Shell

STATUS_LINES = 3
LOOK, JUDGE, KEEP = "look", "judge", "keep"


def aged(app: "Shell", collected_at: int | None, kind: str) -> tuple[str, str]:
    """The age of a number and its role: `2s old`, or `STALE 42s` beyond three intervals."""
    if collected_at is None or app.frame is None:
        return ("no answer yet", "dim")
    seconds = max(0.0, (app.feed.now() - collected_at) / 1000)
    if is_stale(app, collected_at, kind):
        return (f" STALE {age_words(seconds)} ", "stale")
    return (f"{age_words(seconds)} old", "dim")


def is_stale(app: "Shell", collected_at: int | None, kind: str) -> bool:
    """Return True if the data is older than three intervals of its kind of round."""
    if collected_at is None or app.frame is None or app.feed.label:
        return False  # a bundle is all of one time
    limit = STALE_INTERVALS * app.frame.snapshot.intervals.get(kind, app.feed.interval)
    return app.feed.now() - collected_at > limit * 1000


def looked_at(s: "Snapshot | None") -> int | None:
    """Return when the offsets were read."""
    return s.partitions.collected_at if s is not None and s.partitions else None


def head_lines(app: "Shell", width: int) -> tuple[Line, Line]:
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
    if app.feed.label:
        words.append((f"  {app.feed.label}{_seen_at(app)}", "head"))
    if app.paused:
        words.append(("  PAUSED", "head"))
    text, role = aged(app, looked_at(s), LOOK)
    right: Line = ((f"{text} ", role if role == "stale" else "head"),)
    return spread(tuple(words), right, width, fill="head"), _tabs(app, width)


def _seen_at(app: "Shell") -> str:
    """Return when a bundle was made: all of it is from that moment."""
    from recovery.times import rfc3339

    at = rfc3339(app.feed.now()) if app.frame else None
    return f" of {at[:19]}Z" if at else ""


def _tabs(app: "Shell", width: int) -> Line:
    here = app.place.view
    room = width - (0 if here.number else len(here.title) + 2)
    full = sum(len(v.title) + 4 for v in NUMBERED) <= room
    parts: list[tuple[str, str]] = []
    for v in NUMBERED:
        title = v.title if full or not v.short else v.short
        parts += [(f" {v.number} {title} ", "tab" if v is here else "dim")]
    own = (f" {here.title} ", "tab")
    if not here.number and line_width((*parts, own)) <= width:  # else its pane says it
        parts.append(own)
    return clipped(tuple(parts), width)


def says(app: "Shell") -> tuple[Line, ...]:
    """The overview's sentences."""
    width = app.size.width
    if app.frame is None:
        return (((" connecting", "dim"),), (), ())
    return tuple(clipped(line, width) for line in app.frame.says)


def table_title(app: "Shell", width: int) -> Line:
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
    if app.place.view is RECOVER:
        return spread(tuple(parts), (), width)
    kind = KEEP if app.place.view in (PLANS, JOBS) else LOOK
    return spread(tuple(parts), (aged(app, state.data.collected_at, kind), (" ", "text")), width)


def side_title(app: "Shell", width: int) -> Line:
    """Above the evidence: how old the verdicts are."""
    s, view = app.frame.snapshot if app.frame else None, app.place.view
    if view in (PLANS, JOBS):
        return ((f" {view.title[:-1]}", "title"),)
    if view is RECOVER:
        return ((" Starts", "title"),)
    if view is PARTITIONS:
        at = s.strip.collected_at if s is not None and s.strip else None
        return spread(((" Log", "title"),), (aged(app, at, LOOK), (" ", "text")), width)
    at = s.hanging.collected_at if s is not None and s.hanging else None
    return spread(((" Verdict", "title"),), (aged(app, at, JUDGE), (" ", "text")), width)


def page_title(app: "Shell", width: int) -> Line:
    """Above a page: what it is about and how old it is."""
    view, about = app.place.view, app.place.about
    answer = page_answer(app)
    at = answer.collected_at if answer else None
    named = visible(about) if about else "the worst partition" if view is WHY else ""
    left: Line = ((f" {view.title} ", "title"), (f" {named}", "dim"))
    kind = KEEP if view in (CHANGE, JOB) else JUDGE
    return spread(left, (aged(app, at, kind), (" ", "text")), width)


def page_answer(app: "Shell") -> "Answer | None":
    """The answer that this page shows; None while what it is about has not been answered.

    A snapshot holds the answer of the page before until then: no key may act on that one.
    """
    s, view = app.frame.snapshot if app.frame else None, app.place.view
    if s is None:
        return None
    if view in (CHANGE, JOB):
        answer, told_of = s.detail, s.detail_about
    elif view is MERGE:
        answer, told_of = s.merge, s.merge_about
    elif view is CHECKPOINT:
        answer, told_of = s.checkpoint, s.checkpoint_about
    elif view is WHY:
        answer, told_of = s.why, s.why_about
    else:
        answer, told_of = s.history, s.history_about
    return answer if told_of == app.place.about else None


def has_answered(app: "Shell") -> bool:
    """Return True if the screen shows its subject. A table always does: its keys are its rows'."""
    return app.place.view.kind != "page" or page_answer(app) is not None


def silent(app: "Shell") -> bool:
    """Return True if the last look at the cluster failed: what is shown is older."""
    s = app.frame.snapshot if app.frame else None
    return s is not None and s.silent


def _problem(app: "Shell", s: "Snapshot", width: int) -> list[str]:
    """Return of when the data is, why there is none newer, and when the cluster is asked again."""
    from recovery.times import rfc3339
    from tui.widgets.text import wrapped

    judged = s.hanging.collected_at if s.hanging else None
    at = looked_at(s) if silent(app) else judged
    now = app.feed.now()
    begin, what = "", "the cluster does not answer"
    if not silent(app):
        begin, what = "verdicts ", "the last judgement failed"
    if at is not None:
        ago = spoken_age(max(0, now - at) / 1000)
        begin += f"as of {(rfc3339(at) or '?')[11:19]}Z, {ago} ago; "
    end = ""
    if app.paused:
        end = "; paused, p resumes"
    elif silent(app) and not app.feed.replay:
        left = max(0, (app.feed.next_look or 0) - now) / 1000
        end = f"; trying again in {spoken_age(left)}" if left >= 1 else "; trying again now"
    begin += f"{what}: "
    room = STATUS_LINES * (width - 12) - len(begin) - len(end)  # lines that end early lose some
    reason = cut_end(visible(s.problem or ""), max(room, 20))
    return wrapped(f"{begin}{reason}{end}", width - 1, " ")


def status_lines(app: "Shell", width: int) -> tuple[Line, ...]:
    """A message or what is wrong with the asking; on the right what the asking costs."""
    s = app.frame.snapshot if app.frame else None
    text, role = app.message
    if not text and app.failed:
        text, role = app.failed, "act"
    if not text and s is not None and s.problem:
        return tuple(((part, "act"),) for part in _problem(app, s, width))
    right: Line = ()
    if s is not None and not app.feed.replay and not app.feed.label:
        every = s.intervals.get(LOOK, app.feed.interval)
        cost = f"every {age_words(every)}: {counted(s.requests, 'request')}, "
        cost += f"{s.cost:.2f} s, {s.share:.1%} of the time "
        right = ((cost, "dim"),)
        if line_width(right) + len(text) > width - 2:
            right = ((f"{s.share:.1%} ", "dim"),)
    return (spread(((f" {visible(text)}", role),), right, width),)


def foot_line(app: "Shell", width: int) -> Line:
    """The keys of this screen."""
    parts: list[tuple[str, str]] = []
    room = width
    keys = list(
        footer(
            app.place.view,
            replay=app.feed.replay,
            may_change=app.may_change,
            answered=has_answered(app),
        )
    )
    # help is always told, whatever else does not fit
    last = [(f" {keys[-1].shown}", "key"), (f" {keys[-1].footer} ", "dim")]
    room -= line_width(tuple(last))
    for k in keys[:-1]:
        word = "resume" if k.action == "pause" and app.paused else k.footer
        if k.action == "retreat" and app.trail:
            word = "back"
        if k.action == "remedy" and app.place.view in (PLANS, CHANGE):
            word = "apply"
        made = [(f" {k.shown}", "key"), (f" {word} ", "dim")]
        if line_width(tuple(made)) > room:
            break
        room -= line_width(tuple(made))
        parts += made
    return (*parts, *last)
