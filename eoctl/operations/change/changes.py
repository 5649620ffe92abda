"""List changes made on this host and planned ones: journal entries, plan files, their cluster.

Reads this host's files only; no cluster is asked.
"""

from collections.abc import Mapping
from pathlib import Path

from eoctl.host.clock import now_ms
from eoctl.settings.context import Connect, Context, resolve
from eoctl.stores import plan_files
from eoctl.stores.journal_files import Journal, JournalContent
from eoctl.stores.plan_files import plans_folder as plans_folder  # for the dashboard
from recovery.answers import Answer
from recovery.change.journal import Event, JournalEntry
from recovery.change.journal_rows import JournalEventRow, JournalRow, PlanFileRow
from recovery.change.plan import Plan
from recovery.errors import EoctlError, RefusedError
from recovery.row import ErrorRow

PLAN = "plan "  # before a plan file's name, in place of an entry's id
MOST = 500  # journal entries on a screen: the newest


def journal_row(entry: JournalEntry, content: JournalContent) -> JournalRow:
    """Return one change as lists show it."""
    plan, who = entry.begun.data["plan"], entry.begun.data["who"]
    by = [event.data["by"] for event in entry.events if event.event == "undone"]
    return JournalRow(
        id=entry.id,
        state="running" if entry.id in content.running else entry.state,
        kind=plan["kind"],
        action=plan["action"],
        context=plan["context"],
        cluster_id=plan["cluster_id"],
        scope=plan["scope"],
        summary=plan["summary"],
        started=entry.begun.at,
        ended=entry.ended_at,
        user=who["user"],
        host=who["host"],
        pid=who["pid"],
        argv=entry.begun.data["argv"],
        steps=len(plan["steps"]),
        steps_done=len(entry.steps("step-done")),
        plan_sha256=entry.begun.data["sha256"],
        undoes=entry.undoes,
        undone_by=by[-1] if by else None,
    )


def event_row(event: Event, plan: Mapping[str, object]) -> JournalEventRow:
    """Return one line of an entry, in words; plan: the entry's, as the journal holds it."""
    steps = plan["steps"]
    assert isinstance(steps, list)
    data = event.data
    detail = data.get("detail")
    if event.event == "begun":
        detail = str(plan["summary"])
    elif event.step is not None and event.event == "step-started":
        detail = steps[event.step - 1]["does"]
    elif event.event == "verified":
        detail = "every step was seen done once more"
    elif event.event == "undone":
        detail = f"by {data['by']}"
    return JournalEventRow(
        id=event.entry,
        at=event.at,
        event=event.event,
        step=event.step,
        target=None if event.step is None else steps[event.step - 1]["target"],
        detail=detail,
        saw=data.get("saw"),
        found=bool(data.get("found")),
    )


def damage(content: JournalContent, journal: Journal | None = None) -> list[ErrorRow]:
    """Return the lines of a journal, by default this host's, that cannot be read."""
    path = str((journal or Journal()).path)
    return [
        ErrorRow(scope="journal", id=path, error="DAMAGED", detail=f"line {number} cannot be read")
        for number in content.damaged
    ]


def journal() -> Answer:
    """Return the newest changes, oldest first. Raises IncompleteError for an unreadable journal."""
    content = Journal().find()
    rows = [journal_row(entry, content) for entry in content.entries[-MOST:]]
    unfinished = sum(row.state in ("running", "unfinished") for row in rows)
    extra = {"unfinished": unfinished}
    return Answer("journal-list", None, now_ms(), rows, damage(content), extra=extra)


def plans() -> Answer:
    """Return the plan files of the folder of plans, the newest first."""
    files = sorted(plans_folder().glob("*.json"), key=_changed_at, reverse=True)
    return Answer("plans", None, now_ms(), [_plan_row(path) for path in files[:MOST]])


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _plan_row(path: Path) -> PlanFileRow:
    try:
        plan = plan_files.read(path)
    except EoctlError as error:
        return PlanFileRow(path=str(path), error=error.what)
    return PlanFileRow.of(
        plan,
        path=str(path),
        created=plan.created_at,
        expires=plan.expires_at,
        steps=len(plan.steps),
        error=None,
    )


def named_context(plan: Plan) -> Context:
    """Return the context that a plan names. Raises UsageError if this host does not know it."""
    pairs = list(zip(plan.argv[::2], plan.argv[1::2], strict=True))
    words = dict(pairs)
    return resolve(
        Connect(
            words.get("--context"),
            words.get("--bootstrap-server"),
            words.get("--command-config"),
            tuple(value for option, value in pairs if option == "-X"),
        )
    )


def plan_of(about: str) -> Plan:
    """Return the plan of `plan FILE`, or of a journal entry. Raises UsageError, RefusedError."""
    if about.startswith(PLAN):
        return plan_files.read(Path(about.removeprefix(PLAN)))
    return Journal().get(about).plan


def entry_of(about: str) -> JournalEntry:
    """Return the journal entry, or the one that carried `plan FILE` out. Raises EoctlError."""
    if not about.startswith(PLAN):
        return Journal().get(about)
    sha256 = plan_of(about).sha256
    for entry in reversed(Journal().find().entries):
        if entry.begun.data["sha256"] == sha256:
            return entry
    raise RefusedError("this plan was not carried out from here", where=about.removeprefix(PLAN))


def jobs() -> Answer:
    """Return the recovery jobs launched from here, oldest first."""
    from eoctl.operations.jobs.job_records import list_jobs

    return Answer("jobs-list", None, now_ms(), list_jobs())


def detail(about: str) -> Answer:
    """Return one in full: `job ID`, `plan FILE`, or a journal entry's id. Raises UsageError.

    extra: the job's log (its last lines), or the plan as JSON and the entry's row.
    """
    word, _, name = about.partition(" ")
    if word == "job":
        from eoctl.operations.jobs.job_records import show

        row, log = show(name)
        return Answer("jobs-show", row.cluster_id, now_ms(), [row], extra={"log": log})
    if word == "plan":
        plan = plan_files.read(Path(name))
        extra = {"plan": plan.model_dump(mode="json"), "sha256": plan.sha256}
        return Answer("plan", plan.cluster_id, now_ms(), [], extra=extra)
    return entry_answer(about)


def entry_answer(entry: str) -> Answer:
    """Return one change by events. extra: the entry's row and complete plan. Raises UsageError."""
    journal = Journal()
    content = journal.find()
    one = journal.get(entry)
    whole = one.begun.data["plan"]
    return Answer(
        "journal-show",
        whole["cluster_id"],
        now_ms(),
        [event_row(event, whole) for event in one.events],
        damage(content),
        extra={"entry": journal_row(one, content).json_values(), "plan": whole},
    )
