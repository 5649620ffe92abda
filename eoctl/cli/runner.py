"""Running one operation against one cluster or several, once or again and again."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from eoctl.cli.emit import emit
from eoctl.cli.options import Connection, Output
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose.live import Live
from eoctl.operations.inspect.source import Source
from eoctl.operations.session.session import repeat_with_cluster, with_cluster
from eoctl.render.columns.table import Table
from eoctl.settings.context import Context
from recovery.answers import Answer, worst
from recovery.errors import EoctlError, Exit, UsageError

Operation = Callable[[Source], Awaitable[Answer]]
Result = TypeVar("Result")
AskedOf = Callable[[Source, Context], Awaitable[Result]]
OfContext = AskedOf[Answer]


def show(connection: Connection, output: Output, view: Table, operation: Operation) -> int:
    """Run `operation` on the one cluster named and write its answer; the exit status."""
    if (path := connection.bundle()) is not None:
        return _show_bundle(path, output, view, lambda source, _: operation(source))
    return _show(connection.one(), connection, output, view, lambda c: operation(Live(c)))


def show_live(
    connection: Connection,
    output: Output,
    view: Table,
    operation: Callable[[Cluster], Awaitable[Answer]],
) -> int:
    """Like `show`, for questions that a bundle cannot answer: it is refused."""
    return _show(connection.one(), connection, output, view, operation)


def _show_bundle(path: Path, output: Output, view: Table, operation: OfContext) -> int:
    """Like `show`, with a bundle that answers in the cluster's place."""
    if output.interval is not None:
        raise UsageError("a bundle does not change", where="--watch", remedy="leave it out")
    answer, _ = of_bundle(path, operation)
    emit(answer, view, output)
    return answer.exit_status


def ask(connection: Connection, operation: AskedOf[Result]) -> tuple[Result, Context]:
    """Run `operation` once, on the cluster or the bundle that is named, with its context."""
    if (path := connection.bundle()) is not None:
        return of_bundle(path, operation)
    context = connection.one()
    return with_cluster(
        context, connection.seconds(), lambda c: operation(Live(c), context)
    ), context


def of_bundle(path: Path, operation: AskedOf[Result]) -> tuple[Result, Context]:
    """Run `operation` on a bundle, with the context that it was made with."""
    from eoctl.operations.dashboard.bundling import source

    bundle = source(path)

    async def run() -> Result:
        return await operation(bundle, bundle.context)

    return asyncio.run(run()), bundle.context


def _show(
    context: Context,
    connection: Connection,
    output: Output,
    view: Table,
    operation: Callable[[Cluster], Awaitable[Answer]],
) -> int:
    if output.interval is None:
        answer = with_cluster(context, connection.seconds(), operation)
        emit(answer, view, output)
        return answer.exit_status

    def write(answer: Answer | EoctlError) -> None:
        on_terminal = sys.stdout.isatty() and output.output in ("table", "wide")
        if on_terminal:
            sys.stdout.write("\x1b[H\x1b[2J")
        if isinstance(answer, EoctlError):
            print(f"eoctl: {answer.sentence}", file=sys.stderr)
        else:
            emit(answer, view, output)

    asyncio.run(
        repeat_with_cluster(context, connection.seconds(), output.interval, operation, write)
    )
    return Exit.OK


def show_all(
    connection: Connection,
    output: Output,
    view: Table,
    operation: OfContext,
    *,
    all_contexts: bool,
) -> int:
    """Like `show`, on each cluster named (--context a,b or --all-contexts): the worst exit wins."""
    if (path := connection.bundle()) is not None:
        return _show_bundle(path, output, view, operation)
    named = connection.several(all_contexts)
    if len(named) == 1 and not all_contexts:
        [context] = named
        return _show(context, connection, output, view, lambda c: operation(Live(c), context))
    results = run_each(
        named,
        lambda context: with_cluster(
            context, connection.seconds(), lambda c: operation(Live(c), context)
        ),
    )
    return _emit_each(named, results, view, output)


def run_each(
    named: Sequence[Context], run: Callable[[Context], Result]
) -> list[Result | EoctlError]:
    """Call `run` on every context at once; an EoctlError is a result, others are raised."""
    results: list[Result | EoctlError] = [_NOT_RUN] * len(named)
    broken: list[Exception] = []

    def one(position: int, context: Context) -> None:
        try:
            results[position] = run(context)
        except EoctlError as error:
            results[position] = error
        except Exception as error:  # a thread would print it
            broken.append(error)

    threads = [
        threading.Thread(target=one, args=(position, context), daemon=True)
        for position, context in enumerate(named)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        raise broken[0]
    return results


_NOT_RUN = EoctlError("did not run")


def _emit_each(
    named: Sequence[Context], results: Sequence[Answer | EoctlError], view: Table, output: Output
) -> int:
    statuses: list[Exit] = []
    for context, result in zip(named, results, strict=True):
        if isinstance(result, EoctlError):
            print(f"eoctl: {context.title}: {result.sentence}", file=sys.stderr)
            statuses.append(result.exit_status)
            continue
        if output.output in ("table", "wide"):
            print(f"CONTEXT {context.title}")
        emit(result, view, output, prefix={"context": context.title})
        statuses.append(result.exit_status)
    return worst(statuses)
