"""Send one partition of a merge replay: the sink's attempt with the local engine's commits.

The rows are committed together with the position in the merge log, in the group and under the
transactional id of `merge replay`: a local replay and this one fence each other, and each
understands how far the other came. All runs send the same rows, so the staging needs no marker: the
position alone says which rows were sent.
"""

from collections.abc import Mapping

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.write import exactly_once
from eoctl.kafka.write.commit import CommittedPosition
from eoctl.stores.storage_address import storage_at
from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.merge.merge_request import MergePart
from recovery.merge.replay import ReplayPosition
from recovery.shared.log_position import EpochSteps
from recovery.values import Value
from spark_jobs.sink import markers, staging
from spark_jobs.sink.commit import Attempt, Work


class Sending(Value):
    """The work of one part; its job is the group. end: the offset after the last entry. epochs: the
    steps of the entries' leader epochs, as `EpochSteps` takes them."""

    work: Work
    part: MergePart
    merge: str
    end: int
    epochs: tuple[tuple[int, int], ...] = ()


class ReplayAttempt(Attempt):
    """One attempt to send one part."""

    def __init__(self, sending: Sending) -> None:
        super().__init__(sending.work)
        self._part, self._end = sending.part, sending.end
        self._epochs = EpochSteps(sending.epochs)
        self._partition: TopicPartition = TopicPartition(sending.merge, sending.part.partition)

    @property
    def ids(self) -> tuple[str, str]:
        group = self.work.job
        return f"{group}-{self._part.partition}", group

    def position(self) -> int | None:
        """Return the first row to send, from the position committed in the merge log.

        Raises RefusedError if somebody else committed, or the commit is gone.
        """
        part, raw = self._part, self._committed()
        at = None if raw is None else ReplayPosition.committed(raw.offset, raw.metadata)
        if at is None or at.base != part.base:
            if part.committed != (None if raw is None else (raw.offset, raw.metadata)):
                raise RefusedError(
                    "what replays committed for it has changed since it was counted",
                    where=str(self._partition),
                    remedy="run the same command again: it counts again",
                )
            return 0
        if at.merge_offset < part.position:
            raise RefusedError(
                f"{at.merge_offset} is committed for it, after {part.position} was",
                where=str(self._partition),
                remedy="find out who commits in the group " + self.work.job,
            )
        if at.merge_offset >= self._end and not at.drop_left:
            return None
        return staging.row_at(storage_at(self.work.folder), self.work.file, at.merge_offset)

    def mark(
        self, row: int, last: staging.Row | None
    ) -> Mapping[TopicPartition, CommittedPosition]:
        if row == self.work.file.rows:
            offset = self._end
        else:
            assert last is not None
            assert last.position is not None
            offset = last.position + 1
        metadata = ReplayPosition(offset, 0, self._part.base).metadata
        return {self._partition: CommittedPosition(offset, metadata, self._epochs.of(offset - 1))}

    def _committed(self) -> CommittedPosition | None:
        async def ask(cluster: Cluster) -> CommittedPosition | None:
            positions = await exactly_once.committed(cluster, self.work.job, [self._partition])
            return positions.get(self._partition)

        return self.work.access.ask(ask, markers.ANSWER_SECONDS)
