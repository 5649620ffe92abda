"""The options of `restart plan` without an application file, as kafka-consumer-groups has them."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from eoctl.cli.options import Ranked, option
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.inspect.offset_answers import Reading
from eoctl.operations.restart.adhoc import MoveRequest, as_of, resolve_move, stored
from eoctl.operations.restart.restart_request import AdHoc, read_text
from eoctl.settings.context import Connect, resolve
from recovery.errors import UsageError
from recovery.quoting import quoted
from recovery.restart.adhoc import ENDS, Target
from recovery.restart.plan_output import import_csv
from recovery.selectors import Selector, parse_selector
from recovery.shared.offset_bounds import MAX_OFFSET
from recovery.times import duration, instant, rfc3339
from recovery.values import replace

if TYPE_CHECKING:
    from eoctl.operations.audit.failover import FailoverRequest


@dataclass(frozen=True)
class AdHocTarget(Ranked):
    """A group, its partitions, and exactly one target."""

    panel: ClassVar[str] = "Without an application file"
    group: Annotated[str | None, option("--group G", "the consumer group to move")] = None
    topic: Annotated[list[str] | None, option("--topic TOPIC[:P]", "orders, orders:0,1")] = None
    all_topics: Annotated[
        bool, option("--all-topics", "every partition the group has committed")
    ] = False
    to_earliest: Annotated[bool, option("--to-earliest", "the log's start")] = False
    to_latest_stable: Annotated[bool, option("--to-latest-stable", "the last stable offset")] = (
        False
    )
    to_lso: Annotated[bool, option("--to-lso", "the same")] = False
    to_current: Annotated[
        bool, option("--to-current", "its present offsets: checked, not moved")
    ] = False
    to_offset: Annotated[int | None, option("--to-offset N", "this offset, on each partition")] = (
        None
    )
    to_datetime: Annotated[
        str | None, option("--to-datetime T", "RFC 3339, UTC without a zone")
    ] = None
    by_duration: Annotated[str | None, option("--by-duration D", "back from now: 90m, PT1H30M")] = (
        None
    )
    shift_by: Annotated[int | None, option("--shift-by N", "back where it is below 0")] = None
    from_file: Annotated[Path | None, option("--from-file F", "CSV: topic,partition,offset")] = None

    from_store: Annotated[
        str | None, option("--from-store STORE", "the offsets of another store: flink:DIR")
    ] = None
    as_of: Annotated[
        str | None,
        option("--as-of T", "the offsets that the group had then: an instant, 2h ago"),
    ] = None
    from_cluster: Annotated[
        list[str] | None,
        option("--from-cluster CONTEXT|MAP", "its offsets in the cluster it leaves, by records"),
    ] = None
    names: Annotated[
        list[str] | None, option("--map TOPIC=MIRROR", "[the same name, or ALIAS.TOPIC]")
    ] = None
    at: Annotated[
        str | None, option(f"--at {'|'.join(ENDS)}", "which end of a range [refused]")
    ] = None

    def refuse_any(self) -> None:
        """Raise UsageError: an application file says it all."""
        for f in fields(self):
            if getattr(self, f.name) not in (None, False, []):
                option = "--map" if f.name == "names" else f"--{f.name.replace('_', '-')}"
                raise UsageError("does not go with an application file", where=option)

    async def moves(self, cluster: Cluster, reading: Reading) -> AdHoc:
        """Return the partitions and where each moves to. Raises UsageError, IncompleteError."""
        assert self.group is not None
        selectors = tuple(parse_selector(text, where="--topic") for text in self.topic or ())
        if self.from_cluster:
            from eoctl.operations.audit.failover import resolve_failover

            return await resolve_failover(cluster, self._failover(selectors), reading)
        for name, given in (("--map", self.names), ("--at", self.at)):
            if given:
                raise UsageError("goes with --from-cluster alone", where=name)
        if self.from_store is not None:
            if replace(self, group=None, topic=None, from_store=None) != AdHocTarget():
                raise UsageError("goes with --group and --topic alone", where="--from-store")
            return await resolve_move(
                cluster, MoveRequest(self.group, await stored(cluster, self.from_store, selectors))
            )
        if self.as_of is not None:
            return await self._then(cluster, self.group, selectors)
        target = self._target(self.group)
        if target.kind == "from-file":
            if selectors or self.all_topics:
                raise UsageError("the file names the partitions", where="--from-file")
        elif bool(selectors) == self.all_topics:
            raise UsageError("name topics with --topic, or give --all-topics")
        return await resolve_move(cluster, MoveRequest(self.group, target, selectors))

    async def _then(self, cluster: Cluster, group: str, selectors: tuple[Selector, ...]) -> AdHoc:
        """Return the move to what the group had at an instant."""
        named = AdHocTarget(self.group, self.topic, self.all_topics, as_of=self.as_of)
        if self != named:
            raise UsageError("goes with --group, --topic and --all-topics alone", where="--as-of")
        if bool(selectors) == self.all_topics:
            raise UsageError("name topics with --topic, or give --all-topics")
        now = now_ms()
        at = instant(self.as_of or "", now, where="--as-of")
        if at > now:
            raise UsageError(f"{rfc3339(at)} is not over yet", where="--as-of")
        print(f"as-of {rfc3339(at)}", file=sys.stderr)
        target = await as_of(cluster, group, at, selectors)
        return await resolve_move(cluster, MoveRequest(group, target))

    def _failover(self, selectors: tuple[Selector, ...]) -> "FailoverRequest":
        from eoctl.operations.audit.failover import FailoverRequest

        own = replace(
            self, group=None, topic=None, all_topics=False, from_cluster=None, names=None, at=None
        )
        if own != AdHocTarget():
            raise UsageError(
                "goes with --group, --topic, --map and --at alone", where="--from-cluster"
            )
        if selectors and self.all_topics:
            raise UsageError("name topics with --topic, or give --all-topics")
        if self.at is not None and self.at not in ENDS:
            raise UsageError(f"must be {' or '.join(ENDS)}", where="--at")
        names = mirrors_named(self.names)
        assert self.group is not None
        assert self.from_cluster
        maps = _maps(self.from_cluster)
        return FailoverRequest(self.from_cluster[0], self.group, selectors, names, self.at, maps)

    def _target(self, group: str) -> Target:
        targets: list[Target] = []
        if self.to_earliest:
            targets.append(Target("to-earliest"))
        if self.to_latest_stable:
            targets.append(Target("to-latest-stable"))
        if self.to_lso:
            targets.append(Target("to-lso"))
        if self.to_current:
            targets.append(Target("to-current"))
        if self.to_offset is not None:
            if not 0 <= self.to_offset <= MAX_OFFSET:
                raise UsageError(f"{self.to_offset} is not an offset", where="--to-offset")
            targets.append(Target("to-offset", self.to_offset))
        if self.shift_by is not None:
            targets.append(Target("shift-by", self.shift_by))
        if self.to_datetime is not None:
            at = instant(self.to_datetime, now_ms(), where="--to-datetime")
            targets.append(Target("to-datetime", at))
        if self.by_duration is not None:
            back = duration(self.by_duration, where="--by-duration")
            targets.append(Target("by-duration", now_ms() - round(back * 1000)))
        if self.from_file is not None:
            offsets = import_csv(read_text(self.from_file), str(self.from_file), group)
            targets.append(Target("from-file", offsets=offsets))
        if len(targets) != 1:
            names = "--to-earliest, --to-latest-stable, --to-lso, --to-offset, --to-datetime, "
            names += (
                "--by-duration, --shift-by, --to-current, --from-file, --from-store, --as-of, "
                "--from-cluster"
            )
            raise UsageError(f"give exactly one of {names}")
        if targets[0].kind in ("to-datetime", "by-duration"):
            print(f"{targets[0].kind} {rfc3339(targets[0].value)}", file=sys.stderr)
        return targets[0]


def _maps(sources: Sequence[str]) -> tuple[Path, ...]:
    """Return the mirror maps that are named; () for one context.

    Raises UsageError for what is neither, and for several contexts.
    """
    if len(sources) == 1:
        try:
            resolve(Connect(context=sources[0]))
        except UsageError:
            if not _is_file(sources[0]):
                raise
        else:
            return ()
    for name in sources:
        if not _is_file(name):
            raise UsageError(
                f"{quoted(name)} is no file: several are mirror maps, of a topic each",
                where="--from-cluster",
            )
    return tuple(map(Path, sources))


def mirrors_named(texts: Sequence[str] | None) -> dict[str, str]:
    """Return the mirrors that `--map TOPIC=MIRROR` names. Raises UsageError."""
    names = {}
    for text in texts or ():
        topic, _, copy = text.partition("=")
        for name in (topic, copy):
            if parse_selector(name, where="--map").literal != name:
                raise UsageError(
                    f"{quoted(text)} does not name two topics",
                    where="--map",
                    remedy="write TOPIC=MIRROR",
                )
        names[topic] = copy
    return names


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # longer than a name can be
        return False
