"""Find the Kafka Connect connector that owns a transactional id: by the id's name and group."""

from collections.abc import Sequence

from eoctl.operations.inspect.source import Source
from recovery.inspect.cluster_rows import ConnectRow
from recovery.inspect.connect_ids import ConnectOwner, connect_owner, possible_groups


async def connect_rows(source: Source, names: Sequence[str]) -> dict[str, ConnectRow]:
    """Return those of the ids that look like Connect's, by id.

    Groups that could not be seen are not reported: then only a hint is left, or nothing.
    """
    groups = sorted({group for name in names for group in possible_groups(name)})
    if not groups:
        return {}
    facts, _ = await source.named_groups(groups)
    owners = {name: connect_owner(name, facts) for name in names}
    return {name: _row(owner) for name, owner in owners.items() if owner is not None}


def _row(owner: ConnectOwner) -> ConnectRow:
    mine = [owner.worker] if owner.worker is not None else []
    return ConnectRow(
        group=owner.group,
        group_exists=owner.proven,
        connector=owner.connector,
        task=owner.task,
        workers=[w.url for w in (mine or owner.workers)],
        runs=owner.worker is not None if owner.connector is not None else None,
        said=_said(owner),
    )


def _said(owner: ConnectOwner) -> str:
    """Return the sentence: what the name suggests, and what the group proves."""
    if not owner.proven:
        return (
            f"by its name the leader of Kafka Connect's worker group {owner.group}, which has no "
            "members or could not be seen"
        )
    group = f"Kafka Connect's worker group {owner.group}, which exists"
    known = ", ".join(w.url for w in owner.workers)
    rest = f": REST at {known}" if known else ", and has no worker that is known"
    if owner.connector is None:
        return f"by its name the leader of {group}{rest}"
    text = f"by its name task {owner.task} of connector {owner.connector} in {group}"
    if owner.worker is not None:
        return f"{text}; its worker: {owner.worker.url} at {owner.worker.host}"
    if not known:
        return f"{text}{rest}"
    return f"{text}; no worker of it runs that task now{rest}"
