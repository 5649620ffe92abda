"""Plan the remedies of judged transactions (`x`), as the command line does.

Planning reads the cluster again, so nothing is decided from what the screen showed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eoctl.render.plans import subject
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.values import replace
from tui.screens.change import Ready

if TYPE_CHECKING:
    from eoctl.operations.remedy.remedy_plan import Planned, RemedyRequest
    from eoctl.settings.context import Context
    from recovery.inspect.observation import Settings

ACTIONS = ("abort", "fence", "resolve", "write-prepared-marker")


def request_of(row: TxnHangingRow) -> "RemedyRequest":
    """Return what a row's remedy requests, like the command that the row names."""
    from eoctl.operations.remedy.remedy_change import RemedyRequest

    action = row.remedy.action
    if action == "write-prepared-marker":
        action = "resolve"
    assert action in ("abort", "fence", "resolve")
    if action == "fence":
        argv = row.remedy.argv or []
        return RemedyRequest(
            "fence",
            transactional_id=argv[-1],
            producer_id=int(argv[argv.index("--pid") + 1]),
            producer_epoch=int(argv[argv.index("--epoch") + 1]),
        )
    return RemedyRequest(
        action,
        partition=f"{row.topic}:{row.partition}",
        producer_id=row.producer_id,
        start_offset=row.start_offset,
        outcome=row.proven_outcome if action == "resolve" else None,
    )


def ready(
    context: "Context",
    settings: "Settings",
    pause: float,
    rows: Sequence[TxnHangingRow],
    cluster_id: str | None,
) -> Ready:
    """Return one remedy's plan, or one of many for marked rows. Raises EoctlError. Takes seconds.

    settings: the limits of judging. pause: seconds between the two snapshots of the cluster.
    """
    from eoctl.operations.diagnose.judging import diagnose
    from eoctl.operations.inspect.lists import Scope
    from eoctl.operations.remedy import many_remedies
    from eoctl.operations.remedy import remedy_change as remedy
    from eoctl.operations.session.session import with_cluster
    from recovery.errors import RefusedError
    from recovery.selectors import parse_selector

    async def use(cluster: Any) -> "Planned":
        if cluster.cluster_id != cluster_id:
            raise RefusedError(f"cluster {cluster.cluster_id} answers, not {cluster_id}")
        if len(rows) == 1:
            return await remedy.plan(
                cluster,
                context,
                request_of(rows[0]),
                settings,
                pause=pause,
            )
        without = [r.where for r in rows if r.topic is None]
        if without:
            raise RefusedError(
                f"{without[0]} holds no partition: its remedy needs a plan of its own",
                remedy="unmark it",
            )
        names = sorted({r.where for r in rows})
        diagnosis = await diagnose(
            cluster,
            Scope(tuple(parse_selector(name) for name in names)),
            settings,
            pause=pause,
        )
        # on these partitions, only the transactions that were marked
        marked = {(r.topic, r.partition, r.producer_id, r.start_offset) for r in rows}
        diagnosis = replace(
            diagnosis,
            judged=tuple(
                j
                for j in diagnosis.judged
                if (*j.about.topic_partition, j.about.producer_id, j.about.start_offset) in marked
            ),
        )
        many = await many_remedies.plan_many(
            cluster,
            context,
            diagnosis,
            {r.verdict for r in rows},
            pause=pause,
            named=True,
        )
        if many.plan is None:
            left.extend(f"{subject(row)}: {row['reason']}" for row in many.left_out)
        open_now = {
            (j.about.name, j.about.producer_id, j.about.start_offset) for j in diagnosis.judged
        }
        left.extend(
            f"{r.topic}:{r.partition}  pid {r.producer_id}: it is over"
            for r in rows
            if (f"{r.topic}:{r.partition}", r.producer_id, r.start_offset) not in open_now
        )
        return remedy.Planned(many.plan, None if many.plan else "none of these may be carried out")

    left: list[str] = []
    planned = with_cluster(context, 30.0, use)
    notes = [] if planned.plan else [planned.done or "there is nothing to do"]
    return Ready(planned.plan, (*notes, *left), context)
