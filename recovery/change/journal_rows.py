"""The rows of changes: plans, their files, their steps, and the journal."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from recovery.row import Row, Timestamp

JournalState = Literal["running", "unfinished", "done", "failed", "abandoned", "undone"]


class JournalRow(Row):
    """One change. steps_done: of `steps`, those seen done.

    running: a process of this host carries it out right now. undone_by, undoes: entries.
    """

    id: str
    state: JournalState
    kind: str
    action: str
    context: str
    cluster_id: str
    scope: str
    summary: str
    started: Timestamp
    ended: Timestamp
    user: str
    host: str
    pid: int
    argv: Annotated[list[str], Meta(description="the command line, secrets hidden")]
    steps: int
    steps_done: int
    plan_sha256: str
    undoes: str | None
    undone_by: str | None


class JournalEventRow(Row):
    """One line of the journal. step: from 1, null for the complete change."""

    id: str
    at: Timestamp
    event: str
    step: int | None
    target: str | None
    detail: str | None
    saw: Annotated[
        Any, Meta(description="what was read back after the step; null where nothing was")
    ]
    found: Annotated[bool, Meta(description="the step was found done, not carried out by this run")]


class PlanStepRow(Row):
    """One step of a plan. status: null while the plan is only shown.

    beyond-plan: it is done, and changed what the plan did not say (exit status 6). about: what a
    remedy was judged from, one per partition: transactional_id, partition, producer_id,
    start_offset, verdict, rule, evidence, records, bytes, dropped, freed; also_holds: the other
    partitions that its producer id holds; groups_beyond: {group, committed_offset} of the groups
    past start_offset; group_offsets: the offsets of groups that the transaction holds, each with
    on (the partition of __consumer_offsets), ends (this step ends it there), committed_offset,
    pending_offset, and after: outcome → {offset, known}, offset null for none; records_before and
    records_after the pending one, counted where an outcome leaves none; partitions_unseen,
    groups_unseen, group_offsets_unseen: why there may be more, as in `errors`. Of each the first
    are listed here, and NAME_more says how many more there are. harms: who is harmed, a sentence
    each.
    """

    step: int
    action: str
    target: str
    parameters: dict[str, Any]
    does: str
    status: Literal["done", "already-done", "refused", "unverified", "beyond-plan"] | None
    detail: str | None
    about: list[dict[str, Any]] = field(default_factory=list)
    harms: list[str] = field(default_factory=list)


class PlanRow(Row):
    """A change, shown or carried out. journal: its entry, null while it is only shown.

    sha256: what --plan-sha256 approves; observed: the facts it rests on; command: the same
    command that carries it out, null once it was.
    """

    action: str
    kind: str
    context: str
    cluster_id: str
    scope: str
    summary: str
    lock: str
    created: Timestamp
    expires: Timestamp
    sha256: str
    steps: list[PlanStepRow]
    observed: dict[str, Any]
    details: Any
    journal: str | None
    command: str | None


class PlanFileRow(Row):
    """A file in the folder of plans. error: why it cannot be used; then the rest is null."""

    path: str
    kind: str | None = None
    action: str | None = None
    context: str | None = None
    cluster_id: str | None = None
    scope: str | None = None
    summary: str | None = None
    created: Timestamp = None
    expires: Timestamp = None
    sha256: str | None = None
    steps: int | None = None
    error: str | None = None
