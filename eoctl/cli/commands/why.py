"""`why`: the story of one partition on one page."""

import shutil
import sys
from typing import Annotated

from eoctl.cli.emit import beside, emit, utf8
from eoctl.cli.first_look import FirstLook
from eoctl.cli.limits import Limits
from eoctl.cli.options import Connection, Format, Topics, option
from eoctl.cli.runner import ask
from eoctl.operations.diagnose import why_answer
from eoctl.operations.diagnose.group_story import why_group
from eoctl.operations.diagnose.live import Live
from eoctl.operations.inspect.source import Source
from eoctl.render.columns.diagnose import WHY
from eoctl.render.columns.records import record_lines
from eoctl.render.columns.table import with_gaps
from eoctl.render.group_words import group_lines, headline
from eoctl.render.why import why_lines
from eoctl.settings.context import Context
from recovery.answers import Answer
from recovery.diagnose.why_rows import GroupStoryRow, WhyRow
from recovery.errors import RefusedError, UsageError
from recovery.plurals import counted


def why(
    connection: Connection,
    output: Format,
    topics: Topics,
    limits: Limits,
    group: Annotated[str | None, option("--group G", "why this group does not move")] = None,
    transactional_id: Annotated[
        str | None, option("--transactional-id ID", "what this id holds, or waits for")
    ] = None,
    records: Annotated[
        int | None,
        option("--records N", "also N of its records, and N that wait; not on bundles", min=1),
    ] = None,
) -> int:
    """Show what readers see, what holds it, who, since when, and the one safe remedy.

    Without an argument it shows the worst partition or id; for a topic, its held partitions.
    """
    selectors = topics.selectors()
    if group is not None and selectors:
        raise UsageError("give a topic or --group, not both", where="--group")
    if transactional_id is not None and (selectors or group is not None):
        raise UsageError(
            "give a topic, a group or a transactional id, not several", where="--transactional-id"
        )

    first = FirstLook(output, limits.interval)

    async def explained(source: Source, context: Context) -> Answer:
        def seen(answer: Answer) -> None:
            first.show(_lines(answer, context.title, first_look=True) if first.active else ())

        if records is not None:
            from eoctl.operations.inspect.records import of_stories, permit

            permit(context)
        settings, pause = limits.settings(context), limits.interval
        if group is not None:
            answer = await why_group(
                source, context, group, settings, pause=pause, on_first_look=seen
            )
        else:
            answer = await why_answer.why(
                source,
                context,
                selectors,
                settings,
                pause=pause,
                transactional_id=transactional_id,
                on_first_look=seen,
            )
        if records is None:
            return answer
        assert isinstance(source, Live)
        return await of_stories(source.cluster, context, answer, records)

    if records is not None and connection.bundle() is not None:
        raise RefusedError(
            "a bundle holds no record's content",
            where="--records",
            remedy="run this on the cluster",
        )

    answer, context = ask(connection, explained)
    first.erase()
    if output.output not in ("table", "wide"):
        emit(answer, WHY, output)
        return answer.exit_status
    _page(answer, context.title)
    return answer.exit_status


def _lines(answer: Answer, title: str, *, first_look: bool = False) -> list[str]:
    """Return the stories, one after the other, with a blank line between them.

    Of a group its own, and below that only of where its newest commit waits: the others have pages
    of their own, which it names.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines: list[str] = []
    story = answer.extra.get("group_story")
    if isinstance(story, GroupStoryRow):
        lines = group_lines(
            story,
            context=title,
            collected_at=answer.collected_at,
            width=width,
            ascii_only=not utf8(),
        )
    for row in answer.rows:
        assert isinstance(row, WhyRow)
        if isinstance(story, GroupStoryRow) and row.where != story.own_partition:
            continue
        lines += [""] * bool(lines)
        lines += why_lines(
            row,
            context=title,
            collected_at=answer.collected_at,
            width=width,
            ascii_only=not utf8(),
            first_look=first_look,
        )
        if row.records is not None:
            lines.append(" records:")
            lines += record_lines(row.records, width, ascii_only=not utf8())
    return lines


def _page(answer: Answer, title: str) -> None:
    for line in _lines(answer, title):
        print(line)
    sys.stdout.flush()
    beside(answer)
    story = answer.extra.get("group_story")
    if isinstance(story, GroupStoryRow):
        print(with_gaps(headline(story), answer), file=sys.stderr)
        return
    rows = [r for r in answer.rows if isinstance(r, WhyRow)]
    held = [r for r in rows if r.stuck and r.topic is not None]
    text = f"{counted(len(held), 'partition')} held back" if held else "nothing is held back"
    stuck = [r for r in rows if r.stuck and r.topic is None]
    if stuck:
        text += f"; {counted(len(stuck), 'transactional id')} not at rest"
    print(with_gaps(text, answer), file=sys.stderr)
