"""Applications in groups of each kind: Kafka Streams of both protocols, a share consumer.

One process of `Living.java` runs them; their transactions stay open until one asks for a commit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eoctl.lab.cluster import Lab
from tests.streams.app import Program

SOURCE = Path(__file__).with_name("Living.java")


@dataclass(frozen=True)
class Streams:
    """An application of Kafka Streams that copies `source` to `output`, exactly once.

    protocol: `classic` or `streams`. settings: others than those below.
    """

    name: str
    protocol: str
    source: str
    output: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def config(self, lab: Lab, folder: Path) -> Mapping[str, str]:
        return {
            "application.id": self.name,
            "bootstrap.servers": lab.bootstrap_servers,
            "group.protocol": self.protocol,
            "state.dir": str(folder / "state"),
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": "500000",
            "producer.transaction.timeout.ms": "600000",
            "consumer.auto.offset.reset": "earliest",
            "poll.ms": "20",
            "input": self.source,
            "output": self.output,
            **self.settings,
        }


@dataclass(frozen=True)
class Share:
    """A share consumer of a topic."""

    group: str
    topic: str

    def config(self, lab: Lab, folder: Path) -> Mapping[str, str]:
        return {
            "group.id": self.group,
            "bootstrap.servers": lab.bootstrap_servers,
            "client.id": f"client-of-{self.group}",
            "share": self.topic,
        }


class Living(Program):
    """The applications, in one process."""

    def __init__(self, lab: Lab, folder: Path, *members: Streams | Share) -> None:
        super().__init__(folder, SOURCE)
        self.lab, self.members = lab, members

    def start(self) -> None:
        """Start them and wait until the applications of Kafka Streams run."""
        self.launch(*(m.config(self.lab, self.folder) for m in self.members))
        self.until(
            lambda: set(self.ask("state")["states"].values()) <= {"RUNNING"}, "they do not run"
        )

    def processed(self, name: str, count: int) -> None:
        """Wait until an application has processed so many records."""

        def met() -> bool:
            done: int = self.ask("state")["processed"][name]
            return done >= count

        self.until(met, f"{name}: {count} not processed")

    def share(self, group: str, count: int, released: int = -1) -> list[int]:
        """Read until `count` records were seen; accept them but one, which is given back."""
        answer: dict[str, Any] = self.ask("share", group, str(count), str(released))
        offsets: list[int] = answer["offsets"]
        return offsets
