"""What ctrl+p finds: screens and commands, topics, transactional ids, groups."""

import heapq
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from eoctl.render.sanitise import visible
from recovery.inspect.cluster_rows import LsoRow, OffsetsShowRow
from recovery.values import Value
from tui.commanding import Commanding
from tui.screens.keys import commands_of
from tui.screens.views import GROUPS, PARTITIONS, TIMELINE, Location

if TYPE_CHECKING:
    from tui.widgets.tables import TableData

MOST_SCORED = 500
MOST_SHOWN = 50
EXACT = 1_000  # more than any score


class Target(Value, eq=False):
    """Something that can be found. name: safe to draw. go: opens it."""

    name: str
    kind: str
    go: Callable[[], None]


class Everything(Provider):
    """Textual's command palette asks it; the names are those of the frame when it opened."""

    async def startup(self) -> None:
        app = cast("Commanding", self.app)
        tables = app.frame.tables if app.frame is not None else {}
        self._targets = [*_commands(app), *_names(app, tables)]

    async def discover(self) -> Hits:
        for target in self._targets:
            if target.kind != "command":
                break
            yield DiscoveryHit(Content(target.name), target.go, target.name, "command")

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        # scoring takes long: of many names those that have the letters in this order
        pieces = [f"[^{re.escape(c)}]*{re.escape(c)}" for c in query.replace(" ", "")]
        letters = re.compile("".join(pieces), re.IGNORECASE)
        likely = [t for t in self._targets if letters.match(t.name)]
        likely.sort(key=lambda t: t.name != query)
        likely = likely[:MOST_SCORED]
        scored = [(matcher.match(t.name) + EXACT * (t.name == query), t) for t in likely]
        for score, target in heapq.nlargest(MOST_SHOWN, scored, key=itemgetter(0)):
            if score > 0:
                offsets = matcher.fuzzy_search.match(query, target.name)[1]
                shown = Content(target.name)  # never markup: a name may look like it
                for offset in offsets:
                    shown = shown.stylize(matcher.match_style, offset, offset + 1)
                yield Hit(score, shown, target.go, target.name, target.kind)


def _commands(app: Commanding) -> Iterator[Target]:
    for command in commands_of(web=app.feed.web):
        takes = f" {command.takes}" if command.takes else ""
        go = partial(app.type_command, f"{command.words[0]} " if takes else command.words[0])
        yield Target(f":{command.words[0]}{takes}  {command.help}", "command", go)


def _names(app: Commanding, tables: "Mapping[str, TableData]") -> Iterator[Target]:
    """Yield the cluster's names, each once."""

    def filtered(location: Location, text: str) -> None:
        app.go(location, remember=True)
        app.filter_by(text)

    def of(table: str) -> Iterator[object]:
        return (row.source for row in tables[table].rows) if table in tables else iter(())

    topics = dict.fromkeys(r.topic for r in of("partitions") if isinstance(r, LsoRow))
    for topic in topics:
        pattern = rf"(?<!\S){re.escape(visible(topic))}:"
        yield Target(visible(topic), "topic", partial(filtered, Location(PARTITIONS), pattern))
    listed = (r.key.removeprefix("id\0") for r in tables["transactions"].rows) if tables else ()
    for name in listed:
        if "\0" not in name:
            go = partial(app.go, Location(TIMELINE, name), remember=True)
            yield Target(visible(name), "transactional id", go)
    groups = dict.fromkeys(r.group for r in of("groups") if isinstance(r, OffsetsShowRow))
    for group in groups:
        pattern = rf"(?<!\S){re.escape(visible(group))}(?!\S)"
        yield Target(visible(group), "group", partial(filtered, Location(GROUPS), pattern))
