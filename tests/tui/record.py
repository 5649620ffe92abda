"""How the recordings were made: `python -m tests.tui.record FOLDER`, on real labs of its own.

orders: three brokers, trouble of several kinds, hostile names. empty: a fresh broker. denied: the
same questions by a user that may see next to nothing. dead: the brokers go away while it looks.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from eoctl.config import Connect, Context, resolve
from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab, up
from eoctl.lab.record import LabSpec
from eoctl.lab.secure import client_file
from eoctl.operations.changes import plans_folder
from eoctl.stores.journal import Journal
from recovery.observation import Settings
from tui.feed import LiveFeed

HOSTILE = "[/x] \x1b[31m\u202egnp \U0001f600"
UNCHECKED = {"transaction.partition.verification.enable": "false"}


def record(
    context: Context,
    path: Path,
    seconds: float,
    meanwhile: Callable[[], None],
    detail: str | None = None,
) -> None:
    """Run the dashboard's own feed without a dashboard, for so long. detail: an entry."""
    path.unlink(missing_ok=True)
    feed = LiveFeed(
        context, interval=2.0, settings=Settings(long_after=5_000), record=path, seconds=4.0
    )
    feed.want(
        producers=True,
        why="orders:3",
        history="orders-enricher-0_3",
        strip="orders:3",
        detail=detail,
    )
    feed.start(lambda frame: None)
    time.sleep(seconds)
    meanwhile()
    feed.stop()


def orders(lab: Lab) -> None:
    """Orphans, a long transaction, a pending commit, hostile names, traffic that is well."""
    break_(lab, "long", topic="orders", partition=5, transactional_id="orders-enricher-0_3")
    break_(lab, "orphan", topic="orders", partition=3)
    break_(lab, "orphan", topic="payments", partition=1)
    break_(lab, "open", topic="clicks", transactional_id="clicks-sink-0_0")
    break_(lab, "open", topic="t" * 249, transactional_id="n" * 249)
    break_(lab, "open", topic="hostile", transactional_id=HOSTILE)
    break_(lab, "offsets-pending", topic="clicks-in", group="clicks-sink")
    break_(lab, "mixed", topic="audit")


def eoctl(lab: Lab, *words: str) -> None:
    """Run a command as an operator would."""
    argv = [sys.executable, "-m", "eoctl", "--context", f"lab-{lab.name}", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    print(" ".join(words), done.returncode, done.stderr[-300:])


def changes(lab: Lab) -> str:
    """An orphan aborted, another one planned, a state rebuilt on Spark; the journal's entry."""
    [truth] = break_(lab, "orphan", topic="refunds", partition=0)
    named = ["--pid", str(truth.producer_id), "--start-offset", str(truth.start_offset)]
    eoctl(lab, "txn", "abort", "refunds:0", *named, "--execute", "--yes")
    plans_folder().mkdir(parents=True, exist_ok=True)
    eoctl(lab, "txn", "hanging", "--plan", str(plans_folder() / "orphans.json"))
    output = str(plans_folder().parent / "state-audit")
    at = ["--at", "lso", "--output", output, "--engine", "spark"]
    eoctl(lab, "state", "rebuild", "audit", "--format", "plain", *at)
    return Journal().find().entries[-1].id


def main(folder: Path) -> None:
    """Make all four."""
    lab = up(LabSpec(name="record-orders", brokers=3, settings=UNCHECKED))
    try:
        orders(lab)
        context = resolve(Connect(context=f"lab-{lab.name}"))
        entry = changes(lab)
        record(context, folder / "orders.jsonl", 30, lambda: None, entry)

        def die() -> None:
            for broker in lab.broker_ids:
                lab.kill(broker)
            time.sleep(6)

        record(context, folder / "dead.jsonl", 9, die)
    finally:
        lab.down()
    lab = up(LabSpec(name="record-empty"))
    try:
        record(resolve(Connect(context=f"lab-{lab.name}")), folder / "empty.jsonl", 5, lambda: None)
    finally:
        lab.down()
    lab = up(LabSpec(name="record-denied", secure=True))
    try:
        denied = resolve(Connect(command_config=str(client_file(lab.folder, "nobody", "SCRAM"))))
        record(denied, folder / "denied.jsonl", 5, lambda: None)
    finally:
        lab.down()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
