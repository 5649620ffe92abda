"""Draw the fixed lines from values: header, tabs, panels' titles, status, footer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from eoctl.render.width import cut_end, cut_middle
from eoctl.render.words import age as age_words
from eoctl.render.words import size, spoken_age
from recovery.plurals import count, counted
from tui.board import STALE_INTERVALS
from tui.screens.keys import Key
from tui.screens.views import (
    CHANGE,
    CHECKPOINT,
    COUNTS,
    DOCTOR,
    FINDING,
    GROUP,
    JOB,
    JOBS,
    MERGE,
    OVERVIEW,
    PLANS,
    PREFIXES,
    RECOVER,
    WHY,
    Location,
    View,
    numbered,
)
from tui.widgets.edges import Titles
from tui.widgets.grid import WIDE
from tui.widgets.lines import SLIDER, Line, clipped, line_width, spread

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer
    from tui.feed.asking import Feed
    from tui.feed.frame import Frame
    from tui.feed.writer import Writer
    from tui.widgets.table import Table
    from tui.widgets.table_state import TableState
    from tui.widgets.tables import TableData, TableRow

STATUS_LINES = 3
LEAST_SLIDER, MOST_SLIDER = 10, 80  # cells
LEAST_ROOMY, LEAST_ID = 80, 8  # cells of a line 1 with two blanks between words; of an id
AGE_ROOM = 15  # cells for the age after a slider
LOOK, JUDGE, KEEP = "look", "judge", "keep"
ONCE = "once"  # asked when a screen opens, and not again by itself: it grows old, but not stale


def aged(
    s: "Snapshot | None", feed: "Feed", collected_at: int | None, kind: str
) -> tuple[str, str]:
    """Return a number's age and its role: `2s old`, or `STALE 42s` beyond three intervals."""
    if collected_at is None or s is None:
        return ("no answer yet", "dim")
    seconds = max(0.0, (feed.now() - collected_at) / 1000)
    if is_stale(s, feed, collected_at, kind):
        return (f" STALE {age_words(seconds)} ", "stale")
    return (f"{age_words(seconds)} old", "dim")


def is_stale(s: "Snapshot | None", feed: "Feed", collected_at: int | None, kind: str) -> bool:
    """Return True if the data is older than three intervals of its kind of round."""
    if collected_at is None or s is None or feed.label or kind == ONCE:
        return False  # all of a bundle is from one moment
    limit = STALE_INTERVALS * s.intervals.get(kind, feed.interval)
    return feed.now() - collected_at > limit * 1000


def looked_at(s: "Snapshot | None") -> int | None:
    """Return when the offsets were read."""
    return s.partitions.collected_at if s is not None and s.partitions else None


