"""Plans, journal entries and jobs: the panes beside their lists, and their pages."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eoctl.render.columns.change import own_words
from eoctl.render.sanitise import visible
from eoctl.render.shell import command
from eoctl.render.words import age as age_words
from recovery.change.job_rows import JobRow
from recovery.change.journal_rows import JournalEventRow, JournalRow, PlanFileRow
from recovery.quoting import value_words
from recovery.times import rfc3339
from tui.screens.plan_and_job_lists import rows_of, stage_bar
from tui.widgets.lines import Line
from tui.widgets.shared_rows import number
from tui.widgets.text import error_lines, wrapped

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer

LABEL = 11  # cells of the label before each fact of a page
ROLES = {"unfinished": "look", "failed": "act", "lost": "act", "running": "key", "done": "good"}


def beside(source: object, width: int, rate: str | None = None) -> list[Line]:
    """Return the pane beside the list of plans or jobs. rate: records a second of a job."""
    if isinstance(source, JournalRow):
        return [
            _state_line(source.state, source.id),
            *_pairs(
                (
                    ("what", source.summary),
                    ("where", f"{source.scope} on {source.context}"),
                    ("by", f"{source.user} on {source.host}, pid {source.pid}"),
                    ("began", rfc3339(source.started)),
                    ("ended", rfc3339(source.ended)),
                    ("undone by", source.undone_by),
                    ("undoes", source.undoes),
                    ("command", command(source.argv)),
                ),
                width,
            ),
        ]
    if isinstance(source, PlanFileRow):
        return [
            _state_line("planned" if source.error is None else "unusable", source.action or ""),
            *_pairs(
                (
                    ("what", source.summary),
                    ("where", source.scope),
                    ("cluster", source.cluster_id),
                    ("expires", rfc3339(source.expires)),
                    ("sha256", source.sha256),
                    ("file", source.path),
                    ("error", source.error),
                ),
                width,
            ),
        ]
    if isinstance(source, JobRow):
        return [_state_line(source.state, source.job), *_pairs(_job_facts(source, rate), width)]
    return [((" no row", "dim"),)]


def _state_line(state: str, name: str) -> Line:
    return ((f" {state}", ROLES.get(state, "title")), (f"  {visible(name)}", "dim"))


def _pairs(pairs: Sequence[tuple[str, str | None]], width: int) -> list[Line]:
    lines: list[Line] = []
    for label, value in pairs:
        if value is None:
            continue
        for n, part in enumerate(wrapped(visible(value), max(width - LABEL - 2, 16))):
            lines.append(((f" {'' if n else label[:LABEL]:<{LABEL}} ", "dim"), (part, "text")))
    return lines


def _job_facts(r: JobRow, rate: str | None = None) -> tuple[tuple[str, str | None], ...]:
    done = None if r.records is None else f"{r.records} of {number(r.records_total)}"
    if r.records is not None and r.records_total:
        done = f"{done} ({r.records / r.records_total:.0%})"
    return (
        ("what", r.summary),
        ("stage", r.stage),
        ("stages", stage_bar(r, 20)),
        ("records", done),
        ("a second", rate),
        ("left", None if r.eta_seconds is None else age_words(max(r.eta_seconds, 0))),
        ("engine", r.engine if r.master is None else f"{r.engine} at {r.master}"),
        ("by", f"{r.user} on {r.host}, pid {r.pid}"),
        ("began", rfc3339(r.started)),
        ("ended", rfc3339(r.ended)),
        ("error", r.error),
        *((name.replace("_", " "), _value(value)) for name, value in r.result.items()),
        ("output", r.output),
        ("log", r.log),
        ("command", command(r.argv)),
    )


def _value(value: object) -> str:
    """Return a part of a job's result in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(part)}" for name, part in value.items())
    return str(value)


def job_page(s: "Snapshot | None", job_id: str, width: int, rate: str | None = None) -> list[Line]:
    """Return one job, and the end of its log. rate: records a second, as the list of jobs shows."""
    answer = _detail(s, job_id)
    if answer is None:
        return [((f" looking at {visible(job_id)}", "dim"),)]
    lines = error_lines(answer.errors, width)
    for r in rows_of(answer, JobRow):
        lines += [_state_line(r.state, r.id), *_pairs(_job_facts(r, rate), width)]
    log = answer.extra.get("log")
    if isinstance(log, list):
        lines += [(), ((" its log ends with", "title"),)]
        lines += [((f" {visible(text)}", "text"),) for text in log]
    return lines


def change_page(s: "Snapshot | None", entry_id: str, width: int) -> list[Line]:
    """Return a plan or journal entry: facts, steps, and what became of them."""
    answer = _detail(s, entry_id)
    if answer is None:
        return [((f" reading {visible(entry_id)}", "dim"),)]
    lines = error_lines(answer.errors, width)
    plan = answer.extra.get("plan")
    entry = answer.extra.get("entry")
    if isinstance(entry, dict):
        lines.append(_state_line(str(entry["state"]), str(entry["id"])))
    if isinstance(plan, dict):
        lines += _plan_lines(plan, width)
    events = rows_of(answer, JournalEventRow)
    if events:
        lines += [(), ((" journal", "title"),)]
    for e in events:
        head = f" {(rfc3339(e.at) or '')[11:19]} {e.event:<13}{' (found)' if e.found else ''}"
        step = f" {e.step} " if e.step is not None else " "
        text = f"{step}{e.target or ''} {own_words(e) or ''}".rstrip()
        first, *rest = wrapped(visible(text), max(width - len(head) - 1, 20))
        lines.append(((head, "dim"), (first, "text")))
        lines += [((" " * len(head), "dim"), (part, "text")) for part in rest]
    return lines


def _plan_lines(plan: Mapping[str, Any], width: int) -> list[Line]:
    pairs: list[tuple[str, str | None]] = [
        ("what", plan["summary"]),
        ("where", f"{plan['scope']} on {plan['context']}"),
        ("cluster", plan["cluster_id"]),
        ("lock", plan["lock"]),
        ("expires", rfc3339(plan["expires_at"])),
    ]
    pairs += [(f"step {n}", step["does"]) for n, step in enumerate(plan["steps"], 1)]
    pairs += [("saw", f"{name} {_short(facts)}") for name, facts in plan["observed"].items()]
    return _pairs(pairs, width)


def _short(facts: object) -> str:
    text = value_words(facts)
    return text if len(text) <= 400 else text[:399] + "…"


def _detail(s: "Snapshot | None", about: str) -> "Answer | None":
    return s.detail if s is not None and s.detail_about == about else None
