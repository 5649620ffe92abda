"""Write the Markdown of `runbook`: what to do in this cluster, in what order, and whom to ask."""

from collections.abc import Iterator, Mapping, Sequence

from eoctl.render.diagnose_words import contest_words, contests_of, who_runs
from eoctl.render.ends import otherwise
from eoctl.render.explain import what_to_do, whom_to_ask
from eoctl.render.runbook_answers import questions
from eoctl.render.runbook_items import MARKERS, Commands, Item, block, by_id, code, stamp
from eoctl.render.sanitise import visible
from recovery.answers import Answer
from recovery.change.journal_rows import JournalRow
from recovery.diagnose.diagnosis_rows import ContestRow
from recovery.diagnose.why_rows import WhyRow
from recovery.plurals import count, counted
from recovery.times import rfc3339

MOST_NAMED = 20  # partitions in one command line
MANY = 3  # of these remedies of one kind, one common plan is offered


def runbook_lines(
    answer: Answer, connection: Sequence[str], journal: Sequence[JournalRow]
) -> list[str]:
    """Return the runbook as lines of Markdown.

    connection: the options that name the cluster. journal: changes that this host made to it.
    """
    items = _items(answer)
    told = {
        name: [i for i in items if i.section == name]
        for name in ("safe", "ask", "escalate", "leave", "look")
    }
    told["safe"].sort(key=lambda i: i.rank)
    look = told["look"]
    run = Commands(connection, answer.cluster_id)
    time = stamp(answer.collected_at)
    lines = [f"# Runbook: {visible(str(answer.extra['context']))}, {time}", ""]
    lines += _state(answer)
    contested = contests_of(answer)
    if not items and answer.complete and not contested:
        return [*lines, "", "Nothing to do."]
    bundle = f"incident-{time[:10]}-{time[11:13]}{time[14:16]}.eoctl"
    if items or contested or not answer.complete:
        lines += ["", "- [ ] First keep what was seen, for the ticket and for whoever comes next:"]
        lines += block(run("bundle", "create", bundle))
    for title, body in (
        ("Not known yet", list(_to_look(look, answer))),
        ("Safe now", list(_safe(told["safe"], run))),
        ("Needs a person's answer", list(questions(told["ask"], run))),
        ("Escalate", list(_escalated(told["escalate"], run))),
        ("Contested ids", list(_contested(contested, answer.collected_at, run))),
        ("Leave alone", list(_left(told["leave"], run))),
        ("Order across the partitions of one id", list(_order(items))),
        ("Verify", list(_verify(items, run))),
        ("If the owner cannot be reached", list(_nobody(items))),
        ("For the ticket", ["```text", *ticket_lines(answer, journal, bundle), "```"]),
    ):
        if body:
            lines += ["", f"## {title}", "", *body]
    # at most one blank line between two parts
    return [line for n, line in enumerate(lines) if line or n == 0 or lines[n - 1]]


def _items(answer: Answer) -> list[Item]:
    return [
        Item(row, h, h is row.held_by)
        for row in answer.rows
        if isinstance(row, WhyRow)
        for h in (row.held_by, *row.others)
        if h is not None
    ]


def _state(answer: Answer) -> list[str]:
    e = answer.extra
    text = (
        f"Cluster {code(answer.cluster_id or 'not known')}, brokers {e['brokers_up']} of "
        f"{e['brokers_known']}. {count(e['held_back'])} of {counted(e['scanned'], 'partition')} "
        "held back."
    )
    lines = [text, "No command here changes anything. With `--execute` it acts, after a question."]
    if e["read_only"] or e["protected"]:
        lines.append("This context is " + ("read-only." if e["read_only"] else "protected."))
    if e["left_out"]:
        lines.append(
            f"{counted(e['left_out'], 'held partition')} more are not listed here: work through "
            "these, then run it again."
        )
    if not answer.complete:
        lines.append(f"**Not everything was seen: {counted(len(answer.errors), 'thing')}.**")
    return lines


def _to_look(items: Sequence[Item], answer: Answer) -> Iterator[str]:
    for i in items:
        do = (what_to_do(i.h) or i.h.remedy.does).removesuffix(".")
        yield f"- [ ] {i.title}: {do}. Abort nothing here."
    seen = {(i.h.topic, i.h.partition) for i in items}
    for error in answer.errors:
        if error.error != "UNKNOWN_VERDICT" and (error.topic, error.partition) not in seen:
            at = f"broker {error.broker}: " if error.broker is not None else ""
            name = f"{error.topic}:{error.partition}: " if error.partition is not None else ""
            yield f"- [ ] {at}{visible(name)}{visible(error.detail)} ({error.error})"


