"""The overview's three sentences: the worst problem in words, then the counts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from eoctl.render.diagnose_words import contests_of
from eoctl.render.words import spoken_age
from recovery.change.job_rows import JobRow
from recovery.diagnose.diagnosis import ORDER, mark
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.inspect.cluster_rows import BrokerRow, LsoRow, OffsetsShowRow
from recovery.plurals import count, counted
from tui.widgets.lines import Line

if TYPE_CHECKING:
    from eoctl.operations.dashboard.snapshot import Snapshot
    from recovery.answers import Answer

QUIET = ("open", "prepare")


def sentences(
    s: "Snapshot",
    held: Mapping[str, LsoRow],
    hanging: Sequence[TxnHangingRow],
    unseen: int,
) -> tuple[Line, ...]:
    if s.partitions is None:
        word = "no answer yet" if s.problem else f"connecting to {s.title}"
        return (((f" {word}", "dim"),), (), ())
    brokers = [b for b in (s.brokers.rows if s.brokers else ()) if isinstance(b, BrokerRow)]
    up = sum(bool(b.up) for b in brokers)
    scanned = int(str(s.partitions.extra.get("scanned", 0)))
    open_count = s.transactions.extra.get("open", 0) if s.transactions else 0
    groups = {g.group for g in group_rows(s) if stuck(g, hanging)}
    verdicts = _counts(h for h in hanging if h.topic is not None)
    without = _counts(h for h in hanging if h.topic is None and h.verdict not in QUIET)
    if s.hanging is None:
        verdicts = "being judged"
    elif not verdicts:
        unknown = s.hanging.errors or _least(s.transactions)
        verdicts = "not known" if unknown else "nothing is open"
    broker_words = (f"{up}/{len(brokers)} up", "good" if up == len(brokers) else "act")
    if s.silent:
        broker_words = ("no answer", "act")
    second: Line = (
        (" brokers ", "dim"),
        broker_words,
        ("   held back ", "dim"),
        (f"{_least(s.partitions)}{count(len(held))} of {counted(scanned, 'partition')}", "text"),
        (", ", "dim"),
        (f"{_least(s.groups)}{counted(len(groups), 'group')}", "text"),
    )
    jobs = len(running_jobs(s))
    if jobs:
        second += (("   jobs ", "dim"), (f"{jobs} running", "key"))
    verdict_line: Line = (
        (" transactions ", "dim"),
        (f"{_least(s.transactions)}{open_count} open", "text"),
        ("   on held partitions ", "dim"),
        (verdicts, "text"),
    )
    if without:
        verdict_line += (("   holding none ", "dim"), (without, "text"))
    return (_headline(s, held, hanging, len(brokers) - up, unseen), second, verdict_line)


def _counts(hanging: Iterable[TxnHangingRow]) -> str:
    """Return for instance `2 orphan, 6 long`, the worst first."""
    numbers = Counter(h.verdict for h in hanging)
    return ", ".join(f"{numbers[name]} {name}" for name in ORDER if numbers[name])


def _least(answer: "Answer | None") -> str:
    """Return a mark for counts if not everything could be seen."""
    return "at least " if answer is not None and answer.errors else ""


def _headline(
    s: "Snapshot",
    held: Mapping[str, LsoRow],
    hanging: Sequence[TxnHangingRow],
    down: int,
    unseen: int,
) -> Line:
    if s.silent:
        return ((" !! the cluster does not answer; below: the last data", "act"),)
    findings = [h for h in hanging if h.verdict not in (*QUIET, "unknown")]
    if s.hanging is None:
        return ((" judging what is open", "dim"),)
    if findings:
        worst = findings[0].verdict
        sign = mark(worst) or ""
        mine = {(h.where, h.topic is None) for h in findings if h.verdict == worst}
        ids = sum(without for _, without in mine)
        number = len(mine) - ids
        words = f" {sign} {worst}"
        if number:
            words += f" on {counted(number, 'partition')}"
        if ids:
            words += " and" if number else ""
            words += f" of {counted(ids, 'id that holds', 'ids that hold')} no partition"
        words += f"; {count(len(held))} held back in all"
        ages = [(h.age_seconds, h.age_clock) for h in findings if h.age_seconds is not None]
        if ages:
            seconds, clock = max(ages)
            words += f", oldest {spoken_age(seconds, producer_clock=clock == 'producer')}"
        return ((f"{words}. enter: why", "act" if sign == "!!" else "look"),)
    if down:
        return ((f" !! {counted(down, 'broker')} down", "act"),)
    if contested := contests_of(s.hanging):
        words = f" !! {counted(len(contested), 'contested id')}: owners that fence each other"
        return ((f"{words}, or one that restarts for ever. enter: why", "act"),)
    unknown = {h.where for h in hanging if h.verdict == "unknown" and h.topic is not None}
    doubtful = sum(h.verdict == "unknown" and h.topic is None for h in hanging)
    if unknown:
        words = f" ? {counted(len(unknown), 'partition')} held back, reason not known"
        return ((words, "unknown"),)
    if doubtful:
        words = f" ? {counted(doubtful, 'transactional id')} that cannot be judged"
        return ((words, "unknown"),)
    if unseen:
        return ((f" ? {counted(unseen, 'thing')} could not be seen", "unknown"),)
    new = len(held.keys() - {h.where for h in hanging})
    if new:
        words = f" {counted(len(held), 'partition')} held back, {count(new)} of them not judged yet"
        return ((words, "text"),)
    if held:
        words = f" {counted(len(held), 'partition')} held by transactions within their limits"
        return ((words, "good"),)
    return ((" nothing is held back", "good"),)


def running_jobs(s: "Snapshot") -> list[JobRow]:
    return [
        j for j in (s.jobs.rows if s.jobs else ()) if isinstance(j, JobRow) and j.state == "running"
    ]


def group_rows(s: "Snapshot") -> list[OffsetsShowRow]:
    return [g for g in (s.groups.rows if s.groups else ()) if isinstance(g, OffsetsShowRow)]


def at_the_lso(g: OffsetsShowRow) -> bool:
    """Return True if the group has read all that its readers may see, and more is held back."""
    return g.lag is not None and g.lag <= 0 and (g.lag_hw or 0) > g.lag


def stuck(g: OffsetsShowRow, hanging: Iterable[TxnHangingRow]) -> bool:
    """Return True if the group waits for a transaction that is a finding.

    Every transaction within its limits delays a group for a moment: that is how exactly-once works.
    """
    return any(
        ((h.topic, h.partition) == (g.topic, g.partition) and at_the_lso(g))
        or (g.group in h.groups and bool(g.pending))
        for h in hanging
        if h.verdict not in QUIET
    )
