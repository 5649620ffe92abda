"""The first screen: what is wrong in words, and under it the things that are, the worst first."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from eoctl.render.words import age as age_words
from eoctl.render.words import count, counted, spoken_age
from recovery.diagnosis import ORDER, mark
from recovery.rows import BrokerRow, ErrorRow, LsoRow
from recovery.rows_diagnosis import TxnHangingRow
from recovery.rows_jobs import JobRow
from recovery.rows_journal import JournalRow
from recovery.rows_offsets import OffsetsShowRow
from recovery.times import rfc3339
from tui import views
from tui.tables import TableData, TableRow, table_data
from tui.trend import Trend

if TYPE_CHECKING:
    from eoctl.operations.snapshot import Snapshot
    from recovery.answers import Answer

Line = tuple[tuple[str, str], ...]
QUIET = ("open", "prepare")
MOST_QUIET = 200  # healthy rows of the list; the Partitions screen has them all


def overview(
    s: "Snapshot", trend: Trend, text: Callable[[str], str]
) -> tuple[tuple[Line, ...], TableData]:
    """The sentences and the list."""
    held = {
        f"{r.topic}:{r.partition}": r
        for r in (s.partitions.rows if s.partitions else ())
        if isinstance(r, LsoRow) and r.held
    }
    hanging = [h for h in (s.hanging.rows if s.hanging else ()) if isinstance(h, TxnHangingRow)]
    rows = [_judged(h, held, trend, text) for h in hanging if h.verdict not in QUIET]
    rows += [_broker(b) for b in (s.brokers.rows if s.brokers else ()) if not _up(b)]
    unseen = _unseen(s, text)
    rows += unseen
    rows += _groups(s, hanging, text)
    rows += _unfinished(s, text)
    rows += [_job(j, s.taken_at, text) for j in _running(s)]
    quiet = [_judged(h, held, trend, text) for h in hanging if h.verdict in QUIET]
    rows += quiet[:MOST_QUIET]
    age = s.partitions.collected_at if s.partitions else None
    nothing = "nothing is held back and nothing is missing" if s.hanging else "judging"
    data = table_data(
        views.OVERVIEW.columns,
        rows,
        collected_at=age,
        empty=nothing if s.partitions else "waiting for the first answer",
        titles={"trend": f"^{trend.ceiling}"} if trend.ceiling else {},
    )
    return _sentences(s, held, hanging, trend, len(unseen)), data


def _sentences(
    s: "Snapshot",
    held: dict[str, LsoRow],
    hanging: list[TxnHangingRow],
    trend: Trend,
    unseen: int,
) -> tuple[Line, ...]:
    if s.partitions is None:
        word = "no answer yet" if s.problem else f"connecting to {s.title}"
        return (((f" {word}", "dim"),), (), (), ())
    brokers = [b for b in (s.brokers.rows if s.brokers else ()) if isinstance(b, BrokerRow)]
    up = sum(bool(b.up) for b in brokers)
    scanned = int(str(s.partitions.extra.get("scanned", 0)))
    total = sum(r.held or 0 for r in held.values())
    open_count = s.transactions.extra.get("open", 0) if s.transactions else 0
    groups = {g.group for g in _group_rows(s) if stuck(g, hanging)}
    verdicts = [(name, sum(h.verdict == name for h in hanging)) for name in ORDER]
    told = ", ".join(f"{n} {name}" for name, n in verdicts if n)
    if s.hanging is None:
        told = "being judged"
    elif not told:
        unknown = s.hanging.errors or _least(s.transactions)
        told = "not known" if unknown else "nothing is open"
    broker_words = (f"{up}/{len(brokers)} up", "good" if up == len(brokers) else "act")
    if s.problem is not None:
        broker_words = ("no answer", "act")
    second: Line = (
        (" brokers ", "dim"),
        broker_words,
        ("   held back ", "dim"),
        (f"{_least(s.partitions)}{count(len(held))} of {count(scanned)} partitions", "text"),
        (", ", "dim"),
        (f"{_least(s.groups)}{counted(len(groups), 'group')}", "text"),
    )
    jobs = len(_running(s))
    if jobs:
        second += (("   jobs ", "dim"), (f"{jobs} running", "key"))
    verdict_line: Line = (
        (" transactions ", "dim"),
        (f"{_least(s.transactions)}{open_count} open", "text"),
        ("   on held partitions ", "dim"),
        (told, "text"),
    )
    ceiling = trend.total
    third: Line = (
        (" held, 30 min ", "dim"),
        (trend.line(None, 30, ceiling), "spark"),
        (f"  {count(total)} now (0 to {count(ceiling)})", "dim"),
    )
    return (_headline(s, held, hanging, len(brokers) - up, unseen), second, verdict_line, third)


def _least(answer: "Answer | None") -> str:
    """Where something could not be seen, what was counted is not all."""
    return "at least " if answer is not None and answer.errors else ""


def _headline(
    s: "Snapshot", held: dict[str, LsoRow], hanging: list[TxnHangingRow], down: int, unseen: int
) -> Line:
    if s.problem is not None:
        last = rfc3339(s.partitions.collected_at if s.partitions else None)
        since = f" since {last[11:19]}Z; what stands below is of then" if last else ""
        return ((f" !! no answer{since}", "act"),)
    findings = [h for h in hanging if h.verdict not in (*QUIET, "unknown")]
    if s.hanging is None:
        return ((" judging what is open", "dim"),)
    if findings:
        worst = findings[0].verdict
        sign = mark(worst) or ""
        places = {(h.topic, h.partition) for h in findings if h.verdict == worst}
        words = f" {sign} {worst} on {counted(len(places), 'partition')}"
        words += f"; {count(len(held))} held back in all"
        ages = [(h.age_seconds, h.age_clock) for h in findings if h.age_seconds is not None]
        if ages:
            seconds, clock = max(ages)
            words += f", oldest {spoken_age(seconds, producer_clock=clock == 'producer')}"
        return ((f"{words}. enter: why", "act" if sign == "!!" else "look"),)
    if down:
        return ((f" !! {counted(down, 'broker')} down", "act"),)
    if unseen:
        return ((f" ? {counted(unseen, 'thing')} could not be seen", "unknown"),)
    new = len(held.keys() - {f"{h.topic}:{h.partition}" for h in hanging})
    if new:
        words = f" {counted(len(held), 'partition')} held back, {count(new)} of them not judged yet"
        return ((words, "text"),)
    if held:
        words = f" {counted(len(held), 'partition')} held by transactions within their limits"
        return ((words, "good"),)
    return ((" nothing is held back", "good"),)


def _judged(
    h: TxnHangingRow, held: dict[str, LsoRow], trend: Trend, text: Callable[[str], str]
) -> TableRow:
    name = f"{h.topic}:{h.partition}"
    row = held.get(name)
    owner = h.transactional_id or f"pid {h.producer_id}, no owner"
    says = f"{owner}; {h.remedy.action}" if h.verdict not in QUIET else owner
    amount = row.held if row else None
    sign = mark(h.verdict) or ""
    return TableRow(
        f"txn\0{name}\0{h.producer_id}",
        (
            sign,
            "marker-lost mixed" if h.mixed else h.verdict,
            text(name),
            "-" if amount is None else str(amount),
            trend.line(name, 30, trend.ceiling),
            ""
            if h.age_seconds is None
            else age_words(h.age_seconds, producer_clock=h.age_clock == "producer"),
            text(says),
        ),
        (None, ORDER.index(h.verdict), (h.topic, h.partition), amount, None, h.age_seconds, says),
        sign,
        h,
        ("why", name),
        h,
    )


def _running(s: "Snapshot") -> list[JobRow]:
    return [
        j for j in (s.jobs.rows if s.jobs else ()) if isinstance(j, JobRow) and j.state == "running"
    ]


def _job(j: JobRow, now: int, text: Callable[[str], str]) -> TableRow:
    says = f"{j.stage}, {j.summary}" if j.stage else j.summary
    seconds = None if j.started is None else (now - j.started) / 1000
    return TableRow(
        f"job\0{j.id}",
        ("", "job running", text(j.id), "-", "", _age(seconds), text(says)),
        (None, len(ORDER) + 4, (j.id, 0), None, None, seconds, says),
        "",
        j,
        ("job", f"job {j.id}"),
    )


def _unfinished(s: "Snapshot", text: Callable[[str], str]) -> list[TableRow]:
    """Changes that were begun and not ended: the journal resumes or undoes them."""
    rows = []
    for e in s.journal.rows if s.journal else ():
        if not isinstance(e, JournalRow) or e.state != "unfinished":
            continue
        seconds = None if e.started is None else (s.taken_at - e.started) / 1000
        rows.append(
            TableRow(
                f"entry\0{e.id}",
                ("!", "unfinished", text(e.id), "-", "", _age(seconds), text(e.summary)),
                (None, len(ORDER) + 3, (e.id, 0), None, None, seconds, e.summary),
                "!",
                e,
                ("change", e.id),
            )
        )
    return rows


def _age(seconds: float | None) -> str:
    return "" if seconds is None else age_words(max(seconds, 0.0))


def _up(b: object) -> bool:
    return isinstance(b, BrokerRow) and bool(b.up)


def _broker(b: object) -> TableRow:
    assert isinstance(b, BrokerRow)
    says = f"{b.host}:{b.port} does not answer" if b.port else "named by partitions, not listed"
    return TableRow(
        f"broker\0{b.broker}",
        ("!!", "broker down", f"broker {b.broker}", "-", "", "", says),
        (None, len(ORDER), (f"broker {b.broker}", 0), None, None, None, says),
        "!!",
        b,
    )


def _unseen(s: "Snapshot", text: Callable[[str], str]) -> list[TableRow]:
    found: dict[str, TableRow] = {}
    for answer in (s.partitions, s.transactions, s.groups, s.producers, s.hanging):
        for e in answer.errors if answer else ():
            if e.error == "UNKNOWN_VERDICT":
                continue  # its transaction stands in the list already
            place = _place(e)
            key = f"error\0{e.scope}\0{place}\0{e.error}"
            found[key] = TableRow(
                key,
                ("?", "not seen", text(place), "-", "", "", text(f"{e.detail} ({e.error})")),
                (None, len(ORDER) + 1, (place, 0), None, None, None, e.detail),
                "?",
                e,
            )
    return list(found.values())


def _place(e: ErrorRow) -> str:
    if e.topic is not None:
        return e.topic if e.partition is None else f"{e.topic}:{e.partition}"
    if e.broker is not None:
        return f"broker {e.broker}"
    return e.id or e.scope


def _group_rows(s: "Snapshot") -> list[OffsetsShowRow]:
    return [g for g in (s.groups.rows if s.groups else ()) if isinstance(g, OffsetsShowRow)]


def at_the_lso(g: OffsetsShowRow) -> bool:
    """Has the group read all that its readers may see, and more is held back from them?"""
    return g.lag is not None and g.lag <= 0 and (g.lag_hw or 0) > g.lag


def stuck(g: OffsetsShowRow, hanging: Iterable[TxnHangingRow]) -> bool:
    """Is the group held up by a transaction that is a finding? By one within its limits it is
    held up for a moment, again and again: that is how exactly-once works."""
    return any(
        ((h.topic, h.partition) == (g.topic, g.partition) and at_the_lso(g))
        or (g.group in h.groups and bool(g.pending))
        for h in hanging
        if h.verdict not in QUIET
    )


def _groups(
    s: "Snapshot", hanging: list[TxnHangingRow], text: Callable[[str], str]
) -> list[TableRow]:
    """Groups that stand at an LSO, one line each: their worst partition."""
    worst: dict[str, OffsetsShowRow] = {}
    more: dict[str, int] = {}
    for g in _group_rows(s):
        if not stuck(g, hanging):
            continue
        more[g.group] = more.get(g.group, 0) + 1
        known = worst.get(g.group)
        if known is None or (g.lag_hw or 0) > (known.lag_hw or 0):
            worst[g.group] = g
    rows = []
    for name, g in worst.items():
        place = f"{g.topic}:{g.partition}"
        says = (
            f"stands at the LSO of {place}" if at_the_lso(g) else f"a commit for {place} is pending"
        )
        if more[name] > 1:
            says += f" and {counted(more[name] - 1, 'other')}"
        rows.append(
            TableRow(
                f"group\0{name}",
                (
                    "!",
                    "group held up" if at_the_lso(g) else "group pending",
                    text(name),
                    "-" if g.lag_hw is None else str(g.lag_hw),
                    "",
                    "",
                    text(says),
                ),
                (None, len(ORDER) + 2, (name, 0), g.lag_hw, None, None, says),
                "!",
                g,
                ("why", place),
            )
        )
    return sorted(rows, key=lambda r: -(r.sort[3] or 0))  # type: ignore[operator]
