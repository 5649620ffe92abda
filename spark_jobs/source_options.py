"""Parse the Data Source's options: which partitions to read, and the start and end of each.

There are two vocabularies, which cannot be mixed: eoctl's own (`topics`, `start`, `end`, `cut`),
and that of Spark's Kafka source (`subscribe`, `startingOffsets`, ...), whose options mean what
Spark documents: Structured Streaming + Kafka Integration Guide, and KafkaSourceProvider.scala.
"""

import difflib
import json
import re
import warnings
from collections.abc import Mapping
from typing import Any

import msgspec

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.properties import parse_servers
from eoctl.kafka.connection.property_names import SECRET_KEY
from recovery.errors import UsageError
from recovery.facts import PartitionFacts, TopicPartition
from recovery.shared.offset_bounds import MAX_OFFSET, Bound, parse_bound
from recovery.values import Value

NAME = "eoctl-kafka"
RANGE_OFFSETS = 5_000_000
OPTIONS = {
    "topics": "comma-separated",
    "start": "earliest, an offset, or an instant [earliest]",
    "end": "lso, hw, an offset, or an instant [lso]",
    "cut": "a cut file or a manifest, instead of topics, start and end",
    "columns": "comma-separated [all but headers]",
    "headers_only": "true: a row per record batch, nothing decompressed",
    "control": "true: markers too",
    "isolation": "read_committed or read_uncommitted [read_committed]",
    "range_offsets": f"a bigger range is several tasks [{RANGE_OFFSETS}]",
    "max_rate": "bytes per second and broker, of all tasks that run at once together",
}
KAFKA_OPTIONS = {
    "subscribe": "comma-separated",
    "subscribePattern": "a regular expression that a part of a topic's name matches, as in Spark",
    "assign": '{"topic": [0, 1]}',
    "startingOffsets": 'earliest, or {"topic": {"0": 23, "1": -2}} [earliest]',
    "endingOffsets": 'latest, or {"topic": {"0": 50, "1": -1}} [latest]',
    "startingTimestamp": "epoch ms",
    "endingTimestamp": "epoch ms",
    "startingOffsetsByTimestamp": '{"topic": {"0": 1000}}',
    "endingOffsetsByTimestamp": '{"topic": {"0": 2000}}',
    "startingOffsetsByTimestampStrategy": "error or latest, where no record is so late [error]",
    "includeHeaders": "true: the column headers too",
    "minPartitions": "so many tasks, or a few more",
    "maxRecordsPerPartition": "range_offsets by its other name",
    "failOnDataLoss": "false: go on from the first record that is left [true]",
}
"""The options of Spark's Kafka source that mean the same here; and `kafka.` + a property."""
STREAM_OPTIONS = {"maxOffsetsPerTrigger": "of streams: about so many offsets in each batch"}
_OF_STREAMS = {name.lower() for name in STREAM_OPTIONS}
EVERY = {name.lower(): name for name in (*OPTIONS, *KAFKA_OPTIONS, *STREAM_OPTIONS)}

PROPERTY = "kafka."
ISOLATION = "kafka.isolation.level"
SERVERS = ("bootstrap.servers", "metadata.broker.list")  # Java's name, librdkafka's
NOT_PROPERTIES = {
    "auto.offset.reset": "write startingOffsets",
    "enable.auto.commit": "nothing is committed",
    "group.id": "no group is joined: leave it out",
    "interceptor.classes": "no interceptor runs",
    "key.deserializer": "keys are bytes: decode them in the query",
    "value.deserializer": "values are bytes: decode them in the query",
}
"""Properties that would change what is read in Kafka's consumer, and do not do so here."""

SELECTIONS = ("subscribe", "subscribepattern", "assign")
STARTS = ("startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets")
ENDS = ("endingtimestamp", "endingoffsetsbytimestamp", "endingoffsets")
STRATEGY = "startingoffsetsbytimestampstrategy"
"""Of STARTS and of ENDS, the first that is given counts, as in Spark's Kafka source."""
OWN = ("topics", "start", "end", "cut")
OF_RANGES = (*OWN, *SELECTIONS, *STARTS, *ENDS, STRATEGY, "failondataloss")
NOT_OF_STREAMS = {
    **dict.fromkeys(("end", *ENDS), "a stream has no end"),
    "cut": "a stream has no end: name topics and start, or subscribe and startingOffsets",
    "headers_only": "a batch of records may lie in two batches of a stream",
    "max_rate": "streams are limited by maxOffsetsPerTrigger",
}
OF_TASKS = ("range_offsets", "maxrecordsperpartition", "minpartitions", "headers_only")

