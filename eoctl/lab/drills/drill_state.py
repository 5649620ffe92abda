"""Keep the truth of the running drill where nobody reads it by chance.

It is hidden, not locked: the key is next to it. Decoding it is cheating.
"""

import base64
import hashlib
import json
import secrets
import zlib
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from eoctl.host.processes import Process
from eoctl.lab.lab_tables import OwnerAnswer
from recovery.errors import UsageError
from recovery.values import Value, replace

FILE = "drill.json"
Role = Literal[
    "orphan",  # no owner: abort it
    "dead",  # its owner died: fenced, or aborted at its timeout
    "alive",  # its owner works: leave it alone
    "others",  # in a team's own incident: nobody but others may end it, so leave it alone
    "promised",  # a dead Flink job's, in its checkpoint: commit it
    "unpromised",  # begun after that checkpoint: leave it to its timeout, or fence it
    "lost-commit",  # decided, but its marker was lost: resolve it
    "lost-abort",
    "broker",  # leaves: bring it back
    "job",  # died midway: finish it exactly
    "store",  # lost: deliver it again
    "copy",  # holds duplicates: copy it without them
]


class Case(Value):
    """One case that a drill judges.

    subject: a partition, a broker or a topic, as the grade names it. topic, partition: of subject;
    of a broker: what was moved to it alone and must be moved back. producer_id, start_offset: of
    the transaction at subject. answer, words: what its owner says if asked. owner: the process of a
    live owner, or the one that makes a broker leave; ends: it ends its transaction if asked.
    """

    role: Role
    subject: str
    topic: str | None = None
    partition: int | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    start_offset: int | None = None
    answer: OwnerAnswer = "unknown"
    words: str = ""
    owner: Process | None = None
    ends: bool = False
    broker: int | None = None


class DrillState(Value):
    """A drill under way. started_at: epoch ms. questions: when each id's owner was first asked."""

    drill: str
    seed: int
    started_at: int
    story: str
    cases: tuple[Case, ...]
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    questions: Mapping[str, int] = msgspec.field(default_factory=dict)

    def save(self, lab_folder: Path) -> None:
        """Write the state in one step, hidden."""
        key = secrets.token_bytes(32)
        hidden = _crossed(zlib.compress(json.dumps(self.as_dict()).encode()), key)
        content = {"key": key.hex(), "hidden": base64.b64encode(hidden).decode("ascii")}
        fresh = lab_folder / f".{FILE}"
        fresh.write_text(json.dumps(content), encoding="utf-8")
        fresh.replace(lab_folder / FILE)

    @classmethod
    def load(cls, lab_folder: Path) -> Self | None:
        """Return the drill that runs in a lab; None if there is none. Raises UsageError."""
        path = lab_folder / FILE
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            hidden = base64.b64decode(content["hidden"])
            fields = json.loads(zlib.decompress(_crossed(hidden, bytes.fromhex(content["key"]))))
        except (ValueError, KeyError, zlib.error):
            raise UsageError(
                "the drill's file is damaged", where=str(path), remedy="delete it, or `lab down`"
            ) from None
        return cls(
            **fields
            | {
                "cases": tuple(_case(case) for case in fields["cases"]),
                "topics": tuple(fields["topics"]),
                "groups": tuple(fields["groups"]),
            }
        )

    def ask(self, transactional_id: str, at: int) -> Self:
        """Return the state with one more question; only an id's first question counts."""
        return replace(self, questions={transactional_id: at, **self.questions})


def _case(fields: dict[str, Any]) -> Case:
    owner = fields.pop("owner")
    return Case(**fields, owner=owner and Process(*owner))


def _crossed(data: bytes, key: bytes) -> bytes:
    """Return data XORed with a stream of the key; applying it twice restores the data."""
    stream = b"".join(hashlib.sha256(key + bytes([n])).digest() for n in range(256))
    return bytes(a ^ b for a, b in zip(data, cycle(stream), strict=False))
