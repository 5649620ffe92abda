"""A report as one page: what was seen and changed, before and after, the ticket."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eoctl.render.columns.change import own_words
from eoctl.render.columns.diagnose import verdict
from eoctl.render.columns.doctor import DOCTOR
from eoctl.render.doctor_words import labelled_parts, mark_of, subject_words
from eoctl.render.ends import Block
from eoctl.render.explain import find
from eoctl.render.plans import plan_facts
from eoctl.render.report.html import Markup, facts, join, table, tag, text
from eoctl.render.report.moments import MOST, Moment, moments
from eoctl.render.report.style import STYLE
from eoctl.render.runbook import ticket_lines
from eoctl.render.shell import command
from eoctl.render.strip_drawing import drawn
from eoctl.render.why import judged_parts, last_blocks, seen_parts
from recovery.answers import Answer
from recovery.change.journal_rows import JournalEventRow, JournalRow
from recovery.change.plan import Plan
from recovery.diagnose.diagnosis import mark
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.diagnose.why_rows import WhyRow
from recovery.doctor.doctor_rows import DoctorRow
from recovery.plurals import count, counted
from recovery.quoting import value_words
from recovery.row import ErrorRow
from recovery.times import rfc3339
from recovery.values import Value

STRIP_CELLS = 44  # of the drawing, which is scaled to the width of the window
_ROLES = {"!!": "act", "!": "look", "?": "unknown"}


class Change(Value):
    """A change of the journal. plan: None if another version of eoctl wrote it."""

    row: JournalRow
    plan: Plan | None
    events: Sequence[JournalEventRow]


class Report(Value):
    """The content of a page.

    name: of the bundle, entry or folder. made_at: epoch ms. answer: of `runbook` on the bundle,
    None without a bundle; looks: the times of snapshots, and their subjects. errors: what could not
    be seen. doctor: of `doctor` on the bundle, None without a bundle, or if that was not asked.
    """

    name: str
    made_at: int
    version: str
    answer: Answer | None
    looks: Sequence[tuple[int, str]]
    changes: Sequence[Change]
    errors: Sequence[ErrorRow] = ()
    doctor: Answer | None = None


def page(report: Report) -> str:
    """Return the document."""
    title = f"Report: {report.name}"
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">'),
        tag("title", title),
        Markup(f"<style>{STYLE}</style>"),
    )
    sections = [_head(report, title)]
    if report.answer is not None:
        sections.append(_overview(report.answer))
    sections.append(_timeline(report))
    if report.answer is not None:
        sections.append(_section("One by one", *_stories(report.answer)))
        sections.append(_doctor(report.doctor))
    sections += [_changes(report.changes), _not_seen(report.errors), _ticket(report)]
    body = tag("body", tag("main", *sections))
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{body}\n</html>\n'


def _head(report: Report, title: str) -> Markup:
    pairs = [("made", f"{_stamp(report.made_at)} by eoctl {report.version}")]
    answer = report.answer
    if answer is not None:
        e = answer.extra
        up = f"brokers {e['brokers_up']} of {e['brokers_known']}"
        pairs += [
            ("cluster", f"{e['context']}, {answer.cluster_id or 'id not known'}"),
            ("seen", f"{_stamp(answer.collected_at)}, {up}"),
            ("held back", f"{count(e['held_back'])} of {counted(e['scanned'], 'partition')}"),
        ]
        if e["left_out"]:
            pairs.append(
                ("left out", f"{counted(e['left_out'], 'held partition')}: not shown here")
            )
    else:
        clusters = dict.fromkeys(f"{c.row.context}, {c.row.cluster_id}" for c in report.changes)
        pairs += [("cluster", name) for name in clusters]
    pairs.append(("changes", _counts(report.changes)))
    return tag("header", tag("h1", title), facts(pairs))


def _counts(changes: Sequence[Change]) -> str:
    open_ = sum(c.row.state in ("running", "unfinished") for c in changes)
    return f"{counted(len(changes), 'change')} in this journal, {count(open_)} unfinished"


def _stamp(ms: int | None) -> str:
    """Return a time to the second: `2026-11-23 08:32:45Z`."""
    told = rfc3339(ms)
    return "not known" if told is None else f"{told[:10]} {told[11:19]}Z"


def _section(title: str, *parts: str) -> Markup:
    return tag("section", tag("h2", title), *parts) if parts else Markup("")


def _timeline(report: Report) -> Markup:
    rows = _rows(report.answer)
    found = moments(rows, report.looks, (e for c in report.changes for e in c.events))
    left = len(found) - MOST
    note = [tag("p", f"{counted(left, 'older moment')} not shown", class_="dim")] * (left > 0)
    items = [_moment(m) for m in found[-MOST:]]
    listed = [tag("ol", *items, class_="timeline")] if items else []
    return _section("Timeline", *note, *listed)


def _moment(m: Moment) -> Markup:
    told = rfc3339(m.at) or ""
    when = tag("time", f"{told[:10]} {told[11:23]}Z, {m.clock}", datetime=told)
    return tag("li", when, tag("div", m.text), class_=m.kind)


def _rows(answer: Answer | None) -> list[WhyRow]:
    return [] if answer is None else [r for r in answer.rows if isinstance(r, WhyRow)]


def _overview(answer: Answer) -> Markup:
    rows = _rows(answer)
    if not rows:
        return _section(
            "What was open", tag("p", "Nothing was held back, and every id was at rest.")
        )
    cells = [
        (
            tag("a", row.where, href=f"#held-{number}"),
            _verdict(h),
            h.transactional_id or "none",
            "not counted" if row.waiting is None else _waiting(row),
            h.remedy.action,
        )
        for number, row in enumerate(rows, 1)
        if (h := row.held_by) is not None
    ]
    headings = ("Where", "Verdict", "Transactional id", "Records wait", "Remedy")
    return _section("What was open", table(headings, cells))


def _waiting(row: WhyRow) -> str:
    assert row.waiting is not None
    return f"{'at least ' if row.waiting.at_least else ''}{count(row.waiting.records)}"


def _verdict(h: TxnHangingRow) -> Markup:
    return tag("span", verdict(h), class_=f"tag {_ROLES.get(mark(h.verdict) or '', 'dim')}")


def _stories(answer: Answer) -> Iterator[Markup]:
    for number, row in enumerate(_rows(answer), 1):
        parts = [tag("h3", row.where, id=f"held-{number}")]
        if row.held_by is not None:
            parts[0] = tag("h3", f"{row.where} ", _verdict(row.held_by), id=f"held-{number}")
        parts += [facts(seen_parts(row, answer.collected_at)), _strip(row)]
        parts.append(facts(judged_parts(row, answer.collected_at)))
        if row.held_by is not None:
            parts += [_last(b) for b in last_blocks(row)]
            parts += _before_and_after(row.held_by)
        yield tag("section", *parts, class_="card")


def _command(label: str, line: str | None) -> list[Markup]:
    return [] if line is None else [tag("p", label, class_="dim"), tag("pre", line)]


def _last(b: Block) -> Markup:
    if b.kind == "command":
        return tag("pre", b.text)
    if b.kind == "heading":
        return tag("p", b.text.strip(), class_="dim")
    return facts([(b.label, b.text)])


def _before_and_after(h: TxnHangingRow) -> list[Markup]:
    """Return the drawing of the verdict's page: what a remedy does to the log."""
    for entry in find("mixed transaction" if h.mixed else h.verdict, ("verdict",)):
        if entry.drawing:
            drawing = join([text(line) for line in entry.drawing], "\n")
            note = tag("p", f"{h.verdict}: such a log before and after", class_="dim")
            return [note, tag("pre", drawing)]
    return []


