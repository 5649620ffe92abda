"""The lab's MirrorMaker 2 for the tests: started, watched, killed, started again."""

import time
from collections.abc import Callable, Mapping

from eoctl.lab import mirror
from eoctl.lab.cluster import Lab
from eoctl.lab.mirror import SOURCE, TARGET

__all__ = ["SOURCE", "TARGET", "MirrorMaker"]
WAIT_SECONDS = 180.0


class MirrorMaker:
    """Mirrors a topic and the offsets of its groups from one lab into another.

    settings: more properties, as in an mm2.properties.
    """

    def __init__(self, source: Lab, target: Lab, topic: str, settings: Mapping[str, str]) -> None:
        self._target = target
        self._told = mirror.properties(source, target, topic, f"{topic}.*", settings)

    def start(self, **settings: str) -> None:
        """Start it. settings: properties of this run, with `_` for `.`."""
        more = {name.replace("_", "."): value for name, value in settings.items()}
        mirror.start(self._target, self._told | more)

    def until(self, met: Callable[[], bool], what: str) -> None:
        """Wait for something while it runs."""
        end, folder = time.monotonic() + WAIT_SECONDS, mirror.folder_of(self._target)
        while not met():
            assert mirror.running(self._target) is not None, f"it ended: see {folder}"
            assert time.monotonic() < end, f"{what}: see {folder}/mm2.log"
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        mirror.kill(self._target)
