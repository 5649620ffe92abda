"""`eoctl mcp`, called by the SDK's own client: what it answers, and what it sends to brokers."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult, TextContent, Tool

from docs.generate_schemas import schema
from eoctl.cli.agent.fitting import MOST
from eoctl.cli.agent.server import UNTRUSTED
from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from tests.kafka.command import FAST, environment, eoctl
from tests.kafka.relay import LIST_OFFSETS, Relay, relayed

NAMES = ["status", "why", "lso", "txn_hanging", "offsets", "runbook", "explain", "doctor"]
NOBODY = ("--bootstrap-server", "127.0.0.1:1")


@asynccontextmanager
async def agent(words: tuple[str, ...], env: Mapping[str, str]) -> AsyncIterator[ClientSession]:
    """A session of the SDK's client with `eoctl WORDS mcp`, begun."""
    words = ("-m", "eoctl", *words, "mcp", *FAST)
    server = StdioServerParameters(command=sys.executable, args=[*words], env=dict(env))
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session


def called(
    calls: Mapping[str, Mapping[str, Any]],
    words: tuple[str, ...] = NOBODY,
    env: Mapping[str, str] | None = None,
) -> dict[str, CallToolResult]:
    """What each tool answered, the client having checked it against the tool's schema."""
    found: dict[str, CallToolResult] = {}

    async def run() -> None:
        async with agent(words, env or environment()) as session:
            await session.list_tools()
            for name, given in calls.items():
                found[name] = await session.call_tool(name, dict(given))

    anyio.run(run)
    return found


def said(answer: CallToolResult, number: int = 0) -> str:
    """The text of one of an answer's parts."""
    part = answer.content[number]
    assert isinstance(part, TextContent)
    return part.text


@pytest.fixture(scope="module")
def orphan(lab1: Lab) -> GroundTruth:
    return break_(lab1, "orphan", hold=False)[0]


@pytest.fixture
def relay(lab1: Lab) -> Iterator[Relay]:
    with relayed(lab1) as between:
        yield between


def test_every_tool_answers_what_its_command_prints_and_only_looks(
    orphan: GroundTruth, relay: Relay, tmp_path: Path
) -> None:
    env = environment(EOCTL_CONFIG=relay.config(tmp_path))
    topic = {"topics": [orphan.topic]}
    about = {"why": topic, "lso": topic, "txn_hanging": topic}
    answers = called({name: about.get(name, {}) for name in NAMES}, ("--context", "relayed"), env)
    sent = len(relay.requests)
    assert sent
    assert relay.changing == []
    for name, answer in answers.items():
        found = answer.structured_content
        assert not answer.is_error, answer
        assert found["untrusted"] == UNTRUSTED
        assert UNTRUSTED in said(answer)
        assert json.loads(said(answer, 1)) == found
        assert said(answer, 1).isascii()
        assert len(answer.model_dump_json(by_alias=True)) <= MOST, name
        assert "value " not in str(found), "the lab's records have such values"
    [held] = answers["why"].structured_content["rows"]
    assert held["held_by"]["producer_id"] == orphan.producer_id
    assert held["held_by"]["start_offset"] == orphan.start_offset
    assert held["records"] is None
    words = ("lso", orphan.topic, "-o", "json", "--context", "relayed")
    printed = eoctl(*words, env=env).json["rows"]
    assert [_without_ages(row) for row in answers["lso"].structured_content["rows"]] == [
        _without_ages(row) for row in printed
    ]


def _without_ages(row: Mapping[str, Any]) -> Mapping[str, Any]:
    blocking = {k: v for k, v in (row["blocking"] or {}).items() if k != "age_seconds"}
    return {**row, "blocking": blocking}


def test_tools_are_the_ones_that_look_and_have_the_published_schemas() -> None:
    tools: list[Tool] = []

    async def run() -> None:
        async with agent(NOBODY, environment()) as session:
            tools.extend((await session.list_tools()).tools)

    anyio.run(run)
    assert [tool.name for tool in tools] == NAMES
    schemas = {"txn_hanging": "txn-hanging", "offsets": "offsets-show"}
    for tool in tools:
        assert tool.output_schema == schema(schemas.get(tool.name, tool.name))
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint


def test_a_long_answer_is_cut_and_says_so() -> None:
    answer = called({"explain": {}})["explain"]
    found = answer.structured_content
    assert MOST // 2 < len(answer.model_dump_json(by_alias=True)) <= MOST
    assert not found["complete"]
    [error] = found["errors"]
    of = len(eoctl("explain", "-o", "json").rows)
    assert error["detail"].startswith(f"shown: the first {len(found['rows'])} of {of} rows, ")
    assert "incomplete" in said(answer)


BAD: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "no such tool": ("abort", {}, "no tool 'abort'"),
    "no such argument": ("why", {"topic": "x"}, "no argument 'topic'"),
    "another type": ("why", {"topics": "x"}, "topics must be of type array"),
    "another cluster": ("status", {"context": "other"}, "no argument 'context'"),
    "records": ("why", {"records": 5}, "no argument 'records'"),
    "a pattern for doctor": ("doctor", {"names": 5}, "names must be of type array"),
    "nobody there": ("status", {}, "no connection: Connection refused"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_refusal_is_one_sentence(name: str) -> None:
    tool, given, says = BAD[name]
    answer = called({tool: given})[tool]
    assert answer.is_error
    assert said(answer).startswith("eoctl: ")
    assert says in said(answer)
    assert "Traceback" not in said(answer)


def test_a_call_ends_with_its_time(orphan: GroundTruth, relay: Relay, tmp_path: Path) -> None:
    relay.delay = lambda key: 30.0 if key == LIST_OFFSETS else 0.0
    env = environment(EOCTL_CONFIG=relay.config(tmp_path))
    begun = time.monotonic()
    answer = called({"lso": {}}, ("--context", "relayed", "--timeout", "1s"), env)["lso"]
    assert time.monotonic() - begun < 15
    assert not answer.is_error
    assert not answer.structured_content["complete"]
    assert {e["error"] for e in answer.structured_content["errors"]} == {"TIMED_OUT"}


Ends = Callable[[subprocess.Popen[str]], object]
ENDS: Mapping[str, tuple[Ends, int]] = {
    "stdin ends": (lambda server: server.stdin and server.stdin.close(), 0),
    "SIGTERM": (lambda server: server.send_signal(signal.SIGTERM), 130),
    "SIGINT": (lambda server: server.send_signal(signal.SIGINT), 130),
}


@pytest.mark.parametrize("name", ENDS)
def test_it_ends_at_once(name: str) -> None:
    end, status = ENDS[name]
    pipe = subprocess.PIPE
    words = (sys.executable, "-m", "eoctl", *NOBODY, "mcp")
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        server.stdin.flush()
        assert '"id":1' in server.stdout.readline()
        end(server)
        assert server.wait(10) == status


def test_a_bundle_and_no_cluster_are_refused_before_anything_is_served() -> None:
    assert eoctl("mcp", "--from", "x.eoctl").status == 4
    assert eoctl("mcp", env=environment(EOCTL_STATE_DIR="/nonexistent")).status == 2
