"""`txn list` and `producers` against kafka-transactions.sh, and both with a frozen broker."""

import subprocess
import time
from collections.abc import Iterator

from benchmarks.side_by_side import EOCTL, Measured, alternate, command, lab, tool
from eoctl.lab.breaks import break_
from eoctl.lab.record import LabSpec

ROUNDS = 7
FROZEN = 2


def measure() -> Iterator[Measured]:
    settings = {"broker.session.timeout.ms": "600000"}  # a frozen broker keeps its partitions
    with lab(LabSpec("transactions", brokers=3, settings=settings)) as three:
        truths = break_(three, "open", count=20, hold=False)
        server = ("--bootstrap-server", three.bootstrap_servers)
        ours, peer = alternate(
            command([*EOCTL, *server, "txn", "list"], least=20),
            command(tool(three, "TransactionsCommand", "list"), least=20),
            ROUNDS,
        )
        yield Measured("txn list, 3 brokers", ours, peer, "TransactionsCommand", "3x or more")
        topic, partition = truths[0].topic_partition
        options = ("--topic", topic, "--partition", str(partition))
        ours, peer = alternate(
            command([*EOCTL, *server, "producers", f"{topic}:{partition}"], least=2),
            command(tool(three, "TransactionsCommand", "describe-producers", *options), least=2),
            ROUNDS,
        )
        yield Measured("producers TOPIC:P", ours, peer, "TransactionsCommand", "3x or more")
        three.freeze(FROZEN)
        try:
            full = command([*EOCTL, *server, "lso", topic, "-o", "json"], status=3, least=3)
            ours, _ = alternate(full, lambda: None, rounds=3)
            begin = time.perf_counter()
            argv = tool(three, "TransactionsCommand", "list")
            subprocess.run(argv, capture_output=True, check=False)
            took = [time.perf_counter() - begin]
        finally:
            three.thaw(FROZEN)
        yield Measured(
            "lso with one of three brokers frozen (exit 3)",
            ours,
            took,
            "TransactionsCommand",
            "eoctl within 5 s",
        )
