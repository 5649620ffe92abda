"""The dashboard's data as one frozen value: answers of the operations that the CLI uses.

`eoctl.operations.dashboard.collection` asks for them in rounds; `renewed` puts a round into the
snapshot.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from eoctl.host.clock import now_ms
from recovery.answers import Answer
from recovery.values import Value, replace

PARTS = (
    "brokers",
    "partitions",
    "transactions",
    "groups",
    "producers",
    "hanging",
    "why",
    "history",
    "lanes",
    "strip",
    "plans",
    "journal",
    "jobs",
    "detail",
    "merge",
    "checkpoint",
    "doctor",
    "growth",
    "commits",
)


KINDS = ("look", "judge", "keep")
"""Of rounds (see eoctl.operations.dashboard.collection); the first that failed is reported."""


Counted = Literal["producers-summary", "txn-list-summary"]
"""What is counted, by the schema of its answer."""


class Wants(Value):
    """What the screen requests beyond what is always collected.

    producers: of every partition, not only of held ones. why, strip: TOPIC:P; why "": the worst
    partition. history: a transactional id. detail: a journal entry, a plan file, a job. merge: an
    application file with a merge log. checkpoint: a Flink checkpoint's folder. doctor: names as a
    shell takes them, "": everything. growth: what is counted. commits: a group.
    """

    producers: bool = False
    why: str | None = None
    history: str | None = None
    strip: str | None = None
    detail: str | None = None
    merge: str | None = None
    checkpoint: str | None = None
    doctor: str | None = None
    growth: Counted | None = None
    commits: str | None = None


class Snapshot(Value):
    """Everything known about a cluster; each part is an answer with its collected_at (epoch ms).

    A part that was not requested yet is None. taken_at: when the last round ended. cost: seconds
    during which answered requests of each kind's last round were under way; share: their share of
    the time between two rounds. intervals: seconds between two rounds of `look` and of `judge`.
    problem: why the last round failed, problem_of: which; its parts are then older. lanes: the logs
    of the partitions of the newest transaction in history. why_about, history_about, strip_about,
    commits_about: the subjects; those of doctor are `named` in its answer, that of growth is its
    schema. plans, journal, jobs, detail: this host's, all clusters'.
    """

    title: str
    taken_at: int
    cluster_id: str | None = None
    read_only: bool = False
    protected: bool = False
    argv: tuple[str, ...] = ()
    brokers: Answer | None = None
    partitions: Answer | None = None
    transactions: Answer | None = None
    groups: Answer | None = None
    producers: Answer | None = None
    hanging: Answer | None = None
    why: Answer | None = None
    why_about: str | None = None
    history: Answer | None = None
    history_about: str | None = None
    lanes: Answer | None = None
    strip: Answer | None = None
    strip_about: str | None = None
    plans: Answer | None = None
    journal: Answer | None = None
    jobs: Answer | None = None
    detail: Answer | None = None
    detail_about: str | None = None
    merge: Answer | None = None
    merge_about: str | None = None
    checkpoint: Answer | None = None
    checkpoint_about: str | None = None
    doctor: Answer | None = None
    growth: Answer | None = None
    commits: Answer | None = None
    commits_about: str | None = None
    cost: float = 0.0
    requests: int = 0
    share: float = 0.0
    intervals: Mapping[str, float] = msgspec.field(default_factory=dict)
    problem: str | None = None
    problem_of: str | None = None

    @property
    def silent(self) -> bool:
        """Return True if the last check failed, so that the data shown is older."""
        return self.problem is not None and self.problem_of in (None, KINDS[0])


class Round(Value):
    """The fields of Snapshot that one round renewed. cost: seconds; requests: how many."""

    parts: dict[str, object] = msgspec.field(default_factory=dict)
    cost: float = 0.0
    requests: int = 0
    problem: str | None = None


def renewed(snapshot: Snapshot, newest: Round, rounds: Mapping[str, Round]) -> Snapshot:
    """Return the snapshot with the newest round's parts; rounds: the last of each kind."""
    failed = [kind for kind in KINDS if kind in rounds and rounds[kind].problem is not None]
    return replace(
        replace(snapshot, **newest.parts),  # type: ignore[arg-type]
        taken_at=now_ms(),
        cost=sum(r.cost for r in rounds.values()),
        requests=sum(r.requests for r in rounds.values()),
        problem=rounds[failed[0]].problem if failed else None,
        problem_of=failed[0] if failed else None,
    )