def _strip(row: WhyRow) -> Markup:
    """Return the log around the LSO as it was seen, drawn as the command line draws it."""
    lso, high = row.last_stable_offset, row.high_watermark
    if not row.strip or lso is None or high is None:
        return Markup("")
    head, cells, below, legend = drawn(row.strip, lso, high, STRIP_CELLS)
    drawing = join([_spans(cells), _spans(below)], "\n")
    said = "".join(part for part, _ in head).strip()
    return tag(
        "figure",
        tag("figcaption", f"the log when it was seen: {said}"),
        tag("pre", drawing, class_="strip", role="img", aria_label=f"{row.where}: {said}"),
        tag("div", _spans(legend)),
    )


def _spans(line: Sequence[tuple[str, str]]) -> Markup:
    return join(tag("span", part, class_=role) for part, role in line)


def _doctor(answer: Answer | None) -> Markup:
    """Return what will hurt later, with what is not known after it."""
    if answer is None:
        said = ["This bundle holds no settings: an older eoctl made it."]
    else:
        said = [f"{DOCTOR.summary(answer)}.", *answer.notes]
    rows = [] if answer is None else [row for row in answer.rows if isinstance(row, DoctorRow)]
    return _section(
        "Before the night (doctor)",
        *(tag("p", text_, class_="dim") for text_ in said),
        *map(_finding, rows),
    )


