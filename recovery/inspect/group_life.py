"""Judge whether applications of groups may still live, from members seen and members not seen.

Unseen members do not mean that nobody is there: a group may live if its members are None or if
anything about it is missing.
"""

from collections.abc import Callable, Iterable

from recovery.facts import GroupFacts, Missing, grouped
from recovery.quoting import quoted, some
from recovery.values import Value


class GroupLife(Value):
    """living: the groups with members. unseen: why other groups may have some, as sentences."""

    living: tuple[GroupFacts, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def names(self) -> str:
        """Return the groups with members, by name."""
        return ", ".join(g.group for g in self.living)


def group_life(
    groups: Iterable[GroupFacts],
    missing: Iterable[Missing] = (),
    concerns: Callable[[str], bool] = lambda group: True,
) -> GroupLife:
    """Return which groups have members, and for which groups that could not be seen.

    missing: what could not be seen of groups; an entry without an id may concern any group.
    concerns: returns whether a group matters, given its name; by default all groups do.
    """
    mine = [g for g in groups if concerns(g.group)]
    reasons = [m for m in missing if m.id is None or concerns(m.id)]
    explained = {m.id for m in reasons}
    reasons += [
        Missing("group", "NOT_SEEN", "its members were not seen", id=g.group)
        for g in mine
        if g.members is None and not explained & {g.group, None}
    ]
    named = grouped(((m.broker, m.detail, m.error), m.id) for m in dict.fromkeys(reasons))
    return GroupLife(
        tuple(g for g in mine if g.members),
        tuple(_sentence(*why, names) for why, names in named.items()),
    )


def _sentence(broker: int | None, detail: str, error: str, names: list[str | None]) -> str:
    known = [quoted(name) for name in names if name is not None]
    where = f"{'group' if len(known) == 1 else 'groups'} {some(known)}: " if known else ""
    if not known and broker is not None:
        where = f"broker {broker}: "
    return f"{where}{detail} ({error})"


def own_process(transactional_id: str, groups: Iterable[GroupFacts]) -> list[tuple[str, str]]:
    """Return the (client id, host) of members in the Kafka Streams process that owns the id,
    `<application>-<process id>-<thread>`. Only the streams protocol (KIP-1071) names processes.
    """
    return sorted(
        {
            (p.client_id, p.host)
            for g in groups
            for p in g.processes
            if transactional_id.startswith(f"{g.group}-{p.process_id}-")
        }
    )
