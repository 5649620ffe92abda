"""Words about the offsets of groups that a plan's transaction holds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eoctl.render.shell import command
from recovery.plurals import counted

if TYPE_CHECKING:
    from recovery.remedy.group_offsets import GroupOffset

MOST_HARMS = 5


def offset_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield two lines for one offset of a plan's row: what counts now, and afterwards."""
    where = f"{row['topic']}:{row['partition']}"
    yield f"{row['group']}   in {where}   now {_now(row)}   pending {_pending(row)}"
    after = "   ".join(f"after {o} {_after(row, a)}" for o, a in row["after"].items())
    stays = "" if row["ends"] else f"stays pending: this step does not end it on {row['on']}.   "
    overtaken = "   (a later commit counts already)" if row["overtaken"] else ""
    yield f"  {stays}{after}{overtaken}"


def harm(offsets: Sequence["GroupOffset"], outcome: str, connection: Sequence[str]) -> list[str]:
    """Return a sentence for each group that a step leaves without an offset.

    connection: the options that name the cluster, for the command that sets an offset.
    """
    sentences = [_harm(o, outcome, connection) for o in offsets[:MOST_HARMS]]
    if more := offsets[MOST_HARMS:]:
        sentences.append(f"{counted(len(more), 'more offset')} of groups: none left either")
    return sentences


def _harm(o: "GroupOffset", outcome: str, connection: Sequence[str]) -> str:
    where = f"{o.topic}:{o.partition}"
    argv = ["eoctl", *connection, "restart", "plan", "--group", o.group, "--topic", where]
    line = command([*argv, "--to-earliest"])
    afterwards = "" if line is None else f" To set one afterwards: {line} (or --to-offset N)"
    return (
        f"group {o.group} has NO offset of {where} after the {outcome}: its auto.offset.reset "
        f"decides where it reads on ({_reset(o.as_dict())}). Ask its owner which one is set."
        f"{afterwards}"
    )


def _now(row: Mapping[str, Any]) -> str:
    if row["committed_error"] is not None:
        return f"not seen ({row['committed_error']})"
    return "-" if row["committed_offset"] is None else str(row["committed_offset"])


def _pending(row: Mapping[str, Any]) -> str:
    if row["pending_deleted"]:
        return "deleted"
    return "not seen" if row["pending_offset"] is None else str(row["pending_offset"])


def _after(row: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if not after["known"]:
        return "not seen, perhaps none"
    if after["offset"] is not None:
        return str(after["offset"])
    return f"NONE: auto.offset.reset decides ({_reset(row)})"


def _reset(row: Mapping[str, Any]) -> str:
    """Say how many records each auto.offset.reset reads again or skips, or offsets if these were
    not counted.

    Where the group began to read is not known: `earliest` reads again at most what is before its
    offset, `latest` skips at most what is in the log.
    """
    before, after, unit = row["records_before"], row["records_after"], ""
    if before is None:
        low, stable = row["log_start_offset"], row["last_stable_offset"]
        at = row["committed_offset"] if row["pending_offset"] is None else row["pending_offset"]
        if None in (low, stable, at):
            return "how many records that is was not seen"
        before, after = max(0, min(at, stable) - low), max(0, stable - max(at, low))
        unit = " offsets"
    skipped = after if row["pending_offset"] is None else before + after
    again = f"{'up to ' if before else ''}{before}{unit} again"
    return (
        f"earliest: {again}, latest: {'up to ' if skipped > after else ''}{skipped}{unit} skipped"
    )
