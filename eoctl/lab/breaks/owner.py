"""The process that owns what a break left open: `python -m eoctl.lab.breaks.owner SPEC ANSWER`.

It makes the break, writes the ground truth to ANSWER, and lives until it is told to end:
SIGTERM commits what it holds open, SIGKILL leaves that to the coordinator.
"""

import asyncio
import json
import signal
import sys
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
    """Make, tell, hold, commit."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    try:
        async with making(lab, kind, options) as (truths, producers):
            _tell(answer, {"truths": [truth.model_dump(mode="json") for truth in truths]})
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
    """Write the answer in one step: whoever waits sees all of it or nothing."""
    fresh = answer.with_suffix(".new")
    fresh.write_text(json.dumps(content), encoding="utf-8")
    fresh.replace(answer)


def main() -> None:
    spec = json.loads(sys.argv[1])
    options = Options(**spec["options"])
    asyncio.run(own(load(spec["lab"]), spec["kind"], options, Path(sys.argv[2])))


if __name__ == "__main__":
    main()
