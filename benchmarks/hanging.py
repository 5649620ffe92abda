"""`txn hanging` over many partitions against kafka-transactions.sh find-hanging, run per broker.

20 open transactions among 10,000 partitions on three brokers, none of them a candidate for a
second look, so that the pause between two looks is not part of it (it is stated when taken).
"""

from collections.abc import Iterator

from benchmarks.side_by_side import EOCTL, Measured, alternate, command, lab, make_topics, tool
from eoctl.lab.breaks import break_
from eoctl.lab.record import LabSpec

ROUNDS = 3
TOPICS, PARTITIONS = 10, 10_000


def measure() -> Iterator[Measured]:
    with lab(LabSpec("hanging", brokers=3)) as three:
        make_topics(three, [f"wide-{n}" for n in range(TOPICS)], PARTITIONS // TOPICS)
        break_(three, "open", count=20, hold=False)
        server = ("--bootstrap-server", three.bootstrap_servers)
        each = [
            command(tool(three, "TransactionsCommand", "find-hanging", "--broker-id", str(b)))
            for b in three.broker_ids
        ]

        def peer() -> None:
            for one in each:
                one()

        ours, theirs = alternate(
            command([*EOCTL, *server, "txn", "hanging", "--all"], least=20), peer, ROUNDS
        )
        yield Measured(
            f"txn hanging, {PARTITIONS:,} partitions, 20 held",
            ours,
            theirs,
            "find-hanging x 3",
            "4x or more",
        )
