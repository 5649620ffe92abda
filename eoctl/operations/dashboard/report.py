"""`report`: write a bundle, a journal entry or a complete journal as a page to send to others."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from eoctl import __version__
from eoctl.host.clock import now_ms
from eoctl.operations.change.changes import MOST, damage, event_row, journal_row
from eoctl.operations.diagnose.runbook_answer import runbook
from eoctl.operations.doctor.doctor_answer import doctor
from eoctl.operations.inspect.offline import Offline
from eoctl.render.report.page import Change, Report
from eoctl.stores import bundle_files
from eoctl.stores.bundle_files import Bundle
from eoctl.stores.journal_files import Journal, JournalContent
from recovery.answers import Answer
from recovery.change.journal import JournalEntry
from recovery.change.plan import Plan
from recovery.errors import IncompleteError, UsageError
from recovery.inspect.observation import Settings
from recovery.quoting import quoted
from recovery.values import replace

BEFORE_MS = 86_400_000
"""Changes to a bundle's cluster that began earlier than this before it belong elsewhere."""


def report(what: str) -> Report:
    """Collect a page's content: `what` is a bundle, a state folder, or an entry of this journal.

    Raises UsageError for anything else; no cluster is asked.
    """
    path = Path(what)
    if path.is_dir():
        return _of_folder(path)
    if path.exists():
        return _of_bundle(path)
    if not what.startswith("j-"):
        raise UsageError(
            f"no bundle, state folder or journal entry {quoted(what)}",
            remedy="see `eoctl bundle create`, `eoctl journal list`",
        )
    journal = Journal()
    entry = journal.get(what)
    content = journal.find()
    related = {entry.id, entry.undoes, journal_row(entry, content).undone_by}
    return _report(what, [e for e in content.entries if e.id in related], content)


def _of_folder(path: Path) -> Report:
    folder = path if (path / "journal.jsonl").is_file() else path / "journal"
    if not (folder / "journal.jsonl").is_file():
        raise UsageError("holds no journal", where=str(path), remedy="name EOCTL_STATE_DIR")
    journal = Journal(folder)
    content = journal.find()
    made = _report(str(path), content.entries[-MOST:], content)
    return replace(made, errors=damage(content, journal))


def _of_bundle(path: Path) -> Report:
    bundle, _ = bundle_files.read(path)
    offline = Offline(bundle)
    settings = Settings(two_phase_patterns=offline.context.two_phase_patterns)
    answer = asyncio.run(runbook(offline, offline.context, settings, pause=0.0))
    entries: list[JournalEntry] = []
    content = JournalContent([], frozenset(), [], 0)
    with suppress(UsageError, IncompleteError):  # no home, no journal: then only the bundle
        content = Journal().find()
        entries = [
            e
            for e in content.entries
            if e.begun.data["plan"]["cluster_id"] == bundle.cluster_id
            and e.begun.at >= bundle.created_at - BEFORE_MS
        ]
    made = _report(path.name, entries, content, answer, _looks(bundle))
    if bundle.doctor is None:
        return made
    examined = asyncio.run(doctor(offline, offline.context, ()))
    errors = tuple(dict.fromkeys([*made.errors, *examined.errors]))
    return replace(made, doctor=examined, errors=errors)


def _looks(bundle: Bundle) -> list[tuple[int, str]]:
    """Return the times of a bundle's snapshots."""
    opened, ids = bundle.open_transactions, bundle.ids
    first = [t.first.sample.collected_at for t in opened] + [i.first.collected_at for i in ids]
    second = [t.second.sample.collected_at for t in opened if t.second is not None]
    second += [i.second.collected_at for i in ids if i.second is not None]
    looks = [(bundle.created_at, "the bundle was complete")]
    looks += [(min(first), "first look at what is open")] if first else []
    looks += [(min(second), "second look")] if second else []
    return looks


def _report(
    name: str,
    entries: Sequence[JournalEntry],
    content: JournalContent,
    answer: Answer | None = None,
    looks: Sequence[tuple[int, str]] = (),
) -> Report:
    return Report(
        name=name,
        made_at=now_ms(),
        version=__version__,
        answer=answer,
        looks=looks,
        changes=[_change(entry, content) for entry in entries],
        errors=() if answer is None else answer.errors,
    )


def _change(entry: JournalEntry, content: JournalContent) -> Change:
    whole = entry.begun.data["plan"]
    plan: Plan | None = None
    with suppress(UsageError):
        plan = entry.plan
    return Change(
        journal_row(entry, content), plan, [event_row(event, whole) for event in entry.events]
    )
