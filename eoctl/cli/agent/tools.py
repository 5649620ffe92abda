"""The tools: which question each asks, what it takes, and the schema of its answer.

None takes a path, an address or another cluster, and none acts.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from eoctl.host.clock import now_ms
from eoctl.host.program import shipped
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose import runbook_answer, status_answer, why_answer
from eoctl.operations.diagnose.group_story import why_group
from eoctl.operations.diagnose.live import Live
from eoctl.operations.diagnose.verdict_rows import hanging_answer
from eoctl.operations.doctor.doctor_answer import doctor, refuse_patterns
from eoctl.operations.inspect import listing, offset_answers
from eoctl.operations.inspect.lists import Scope
from eoctl.render.doctor_words import login_notes, names_notes
from eoctl.render.explain import entries, explained
from eoctl.settings.context import Context
from recovery.answers import Answer
from recovery.errors import UsageError
from recovery.inspect.observation import Settings
from recovery.quoting import quoted
from recovery.selectors import Selector, parse_selector
from recovery.values import Value, replace


class Asked(Value):
    """One call of a tool on an open cluster. pause: seconds between two samples."""

    cluster: Cluster
    context: Context
    settings: Settings
    pause: float
    seconds: float | None  # for the complete call
    given: Mapping[str, Any]  # arguments, checked by `checked`

    @property
    def source(self) -> Live:
        return Live(self.cluster)

    @property
    def topics(self) -> tuple[Selector, ...]:
        return tuple(map(parse_selector, self.given.get("topics", ())))


class Tool(NamedTuple):
    """One tool. schema: of its answer, as `-o json`. takes: argument → its JSON Schema.

    ask: None if no cluster is asked.
    """

    name: str
    schema: str
    about: str
    takes: Mapping[str, Mapping[str, Any]]
    ask: Callable[[Asked], Awaitable[Answer]] | None

    @property
    def input_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": dict(self.takes), "additionalProperties": False}

    def output_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the answer, as docs/schemas has it."""
        text = (shipped("schemas") / f"{self.schema}.v1.json").read_text(encoding="utf-8")
        schema: dict[str, Any] = json.loads(text)
        return schema

    def checked(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments. Raise UsageError for one that the tool does not take."""
        for name, value in given.items():
            if name not in self.takes:
                known = ", ".join(self.takes) or "none"
                raise UsageError(f"no argument {quoted(name)}", where=self.name, remedy=known)
            kind = self.takes[name]["type"]
            if not _is(value, kind):
                raise UsageError(f"{name} must be of type {kind}", where=self.name)
        return given


def _is(value: object, kind: str) -> bool:
    if kind == "array":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, {"string": str, "boolean": bool}[kind])


def text(about: str) -> Mapping[str, Any]:
    return {"type": "string", "description": about}


def texts(about: str) -> Mapping[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": about}


def flag(about: str) -> Mapping[str, Any]:
    return {"type": "boolean", "description": about}


TOPICS = texts("partitions: orders, orders:3, orders:0,2,5-9, orders-*; none: the whole cluster")


async def _status(a: Asked) -> Answer:
    return await status_answer.status(a.source, a.context, a.settings, pause=a.pause)


async def _why(a: Asked) -> Answer:
    group, name = a.given.get("group"), a.given.get("transactional_id")
    if sum(map(bool, (a.topics, group, name))) > 1:
        raise UsageError("name partitions, a group or an id, not several", where="why")
    if group is not None:
        return await why_group(a.source, a.context, group, a.settings, pause=a.pause)
    return await why_answer.why(
        a.source, a.context, a.topics, a.settings, pause=a.pause, transactional_id=name
    )


async def _lso(a: Asked) -> Answer:
    return await listing.lso(a.source, Scope(a.topics), show_all=a.given.get("all", False))


async def _hanging(a: Asked) -> Answer:
    diagnosis = await a.source.diagnose(Scope(a.topics), a.settings, pause=a.pause)
    shows = bool(a.given.get("all") or a.topics)
    return hanging_answer(diagnosis, a.context.argv, show_all=shows)


async def _offsets(a: Asked) -> Answer:
    return await offset_answers.show_offsets(a.cluster, a.given.get("groups", ()), a.topics)


async def _runbook(a: Asked) -> Answer:
    return await runbook_answer.runbook(
        a.source, a.context, a.settings, pause=a.pause, seconds=a.seconds
    )


async def _doctor(a: Asked) -> Answer:
    names: Sequence[str] = a.given.get("names", ())
    refuse_patterns(names)
    answer = await doctor(a.source, a.context, names)
    login = login_notes(answer.rows, a.context.properties)
    return replace(answer, notes=[*answer.notes, *names_notes(names), *login])


def explanation(given: Mapping[str, Any]) -> Answer:
    """Return what a word means; without one, all words. Raise UsageError if nobody knows it."""
    word = given.get("word", "")
    return Answer("explain", None, now_ms(), explained(word) if word else list(entries()))


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "status",
            "status",
            "What is wrong on this cluster: open transactions by verdict, the worst first.",
            {},
            _status,
        ),
        Tool(
            "why",
            "why",
            "Why readers of a partition wait: what holds it, who owns that, the verdict with its "
            "evidence, and the one safe remedy. Without arguments: the worst partition or id.",
            {
                "topics": TOPICS,
                "group": text("instead: why this consumer group does not move"),
                "transactional_id": text("instead: what this id holds, or waits for"),
            },
            _why,
        ),
        Tool(
            "lso",
            "lso",
            "Log start, last stable offset and high watermark of partitions, records held back, "
            "and which transaction blocks. Without topics: only partitions that are held back.",
            {"topics": TOPICS, "all": flag("healthy partitions too")},
            _lso,
        ),
        Tool(
            "txn_hanging",
            "txn-hanging",
            "A verdict on every open transaction, with its evidence and its one safe remedy.",
            {"topics": TOPICS, "all": flag("transactions that are no finding too")},
            _hanging,
        ),
        Tool(
            "offsets",
            "offsets-show",
            "What consumer groups have committed, against last stable offset and high watermark.",
            {"topics": TOPICS, "groups": texts("only these groups; none: all")},
            _offsets,
        ),
        Tool(
            "runbook",
            "runbook",
            "All that is held back, with each story and what is safe: a checklist for this moment.",
            {},
            _runbook,
        ),
        Tool(
            "explain",
            "explain",
            "What a verdict, rule, exit status, error, heading or field of eoctl means.",
            {"word": text("orphan, LSO, 3; none: all words")},
            None,
        ),
        Tool(
            "doctor",
            "doctor",
            "What will hurt exactly-once here: settings, versions, habits, each with its remedy.",
            {"names": texts("only what is about these topics, groups or transactional ids")},
            _doctor,
        ),
    )
}
