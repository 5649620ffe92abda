"""Find which worker group, connector and task of Kafka Connect own a transactional id.

A source task's id is `<group>-<connector>-<task>`, a leader's `connect-cluster-<group>` (KIP-618).
A name is a hint; a group of the protocol `connect` proves that such a worker group exists.
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
    """The owner of an id by its name. proven: such a worker group exists. connector, task: None for
    the leader's id. worker: the one that runs the task now, from the group's assignment.
    """

    group: str
    proven: bool
    connector: str | None = None
    task: int | None = None
    worker: ConnectWorker | None = None
    workers: tuple[ConnectWorker, ...] = ()


def possible_groups(transactional_id: str) -> tuple[str, ...]:
    """Return the worker groups that may own an id, by its name alone; () for other names."""
    if transactional_id.startswith(LEADER) and transactional_id != LEADER:
        leads: tuple[str, ...] = (transactional_id.removeprefix(LEADER),)
    else:
        leads = ()
    task = re.fullmatch(_TASK, transactional_id, re.DOTALL)
    words = task[1].split("-") if task else []
    return (*leads, *("-".join(words[:n]) for n in range(1, len(words))))


def connect_owner(transactional_id: str, groups: Sequence[GroupFacts]) -> ConnectOwner | None:
    """Return the owner of an id, if a worker group or at least the name shows one.

    groups: those known. If several fit, one whose workers run the task wins, then the one with the
    longest name.
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
    """Return True if the workers of a group show that the id is theirs: one runs its task now, or
    it is the id of their leader.

    A worker group whose name is only a prefix of the id is not enough: a sink of Flink may have
    such a name too.
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
