"""`lso` over 10,000 partitions of one broker against GetOffsetShell, run for start and end."""

import time
from collections.abc import Iterator

from benchmarks.side_by_side import EOCTL, Measured, alternate, command, lab, tool
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec

TOPICS, EACH = 10, 1000


def measure() -> Iterator[Measured]:
    with lab(LabSpec("lso")) as one:
        _make_topics(one)
        server = ("--bootstrap-server", one.bootstrap_servers)
        total = TOPICS * EACH
        first = command(tool(one, "GetOffsetShell", "--time", "-2"), least=total)
        last = command(tool(one, "GetOffsetShell", "--time", "-1"), least=total)

        def start_and_end() -> None:
            first()
            last()

        ours, peer = alternate(
            command([*EOCTL, *server, "lso", "--all", "-o", "json"], least=total),
            start_and_end,
            rounds=5,
        )
        yield Measured(
            f"lso --all over {total:,} partitions", ours, peer, "GetOffsetShell x2", "4x or more"
        )
        held, _ = alternate(command([*EOCTL, *server, "lso"]), lambda: None, rounds=5)
        yield Measured("lso, only what is held", held, peer, "GetOffsetShell x2", "none")


def _make_topics(one: Lab) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(one.client_properties())
    for number in range(TOPICS):
        name = f"many-{number}"
        admin.create_topics([NewTopic(name, EACH, 1)], operation_timeout=60)[name].result(120)
    end = time.monotonic() + 300
    while sum(len(t.partitions) for t in admin.list_topics(timeout=60).topics.values()) < (
        TOPICS * EACH
    ):
        assert time.monotonic() < end
        time.sleep(1)
    time.sleep(5)  # the broker makes the last logs
