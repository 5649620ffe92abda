"""`lab mirror`: two clusters with a MirrorMaker 2 between them, to practise a move."""

from typing import Annotated

from eoctl.cli.commands.lab.kafka import setting
from eoctl.cli.emit import emit
from eoctl.cli.options import Format, option
from eoctl.cli.progress import Progress, note
from eoctl.host.clock import now_ms
from eoctl.lab import cluster, mirror
from eoctl.lab.cluster import Lab
from eoctl.lab.lab_tables import MIRROR, LabMirrorRow
from eoctl.lab.record import LabSpec
from recovery.answers import Answer
from recovery.errors import RefusedError

NAME = "mirror"


def mirror_(
    output: Format,
    name: Annotated[str, option("--name NAME", "of the labs: NAME-a and NAME-b")] = NAME,
    topics: Annotated[str, option("--topics RE", "that are mirrored")] = ".*",
    exactly_once: Annotated[
        bool, option("--exactly-once", "each copy in a transaction (KIP-618)")
    ] = False,
    settings: Annotated[
        list[str] | None, option("--set KEY=VALUE", "one more line of its mm2.properties")
    ] = None,
    kill: Annotated[bool, option("--kill", "send it SIGKILL instead")] = False,
) -> int:
    """Start two Kafkas and a MirrorMaker 2 that copies topics and groups from one to the other.

    The contexts are lab-NAME-a and lab-NAME-b; `orders` of a is `a.orders` in b. Run again, it
    starts what ended. `lab down --name NAME-b` ends the MirrorMaker, too.
    """
    if kill:
        target = cluster.load(f"{name}-{mirror.TARGET}")
        if not mirror.kill(target):
            raise RefusedError("no MirrorMaker runs", where=str(mirror.folder_of(target)))
    else:
        with Progress() as progress:
            source, target = (
                cluster.up(LabSpec(name=f"{name}-{side}"), progress=progress)
                for side in (mirror.SOURCE, mirror.TARGET)
            )
            more = {
                **mirror.exactly_once(exactly_once),
                **dict(map(setting, settings or ())),
            }
            mirror.start(target, mirror.properties(source, target, topics, ".*", more), progress)
    row = _row(cluster.load(f"{name}-{mirror.SOURCE}"), target)
    emit(Answer("lab-mirror", target.record.cluster_id, now_ms(), [row]), MIRROR, output)
    labs = (f"{name}-{side}" for side in (mirror.SOURCE, mirror.TARGET))
    ends = " and ".join(f"`eoctl lab down --name {lab}`" for lab in labs)
    again = "eoctl lab mirror" if name == NAME else f"eoctl lab mirror --name {name}"
    act = f"`{again}` with the same options starts it again" if kill else f"`{again} --kill`"
    note(f"next: {act}, or write into {row.context}; end it with {ends}")
    return 0


def _row(source: Lab, target: Lab) -> LabMirrorRow:
    folder, process = mirror.folder_of(target), mirror.running(target)
    lines = (folder / "mm2.properties").read_text(encoding="latin-1").splitlines()
    [(key, value)] = mirror.exactly_once(True).items()
    return LabMirrorRow(
        context=source.context_name,
        mirror_context=target.context_name,
        state="killed" if process is None else "running",
        pid=None if process is None else process.pid,
        exactly_once=f"{key}={value}" in lines,
        settings=str(folder / "mm2.properties"),
        log=str(folder / "mm2.log"),
    )
