"""Say what a group's offset is once the transaction that holds a newer one has ended.

Kafka keeps a transaction's offsets apart until it ends: a commit then makes them count, an abort
drops them, and the group is back at what it had committed before, which may be nothing.
A plan's rows (`about` of a step) hold this in `group_offsets`. Plans of earlier versions lack it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import asdict

from recovery.change.plan import Step
from recovery.facts import HasPartition, Missing
from recovery.remedy.repairs import MARKER_ACTION
from recovery.values import Value

Outcome = Literal["commit", "abort"]
COMMIT_OPEN = "commit-open"
MOST_NAMED = 20  # offsets of groups that a plan names per partition
MOST_UNSEEN = 3


class GroupOffset(HasPartition, Value):
    """An offset of a group that a transaction holds, and what it is afterwards.

    outcomes: those that the transaction can still have, the plan's own first. A plan keeps `after`:
    outcome → the offset that then counts, null for none, and whether that is known.
    """

    group: str
    topic: str  # this and partition: what the group reads
    partition: int
    on: str  # the partition of __consumer_offsets, as `__consumer_offsets:7`
    ends: bool  # the step ends the transaction there; False: it stays open there
    outcomes: tuple[Outcome, ...]
    committed_offset: int | None = None  # None: none, or not seen
    committed_error: str | None = None  # why that was not seen; None: it was
    pending_offset: int | None = None  # None: it deletes the offset, or is not known
    pending_deleted: bool = False
    overtaken: bool = False  # a later commit counts already: the transaction changes nothing
    log_start_offset: int | None = None  # this and the next: of what the group reads
    last_stable_offset: int | None = None
    records_before: int | None = None  # visible records before `position`; None: not counted
    records_after: int | None = None  # visible records from `position` to the last stable offset

    @property
    def position(self) -> int | None:
        """Return the newest position that the group is known to have had."""
        return self.committed_offset if self.pending_offset is None else self.pending_offset

    def after(self, outcome: Outcome) -> dict[str, Any]:
        """Return the offset that counts after an outcome, and whether that is known."""
        if outcome == "commit" and not self.overtaken:
            known = self.pending_offset is not None or self.pending_deleted
            return {"offset": self.pending_offset, "known": known}
        return {"offset": self.committed_offset, "known": self.committed_error is None}

    @property
    def without(self) -> list[Outcome]:
        """Return the outcomes that leave the group without an offset, for certain."""
        return [o for o in self.outcomes if is_none(self.after(o))]

    def values(self) -> dict[str, Any]:
        """Return the entry of a plan's row."""
        fields = self.as_dict()
        del fields["outcomes"]
        return fields | {"after": {o: self.after(o) for o in self.outcomes}}


def is_none(after: Mapping[str, Any]) -> bool:
    """Return True if an outcome is known to leave no offset.

    >>> is_none({"offset": None, "known": True}), is_none({"offset": None, "known": False})
    (True, False)
    """
    return after["known"] and after["offset"] is None


def outcome_of(step: Step) -> Outcome:
    """Return the outcome that a remedy's step gives its transaction."""
    return "commit" if step.parameters.get("outcome") == "commit" else "abort"


def outcomes(step: Step, *, ends: bool) -> tuple[Outcome, ...]:
    """Return the outcomes to show: the step's own alone where no other one is possible any more.

    What is open could still end the other way, as could what the step does not end.
    """
    mine = outcome_of(step)
    decided = step.action == MARKER_ACTION and not step.parameters.get("without_proof")
    if ends and decided:
        return (mine,)
    return (mine, "abort" if mine == "commit" else "commit")


def partitions_named(step: Step) -> set[str] | None:
    """Return the partitions that a step ends its transaction on; None: its target alone, and the
    transaction may be open on others."""
    return None if step.action == MARKER_ACTION else set(step.parameters.get("partitions", ()))


def urgency(o: GroupOffset) -> int:
    """Return 0 if the plan's own outcome, the first, leaves no offset; 1: the other; 2: none."""
    return 0 if o.outcomes[0] in o.without else 2 - bool(o.without)


def row_fields(offsets: Iterable[GroupOffset], unseen: Sequence[Missing]) -> dict[str, Any]:
    """Return the fields of a plan's row: groups that keep no offset first; empty without any."""
    ordered = sorted(offsets, key=lambda o: (not o.ends, urgency(o), o.group, o.topic, o.partition))
    fields: dict[str, Any] = {}
    if ordered:
        fields["group_offsets"] = [o.values() for o in ordered[:MOST_NAMED]]
        fields["group_offsets_more"] = max(0, len(ordered) - MOST_NAMED)
    if unseen:
        fields["group_offsets_unseen"] = [asdict(m) for m in unseen[:MOST_UNSEEN]]
        fields["group_offsets_unseen_more"] = max(0, len(unseen) - MOST_UNSEEN)
    return fields