LATEST, EARLIEST = -1, -2  # as offsets in the JSON of startingOffsets and endingOffsets


class Edge(Value):
    """The start or the end of the ranges.

    every: the bound of all partitions, None if each has its own. latest: what `latest` means, and
    an instant after the last record; None: Bound's own rule. must_match: refuse such an instant.
    """

    option: str
    every: Bound | None = None
    each: Mapping[TopicPartition, Bound] = msgspec.field(default_factory=dict)
    latest: Bound | None = None
    must_match: bool = False

    def bound(self, partition: TopicPartition) -> Bound:
        """Return the bound of a partition that `check` has accepted."""
        return self.each[partition] if self.every is None else self.every

    def resolve(self, facts: PartitionFacts, offset_at_time: int | None) -> int:
        """Return the offset meant, as `Bound.resolve` does. Raises UsageError for an instant
        without a record after it if the edge requires one."""
        bound = self.bound(facts.topic_partition)
        if bound.kind != "time" or self.latest is None:
            return bound.resolve(facts, offset_at_time)
        last = self.latest.resolve(facts, None)
        if offset_at_time is not None and offset_at_time < last:
            return offset_at_time
        if self.must_match:
            raise UsageError(
                f"{facts.topic}-{facts.partition} has no record of that time or later",
                where=f"option {self.option}",
                remedy="startingOffsetsByTimestampStrategy=latest reads nothing of it",
            )
        return last

    def check(self, chosen: set[TopicPartition]) -> None:
        """Raise UsageError unless exactly these partitions have a bound."""
        if self.every is not None:
            return
        for (topic, partition), lacks in [
            *(
                (topic_partition, "is missing")
                for topic_partition in sorted(chosen - self.each.keys())
            ),
            *(
                (topic_partition, "is not read")
                for topic_partition in sorted(self.each.keys() - chosen)
            ),
        ]:
            raise UsageError(
                f"{topic}-{partition} {lacks}",
                where=f"option {self.option}",
                remedy="name every partition that is read, and no other",
            )


class Wanted(Value):
    """Which partitions are read, and the start and end of each.

    One of topics, pattern and assigned is given. stable: the ranges must end at or below the last
    stable offset. fail_on_data_loss: refuse a start below the log start.
    """

    start: Edge
    end: Edge
    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    assigned: frozenset[TopicPartition] = frozenset()
    stable: bool = False
    fail_on_data_loss: bool = True


