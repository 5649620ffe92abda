"""`state deliver DIR --into`: a finished state into a topic, a table, or an application's files."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from eoctl.cli.dialog.acting import CommandChange, Execute
from eoctl.cli.options import ADDRESSES, Connection, Format, Ranked, argument, option
from eoctl.cli.spark_options import JobProgress, SparkOptions
from eoctl.operations.change import acting
from eoctl.operations.state.delivery import STREAMS, DeliveryRequest
from eoctl.operations.state.topic_on_spark import DeliverOnSpark, refuse_other_places
from eoctl.settings.context import Context
from eoctl.stores.state.folder import MANIFEST
from eoctl.stores.storage_address import storage_and_name
from recovery.change.plan import Plan
from recovery.errors import Exit, UsageError
from recovery.quoting import quoted
from recovery.times import not_done_within

INTO = "topic:NAME|sql:URL#TABLE|streams-dir:DIR"


@dataclass(frozen=True)
class Delivering(Ranked):
    """The options that say where a state goes, besides its folder."""

    panel: ClassVar[str] = "Delivering"
    with_offsets: Annotated[
        str | None,
        option("--with-offsets TABLE", "restart offsets too, all in one transaction"),
    ] = None
    input_topic: Annotated[
        str | None,
        option("--input TOPIC", "of the offsets attached to a coast state"),
    ] = None
    replace: Annotated[bool, option("--replace", "the table's rows of another state go")] = False
    accept_incomplete: Annotated[
        bool, option("--accept-incomplete", "deliver what is not provably complete")
    ] = False
    without_headers: Annotated[
        bool,
        option(
            "--without-headers",
            "deliver it although its records had headers, or may have had some",
        ),
    ] = False

    subtopology: Annotated[
        int | None,
        option(
            "--subtopology N",
            "of the stores, as Topology.describe() numbers it",
            min=0,
        ),
    ] = None
    store: Annotated[
        list[str] | None,
        option("--store NAME=KIND", "timestamped (the DSL's stores) or plain"),
    ] = None

    @property
    def given(self) -> bool:
        """True if any of them was given."""
        return self != Delivering()

    def words(self) -> list[str]:
        """Return the options as somebody types them."""
        words = []
        for name, value in (("--with-offsets", self.with_offsets), ("--input", self.input_topic)):
            words += [name, value] if value is not None else []
        words += ["--replace"] if self.replace else []
        words += ["--accept-incomplete"] if self.accept_incomplete else []
        words += ["--without-headers"] if self.without_headers else []
        words += ["--subtopology", str(self.subtopology)] if self.subtopology is not None else []
        return words + [word for store in self.store or () for word in ("--store", store)]

    def request(self, folder: str, into: str, changelog: str | None = None) -> DeliveryRequest:
        """folder: or its address, or its manifest. Raises UsageError."""
        storage, name = storage_and_name(folder, MANIFEST)
        request = DeliveryRequest(
            folder=storage.address if name == MANIFEST else storage.shown(name),
            into=_absolute(into),
            changelog=changelog,
            offsets=self.with_offsets,
            input=self.input_topic,
            replace=self.replace,
            incomplete=self.accept_incomplete,
            without_headers=self.without_headers,
            subtopology=self.subtopology,
            stores=dict(_store(word) for word in self.store or ()),
        )
        request.check()
        return request


def _absolute(into: str) -> str:
    """Return a place that means the same from every folder. Raises UsageError."""
    if not into.startswith(STREAMS):
        return into
    path = into.removeprefix(STREAMS)
    if not path or "://" in path:
        raise UsageError(
            "an application's state directory is a folder of this machine",
            where=f"--into {STREAMS}DIR",
        )
    return f"{STREAMS}{Path(path).expanduser().absolute()}"


def _store(word: str) -> tuple[str, str]:
    store, equals, kind = word.partition("=")
    if not equals or not store:
        raise UsageError(f"{quoted(word)} is not NAME=KIND", where="--store")
    return store, kind


def deliver(
    connection: Connection,
    output: Format,
    execute: Execute,
    how: Delivering,
    on: SparkOptions,
    folder: Annotated[Path, argument("DIR", "a finished state's folder"), ADDRESSES],
    into: Annotated[str, option(f"--into {INTO}", "where it goes")],
    changelog: Annotated[
        str | None, option("--changelog TOPIC", "of a state made from several")
    ] = None,
) -> int:
    """Write a state's rows into a topic, a table, or the files of a Streams application.

    Shows the plan; --execute writes.
    If it is killed, run the same command again: it goes on without reading the changelog again.
    """
    request = how.request(str(folder), into, changelog)
    engine, spark = on.engine()
    if engine == "spark":
        refuse_other_places(into)
    context, seconds = connection.one(), connection.seconds(None)
    plan = planned(request, context, seconds)
    if plan is None:
        print("all of it is there already", file=sys.stderr)
        return Exit.OK
    if engine != "spark":
        return CommandChange("state-deliver", plan, context).run(execute, output, seconds)
    assert spark is not None
    with JobProgress() as line:
        opened = DeliverOnSpark(spark, line).opened
        change = CommandChange("state-deliver", plan, context, opened=opened)
        outcome = change.execute(execute, seconds)
    return change.show(outcome, output)


def planned(request: DeliveryRequest, context: Context, seconds: float | None) -> Plan | None:
    """Return the plan, or an unfinished run's plan; None when everything is delivered."""
    from eoctl.operations.state import delivery_change

    async def bounded() -> Plan | None:
        async with asyncio.timeout(seconds):
            return await delivery_change.plan(request, context, seconds)

    try:
        plan = asyncio.run(bounded())
    except TimeoutError:
        raise not_done_within(seconds) from None
    if plan is not None:
        entry = acting.unfinished_entry(plan.kind, plan.cluster_id, plan.scope)
        if entry is not None and entry.plan == plan:
            print(f"eoctl: going on with journal entry {entry.id}", file=sys.stderr)
    return plan