def _safe(items: Sequence[Item], run: Commands) -> Iterator[str]:
    if not items:
        return
    yield "In this order: first what delivers committed records, last what drops records. Read each"
    yield "plan: where it says that an application must be restarted, tell its owner before."
    yield ""
    for i in items:
        yield f"- [ ] {i.title}: {_does(i)}."
        for caveat in i.h.remedy.caveats:
            yield f"  - But: {caveat}."
        yield from block(i.h.remedy.command)
    written = [i for i in items if i.h.remedy.action in (*MARKERS, "abort")]
    if len(written) >= MANY:
        only = sorted({i.h.verdict for i in written})
        words = [word for verdict in only for word in ("--verdict", verdict)]
        yield "Or put all that may share a plan into one; each is checked again right before:"
        yield from block(run("txn", "hanging", *words, "--plan", "remedies.json"))
        yield from block(run("txn", "apply", "remedies.json"))


def _does(i: Item) -> str:
    """Say what the remedy does, with the numbers of counted records."""
    text, w = visible(i.h.remedy.does), i.row.waiting
    if not i.first or w is None:
        return text
    least = "at least " if w.at_least else ""
    mine, freed = counted(w.mine, "record"), counted(w.freed, "other")
    if i.h.remedy.action in MARKERS and i.h.proven_outcome == "commit":
        return f"{text}; {least}{mine} delivered, {freed} freed"
    if i.h.remedy.action in (*MARKERS, "abort", "fence"):
        return f"{text}; {least}{mine} dropped, {freed} freed"
    return text


def _escalated(items: Sequence[Item], run: Commands) -> Iterator[str]:
    """Yield what is stuck without a safe way from here: why, and whom to ask what."""
    if not items:
        return
    yield "Stuck, and no command here is safe now. Give each, with the bundle, to whoever is named."
    yield ""
    for i in items:
        why = "; ".join((i.h.remedy.does, *i.h.remedy.caveats))
        yield f"- [ ] {i.title}: {visible(otherwise(i.h) if i.waits_for_id else why)}."
        yield f"  - Ask: {whom_to_ask(i.h) or _BROKERS}"
        if i.row.if_you_wait is not None:
            yield f"  - If you wait: {visible(i.row.if_you_wait.said)}."
        if i.h.ends is not None and i.h.ends.next is not None:  # the page of its id
            yield from block(i.h.ends.next.command)


_BROKERS = 'whoever runs the brokers: "Who can end this transaction, and what do you need to see?"'


def _contested(rows: Sequence[ContestRow], now: int, run: Commands) -> Iterator[str]:
    for row in rows:
        yield f"- [ ] {code(row.transactional_id)}: {visible(contest_words(row, now))}."
        yield f"  - Ask: {visible(who_runs(row))}."
        yield from block(run("why", f"--transactional-id={row.transactional_id}"))


def _left(items: Sequence[Item], run: Commands) -> Iterator[str]:
    for i in items:
        h = i.h
        if h.verdict == "open":
            until = f"until {stamp(h.ends_at)}, when its coordinator aborts it"
            until = until if h.ends_at is not None else "until its owner ends it"
            if any(e.code == "looks-precommitted" for e in h.evidence):
                until += (
                    ", and its records are lost then: it is named as a Flink sink's, so restore "
                    "its job from the last checkpoint before, if that job is down"
                )
        else:
            until = "until its markers are written: some seconds"
        yield f"- {i.title}: {until}."
    owned = [i.h for i in items if i.h.ends is not None and i.h.ends.if_you_know]
    if owned:
        yield "- Is the owner of one gone for good? Its page has the command for that:"
    if held := list(dict.fromkeys(h.where for h in owned if h.topic is not None)):
        yield from block(run("why", "--", *held[:MOST_NAMED]))
    names = list(dict.fromkeys(h.transactional_id for h in owned if h.topic is None))
    for name in names[:MOST_NAMED]:
        yield from block(run("why", f"--transactional-id={name}"))
    if more := max(0, len(held) - MOST_NAMED) + max(0, len(names) - MOST_NAMED):
        yield f"- and {more} more: `eoctl txn hanging --all` lists them"


