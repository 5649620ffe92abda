"""Find unfinished changes. Each start of eoctl does so, so this loads nothing heavy."""

from contextlib import suppress

from eoctl.settings.folders import state_dir
from recovery.errors import UsageError


def unfinished_notice() -> str | None:
    """Return one line that names the entry; None if none is unfinished, or none can be seen.

    Changes that a living process carries out right now are not named. Never raises.
    """
    try:
        if not any((state_dir() / "journal" / "open").iterdir()):
            return None
    except (OSError, UsageError):
        return None
    with suppress(Exception):  # the commands that need it report a broken journal
        return _notice()
    return None


def _notice() -> str | None:
    from eoctl.stores.journal_files import Journal
    from recovery.change.journal import unfinished
    from recovery.times import rfc3339

    journal = Journal()
    content = journal.find()
    journal.forget_finished(content)
    left = [entry for entry in unfinished(content.entries) if entry.id not in content.running]
    if not left:
        return None
    entry = left[-1]
    plan = entry.begun.data["plan"]
    more = f" ({len(left) - 1} more: `eoctl journal list`)" if len(left) > 1 else ""
    return (
        f"{entry.id}, unfinished since {rfc3339(entry.begun.at)}: {plan['action']} "
        f"{plan['scope']} on {plan['context']}; "
        f"`eoctl journal resume {entry.id}` finishes it, `eoctl journal show {entry.id}` says what "
        f"was done{more}"
    )
