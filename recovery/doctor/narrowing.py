"""`doctor NAME…`: only what is about these topics, groups and transactional ids."""

from collections.abc import Iterable, Iterator, Sequence

from recovery.doctor.findings import ALL, DoctorFacts, DoctorRule, Finding
from recovery.facts import Missing
from recovery.values import replace

NAMED_KINDS = ("topic", "group", "transactional-id")
"""Kinds of subjects that `doctor NAME` takes."""


def narrowed(facts: DoctorFacts, names: Sequence[str]) -> DoctorFacts:
    """Return the facts with only the named ids; without names all of them.

    A topic named keeps the ids that write it. Topics and groups stay: `shown` leaves the others
    out, and the members of any group may show that an id is in use. What hides other topics is left
    out, since it hides nothing about the names; so is what hides nameless ones, if all names, and
    the topics that their ids write, were seen.
    """
    if not names:
        return facts
    rows = tuple(
        t
        for t in facts.transactions.rows
        if t.transactional_id in names or any(p.topic in names for p in t.partitions or ())
    )
    ids = {t.transactional_id for t in rows}
    written = {p.topic for t in rows for p in t.partitions or ()}
    topics = {*names, *written}
    hidden = {*topics, None} if {*names} - _known(facts) or written - {*facts.topics} else topics
    return replace(
        facts,
        transactions=replace(facts.transactions, rows=rows),
        commit_ways={k: w for k, w in facts.commit_ways.items() if k.group in names},
        outages=tuple(o for o in facts.outages if o.transactional_id in ids),
        client_versions={n: v for n, v in facts.client_versions.items() if n in ids},
        missing_topics=tuple(m for m in facts.missing_topics if m.topic in hidden),
        missing_held=tuple(m for m in facts.missing_held if m.topic in hidden),
        missing_settings=tuple(m for m in facts.missing_settings if m.topic in topics),
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
    return [
        (rule, f)
        for rule, f in found
        if f.kind in NAMED_KINDS and (f.name in about or (f.name == ALL and f.state == "unknown"))
    ]


def about_names(rules: Iterable[DoctorRule]) -> list[DoctorRule]:
    """Return the rules whose findings can be about a topic, a group or a transactional id."""
    return [rule for rule in rules if rule.name not in OF_THE_CLUSTER]


OF_THE_CLUSTER = frozenset(
    {
        "verification-off",
        "ids-expire-early",
        "producers-expire-early",
        "known-bug",
        "transaction-version-low",
        "mixed-versions",
        "newer-protocol",
    }
)
"""Rules about brokers, or about the cluster as one: `doctor NAME…` leaves out what they find."""


def unknown_names(facts: DoctorFacts) -> Iterator[Missing]:
    """Yield names that are none of a topic, a group and a transactional id that were seen."""
    for name in facts.named:
        if name not in _known(facts):
            text = "no topic, group or transactional id of this name was seen"
            yield Missing("cluster", "UNKNOWN_NAME", text, id=name)


def _known(facts: DoctorFacts) -> set[str]:
    return {
        *facts.topics,
        *(t.transactional_id for t in facts.transactions.rows),
        *(g.group for g in facts.groups),
    }