def head_lines(
    frame: "Frame | None", feed: "Feed", view: View, width: int, *, paused: bool
) -> tuple[Line, Line]:
    """Return line 1 (context, cluster id, what may be done, age) and line 2 (the screens)."""
    s, at = (frame.snapshot, frame.position) if frame else (None, None)
    gap = "  " if width >= LEAST_ROOMY else " "
    words = "".join(f"{gap}{word}" for word in _words(frame, feed, paused=paused) if word)
    text, role = aged(s, feed, looked_at(s), LOOK)
    right: Line = ((f"{text} ", role if role == "stale" else "head"),)
    room = width - len(words) - line_width(right) - 1  # the words and the age are never cut
    name = visible(s.title) if s else visible(getattr(feed, "title", "connecting"))
    name = f" {cut_middle(name, min(room - 1, max(12, width // 4)))}" if room >= 4 else ""
    most = min(24 if at is None or width >= WIDE else 12, room - line_width(((name, ""),)) - 2)
    if s is not None and s.cluster_id and most >= LEAST_ID:
        name += f"  {cut_middle(visible(s.cluster_id), most)}"
    left: Line = ((name + words, "head"),)
    if frame is not None and frame.position is not None:
        # its place is the same in every snapshot, so that it can be dragged
        room = width - line_width(left) - AGE_ROOM - 2
        slider = _slider(frame, min(width // 4, MOST_SLIDER), feed)
        if slider and len(slider) <= room:
            age = (f"{text:>{AGE_ROOM - 1}} ", right[0][1])
            right = ((slider, SLIDER), age if role != "stale" else right[0])
    return spread(left, right, width, fill="head"), _tabs(view, width, numbered(web=feed.web))


def _words(frame: "Frame | None", feed: "Feed", *, paused: bool) -> Sequence[str]:
    """Return what line 1 says of the source, "" where nothing."""
    s, at = (frame.snapshot, frame.position) if frame else (None, None)
    return (
        "PROTECTED" if s is not None and s.protected else "",
        "READ-ONLY" if s is not None and s.read_only else "",
        f"REPLAY {at[0]:>{len(str(at[1]))}}/{at[1]}" if at is not None else "",
        _recording(feed, paused),
        f"{feed.label}{_made_at(feed) if frame else ''}" if feed.label else "",
        "PAUSED" if paused else "",
    )


def _recording(feed: "Feed", paused: bool) -> str:
    """Return how large the file is into which a feed records; nothing if it does not now."""
    writer: Writer | None = getattr(feed, "writer", None)
    if writer is not None and writer.ended:
        return "RECORDING ENDED"
    if writer is None or paused or not writer.recording:
        return ""
    return f"RECORDING {size(writer.size)}"


def _slider(frame: "Frame", room: int, feed: "Feed") -> str:
    """Return a recording's time axis: `!` where it has a finding, a knob where it is now."""
    if room < LEAST_SLIDER or not frame.troubled or frame.position is None:
        return ""
    knob, sign, line = ("O", "!", "-") if feed.ascii_only else ("●", "!", "─")
    of, signs = len(frame.troubled), []
    for cell in range(room):  # of the snapshots to which a click there goes
        first = cell * of // room
        troubled = any(frame.troubled[first : max(first + 1, (cell + 1) * of // room)])
        signs.append(sign if troubled else line)
    signs[(frame.position[0] - 1) * (room - 1) // max(of - 1, 1)] = knob
    return "".join(signs)


def _made_at(feed: "Feed") -> str:
    """Return when a bundle was made: all of it is from that moment."""
    from recovery.times import rfc3339

    at = rfc3339(feed.now())
    return f" of {at[:19]}Z" if at else ""


def _tabs(here: View, width: int, views: Sequence[View]) -> Line:
    is_tab = here.number is not None
    room = width - (0 if is_tab else len(here.title) + 2)
    full = sum(len(v.title) + 4 for v in views) <= room
    parts: list[tuple[str, str]] = []
    for v in views:
        text = f" {v.number} {v.title} " if full else f" {v.number} {v.short or v.title}"
        parts += [(text, "tab" if v is here else "dim")]
    own = (f" {here.title} ", "tab")
    if not is_tab and line_width((*parts, own)) <= width:  # else the pane shows it
        parts.append(own)
    return clipped(tuple(parts), width)


def says(frame: "Frame | None", feed: "Feed", width: int, most: int) -> tuple[Line, ...]:
    """Return the overview's sentences, the worst problem first; before that what is awaited."""
    lines = frame.says if frame is not None and not _awaited(frame.snapshot) else ()
    first: Line = ((f" {feed.waiting()}", "dim"),)
    return tuple(clipped(line, width) for line in (lines or (first, (), ()))[:most])


def _awaited(s: "Snapshot | None") -> bool:
    """Return True before the first answer, if nothing is known to be wrong."""
    return s is None or (s.partitions is None and not s.problem)


def table_title(s: "Snapshot | None", feed: "Feed", view: View, table: "Table") -> Titles:
    """Return name, counts, filter and sort order; on the right how old the rows are."""
    state = table.state
    named = s.doctor.extra["named"] if view is DOCTOR and s is not None and s.doctor else ()
    title = " ".join((view.list_title, *map(visible, named)))
    parts: list[tuple[str, str]] = [(f" {title} ", "title"), *_counts(state, view)]
    if len(state.order) > table.room:
        parts.append((f" line {count(table.cursor_index + 1)} ", "dim"))
    if state.filter is not None:
        parts.append((f" /{visible(state.filter.text)} ", "key"))
    if state.sort is not None:
        title = state.data.columns[state.sort].title
        parts.append((f" by {title}{' down' if state.descending else ''} ", "dim"))
    if state.selected:
        parts.append((f" {count(len(state.selected))} marked ", "acts"))
    if state.gone:
        parts.append((f" {count(len(state.gone))} gone ", "dim"))
    if view is RECOVER:
        return tuple(parts), ()
    kind = ONCE if view in (DOCTOR, COUNTS, PREFIXES) else KEEP if view in (PLANS, JOBS) else LOOK
    return tuple(parts), _age(s, feed, state.data.collected_at, kind)


def _counts(state: "TableState", view: View) -> list[tuple[str, str]]:
    """Return how many rows are shown; of the overview, how many of them are findings."""
    shown, everything = len(state.order) - len(state.gone), len(state.data.rows)
    if shown != everything:
        return [(f"{count(shown)} of {count(everything)} ", "text")]
    if view is not OVERVIEW:
        return [(f"{count(shown)} ", "text")]
    findings = state.data.marked
    normal = everything - findings
    return [
        (f"{count(findings)} ", "text"),
        *([(f" {count(normal)} within limits ", "dim")] if normal else ()),
    ]


def _age(s: "Snapshot | None", feed: "Feed", collected_at: int | None, kind: str) -> Line:
    """Return how old something is, for a panel's edge."""
    text, role = aged(s, feed, collected_at, kind)
    return ((text if role == "stale" else f" {text} ", role),)


def story_title(
    s: "Snapshot | None", feed: "Feed", data: "TableData", row: "TableRow | None"
) -> Titles:
    """Return what the story beside a list is about, and how old it is."""
    if s is None or row is None:
        return ((" Story ", "title"),), ()
    judged = row.judged
    if judged is None:
        return ((f" {_name(data, row)} ", "title"),), ()
    from tui.story import answered

    told = s.why if answered(s, row) is not None else s.hanging
    age = _age(s, feed, told.collected_at if told else None, JUDGE)
    return ((f" {visible(judged.where)} ", "title"),), age


def _name(data: "TableData", row: "TableRow") -> str:
    """Return what a row is about: its partition or name, else its first words."""
    kinds = [column.kind for column in data.columns]
    return row.cells[next((i for i, k in enumerate(kinds) if k in ("partition", "name")), 1)]


def page_title(
    s: "Snapshot | None",
    feed: "Feed",
    answer: "Answer | None",
    location: Location,
    trail: "Sequence[Location]",
) -> Titles:
    """Return the way that led to a page, its subject, and its age."""
    view, about = location.view, location.about
    at = answer.collected_at if answer else None
    way = "".join(f" {_crumb(place)} >" for place in trail)
    named = visible(about) if about else "the worst partition" if view is WHY else ""
    left: Line = ((way, "dim"), (f" {view.title} ", "title"), (f"{named} ", "text"))
    kind = ONCE if view in (FINDING, GROUP) else KEEP if view in (CHANGE, JOB) else JUDGE
    return left, _age(s, feed, at, kind)


def _crumb(place: Location) -> str:
    about = cut_middle(visible(place.about), 24) if place.view.kind == "page" else ""
    return f"{place.view.title} {about}".rstrip()


def page_answer(s: "Snapshot | None", location: Location) -> "Answer | None":
    """Return the answer that this page shows; None until its subject has been answered.

    Until then a snapshot holds the previous page's answer: no key may act on that one.
    """
    view = location.view
    if s is None:
        return None
    if view is FINDING:
        from tui.screens.doctor import finding_answer

        return finding_answer(s.doctor, location.about)
    if view in (CHANGE, JOB):
        answer, about = s.detail, s.detail_about
    elif view is MERGE:
        answer, about = s.merge, s.merge_about
    elif view is CHECKPOINT:
        answer, about = s.checkpoint, s.checkpoint_about
    elif view is GROUP:
        answer, about = s.commits, s.commits_about
    elif view is WHY:
        answer, about = s.why, s.why_about
    else:
        answer, about = s.history, s.history_about
    return answer if about == location.about else None


def _problem(s: "Snapshot", feed: "Feed", width: int, *, paused: bool) -> list[str]:
    """Return the data's time, why no newer data exists, and when the cluster is asked again."""
    from recovery.times import rfc3339
    from tui.widgets.text import wrapped

    judged = s.hanging.collected_at if s.hanging else None
    at = looked_at(s) if s.silent else judged
    now = feed.now()
    begin, what = "", "the cluster does not answer"
    if not s.silent:
        begin, what = "verdicts ", "the last judgement failed"
    if at is not None:
        ago = spoken_age(max(0, now - at) / 1000)
        begin += f"as of {(rfc3339(at) or '?')[11:19]}Z, {ago} ago; "
    end = ""
    if paused:
        end = "; paused, p resumes"
    elif s.silent and not feed.replay:
        left = max(0, (feed.next_look or 0) - now) / 1000
        end = f"; trying again in {spoken_age(left)}" if left >= 1 else "; trying again now"
    begin += f"{what}: "
    room = STATUS_LINES * (width - 12) - len(begin) - len(end)  # lines that end early lose some
    reason = cut_end(visible(s.problem or ""), max(room, 20))
    return wrapped(f"{begin}{reason}{end}", width - 1, " ")


def status_lines(
    s: "Snapshot | None", feed: "Feed", message: tuple[str, str], width: int, *, paused: bool
) -> tuple[Line, ...]:
    """Return a message or what is wrong with asking; on the right what asking costs."""
    text, role = message
    if not text and _awaited(s):
        text, role = feed.waiting(), "dim"
    if not text and s is not None and s.problem:
        return tuple(((part, "act"),) for part in _problem(s, feed, width, paused=paused))
    right: Line = ()
    if s is not None and not feed.replay and not feed.label:
        every = s.intervals.get(LOOK, feed.interval)
        cost = f"every {age_words(every)}: {counted(s.requests, 'request')}, "
        cost += f"{s.cost:.2f} s, {s.share:.1%} of the time "
        right = ((cost, "dim"),)
        if line_width(right) + len(text) > width - 2:
            right = ((f"{s.share:.1%} ", "dim"),) if len(text) < width - 8 else ()
    return (spread(((f" {visible(text)}", role),), right, width),)


def foot_line(view: View, keys: Sequence[Key], width: int, *, paused: bool, returns: bool) -> Line:
    """Return the keys of this screen. returns: `q` goes back to another screen."""
    parts: list[tuple[str, str]] = []
    room = width
    # help is always shown, whatever else does not fit
    last = [(f" {keys[-1].shown}", "key"), (f" {keys[-1].footer} ", "dim")]
    room -= line_width(tuple(last))
    for k in keys[:-1]:
        word = "resume" if k.action == "pause" and paused else k.footer
        if k.action == "retreat" and returns:
            word = "back"
        if k.action == "remedy" and view in (PLANS, CHANGE):
            word = "apply"
        made = [(f" {k.shown}", "acts" if k.changes else "key"), (f" {word} ", "dim")]
        if line_width(tuple(made)) > room:
            break
        room -= line_width(tuple(made))
        parts += made
    return (*parts, *last)
