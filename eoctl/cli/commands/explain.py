"""`explain`: what a verdict, a rule, an exit status, an error or another word means."""

import shutil
import sys
from typing import Annotated

from eoctl.cli.emit import emit
from eoctl.cli.options import Format, argument
from eoctl.host.clock import now_ms
from eoctl.render.columns.explain import WORDS
from eoctl.render.explain import entries, explain_lines, explained
from recovery.answers import Answer


def explain(
    output: Format,
    words: Annotated[
        list[str] | None, argument("[WORD]...", "orphan, LSO, 3, 'drop first'")
    ] = None,
) -> int:
    """Explain a word in eoctl's output, without a cluster; without a word, list all of them.

    Verdicts, rules, exit statuses, errors, table headings and fields. `eoctl help` says how a
    command is typed.
    """
    word = " ".join(words or ())
    rows = explained(word) if word else list(entries())
    answer = Answer("explain", None, now_ms(), rows)
    if not word or output.output not in ("table", "wide"):
        emit(answer, WORDS, output)
        return answer.exit_status
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print("\n\n".join("\n".join(explain_lines(row, width)) for row in rows))
    return answer.exit_status
