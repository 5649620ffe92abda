"""Doors for several (`eoctl mcp`, `tui --web`) only look, by the connection that they make."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from eoctl.cli.agent import fitting, server
from eoctl.cli.agent.tools import TOOLS, Asked, Tool
from eoctl.cli.commands.watch import tui_web
from eoctl.cli.limits import Limits
from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.render.sanitise import hidden
from eoctl.settings.context import Context
from recovery.answers import Answer
from recovery.errors import EoctlError, IncompleteError, RefusedError
from recovery.inspect.observation import Settings
from tui.feed.shared import SharedFeed
from tui.web import server as web
from tui.web.door import Listening

CONTEXT = Context("prod", {"bootstrap.servers": "127.0.0.1:1"}, ())


class CreateTopicsRequest:
    """Named as the one that creates topics."""


def unopened(context: Context, seconds: float | None, use: Callable[[Cluster], Any]) -> Any:
    """As with_cluster, without a connection."""
    return asyncio.run(
        use(Cluster(context.settings(), Deadline(seconds), read_only=context.read_only))
    )


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> server.Desk:
    monkeypatch.setattr(server, "with_cluster", unopened)
    return server.desk(CONTEXT, Settings(), 0.1, 1.0)


def tool(ask: Callable[[Asked], Awaitable[Answer]]) -> Tool:
    return Tool("status", "status", "", {}, ask)


def test_a_tool_that_would_change_something_is_refused(desk: server.Desk) -> None:
    async def create(a: Asked) -> Answer:
        found: Answer = await a.cluster.ask(0, CreateTopicsRequest())
        return found

    with pytest.raises(RefusedError, match="CreateTopics is not sent: the context is read-only"):
        desk.answer(tool(create), {})
    assert not desk.context.show_records


def test_the_feed_of_a_browser_only_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[SharedFeed] = []

    async def run(feed: SharedFeed, *_: object) -> None:
        made.append(feed)

    monkeypatch.setattr(web, "run", run)
    connection: Any = SimpleNamespace(one=lambda: CONTEXT, seconds=lambda default: default)
    given = dict.fromkeys(("listen", "certificate", "key", "proxy", "url"))
    tui_web.tui_web(connection, Limits(), "5s", "dark", given)
    [feed] = made
    assert (feed.context.read_only, feed.context.show_records) == (True, False)


HIDDEN = "a\u202eb\u200b\x1b[2J"


def test_hidden_characters_are_seen_on_the_wire(
    desk: server.Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(a: Asked) -> Answer:
        rows: Any = [{"name": HIDDEN, "by": {HIDDEN: [HIDDEN]}}]
        return Answer("status", None, 0, rows, notes=[HIDDEN])

    monkeypatch.setitem(TOOLS, "status", tool(ask))
    answer = server.result(desk, "status", {})
    sent = answer.model_dump_json(by_alias=True)
    assert not any(hidden(sent))
    assert answer.structured_content is not None
    [row] = answer.structured_content["rows"]
    assert row["name"] == r"a\u202eb\u200b\x1b[2J"


def rows_of(size: int, *names: str) -> dict[str, object]:
    rows = [{"name": name, "says": "x" * size} for name in names]
    return {"schema": "eoctl.txn-hanging/v1", "complete": True, "errors": [], "rows": rows}


def test_what_is_too_long_is_cut_in_its_own_order_and_counted() -> None:
    cut = fitting.fitted(rows_of(12000, "b", "c", "a"))
    assert fitting.size(cut) <= fitting.MOST
    rows: Any = cut["rows"]
    assert [row["name"] for row in rows] == ["b", "c"]
    errors: Any = cut["errors"]
    assert errors[0]["detail"].startswith("shown: the first 2 of 3 rows, in the command's order")


@pytest.mark.parametrize("names", ["a", "ab"])
def test_a_row_that_is_too_long_is_an_error_and_not_left_out(names: str) -> None:
    with pytest.raises(IncompleteError, match="eoctl txn hanging -o json"):
        fitting.fitted(rows_of(70000, *names))


def test_errors_are_cut_before_the_last_row() -> None:
    long = rows_of(20000, "a")
    long["errors"] = [{"detail": "y" * 2000}] * 20
    cut = fitting.fitted(long)
    assert len(json.dumps(cut["rows"])) > 20000
    assert not cut["complete"]


def test_an_error_of_the_feed_ends_the_server() -> None:
    class Ended:
        error: EoctlError | None = None

        def stop(self) -> None:
            self.on_end = None

    feed: Any = Ended()

    def opened(address: str) -> None:
        feed.error = IncompleteError("the feed ended")
        feed.on_end()

    where = Listening("127.0.0.1", 0)
    with pytest.raises(IncompleteError, match="the feed ended"):
        asyncio.run(web.run(feed, where, "dark", opened))
