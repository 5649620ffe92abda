"""The application file: what an application reads and writes, and where it keeps its position.

`restart plan APP.toml` reads it: one table [app] with [app.store] and, if needed, [app.mapping],
[app.base], [app.mirror], [app.merge], [app.source]. docs/restart.md shows an example.
`recovery.shared.store_tables` describes stores, `recovery.restart.stored` their content.
"""

import tomllib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from recovery.documents import StrictDocument
from recovery.errors import UsageError
from recovery.facts import TopicPartition
from recovery.quoting import quoted
from recovery.selectors import parse_selector
from recovery.shared.offset_bounds import MAX_OFFSET
from recovery.shared.store_tables import (
    Name,
    SqlStore,
    Store,
    Text,
    TopicStore,
    ZooKeeperStore,
)

Strategy = Literal[
    "output-end",
    "commit-pair",
    "checkpoint",
    "changelog",
    "merge-log",
    "transactional",
    "sql",
    "spark-checkpoint",
    "flink-checkpoint",
    "connect",
]
Isolation = Literal["read_committed", "read_uncommitted"]
_Described = Annotated[Store, Field(discriminator="kind")]


class MergeLog(StrictDocument):
    """[app.merge]: the topic that records the order in which inputs were merged; its partition p
    belongs to partition p of the outputs."""

    topic: Name
    format: Literal["coast", "json"]


class ConnectSource(StrictDocument):
    """[app.source]: where a source connector goes on, given in one of two ways.

    offsets: JSON as in Connect's REST interface, or `file:PATH` that holds it. field: the field of
    the source offset whose number rises by one with each record, so that counting outputs gives it;
    first: the number of the first record.
    """

    offsets: Text | None = None
    field: Text | None = None
    first: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 1


class App(StrictDocument):
    """[app], checked: all topics and partitions that it names fit together.

    mapping, base: as written; use `outputs_of` and `base_of`.
    """

    name: Name
    strategy: Strategy
    inputs: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    outputs: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    isolation: Isolation = "read_committed"
    exclusive: bool = True
    mapping: dict[str, Annotated[tuple[str, ...], Field(strict=False)]] = Field(
        default_factory=dict
    )
    base: dict[str, Annotated[int, Field(ge=0, le=MAX_OFFSET)]] = Field(default_factory=dict)
    store: _Described | None = None
    mirror: _Described | None = None
    merge: MergeLog | None = None
    source: ConnectSource | None = None

    def outputs_of(self, topic_partition: TopicPartition) -> tuple[TopicPartition, ...]:
        """Return an input partition's outputs: as mapped, or else its number in each output."""
        mapped = self.mapping.get(named(topic_partition))
        if mapped is None:
            return tuple(TopicPartition(topic, topic_partition[1]) for topic in self.outputs)
        return tuple(parse_partition(text) for text in mapped)

    def base_of(self, partition: TopicPartition) -> int | None:
        """Return where counting starts in an input or output partition; None: not given."""
        return self.base.get(named(partition))

    @property
    def position(self) -> Literal["next", "last"]:
        """Return which offset the store keeps."""
        return self.store.position if self.store is not None else "next"


class _File(StrictDocument):
    app: App


_FITS: Mapping[Strategy, tuple[str, ...]] = {
    "output-end": ("kafka-group", "file", "topic", "zookeeper", "sql"),
    "commit-pair": ("kafka-group", "file", "topic", "zookeeper", "sql"),
    "checkpoint": ("file", "topic", "zookeeper", "sql"),
    "changelog": ("topic",),
    "merge-log": ("file", "topic", "zookeeper", "sql"),
    "transactional": ("kafka-group",),
    "sql": ("sql",),
    "spark-checkpoint": ("spark-checkpoint",),
    "flink-checkpoint": ("flink-checkpoint",),
    "connect": ("connect",),
}
_WITHOUT_OUTPUTS = ("sql", "spark-checkpoint", "flink-checkpoint", "transactional", "connect")
_NO_OUTPUTS: Mapping[Strategy, str] = {
    "spark-checkpoint": "Spark replays a batch completely, its sink drops what it has",
    "flink-checkpoint": "what Flink's sink wrote is in the transactions of its checkpoints",
}
_NEXT_ONLY = ("changelog", "spark-checkpoint", "flink-checkpoint")


def named(topic_partition: TopicPartition) -> str:
    """Return `orders:3`, or the JSON of a source partition of Kafka Connect."""
    return topic_partition[0] if topic_partition[0].startswith("{") else str(topic_partition)


