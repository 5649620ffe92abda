"""Let an application start where a plan says and drop its first n outputs.

    from recovery.restart.drop_first import DropFirst, restart_offset
    start = restart_offset(os.environ, "orders", 3)
    drop = DropFirst.from_env(os.environ, "orders-enriched", 3, look)
    ...
    if drop.sends():                  # call once per output, in order
        producer.produce("orders-enriched", value, partition=3)

The application supplies `look(topic, partition, start)`, which counts on the cluster, at that
moment, the data records that a read_committed reader sees from `start` to the end. n holds for one
end only: if the end moved (another crash, a process that still lives), DropFirst refuses to start.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

from recovery.errors import RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.plurals import count, counted
from recovery.restart.plan_output import env_name


class OutputNow(NamedTuple):
    """An output partition now. records: visible data records from the given start to end_offset,
    which is final (LEO = HW = LSO). leader_epoch: None = unknown."""

    end_offset: int
    records: int
    leader_epoch: int | None


Look = Callable[[str, int, int], OutputNow]


class DropFirst:
    """Decides for each output of one partition whether it must be sent or is already there."""

    def __init__(
        self,
        topic_partition: tuple[str, int],
        drop_first: int,
        end_offset: int,
        leader_epoch: int | None,
        now: OutputNow,
    ) -> None:
        """Compare the plan's drop_first, end_offset and leader_epoch with `now`, a new count.

        Raises RefusedError if they differ.
        """
        where, again = f"{topic_partition[0]}:{topic_partition[1]}", "plan the restart again"
        if now.end_offset != end_offset:
            raise RefusedError(
                f"its end moved from {end_offset} to {now.end_offset} since the plan: dropping "
                f"{counted(drop_first, 'output')} would be wrong now",
                where=where,
                remedy=f"find out who wrote, then {again}",
            )
        if leader_epoch is not None and now.leader_epoch != leader_epoch:
            raise RefusedError(
                f"its leader epoch was {leader_epoch} when planned, is {now.leader_epoch}",
                where=where,
                remedy=again,
            )
        if now.records != drop_first:
            raise RefusedError(
                f"{counted(now.records, 'output is', 'outputs are')} there now, the plan counted "
                f"{count(drop_first)}",
                where=where,
                remedy=again,
            )
        self.left = drop_first

    @classmethod
    def from_env(cls, env: Mapping[str, str], topic: str, partition: int, look: Look) -> Self:
        """Read the variables of `restart plan --env`. Raises UsageError where they are missing or
        not numbers, RefusedError where they no longer hold."""
        name = env_name("DROP", TopicPartition(topic, partition))
        n, start, end = (_number(env, name + suffix) for suffix in ("", "_FROM", "_END"))
        epoch = f"{name}_LEADER_EPOCH"
        planned = _number(env, epoch) if epoch in env else None
        return cls((topic, partition), n, end, planned, look(topic, partition, start))

    def sends(self) -> bool:
        """Return True if the next output is to be sent: False for the first n calls."""
        if self.left:
            self.left -= 1
            return False
        return True


def restart_offset(env: Mapping[str, str], topic: str, partition: int) -> int:
    """Return the start of an input partition, from `restart plan --env`. Raises UsageError."""
    return _number(env, env_name("RESTART", TopicPartition(topic, partition)))


def _number(env: Mapping[str, str], name: str) -> int:
    text = env.get(name)
    if text is None:
        raise UsageError("is not set", where=name, remedy="see `eoctl restart plan --env`")
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{text[:40]!r} is not a number", where=name)
    return int(text)
