"""Interpret the journal's lines: events, entries, and which changes are unfinished.

A line is one JSON object that ends with its own checksum. A change appends `begun` (with the
complete plan), `step-started` before and `step-done` after each step, then one closing event. A
line is written and synced before the request that it announces is sent, so nothing was ever sent
without a complete line.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from pydantic import ValidationError

from recovery.change.plan import Plan, plain
from recovery.errors import UsageError
from recovery.quoting import quoted
from recovery.values import Value

EventName = Literal[
    "begun",  # who, argv, plan; undoes: the entry that this one reverts
    "step-started",
    "step-done",  # saw: the values read back; detail: in words; found: it was already done
    "step-refused",  # detail: why; nothing was sent
    "verified",  # all steps were seen to be done, twice
    "failed",  # detail: the cluster refused, and nothing was changed
    "abandoned",  # detail; nothing more is done
    "undone",  # by: the entry that reverted it
]
State = Literal["unfinished", "done", "failed", "abandoned", "undone"]
_CLOSED_BY: Mapping[str, State] = {
    "verified": "done",
    "failed": "failed",
    "abandoned": "abandoned",
    "undone": "undone",
}
VERSION = 1
"""The version of a line. A line without a version has version 1."""
_CHECK = b',"check":"'
_CHECK_LENGTH = len(_CHECK) + 16 + len(b'"}')


class Event(Value):
    """One line. at: epoch ms, our clock; step: numbered from 1, None for the complete change."""

    entry: str
    event: EventName
    at: int
    step: int | None = None
    data: Mapping[str, Any] = msgspec.field(default_factory=dict)


def encode(event: Event) -> bytes:
    """Return the event's line, with its newline."""
    body = json.dumps(
        {
            "version": VERSION,
            "entry": event.entry,
            "event": event.event,
            "at": event.at,
            "step": event.step,
            "data": plain(event.data),
        },
        separators=(",", ":"),
    ).encode("ascii")
    return body[:-1] + _CHECK + _checksum(body) + b'"}\n'


def decode(line: bytes) -> Event | None:
    """Return the event of one line without its newline; None if the line is incomplete.

    Raises UsageError for a complete line of a newer version.
    """
    if len(line) <= _CHECK_LENGTH or line[-_CHECK_LENGTH : -_CHECK_LENGTH + len(_CHECK)] != _CHECK:
        return None
    body = line[:-_CHECK_LENGTH] + b"}"
    if line[-18:-2] != _checksum(body) or line[-2:] != b'"}':
        return None
    content = json.loads(body)
    if (version := content.get("version", VERSION)) != VERSION:
        raise UsageError(
            f"the journal holds a line of version {quoted(str(version)[:20])}, and this eoctl "
            f"reads version {VERSION}",
            where=str(content.get("entry"))[:60],
            remedy="use the newer eoctl that wrote it",
        )
    return Event(
        content["entry"], content["event"], content["at"], content["step"], content["data"]
    )


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode("ascii")


class JournalText(Value):
    """A journal's content. torn: bytes at the end that a crash or a full disk cut short.

    whole: the number of bytes before it. damaged: the numbers of lines that are no events although
    events follow them, which eoctl itself never writes.
    """

    events: Sequence[Event]
    whole: int
    torn: bytes
    damaged: Sequence[int]


def read(data: bytes) -> JournalText:
    """Read all events of a journal file's bytes, which may be torn or damaged.

    Raises UsageError for lines of a newer version.
    """
    events: list[Event] = []
    bad: list[int] = []
    position = whole = last_good = 0
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        position += len(line) + 1
        event = decode(line)
        if event is None:
            bad.append(number)
            continue
        events.append(event)
        whole, last_good = position, number
    return JournalText(
        events, whole, data[whole:], [number for number in bad if number < last_good]
    )


class JournalEntry(Value):
    """One change, with all its events from `begun` on."""

    id: str
    events: Sequence[Event]

    @property
    def begun(self) -> Event:
        return self.events[0]

    @property
    def plan(self) -> Plan:
        """Return the plan. Raises UsageError if another version of eoctl wrote it."""
        try:
            return Plan.model_validate(self.begun.data["plan"])
        except ValidationError:
            raise UsageError(
                "its plan was written by another version of eoctl", where=self.id
            ) from None

    @property
    def state(self) -> State:
        """Return the state by the last closing event; a change that is done can still be undone."""
        states = [_CLOSED_BY[e.event] for e in self.events if e.event in _CLOSED_BY]
        return states[-1] if states else "unfinished"

    @property
    def ended_at(self) -> int | None:
        closing = [e.at for e in self.events if e.event in _CLOSED_BY]
        return closing[-1] if closing else None

    @property
    def undoes(self) -> str | None:
        """Return the entry that this one reverts."""
        entry: str | None = self.begun.data.get("undoes")
        return entry

    def steps(self, event: EventName) -> dict[int, Event]:
        """Return, by step number, the last event with this name of each step that has one."""
        return {e.step: e for e in self.events if e.event == event and e.step is not None}

    @property
    def touched(self) -> bool:
        """Return True if anything may have been sent."""
        return bool(self.steps("step-started"))


def ways_out(entry: str, *, can_undo: bool) -> str:
    """Say how to end an unfinished entry. can_undo: its kind of change can be reverted."""
    resume, close = f"eoctl journal resume {entry}", "--abandon --execute"
    if can_undo:
        return (
            f"see `eoctl journal show {entry}`, then `{resume}` or `eoctl journal undo {entry}`; "
            f"where neither is possible, close it with `{resume} {close}` and plan again"
        )
    return (
        f"`{resume} --execute` tries the rest again; where that is refused, only "
        f"`{resume} {close}` closes it: what was done stays (it cannot be undone), nothing more is "
        "sent, and you can plan again"
    )


def entries(events: Iterable[Event]) -> list[JournalEntry]:
    """Return the changes in the order they began. Events whose `begun` is lost are left out."""
    by_entry: dict[str, list[Event]] = {}
    for event in events:
        if event.event == "begun":
            by_entry.setdefault(event.entry, []).append(event)
        elif event.entry in by_entry:
            by_entry[event.entry].append(event)
    return [JournalEntry(name, tuple(those)) for name, those in by_entry.items()]


def unfinished(all_entries: Iterable[JournalEntry]) -> list[JournalEntry]:
    """Return the entries that neither ended nor were abandoned."""
    return [entry for entry in all_entries if entry.state == "unfinished"]
