"""The fences that this host's journal proves: which incarnations of an id can write no more.

A higher epoch alone does not prove a dead process: a client raises its own. eoctl's requests raised
these, until a live owner was shut out.
"""

from collections.abc import Iterator

from eoctl.stores.journal_files import Journal
from recovery.change.journal import JournalEntry
from recovery.inspect.incarnation import Incarnation
from recovery.values import Value


class Fence(Value):
    """One id that was shut out. used: the last incarnation that its owner was seen to use; at: the
    one to which eoctl raised the id."""

    transactional_id: str
    used: Incarnation
    at: Incarnation


def fences(cluster_id: str | None) -> list[Fence]:
    """Return the fences of a cluster, the oldest first. Raises IncompleteError."""
    return [
        fence
        for entry in Journal().find().entries
        if entry.begun.data["plan"]["cluster_id"] == cluster_id
        for fence in _of(entry)
    ]


def _of(entry: JournalEntry) -> Iterator[Fence]:
    targets = [step["target"] for step in entry.begun.data["plan"]["steps"]]
    for number, event in entry.steps("step-done").items():
        saw = event.data.get("saw")
        proof = saw.get("shut_out") if isinstance(saw, dict) else None
        if isinstance(proof, dict):
            used, at = Incarnation.of(proof.get("used")), Incarnation.of(proof.get("at"))
            if used is not None and at is not None:
                yield Fence(targets[number - 1], used, at)
