"""`lso` over 10,000 partitions of one broker against GetOffsetShell, run for start and end."""

from collections.abc import Iterator

from benchmarks.side_by_side import (
    EOCTL,
    Measured,
    alternate,
    command,
    lab,
    make_topics,
    settled,
    tool,
)
from eoctl.lab.record import LabSpec

TOPICS, EACH = 10, 1000


def measure() -> Iterator[Measured]:
    with lab(LabSpec("lso")) as one:
        make_topics(one, [f"many-{number}" for number in range(TOPICS)], EACH)
        server = ("--bootstrap-server", one.bootstrap_servers)
        total = TOPICS * EACH
        first = command(tool(one, "GetOffsetShell", "--time", "-2"), least=total)
        last = command(tool(one, "GetOffsetShell", "--time", "-1"), least=total)

        settled([*EOCTL, *server, "lso", "--all"])

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
