"""Write the end of a page: what to run now, what whoever knows more can do, and what else is left.

`why`, the dashboard, the report and the runbook show the same words; `explain` shows the table
that they come from (`recovery.remedy.ends.WAYS_OUT`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from eoctl.render.words import age
from recovery.diagnose.diagnosis_rows import EndsRow, TxnHangingRow, WayRow
from recovery.quoting import some
from recovery.remedy.ends import WAYS_OUT, WayOut
from recovery.values import Value

NEXT = "next (shows the plan, changes nothing):"
NEXT_PAGE = "next (shows its page, changes nothing):"
IF_YOU_KNOW = "if you know more (each shows its plan, changes nothing):"


class Block(Value):
    """A line of the end. heading: before commands; command: never wrapped; else after its label."""

    kind: Literal["heading", "command", "text"]
    text: str
    label: str = ""


_NOTHING: Mapping[str, str] = {
    "wait-for-owner": "nothing to run: its owner may still end it",
    "wait-for-commit": "nothing to run: only its owner's commit saves the committed records",
    "wait-for-markers": "nothing to run: it ends by itself",
    "wait-for-id": "nothing to run: that id comes first",
    "start-brokers": "nothing to run: it cannot end before brokers are back",
    "restart-coordinator": "no command of eoctl: its coordinator has to send the markers again",
    "move-leader": "no command of eoctl: its coordinator can still write the marker itself",
    "upgrade": "no command of eoctl: its coordinator cannot finish it with these brokers",
    "ask-system": "nothing to run: the system that owns it decides",
    "ask-owner": "nothing to run: no log shows which outcome is right",
    "another-id": "nothing to run: no marker helps any more",
    "look-again": "nothing to run yet: what decides it was not seen",
}
"""Why there is no command now, by what is left otherwise."""


def ends_blocks(
    h: TxnHangingRow, *, do: str | None = None, ask: str | None = None
) -> Sequence[Block]:
    """Return the end of the page of one transaction. do: what to grant or restore. ask: whom."""
    return tuple(_blocks(h, do, ask))


def _blocks(h: TxnHangingRow, do: str | None, ask: str | None) -> Iterator[Block]:
    if h.ends is None:  # of an earlier version
        if h.remedy.command is not None:
            yield Block("heading", NEXT)
            yield Block("command", h.remedy.command)
    else:
        yield from _next(h.ends)
        if h.ends.if_you_know:
            yield Block("heading", IF_YOU_KNOW)
        for way in h.ends.if_you_know:
            if way.command is not None:
                yield Block("heading", f"  {known(way, h)}:")
                yield Block("command", way.command)
        yield Block("text", otherwise(h, do), "otherwise")
        do = None
    for label, text in (("do", do), ("ask", ask)):
        if text is not None:
            yield Block("text", text, label)


def _next(ends: EndsRow) -> Iterator[Block]:
    if ends.next is None:
        yield Block("text", _NOTHING.get(ends.otherwise.code, "nothing to run now"), "next")
    elif ends.next.command is None:  # no shell can be given this name
        yield Block("text", "its name cannot be written on a command line", "next")
    else:
        yield Block("heading", NEXT_PAGE if ends.next.action == "why" else NEXT)
        yield Block("command", ends.next.command)


def known(way: WayRow, h: TxnHangingRow) -> str:
    """Say what somebody must know to run a command, and what it costs if that is wrong."""
    if way.knows == "committed":
        return "it was committed, and you can show it"
    if way.knows == "aborted":
        return "it was aborted, and you can show it"
    if way.action == "resolve":
        return "its owner is gone for good, and its undecided records may be delivered too"
    if h.verdict == "two-phase":
        return "that system is gone for good and has not committed its half; its records are lost"
    return "its owner is gone for good; the records of its transaction are dropped"


def otherwise(h: TxnHangingRow, do: str | None = None) -> str:
    """Say what is left for whoever knows no more. do: what to grant or restore."""
    assert h.ends is not None
    rest = h.ends.otherwise
    name = rest.data.get("transactional_id") or h.transactional_id or "its id"
    partitions = some(rest.data.get("partitions") or ["the coordinator's log"])
    moves = rest.data.get("moves") or 1
    return {
        "never-ends": "it stays as it is, and readers wait until somebody acts",
        "another-id": f"let its application use another transactional id: {name} stays stuck "
        "until its coordinator reloads",
        "wait-for-owner": f"wait: its owner ends it{_or_its_coordinator(h)}",
        "wait-for-coordinator": "wait: its coordinator aborts it in its next cycle, which drops "
        "its records too",
        "coordinator-does-not": "waiting does not help: its coordinator is not doing it",
        "wait-for-markers": "wait some seconds, until its markers are written",
        "wait-for-commit": _for_commit(h),
        "wait-for-id": f"wait until {name} has ended its transaction, then look again",
        "start-brokers": f"have a broker started that leads {partitions}, then look again",
        "restart-coordinator": f"have broker {rest.data.get('broker')} restarted, or its part of "
        "__transaction_state led by another one",
        "move-leader": "have that leader moved "
        + ("once" if moves == 1 else f"{moves} times")
        + " (kafka-reassign-partitions.sh with another preferred leader)",
        "upgrade": "have the brokers' operators read `remedy`; its application uses another "
        "transactional id meanwhile",
        "ask-system": "ask that system, and keep the transaction open until it answers",
        "ask-owner": "write nothing until somebody can show the outcome",
        "look-again": _look_again(h, do),
    }.get(rest.code, rest.code)


def _look_again(h: TxnHangingRow, do: str | None) -> str:
    assert h.ends is not None
    data = h.ends.otherwise.data
    if data.get("refused"):
        return f"{data['refused']}: wait until that has changed, then look again"
    if data.get("partitions"):
        return f"look at {some(data['partitions'])}: the page of each has its command"
    return do or h.remedy.does


def _for_commit(h: TxnHangingRow) -> str:
    """Say what an owner's commit saves, and what its abort loses."""
    text = "wait until its owner commits; "
    if h.ends_in_seconds is None:
        return text + "if it aborts, the committed records are lost"
    return f"{text}the committed records are lost if it aborts{_or_its_coordinator(h)}"


