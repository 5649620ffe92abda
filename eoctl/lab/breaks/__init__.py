"""`eoctl lab break KIND`: create a real fault in a lab's Kafka, and report the ground truth.

`KINDS` lists the kinds; `break_` makes one. The needs of a kind are checked first, so that a break
is either made or changes nothing.
"""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.host.processes import Process, spawn
from eoctl.kafka.connection.failures import WireError
from eoctl.lab.breaks import (
    connect,
    flink_job,
    histories,
    markers,
    mixed,
    offsets,
    orphans,
    owned,
    storms,
    unheld,
)
from eoctl.lab.breaks.stage import COMMON, BreakKind, Options, Stage
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.client import Client
from eoctl.lab.owner_processes import adopt, owners_folder
from eoctl.lab.producer import Producer
from recovery import errors

if TYPE_CHECKING:
    from eoctl.lab.cluster import Lab

KINDS: dict[str, BreakKind] = {
    kind.name: kind
    for module in (
        *(owned, orphans, mixed, markers, offsets, unheld, storms, histories, flink_job, connect),
    )
    for kind in module.KINDS
}
OWNER_SECONDS = 120.0


def break_(lab: "Lab", kind: str, **options: Any) -> list[GroundTruth]:
    """Create a fault of this kind; return the truth of each. For use outside an event loop.

    options: fields of Options. Raises UsageError (unknown kind or option), RefusedError (names the
    setting or broker that the lab lacks), UnverifiedError (the fault did not arise).
    """
    return asyncio.run(make(lab, kind, **options))


async def make(lab: "Lab", kind: str, **options: Any) -> list[GroundTruth]:
    """Do what `break_` does, within an event loop."""
    checked = _checked(kind, options)
    if KINDS[kind].leaves_open(checked):
        return await _in_owner(lab, kind, checked)
    async with making(lab, kind, checked) as (truths, _):
        return truths


def _checked(kind: str, options: dict[str, Any]) -> Options:
    if kind not in KINDS:
        raise errors.UsageError(
            f"{kind!r} is not a kind of break", remedy=f"one of {', '.join(KINDS)}"
        )
    chosen = KINDS[kind]
    known = set(Options.__struct_fields__)
    for name in options:
        if name not in known:
            raise errors.UsageError(f"{name!r} is no option of a break")
        if name not in chosen.takes | COMMON:
            raise errors.UsageError(f"`{kind}` does not take {name}")
    checked = Options(**options)
    if checked.count < 1 or checked.records < 1:
        raise errors.UsageError("count and records are at least 1")
    return checked


@asynccontextmanager
async def making(
    lab: "Lab", kind: str, options: Options
) -> AsyncIterator[tuple[list[GroundTruth], list[Producer]]]:
    """Yield the truths and the producers of open transactions, connected until the block ends."""
    try:
        async with Client.of(lab.client_properties()) as client:
            await KINDS[kind].check(client)
            stage = Stage(kind, options, client, lab)
            truths = await KINDS[kind].make(stage)
            yield truths, stage.open_producers
    except WireError as error:
        raise errors.UnverifiedError(
            f"`{kind}` was not made: {error.detail}", remedy=error.remedy
        ) from error


async def _in_owner(lab: "Lab", kind: str, options: Options) -> list[GroundTruth]:
    """Make a break in its own process, which stays until `lab down` ends it."""
    spec = {"lab": lab.name, "kind": kind, "options": options.as_dict() | {"hold": False}}
    process, answer = start_owner(lab, spec)
    end = time.monotonic() + OWNER_SECONDS
    while not answer.exists():
        if not process.alive or time.monotonic() > end:
            raise errors.UnverifiedError(
                "the process that should own the transaction ended",
                where=str(answer.with_suffix(".log")),
            )
        await asyncio.sleep(0.02)
    return _read_answer(answer, process.pid)


def start_owner(lab: "Lab", spec: Mapping[str, Any]) -> tuple[Process, Path]:
    """Start a process of `eoctl.lab.breaks.owner`; return it and the file for its answer.

    Neither its command line nor its files reveal the kind: it deletes the spec that it reads.
    """
    name = f"owner-{uuid.uuid4().hex[:8]}"
    answer = owners_folder(lab.folder) / f"{name}.json"
    answer.with_suffix(".spec").write_text(json.dumps(spec), encoding="utf-8")
    argv = [sys.executable, "-m", "eoctl.lab.breaks.owner", str(answer)]
    process = spawn(argv, answer.with_suffix(".log"))
    adopt(lab.folder, name, process)
    return process, answer


def _read_answer(answer: Path, pid: int) -> list[GroundTruth]:
    content = json.loads(answer.read_text(encoding="utf-8"))
    answer.unlink()
    if "error" in content:
        kind = getattr(errors, content["error"], errors.EoctlError)
        raise kind(content["what"], where=content["where"], remedy=content["remedy"])
    return [GroundTruth.read(row | {"owner_pid": pid}) for row in content["truths"]]
