"""Transactional ids of Kafka Connect: which worker group, connector and task bears an id.

A source task's id is `<group>-<connector>-<task>`, a leader's `connect-cluster-<group>` (KIP-618).
A name is a hint; that such a worker group exists is proven by a group of the protocol `connect`.
Neither proves that the id is Connect's: others may choose the same name.
"""

import re
from collections.abc import Sequence

from recovery.facts import ConnectWorker, GroupFacts
from recovery.values import Value

PROTOCOL = "connect"
LEADER = "connect-cluster-"
_TASK = r"(.+)-(\d+)"


class ConnectOwner(Value):
    """Whose id it is by its name. proven: such a worker group exists. connector, task: None for
    the leader's id. worker: the one that runs the task now, as the group's assignment says.
    """

    group: str
    proven: bool
    connector: str | None = None
    task: int | None = None
    worker: ConnectWorker | None = None
    workers: tuple[ConnectWorker, ...] = ()


def possible_groups(transactional_id: str) -> tuple[str, ...]:
    """Return the worker groups that an id may be of, by its name alone; () for other names."""
    if transactional_id.startswith(LEADER) and transactional_id != LEADER:
        leads: tuple[str, ...] = (transactional_id.removeprefix(LEADER),)
    else:
        leads = ()
    task = re.fullmatch(_TASK, transactional_id, re.DOTALL)
    words = task[1].split("-") if task else []
    return (*leads, *("-".join(words[:n]) for n in range(1, len(words))))


def connect_owner(transactional_id: str, groups: Sequence[GroupFacts]) -> ConnectOwner | None:
    """Return whose id it is, if a worker group or at least the name says so.

    groups: as far as they are known. Of several that fit, one whose workers run the task wins,
    then the one with the longest name.
    """
    names = possible_groups(transactional_id)
    known = {g.group: g for g in groups if g.protocol == PROTOCOL}
    owners = [_of_group(transactional_id, known[name]) for name in names if name in known]
    if owners:
        return max(owners, key=lambda o: (o.worker is not None, len(o.group)))
    if transactional_id.startswith(LEADER) and names:
        return ConnectOwner(names[0], proven=False)
    return None


def runs_on_connect(transactional_id: str, groups: Sequence[GroupFacts]) -> bool:
    """Tell whether the workers of a group say that the id is theirs: one runs its task now, or
    they are led under it.

    A worker group whose name the id merely begins with is not enough: a sink of Flink may be named
    so too.
    """
    owner = connect_owner(transactional_id, groups)
    if owner is None or not owner.proven:
        return False
    return bool(owner.workers) if owner.connector is None else owner.worker is not None


def _of_group(transactional_id: str, group: GroupFacts) -> ConnectOwner:
    if transactional_id == LEADER + group.group:
        return ConnectOwner(group.group, True, workers=group.workers)
    connector, _, number = transactional_id.removeprefix(group.group + "-").rpartition("-")
    worker = next((w for w in group.workers if (connector, int(number)) in w.tasks), None)
    return ConnectOwner(group.group, True, connector, int(number), worker, group.workers)