def _or_its_coordinator(h: TxnHangingRow) -> str:
    left = h.ends_in_seconds
    if left is None:
        return ""
    when = f"in {age(left)}" if left > 0 else "at any moment"
    return f", or its coordinator aborts it {when}"


_WHEN: Mapping[tuple[str, str], str] = {
    ("orphan", "nobody"): "nobody owns it",
    ("marker-lost", "decided"): "its decision is found",
    ("mixed", "committed-below"): "a COMMIT was lost",
    ("mixed", "not-from-here"): "its owner shows life, or it is two-phase",
    ("mixed", "aborted-below"): "an ABORT was lost",
    ("coordinator-fenced", "few-epochs"): "up to 10 epochs are missing",
    ("coordinator-fenced", "proven"): "its Prepare record proves the outcome",
    ("coordinator-fenced", "unproven"): "no log can ever prove the outcome",
    ("coordinator-fenced", "not-seen"): "the history was not read",
    ("coordinator-fenced", "nothing-open"): "nothing of it is open any more",
    ("prepare-stuck", "all-lead"): "all have a leader and no marker is written",
    ("prepare-stuck", "some-written"): "some or all markers are written",
    ("overdue", "silent"): "no sign of life",
    ("overdue", "ignored"): "its coordinator lets its cycles pass",
    ("overdue", "may-live"): "its owner may live",
    ("overdue", "not-seen"): "its partitions are hidden",
    ("long", "silent"): "no sign of life",
    ("long", "may-live"): "its owner may live",
    ("long", "not-seen"): "its partitions are hidden",
    ("two-phase", "its-system"): "its system decides",
    ("two-phase", "not-from-here"): "what lies under it is not known, or transaction.version is 1",
    ("prepare", "being-written"): "its markers are being written",
    ("open", "within-limits"): "within its limits",
    ("open", "not-from-here"): "what lies under it is not known",
    ("unknown", "not-seen"): "another look may tell",
    ("unknown", "never-known"): "no look can ever tell",
}
_WHEN_ANY: Mapping[str, str] = {
    "id-at-work": "its producer id is open elsewhere",
    "brokers": "brokers are away",
}
_COMMANDS: Mapping[str | None, str] = {
    "abort": "`txn abort`",
    "resolve": "`txn resolve`",
    "fence": "`txn fence`",
    "why": "`why --transactional-id ID`",
    None: "no command",
}
_OTHERWISE: Mapping[str, str] = {
    "never-ends": "it never ends by itself",
    "another-id": "give its application another transactional id",
    "wait-for-owner": "wait for its owner, until its deadline",
    "wait-for-coordinator": "wait for its coordinator's next cycle",
    "coordinator-does-not": "waiting does not help",
    "wait-for-markers": "wait some seconds",
    "wait-for-commit": "wait for its commit, before its deadline",
    "wait-for-id": "wait until that id has ended its transaction",
    "start-brokers": "start the brokers that are named",
    "restart-coordinator": "restart its coordinator, or move its leader",
    "move-leader": "move the leader of its log that often",
    "upgrade": "what `remedy` says of its brokers",
    "ask-system": "ask that system",
    "ask-owner": "ask, and write nothing until somebody can show the outcome",
    "look-again": "grant or restore what is named, and look again",
}


def when_words(way: WayOut) -> str:
    """Return in words which of a verdict's cases a row of the table is."""
    return _WHEN.get((way.verdict, way.when)) or _WHEN_ANY[way.when]


def if_known_words(way: WayOut) -> str | None:
    """Return the commands for whoever knows more; None: there are none."""
    if way.verdict == "mixed" and way.if_you_know:
        return "owner gone for good: `txn resolve --outcome commit --owner-is-gone`"
    if "owner-gone" in way.if_you_know:
        return "owner gone for good: `txn fence ID --owner-is-gone`"
    if way.if_you_know:
        return "outcome known otherwise: `txn resolve --without-proof --outcome commit|abort`"
    return None


def way_words(way: WayOut) -> str:
    """Return a row of the table as `explain` shows it."""
    parts = [f"{when_words(way)}: {_COMMANDS[way.next]}", if_known_words(way)]
    return "; ".join([*(p for p in parts if p), _OTHERWISE[way.otherwise]])


def ways_of(verdict: str) -> list[str]:
    """Return the table's rows of a verdict in words."""
    return [way_words(way) for way in WAYS_OUT if way.verdict == verdict]


def ways_table() -> list[str]:
    """Return the table as the lines of Markdown in docs/verdicts.md."""
    lines = ["| verdict | when | next | if you know more | otherwise |", "|---|---|---|---|---|"]
    for w in WAYS_OUT:
        known_words = (if_known_words(w) or "").replace("|", "\\|")
        cells = (f"`{w.verdict}`", when_words(w), _COMMANDS[w.next], known_words)
        lines.append(f"| {' | '.join((*cells, _OTHERWISE[w.otherwise]))} |")
    return lines
