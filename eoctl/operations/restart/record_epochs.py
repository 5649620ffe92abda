"""Find the leader epochs of the records before the offsets that a restart gives to a group.

A consumer's commit holds one (KIP-320): with it, a consumer that begins at the offset notices that
the log was cut off since. Other stores hold an epoch only where the application writes one.
"""

from collections.abc import Collection

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.read import positions
from eoctl.stores.offsets.store import unsent
from recovery.errors import IncompleteError
from recovery.facts import TopicPartition
from recovery.restart.decide import changes
from recovery.restart.decision import RestartPlan
from recovery.restart.observed import Observed
from recovery.restart.stored import StoredPartition
from recovery.shared.log_position import LogPosition
from recovery.values import replace


async def with_epochs(cluster: Cluster, decision: RestartPlan, observed: Observed) -> RestartPlan:
    """Return the decision with the epoch of the record before each offset that it writes.

    An offset has none if that record is gone; all have none if records may not be read.
    """
    moved = (change.after.input for change in changes(decision, observed))
    bare = {entry.topic_partition: entry.offset for entry in moved if entry.leader_epoch is None}
    try:
        epochs = await positions.record_epochs(cluster, bare)
    except IncompleteError:
        return decision

    def stamped(entry: StoredPartition) -> StoredPartition:
        epoch = epochs.get(entry.input.topic_partition)
        if epoch is None:
            return entry
        with_epoch = entry.input.model_copy(update={"leader_epoch": epoch})
        return entry.model_copy(update={"input": with_epoch})

    return replace(decision, store=tuple(stamped(entry) for entry in decision.store))


async def refuse_cut_off(
    cluster: Cluster, decision: RestartPlan, written: Collection[TopicPartition]
) -> None:
    """Refuse to write offsets if the records before them were cut off since the plan.

    written: the partitions to write. Raises RefusedError, also if a leader does not answer; offsets
    without an epoch are not checked.
    """
    planned = {
        entry.input.topic_partition: LogPosition(entry.input.offset, entry.input.leader_epoch)
        for entry in decision.store
        if entry.input.topic_partition in written and entry.input.leader_epoch is not None
    }
    with unsent():
        await positions.refuse_other_logs(cluster, planned, "plan again")
