"""Own what a break left open, as a process: `python -m eoctl.lab.breaks.owner ANSWER`.

Its task is in a file next to ANSWER, with the suffix .spec, which it deletes. It makes the break,
writes the ground truth to ANSWER, and lives until a signal: SIGTERM commits what it holds open,
SIGKILL leaves that to the coordinator. If the spec has `leaves`, it also kills that broker of the
lab after that many seconds, for a drill.
"""

import asyncio
import json
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from eoctl.kafka.connection.failures import WireError
from eoctl.lab.breaks import making
from eoctl.lab.breaks.stage import Options
from eoctl.lab.cluster import Lab, load
from eoctl.lab.producer import Producer
from recovery.errors import EoctlError

COMMIT_SECONDS = 5.0


async def own(lab: Lab, kind: str, options: Options, answer: Path) -> None:
    """Make the break, report it, hold it open, commit."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    try:
        async with making(lab, kind, options) as (truths, producers):
            _tell(answer, {"truths": [truth.json_values() for truth in truths]})
            await ended.wait()
            with suppress(TimeoutError, WireError):
                async with asyncio.timeout(COMMIT_SECONDS):
                    await _commit(producers)
    except EoctlError as error:
        _tell(
            answer,
            {
                "error": type(error).__name__,
                "what": error.what,
                "where": error.where,
                "remedy": error.remedy,
            },
        )


async def _commit(producers: list[Producer]) -> None:
    for producer in producers:
        with suppress(WireError):
            await producer.end(commit=True)


def _tell(answer: Path, content: dict[str, Any]) -> None:
    """Write the answer in one step: a waiting process sees all of it or nothing."""
    fresh = answer.with_suffix(".new")
    fresh.write_text(json.dumps(content), encoding="utf-8")
    fresh.replace(answer)


def main() -> None:
    answer = Path(sys.argv[1])
    spec_file = answer.with_suffix(".spec")
    spec = json.loads(spec_file.read_text(encoding="utf-8"))
    spec_file.unlink()
    lab = load(spec["lab"])
    if "leaves" in spec:
        time.sleep(spec["after"])
        lab.kill(spec["leaves"])
        return
    asyncio.run(own(lab, spec["kind"], Options(**spec["options"]), answer))


if __name__ == "__main__":
    main()