def _order(items: Sequence[Item]) -> Iterator[str]:
    ranks = {"look": 0, "safe": 1, "ask": 2, "escalate": 3, "leave": 4}
    for name, mine in by_id(items).items():
        if len(mine) < 2:
            continue
        ordered = sorted(mine, key=lambda i: (i.waits_for_id, ranks[i.section], i.rank))
        steps = ", then ".join(f"{code(i.h.where)} ({i.h.verdict})" for i in ordered)
        yield f"- {code(name)}: {steps}. Run `eoctl runbook` again after each step."
    if any(i.waits_for_id for i in items):
        yield "- What waits for an id that is open elsewhere comes after that id's own transaction."


def _verify(items: Sequence[Item], run: Commands) -> Iterator[str]:
    held = list(dict.fromkeys(i.h.where for i in items if i.h.topic is not None))
    if held:
        yield "- [ ] HELD is 0, or another transaction holds now:"
        yield from block(run("lso", "--", *held[:MOST_NAMED]))
    yield "- [ ] No finding is left, and no change is unfinished:"
    yield from block(run("status"))
    yield from block("eoctl journal list --unfinished")
    yield (
        "Exit status 6 of a remedy: do not repeat it by hand; `eoctl journal resume ENTRY` looks, "
        "and finishes it."
    )


_UNREACHED: Mapping[str, str] = {
    "overdue": "**overdue**: wait. Its coordinator aborts it, unless the evidence says "
    'that "the coordinator is not doing it". Only then must somebody decide whether to fence it.',
    "long": "**long**: wait for its deadline; its coordinator aborts it then.",
    "mixed": "**mixed**: decide before its deadline. Waiting loses the committed records; "
    "`--owner-is-gone` delivers undecided ones. Ask whoever answers for the data.",
    "two-phase": "**two-phase**: nothing from here is safe. Keep it open, call whoever runs the "
    "other system.",
    "unknown": "**unknown**: write nothing. Only what is seen or known changes that.",
    "coordinator-fenced": "**coordinator-fenced**: write nothing until somebody can show the "
    "outcome. Let its application use another transactional id.",
}


def _nobody(items: Sequence[Item]) -> Iterator[str]:
    asked = {"mixed" if i.h.mixed else i.h.verdict for i in items if i.section == "ask"}
    for verdict, text in _UNREACHED.items():
        if verdict in asked:
            yield f"- {text}"
    deleted = [w.deleted_at for i in items if (w := i.row.if_you_wait) and w.deleted_at is not None]
    if asked and deleted:
        yield (
            f"- Time: retention deletes the first records that wait at {stamp(min(deleted))}. A "
            "longer `retention.ms` of the topic gains time and loses nothing."
        )


def ticket_lines(answer: Answer, journal: Sequence[JournalRow], bundle: str) -> Iterator[str]:
    """Yield the text for the ticket. bundle: the name of the file that keeps the evidence."""
    e = answer.extra
    items = sorted(_items(answer), key=lambda i: i.rank if i.section == "safe" else 0)
    yield f"cluster     {visible(str(e['context']))} {answer.cluster_id}"
    up = f"brokers {e['brokers_up']}/{e['brokers_known']}"
    yield f"seen        {rfc3339(answer.collected_at)}, {up}"
    held = f"{counted(e['held_back'], 'partition')}, {counted(e['held_offsets'], 'offset')}"
    yield f"held back   {held}"
    told = {"safe": "safe now", "ask": "to be asked", "escalate": "escalated", "look": "not seen"}
    for section, name in told.items():
        for i in (i for i in items if i.section == section):
            yield f"{name:<11} {visible(i.h.where)} {i.h.verdict} ({i.h.rule}), {_numbers(i)}"
    for row in contests_of(answer):
        yield f"contested   {visible(row.transactional_id)}, {row.initialisations} times"
    for entry in journal:
        yield f"journal     {entry.id} {entry.state}: {visible(entry.summary)}"
    yield "done        (times, journal entries, records dropped and freed: eoctl journal list)"
    yield f"bundle      {visible(bundle)}"


def _numbers(i: Item) -> str:
    w = i.row.waiting
    if not i.first or w is None:
        return "records not counted"
    return f"{counted(w.mine, 'record')} of it, {counted(w.freed, 'other waits', 'others wait')}"