def _finding(row: DoctorRow) -> Markup:
    about = tag("span", subject_words(row), class_=f"tag {_ROLES[mark_of(row)]}")
    return tag(
        "section",
        tag("h3", f"{row.rule} ", about),
        facts(labelled_parts(row)),
        *([] if row.command is None else [tag("pre", row.command)]),
        class_="card",
    )


def _changes(changes: Sequence[Change]) -> Markup:
    return _section("Changes", *map(_change, changes))


def _change(change: Change) -> Markup:
    row = change.row
    role = {"done": "good", "undone": "look"}.get(row.state, "act")
    pairs = [
        ("what", row.summary),
        ("when", f"{_stamp(row.started)} to {_stamp(row.ended)}"),
        ("who", f"{row.user} on {row.host}"),
        ("cluster", f"{row.context}, {row.cluster_id}"),
    ]
    pairs += [("undoes", row.undoes)] if row.undoes else []
    pairs += [("undone by", row.undone_by)] if row.undone_by else []
    parts = [
        tag("h3", f"{row.id} {row.action} ", tag("span", row.state, class_=f"tag {role}")),
        facts(pairs),
        *_command("the command line", command(row.argv)),
    ]
    if change.plan is not None:
        told = (p for p in plan_facts(change.plan) if p[0] not in ("what", "expires"))
        parts += [facts(told), _steps(change, change.plan)]
    events = [
        (
            _stamp(e.at),
            e.event + (" (found)" if e.found else ""),
            e.target or "",
            own_words(e) or "",
        )
        for e in change.events
    ]
    parts.append(table(("Time", "Event", "Where", "What"), events))
    return tag("section", *parts, class_="card")


def _steps(change: Change, plan: Plan) -> Markup:
    """Return each step's facts before, and what was read back after it."""
    done = {e.step: e for e in change.events if e.event == "step-done"}
    rows = []
    for number, step in enumerate(plan.steps, 1):
        before = [
            tag("div", f"{name}: ", _fact(plan.observed.get(name))) for name in step.stands_on
        ]
        e = done.get(number)
        after = "not done" if e is None else join([tag("div", own_words(e) or ""), _saw(e)])
        rows.append((f"{number} {step.action}", step.target, join(before), after))
    return table(("Step", "Where", "Before", "After"), rows)


def _saw(e: JournalEventRow) -> Markup:
    return Markup("") if e.saw is None else tag("div", _fact(e.saw), class_="dim")


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        known = {key: part for key, part in value.items() if part is not None}
        return ", ".join(f"{key} {_plain(part)}" for key, part in known.items())
    return _plain(value)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else value_words(value)


def _not_seen(errors: Sequence[ErrorRow]) -> Markup:
    if not errors:
        return Markup("")
    rows = [
        (
            e.scope,
            "" if e.broker is None else f"broker {e.broker}",
            e.id or ("" if e.topic is None else f"{e.topic}:{e.partition}"),
            f"{e.detail} ({e.error})",
        )
        for e in errors
    ]
    return _section("Not seen", table(("Kind", "Broker", "Where", "Why"), rows))


def _ticket(report: Report) -> Markup:
    rows = [c.row for c in report.changes]
    if report.answer is not None:
        lines = list(ticket_lines(report.answer, rows, report.name))
    else:
        lines = [f"report      {report.name}"]
        for r in rows:
            lines.append(f"{r.id} {r.state}: {r.action} on {r.context} {r.cluster_id}")
            lines.append(f"            {_stamp(r.started)} to {_stamp(r.ended)}, {r.user}@{r.host}")
            lines.append(f"            {r.summary}")
    return _section("For the ticket", tag("pre", join([text(line) for line in lines], "\n")))
