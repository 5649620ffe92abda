"""`doctor NAME…`: only what is about these topics, groups and transactional ids."""

from collections.abc import Iterable, Iterator, Sequence

from recovery.doctor.findings import ALL, DoctorFacts, DoctorRule, Finding
from recovery.facts import Missing
from recovery.values import replace

_ABOUT = ("topic", "group", "transactional-id")


def narrowed(facts: DoctorFacts, names: Sequence[str]) -> DoctorFacts:
    """Return the facts with only the named ids and groups; without names all of them.

    A topic named keeps the ids that write it. Topics stay: `shown` leaves the others out. What
    hides other topics is left out, since it hides nothing about the names.
    """
    if not names:
        return facts
    rows = tuple(
        t
        for t in facts.transactions.rows
        if t.transactional_id in names or any(p.topic in names for p in t.partitions or ())
    )
    ids = {t.transactional_id for t in rows}
    topics = {*names, *(p.topic for t in rows for p in t.partitions or ())}
    return replace(
        facts,
        transactions=replace(facts.transactions, rows=rows),
        groups=tuple(g for g in facts.groups if g.group in names),
        commit_ways={k: w for k, w in facts.commit_ways.items() if k.group in names},
        client_versions={n: v for n, v in facts.client_versions.items() if n in ids},
        missing_topics=tuple(m for m in facts.missing_topics if m.topic in {*topics, None}),
        missing_settings=tuple(m for m in facts.missing_settings if m.topic in topics),
        missing_held=tuple(m for m in facts.missing_held if m.topic in {*topics, None}),
    )


def shown(
    facts: DoctorFacts, found: Iterable[tuple[DoctorRule, Finding]]
) -> list[tuple[DoctorRule, Finding]]:
    """Return the findings that are about the facts' names: without names all of them.

    A topic that a named id writes now is one of them. What hides a topic, group or id stays.
    """
    if not facts.named:
        return list(found)
    about = {*facts.named, *facts.written, *(t.transactional_id for t in facts.transactions.rows)}
    return [one for one in found if one[1].kind in _ABOUT and one[1].name in {*about, ALL}]


def unknown_names(facts: DoctorFacts) -> Iterator[Missing]:
    """Yield names that are none of a topic, a group and a transactional id that were seen."""
    known = {
        *facts.topics,
        *(t.transactional_id for t in facts.transactions.rows),
        *(g.group for g in facts.groups),
    }
    for name in facts.named:
        if name not in known:
            text = "no topic, group or transactional id of this name was seen"
            yield Missing("cluster", "UNKNOWN_NAME", text, id=name)
