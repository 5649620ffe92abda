"""Which partitions a plan without an application file is about."""

from dataclasses import dataclass

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import committed
from eoctl.operations.inspect.lists import Scope, selected
from eoctl.operations.restart.request import AdHoc
from recovery.errors import IncompleteError, RefusedError
from recovery.facts import GroupFacts, TopicPartition
from recovery.restart.adhoc import Target
from recovery.selectors import Selector


@dataclass(frozen=True, slots=True)
class MoveWish:
    """selectors: none = every partition that the group has committed, or that the file names."""

    group: str
    target: Target
    selectors: tuple[Selector, ...] = ()


async def asked(cluster: Cluster, wish: MoveWish) -> AdHoc:
    """The partitions meant. Raises RefusedError where there are none, IncompleteError."""
    places: list[TopicPartition]
    if wish.target.kind == "from-file":
        places = sorted(wish.target.offsets)
    elif wish.selectors:
        _, chosen, missing = await selected(cluster, Scope(wish.selectors))
        if missing:
            raise IncompleteError(missing[0].detail, where=missing[0].topic)
        places = sorted((p.topic, p.partition) for p in chosen)
    else:
        facts = GroupFacts(wish.group, None)
        [group_facts], missing = await committed.with_offsets(cluster, [facts])
        if missing:
            raise IncompleteError(missing[0].detail, where=f"group {wish.group}")
        places = sorted((o.topic, o.partition) for o in group_facts.offsets)
    if not places:
        raise RefusedError(
            "there is no partition to move: the group has committed nothing, or nothing matches",
            where=f"group {wish.group}",
            remedy="name topics with --topic",
        )
    return AdHoc(wish.group, wish.target, tuple(places))
