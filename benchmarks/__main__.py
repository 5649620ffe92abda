"""`make bench`: every claim of speed beside its peer, as ratios. `python -m benchmarks NAME...`

Each module here measures one claim: `measure()` yields what it found.
"""

import os
import signal
import sys
from importlib import import_module

CLAIMS = (
    "help",
    "install",
    "lso",
    "transactions",
    "hanging",
    "fences",
    "status",
    "why",
    "state_log",
    "offsets_count",
    "restart_plan",
    "merge_replay",
    "rebuild",
    "rebuild_scale",
    "spark_rebuild",
    "spark_scale",
    "spark_driver",
    "audit_sequences",
    "tui",
)


def main() -> None:
    chosen = sys.argv[1:] or CLAIMS
    if unknown := [name for name in chosen if name not in CLAIMS]:
        raise SystemExit(f"no benchmark {unknown[0]}; there are {', '.join(CLAIMS)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its brokers are stopped then too
    # byte code is kept, as where a program was installed: else each start compiles what it loads
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}; whole processes, in turn\n", flush=True)
    for name in chosen:
        for found in import_module(f"benchmarks.{name}").measure():
            print("\n".join(found.lines()), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
