"""Write the questions of a runbook: whom to ask what, and what each answer means."""

from collections.abc import Iterator, Sequence

from eoctl.render.ends import otherwise
from eoctl.render.explain import whom_to_ask
from eoctl.render.runbook_items import Commands, Item, block, by_id, code, stamp
from eoctl.render.sanitise import visible
from recovery.plurals import counted
from recovery.remedy.ends import OUTCOMES


def questions(items: Sequence[Item], run: Commands) -> Iterator[str]:
    """Yield a section for each id: its partitions, the question, and what each answer means."""
    for name, mine in by_id(items).items():
        i = mine[0]
        partitions = ", ".join(code(other.h.where) for other in mine if other.h.topic is not None)
        verdicts = dict.fromkeys("mixed" if o.h.mixed else o.h.verdict for o in mine)
        yield f"### {code(name)}: {', '.join(verdicts)}"
        yield ""
        yield f"- Holds {partitions or 'no partition'}."
        if i.row.owner is not None:
            yield f"- Who: {visible(i.row.owner.said)}."
        for question in dict.fromkeys(whom_to_ask(o.h) for o in mine):
            yield f"- Ask: {question}"
        for reason in dict.fromkeys(o.h.gate for o in mine if o.h.gate):
            yield f"- Why it is asked: {visible(reason)}."
        for text in dict.fromkeys(o.row.if_you_wait.said for o in mine if o.row.if_you_wait):
            yield f"- If you wait: {text}."
        yield ""
        yield from _answers(mine, run)
        yield ""


def _answers(mine: Sequence[Item], run: Commands) -> Iterator[str]:
    fenced = [i for i in mine if not i.h.mixed and i.h.verdict in ("overdue", "long", "two-phase")]
    for i in mine:
        if i.h.mixed:
            yield from _answers_mixed(i, run)
        elif i.h.verdict in ("unknown", "coordinator-fenced"):
            yield from _answers_unknown(i, run)
    if not fenced or any(i.h.mixed for i in mine):
        return  # a fence would destroy the committed records under a mixed one
    i = fenced[0]
    lost = sum(o.dropped for o in fenced)
    least = "" if all(o.is_counted for o in fenced) else "at least "
    drops = f"drops {least}{counted(lost, 'record')} that wait, " if lost else "drops its records, "
    if i.h.verdict == "two-phase":
        yield '- [ ] "It is prepared; we will commit or abort it": let that system do it.'
        yield '- [ ] "Our half is committed, and we cannot end it": do not fence, keep it open.'
        yield f'- [ ] "That system is gone, its half is not committed": this {drops}for good:'
    else:
        yield '- [ ] "It lives, and it will commit": leave it alone, look again later.'
        yield f'- [ ] "It is dead" or "kill it": this {drops}on all of its partitions:'
    command = _fence(i, run)
    if command is None:
        yield f"  Not from here now: {visible(_refused(i))}."
    yield from block(command)
    if len(fenced) > 1 and command is not None:
        yield "  One fence ends it on all of these partitions: run it once."


def _fence(i: Item, run: Commands) -> str | None:
    """Return the fence that is accepted now; None: none is."""
    h = i.h
    if h.ends is not None:
        ways = (h.ends.next, *h.ends.if_you_know)
        return next((w.command for w in ways if w is not None and w.action == "fence"), None)
    if h.remedy.action == "fence":  # of an earlier version
        return h.remedy.command
    if h.transactional_id is None:
        return None
    return run.remedy("fence", "--owner-is-gone", end=("--", h.transactional_id))


def _refused(i: Item) -> str:
    if i.row.contest is not None:
        return "its id is contested, which a fence does not end: see there"
    reasons = (why for action, why in map(tuple, i.h.remedy.refused) if action == "fence")
    return next(reasons, None) or otherwise(i.h)


def _answers_mixed(i: Item, run: Commands) -> Iterator[str]:
    past = i.h.ends_in_seconds is not None and i.h.ends_in_seconds < 0
    before = " at once, its deadline has passed" if past else f" before {stamp(i.h.ends_at)}"
    if i.h.proven_outcome != "commit":
        yield (
            f"- [ ] {code(i.h.where)}: earlier records that were aborted lie under its open "
            "transaction; its commit would deliver them. Its owner decides."
        )
        return
    yield f'- [ ] "It will commit{before}": leave it alone. Its commit saves the earlier records.'
    yield (
        '- [ ] "It is dead, its undecided records may be delivered": this commits both on '
        f"{code(i.h.where)}. Do it{before}:"
    )
    yield from _known(i, run, "owner-gone", "commit", "--owner-is-gone")
    yield '- [ ] "It is dead, and they must not be delivered": no way keeps the committed ones.'


def _answers_unknown(i: Item, run: Commands) -> Iterator[str]:
    said = {"committed": "It was committed", "aborted": "It was aborted"}
    for knows, outcome in OUTCOMES:
        yield f'- [ ] "{said[knows]}", and you can show it: on {code(i.h.where)} alone'
        yield from _known(i, run, knows, outcome, "--without-proof")
    yield '- [ ] "Nobody knows": write nothing.'


def _known(i: Item, run: Commands, knows: str, outcome: str, flag: str) -> Iterator[str]:
    """Yield the command for whoever knows that, or why it would be refused now."""
    if i.h.ends is None:  # of an earlier version
        yield from block(_resolve(i, run, outcome, flag))
        return
    way = next((w for w in i.h.ends.if_you_know if w.knows == knows), None)
    if way is None:
        yield f"  Not from here now: {visible(otherwise(i.h))}."
    else:
        yield from block(way.command)


def _resolve(i: Item, run: Commands, outcome: str, *flags: str) -> str | None:
    h = i.h
    if h.topic is None or h.producer_id is None or h.start_offset is None:
        return None
    which = ("--pid", str(h.producer_id), "--start-offset", str(h.start_offset))
    return run.remedy("resolve", *which, "--outcome", outcome, *flags, end=("--", h.where))
