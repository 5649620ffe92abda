"""Whether applications of groups may live: by their members, and by what hides them.

Members that were not seen are never nobody: a group whose members are None, or of which something
is missing, may live.
"""

from collections.abc import Callable, Iterable

from recovery.facts import GroupFacts, Missing, grouped
from recovery.quoting import quoted, some
from recovery.values import Value


class GroupLife(Value):
    """living: the groups with members. unseen: why others may have some, a sentence each."""

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
    """Return which groups have members, and of which that could not be seen.

    missing: what could not be seen of groups; what names no group may be about any. concerns: tells
    by its name whether a group matters; all do by default.
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
    """Return the members, as (client id, host), of the very process of Kafka Streams that bears the
    id, `<application>-<process id>-<thread>`. Only the streams protocol (KIP-1071) names processes.
    """
    return sorted(
        {
            (p.client_id, p.host)
            for g in groups
            for p in g.processes
            if transactional_id.startswith(f"{g.group}-{p.process_id}-")
        }
    )
