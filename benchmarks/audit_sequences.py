"""`audit sequences` of 5 M records beside `offsets count` of the same: both read only headers."""

from collections.abc import Iterator

from benchmarks import offsets_count
from benchmarks.side_by_side import EOCTL, Measured, alternate, command, lab
from eoctl.lab.record import LabSpec


def measure() -> Iterator[Measured]:
    with lab(LabSpec("audit")) as one:
        stored = offsets_count.fill(one, "audit", "none")
        words = [*EOCTL, "--bootstrap-server", one.bootstrap_servers]
        audit = [*words, "audit", "sequences", "audit", "--end", "hw"]
        count = [*words, "offsets", "count", "audit", "--end", "hw", "-o", "csv"]
        least = offsets_count.PARTITIONS + 1
        times = alternate(command(audit), command(count, least=least), rounds=5)
        what = f"audit sequences of {offsets_count.RECORDS:,} records, {stored >> 20} MiB"
        yield Measured(what, *times, "offsets count", "at least 0.6x")
