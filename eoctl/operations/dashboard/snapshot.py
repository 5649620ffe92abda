"""What the dashboard shows, as one frozen value: the answers of the same operations as the CLI.

`eoctl.operations.dashboard.collection` asks for them in rounds; `renewed` puts a round into the
snapshot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from eoctl.host.clock import now_ms
from recovery.rows.answers import Answer

PARTS = (
    "brokers",
    "partitions",
    "transactions",
    "groups",
    "producers",
    "hanging",
    "why",
    "history",
    "strip",
    "plans",
    "journal",
    "jobs",
    "detail",
    "merge",
)


@dataclass(frozen=True, slots=True)
class Wants:
    """What the screen asks for beyond what is always collected.

    producers: of every partition, not only of the held ones. why, strip: TOPIC:P; why "": the worst
    one. history: a transactional id. detail: a journal entry, a plan file, a job.
    merge: an application file with a merge log.
    """

    producers: bool = False
    why: str | None = None
    history: str | None = None
    strip: str | None = None
    detail: str | None = None
    merge: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything known of a cluster, each part an answer with its own collected_at (epoch ms).

    A part that was not asked for yet is None. taken_at: when the last round ended. cost: seconds
    in which answered requests of the last round of each kind were under way; share: of the time
    between two rounds. intervals: seconds between two rounds of `look` and of `judge`. problem: why
    the last round failed; the parts are then older. why_about, history_about, strip_about: of what
    these are. plans, journal, jobs, detail: what is kept on this host, of all clusters.
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
    strip: Answer | None = None
    strip_about: str | None = None
    plans: Answer | None = None
    journal: Answer | None = None
    jobs: Answer | None = None
    detail: Answer | None = None
    detail_about: str | None = None
    merge: Answer | None = None
    merge_about: str | None = None
    cost: float = 0.0
    requests: int = 0
    share: float = 0.0
    intervals: Mapping[str, float] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """What one round renewed: fields of Snapshot. cost: seconds; requests: how many."""

    parts: dict[str, object] = field(default_factory=dict)
    cost: float = 0.0
    requests: int = 0
    problem: str | None = None


def renewed(snapshot: Snapshot, newest: Round, rounds: Sequence[Round]) -> Snapshot:
    """The snapshot with the newest round's parts; cost and requests of the last of each kind."""
    return replace(
        replace(snapshot, **newest.parts),  # type: ignore[arg-type]
        taken_at=now_ms(),
        cost=sum(r.cost for r in rounds),
        requests=sum(r.requests for r in rounds),
        problem=next((r.problem for r in rounds if r.problem is not None), None),
    )