def understood(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their lower-case names, without Spark's own `path`.

    Raises UsageError for unknown options; its message never quotes a value.
    """
    given = {key.lower(): value for key, value in options.items()}
    given.pop("path", None)
    for written in options:
        key, where = written.lower(), f"option {written}"
        if key in EVERY or key == "path":
            continue
        if SECRET_KEY.search(key) or "sasl" in key or "ssl" in key:
            raise UsageError(
                "credentials cannot be options: Spark shows options on its pages",
                where=where,
                remedy="put them into the Access given to register(), as env:NAME or file:PATH",
            )
        name = key.removeprefix(PROPERTY)
        if name == key:
            like = difflib.get_close_matches(key, EVERY, 1)
            remedy = (
                f"did you mean {EVERY[like[0]]}?"
                if like
                else f"one of {', '.join(EVERY.values())}, or kafka.PROPERTY"
            )
            raise UsageError(f"no option {written}", where=NAME, remedy=remedy)
        if name in NOT_PROPERTIES:
            raise UsageError("it has no effect here", where=where, remedy=NOT_PROPERTIES[name])
    _one_vocabulary(given)
    return given


def selects(options: Mapping[str, str]) -> bool:
    """Return True if options name what is read."""
    return any(key.lower() in (*SELECTIONS, "topics", "cut") for key in options)


def _one_vocabulary(given: Mapping[str, str]) -> None:
    """Raise UsageError if options repeat one another or mix the two vocabularies."""
    selections = [key for key in (*SELECTIONS, "topics", "cut") if key in given]
    if len(selections) > 1:
        first, second = (EVERY[key] for key in selections[:2])
        raise UsageError(f"{first} says already what is read", where=f"option {second}")
    for key in (*STARTS, *ENDS, STRATEGY, "start", "end"):
        words = ("topics",) if key in OWN else SELECTIONS
        if key in given and selections and selections[0] not in words:
            other = "start and end" if words is SELECTIONS else "startingOffsets and endingOffsets"
            raise UsageError(
                f"it goes with {', '.join(EVERY[word] for word in words)}",
                where=f"option {EVERY[key]}",
                remedy="a cut file says it already"
                if selections[0] == "cut"
                else f"with {EVERY[selections[0]]}, write {other}",
            )
    for one, other in [("range_offsets", "maxrecordsperpartition"), ("isolation", ISOLATION)]:
        if one in given and other in given and given[one] != given[other]:
            raise UsageError(f"{one} says otherwise", where=f"option {EVERY.get(other, other)}")


def of_ranges(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that decide what is read by which task."""
    keys = {*OF_RANGES, *OF_TASKS}
    if any(key in given for key in SELECTIONS):  # `latest` is a different offset then
        keys |= {"isolation", ISOLATION}
    properties = {key for key in given if key.startswith(PROPERTY) and key != ISOLATION}
    return {key: given[key] for key in keys | properties if key in given}


def connection(access: Access, given: Mapping[str, str]) -> Access:
    """Return the access with the properties given as options added.

    Raises UsageError if the access has another value: credentials given to register() go to no
    other server.
    """
    properties = dict(access.properties)
    for key, value in given.items():
        if not key.startswith(PROPERTY) or key == ISOLATION:
            continue
        name = key.removeprefix(PROPERTY)
        known = properties.get(name)
        if name in SERVERS:
            known = next((properties[n] for n in SERVERS if properties.get(n)), None)
        if known is None:
            properties[name] = value
        elif known != value and not (
            name in SERVERS and set(parse_servers(value)) <= set(parse_servers(known))
        ):
            raise UsageError(
                "the Access given to register() says otherwise",
                where=f"option {key}",
                remedy="leave it out, or register the source under another name",
            )
    return Access(properties, access.hosts, access.socks5)


def committed(given: Mapping[str, str]) -> bool:
    """Return whether only committed records are read. Raises UsageError."""
    key = "isolation" if "isolation" in given else ISOLATION
    isolation = given.get(key, "read_committed").lower()
    if isolation not in ("read_committed", "read_uncommitted"):
        raise UsageError(
            f"no {isolation!r}", where=f"option {key}", remedy="read_committed or read_uncommitted"
        )
    return isolation == "read_committed"


def flag(given: Mapping[str, str], key: str, *, default: str = "false") -> bool:
    """Return the value of an option that is true or false. Raises UsageError."""
    value = given.get(key, default).lower()
    if value not in ("true", "false"):
        raise UsageError("write true or false", where=f"option {EVERY[key]}")
    return value == "true"


def number(given: Mapping[str, str], key: str) -> int | None:
    """Return the value of an option above 0, None if it is not given. Raises UsageError."""
    value = given.get(key)
    if value is None:
        return None
    if not value.isdecimal() or int(value) == 0:
        raise UsageError("not a number above 0", where=f"option {EVERY[key]}")
    return int(value)


def wanted(given: Mapping[str, str], *, stream: bool = False) -> Wanted:
    """Return what is read, from options that `understood` has accepted.

    stream: of a stream, whose end has no meaning. It may start at the end, and does so by default
    with the vocabulary of Spark's Kafka source. Raises UsageError.
    """
    for key in [k for k in given if k in (NOT_OF_STREAMS if stream else _OF_STREAMS)]:
        why = NOT_OF_STREAMS[key] if stream else "it is of streams: readStream"
        raise UsageError(why, where=f"option {EVERY[key]}")
    lossy = not flag(given, "failondataloss", default="true")
    if not any(key in given for key in SELECTIONS):
        topics = _names(given.get("topics", ""))
        if not topics:
            remedy = "option topics, cut, subscribe, subscribePattern or assign"
            raise UsageError("no topics are named", where=NAME, remedy=remedy)
        bounds = {
            key: parse_bound(given.get(key, default), now_ms(), where=f"option {key}")
            for key, default in (("start", "earliest"), ("end", "lso"))
        }
        start, end = (Edge(key, bound) for key, bound in bounds.items())
        return Wanted(start, end, topics, fail_on_data_loss=not lossy)
    stable = committed(given)
    latest = Bound("latest", "lso" if stable else "hw")
    earliest = Bound("earliest", "earliest")
    strategy = given.get(STRATEGY, "error").lower()
    if strategy not in ("error", "latest"):
        raise UsageError("write error or latest", where=f"option {EVERY[STRATEGY]}")
    return Wanted(
        _edge(given, STARTS, latest, earliest, must_match=strategy == "error", stream=stream),
        _edge(given, ENDS, latest, earliest, must_match=False),
        topics=_topics(given),
        pattern=_pattern(given["subscribepattern"]) if "subscribepattern" in given else None,
        assigned=_assigned(given["assign"]) if "assign" in given else frozenset(),
        stable=stable,
        fail_on_data_loss=not lossy,
    )


def can_stream(given: Mapping[str, str]) -> bool:
    """Return True if options may belong to a stream."""
    try:
        wanted(given, stream=True)
    except UsageError:
        return False
    return True


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _topics(given: Mapping[str, str]) -> tuple[str, ...]:
    topics = _names(given.get("subscribe", ""))
    if "subscribe" in given and not topics:
        raise UsageError("no topics are named", where="option subscribe")
    return topics


def _pattern(text: str) -> re.Pattern[str]:
    """Return a regular expression that Java and Python read alike. Raises UsageError."""
    where = "option subscribePattern"
    bare = re.sub(r"\\.", "x", text.strip())
    if re.search(r"\[[^\]]*\[|&&|\[\^?\]", bare):
        raise UsageError("sets of characters within sets are not understood", where=where)
    try:
        with warnings.catch_warnings(action="error"):
            pattern = re.compile(text.strip(), re.ASCII)
    except (re.error, Warning, ValueError) as error:
        raise UsageError(f"not understood: {error}", where=where) from None
    if not text.strip():
        raise UsageError("it is empty", where=where)
    return pattern


def _json(text: str, where: str, example: str) -> dict[str, Any]:
    try:
        made = json.loads(text)
    except ValueError:
        made = None
    if not isinstance(made, dict):
        raise UsageError("this is not a JSON object", where=where, remedy=f"write {example}")
    return made


def _assigned(text: str) -> frozenset[TopicPartition]:
    where, example = "option assign", KAFKA_OPTIONS["assign"]
    made = _json(text, where, example)
    partitions = [
        TopicPartition(topic, p) for topic, ps in made.items() if isinstance(ps, list) for p in ps
    ]
    if (
        not partitions
        or not all(isinstance(ps, list) for ps in made.values())
        or not all(type(p) is int and p >= 0 for _, p in partitions)
    ):
        raise UsageError("it names no partitions", where=where, remedy=f"write {example}")
    return frozenset(partitions)


def _edge(
    given: Mapping[str, str],
    keys: tuple[str, ...],
    latest: Bound,
    earliest: Bound,
    *,
    must_match: bool,
    stream: bool = False,
) -> Edge:
    """Return the start (keys: STARTS) or the end (ENDS)."""
    default, refused = (earliest, latest) if keys is STARTS else (latest, earliest)
    if stream:  # a stream may start anywhere
        default, refused = latest, Bound("", "")
    key = next((key for key in keys if key in given), keys[-1])
    name = EVERY[key]
    where, text = f"option {name}", given.get(key, default.text).strip()
    of_time = key != keys[-1]
    if key == keys[0]:
        if not (text.isdecimal() and int(text) <= MAX_OFFSET):
            raise UsageError("not a time in epoch milliseconds", where=where)
        return Edge(name, Bound(text, "time", int(text)), latest=latest, must_match=must_match)
    end = "start" if keys is STARTS else "end"
    backwards = f"a batch cannot {end} at {refused.text}"
    if not of_time and text.lower() in (latest.text, earliest.text):
        if text.lower() == refused.text:
            raise UsageError(backwards, where=where)
        return Edge(name, latest if text.lower() == latest.text else earliest)
    each: dict[TopicPartition, Bound] = {}
    example = KAFKA_OPTIONS[name].partition(" [")[0]
    for topic, values in _json(text, where, example).items():
        if not isinstance(values, dict) or not values:
            raise UsageError(f"no partitions of {topic}", where=where, remedy=f"write {example}")
        for partition, value in values.items():
            special = {} if of_time else {LATEST: latest, EARLIEST: earliest}
            if (
                not re.fullmatch("[0-9]{1,9}", partition)
                or type(value) is not int
                or not (0 <= value <= MAX_OFFSET or value in special)
            ):
                what = f"a value of {topic} is not what it should be"
                raise UsageError(what, where=where, remedy=f"write {example}")
            bound = special.get(value) or Bound(str(value), "time" if of_time else "offset", value)
            if bound is refused:
                raise UsageError(backwards, where=where)
            each[TopicPartition(topic, int(partition))] = bound
    return Edge(name, None, each, latest, must_match)