def parse_partition(text: str, *, where: str | None = None) -> TopicPartition:
    """Return the single partition in `orders:3`. Raises UsageError."""
    selector = parse_selector(text, where=where)
    ranges = selector.partitions
    if selector.literal is None or ranges is None or len(ranges) > 1 or ranges[0][0] < ranges[0][1]:
        raise UsageError(
            f"{quoted(text)} is not one partition", where=where, remedy="write TOPIC:3"
        )
    return TopicPartition(selector.literal, ranges[0][0])


def parse_app_file(text: str, file: str) -> App:
    """Return the application in a file's text. file: its name, for errors. Raises UsageError, which
    names table and key."""
    try:
        content = tomllib.loads(text)
    except ValueError as error:
        raise UsageError(f"not TOML: {error}", where=file) from None
    if "app" not in content:
        raise UsageError("there is no table [app]", where=file, remedy="see docs/restart.md")
    try:
        app = _File.model_validate(content).app
    except ValidationError as error:
        raise _first(error, content, file) from None
    _check_source(app, file)
    _check_topics(app, file)
    _check_partitions(app, file)
    _check_store(app, file)
    return app


def _first(error: ValidationError, content: Mapping[str, Any], file: str) -> UsageError:
    """Return the first error, as `file, [app.store] path: what`."""
    problem = error.errors(include_url=False)[0]
    path = [str(part) for part in problem["loc"]]
    # For a union of stores, the path has the kind between table and key.
    for table in ("store", "mirror"):
        if path[:2] == ["app", table] and len(path) > 2:
            del path[2]
    kind, given, known = problem["type"], problem.get("input"), problem.get("ctx", {})
    depth = 1
    value: Any = content
    for count, part in enumerate(path, 1):
        value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, dict):
            depth = count
    table, key = ".".join(path[:depth]), ".".join(path[depth:])
    where = f"{file}, [{table}]" + (f" {key}" if key else "")
    if kind == "extra_forbidden":
        return UsageError("is not a key of this table", where=where, remedy="see docs/restart.md")
    if kind == "missing":
        return UsageError("is missing", where=where)
    if kind == "union_tag_not_found":
        return UsageError("is missing", where=f"{where} kind", remedy=f"write {_kinds()}")
    if kind == "union_tag_invalid":
        tag = quoted(str(known.get("tag")))
        return UsageError(
            f"{tag} is not a store", where=f"{where} kind", remedy=f"write {_kinds()}"
        )
    if kind == "literal_error":
        return UsageError(
            f"{quoted(str(given))} is not known here",
            where=where,
            remedy=f"write {str(known['expected']).replace(chr(39), '')}",
        )
    value_text = quoted(str(given)) + ": " if isinstance(given, (str, int, float)) else ""
    if key in ("password", "key_password"):
        return UsageError(
            "would appear in the plan and in the journal",
            where=where,
            remedy="write env:NAME or file:PATH in its place",
        )
    secret = key == "url"
    return UsageError(f"{'' if secret else value_text}{problem['msg']}", where=where)


def _kinds() -> str:
    return "kafka-group, file, topic, zookeeper, sql, spark-checkpoint, flink-checkpoint or connect"


def _check_source(app: App, file: str) -> None:
    """Check that a source connector reads no topic and that every other application reads one."""
    source, where = app.source, f"{file}, [app.source]"
    if app.strategy != "connect":
        if source is not None:
            raise UsageError("is for the strategy connect only", where=where)
        if not app.inputs:
            raise UsageError(
                "is missing: name the topics that are read", where=f"{file}, [app] inputs"
            )
        return
    if app.inputs or app.mapping:
        raise UsageError(
            "a source connector reads no topic: leave inputs and mapping out",
            where=f"{file}, [app]",
        )
    if source is None or (source.offsets is None) == (source.field is None):
        raise UsageError(
            "says where it goes on: give offsets (JSON), or field (counted in the outputs)",
            where=where,
        )
    if (source.field is None) == bool(app.outputs):
        why = "field needs" if source.field is not None else "given offsets need no"
        raise UsageError(f"{why} outputs to count", where=f"{file}, [app] outputs")


def _check_topics(app: App, file: str) -> None:
    for key, topics in (("inputs", app.inputs), ("outputs", app.outputs)):
        for topic in topics:
            if parse_selector(topic, where=f"{file}, [app] {key}").literal != topic:
                raise UsageError(
                    f"{quoted(topic)} is not a topic name", where=f"{file}, [app] {key}"
                )
        if len(set(topics)) < len(topics):
            raise UsageError("a topic is named twice", where=f"{file}, [app] {key}")
    if both := set(app.inputs) & set(app.outputs):
        raise UsageError(
            f"{min(both)} is input and output: what is written would be read again",
            where=f"{file}, [app] outputs",
        )
    if not app.outputs and app.strategy not in _WITHOUT_OUTPUTS:
        raise UsageError(
            f"the strategy {app.strategy} counts outputs: name them", where=f"{file}, [app] outputs"
        )
    if app.outputs and app.strategy in _NO_OUTPUTS:
        raise UsageError(
            f"no outputs are counted: {_NO_OUTPUTS[app.strategy]}",
            where=f"{file}, [app] outputs",
            remedy="leave them out",
        )
    if app.strategy == "changelog" and (len(app.inputs) > 1 or len(app.outputs) > 1):
        raise UsageError(
            "a changelog record holds one input and one output offset: name one of each",
            where=f"{file}, [app]",
            remedy="for several inputs use merge-log",
        )


def _check_partitions(app: App, file: str) -> None:
    where = f"{file}, [app.mapping]"
    for text, outputs in app.mapping.items():
        _one_of(text, app.inputs, "an input", where)
        for output in outputs:
            _one_of(output, app.outputs, "an output", f"{where} {text}")
        if len(set(outputs)) < len(outputs):
            raise UsageError("an output is named twice", where=f"{where} {text}")
    for text in app.base:
        _one_of(text, (*app.inputs, *app.outputs), "an input or output", f"{file}, [app.base]")


def _one_of(text: str, topics: Iterable[str], what: str, where: str) -> None:
    topic_partition = parse_partition(text, where=where)
    if named(topic_partition) != text:
        raise UsageError(f"{quoted(text)}: write {named(topic_partition)}", where=where)
    if topic_partition[0] not in topics:
        raise UsageError(f"{topic_partition[0]} is not {what} of this application", where=where)


def _check_store(app: App, file: str) -> None:
    where = f"{file}, [app.store]"
    store, fits = app.store, _FITS[app.strategy]
    if store is None:
        # The end of the output alone determines the start; the plan is then for --env only.
        if app.strategy != "output-end":
            raise UsageError("is missing: it says where the position is kept", where=where)
    elif store.kind not in fits:
        raise UsageError(
            f"{store.kind} cannot hold what the strategy {app.strategy} needs",
            where=f"{where} kind",
            remedy=f"write {' or '.join(fits)}",
        )
    if isinstance(store, TopicStore) and (store.key is None) != (app.strategy == "changelog"):
        why = "is missing" if store.key is None else "has no meaning for a changelog"
        raise UsageError(why, where=f"{where} key")
    if app.position == "last" and app.strategy in _NEXT_ONLY:
        raise UsageError(
            f"last is for stores that keep the last processed offset: {app.strategy} keeps the "
            "next one",
            where=f"{where} position",
            remedy='leave it out, or write "next"',
        )
    if app.strategy in ("commit-pair", "checkpoint", "merge-log"):
        _check_room(app, where)
    if (app.merge is None) != (app.strategy != "merge-log"):
        why = "is missing: it names the merge log" if app.merge is None else "is for merge-log only"
        raise UsageError(why, where=f"{file}, [app.merge]")
    if app.mirror is not None:
        read_only = app.mirror.kind in ("spark-checkpoint", "flink-checkpoint", "connect")
        unwritten = app.strategy in ("changelog", "flink-checkpoint", "connect")
        if store is None or read_only or unwritten:
            raise UsageError("nothing can be mirrored here", where=f"{file}, [app.mirror]")
        if app.mirror.model_dump(exclude={"position"}) == store.model_dump(exclude={"position"}):
            raise UsageError("is the store itself", where=f"{file}, [app.mirror]")


def _check_room(app: App, where: str) -> None:
    """Check that the store has room for all that a strategy with pairs commits together."""
    needed = {"commit-pair": ("output",), "checkpoint": ("output", "state")}.get(
        app.strategy, ("output", "merge")
    )
    if isinstance(app.store, ZooKeeperStore) and app.store.is_consumer_offsets:
        raise UsageError(
            f"nodes of a consumer hold input offsets only, {app.strategy} needs {needed[0]} too",
            where=f"{where} path",
            remedy="name a node of your own, which holds the JSON object",
        )
    if isinstance(app.store, SqlStore):
        for column in needed:
            if getattr(app.store.columns, column) is None:
                raise UsageError(
                    f"is missing: {app.strategy} needs it", where=f"{where[:-1]}.columns] {column}"
                )
