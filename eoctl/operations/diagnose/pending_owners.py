"""Judge the transactions that hold a group's commits on `__consumer_offsets`, before any fence.

A producer id proves nothing there: its transactional id may have an open transaction elsewhere,
which a fence would end, while a lost marker or a batch without an owner holds the group.
"""

from collections.abc import Mapping, Sequence

from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose.judging import diagnose
from eoctl.operations.diagnose.verdict_rows import remedy_argv
from eoctl.operations.inspect.lists import Scope
from eoctl.render.shell import command
from eoctl.render.verdicts.remedy_words import remedy_words
from eoctl.render.words import remedy_said
from recovery.diagnose.verdicts import Verdict
from recovery.facts import GroupOffsetFacts
from recovery.formats.consumer_offsets import OffsetKey
from recovery.inspect.observation import OpenTransaction, Settings
from recovery.restart.observed import PendingCommit
from recovery.selectors import parse_selector

OWNED = ("open", "long", "overdue", "two-phase")


async def judged(
    cluster: Cluster,
    pending: Sequence[GroupOffsetFacts],
    holders: Mapping[OffsetKey, Sequence[OpenTransaction]],
) -> tuple[PendingCommit, ...]:
    """Return each pending commit with its proven owner, or with the way out."""
    names = sorted({h.name for holders_here in holders.values() for h in holders_here})
    verdicts: dict[OpenTransaction, Verdict] = {}
    if names:
        scope = Scope(tuple(parse_selector(name) for name in names))
        diagnosis = await diagnose(cluster, scope, Settings())
        verdicts = {j.about: j.verdict for j in diagnosis.judged}
    commits: list[PendingCommit] = []
    for o in pending:
        mine = holders.get(OffsetKey(o.group, o.topic, o.partition), ())
        if not mine:
            commits.append(PendingCommit(o.topic, o.partition, None, None))
        for holder in mine:
            verdict = verdicts.get(holder)
            if verdict is not None:
                commits.append(_commit(cluster, o, holder, verdict))
                continue
            way = f"the transaction on {holder.name} that held them has ended: plan again"
            pid = holder.producer_id
            commits.append(PendingCommit(o.topic, o.partition, None, pid, way_out=way))
    return tuple(commits)


def _commit(
    cluster: Cluster, o: GroupOffsetFacts, holder: OpenTransaction, verdict: Verdict
) -> PendingCommit:
    owner = verdict.owner
    if verdict.name in OWNED and owner is not None:
        return PendingCommit(
            o.topic,
            o.partition,
            owner.transactional_id,
            owner.producer_id,
            owner.producer_epoch,
        )
    argv = remedy_argv(verdict, (), cluster.cluster_id)
    command_line = command(argv) if argv is not None else None
    remedy = verdict.remedy
    kind = "marker-lost, mixed" if verdict.mixed else verdict.name
    way = (
        f"producer id {holder.producer_id} on {holder.name} is {kind} ({verdict.rule}); "
        f"{remedy_said(remedy.action, command_line or remedy_words(remedy.does))}"
    )
    return PendingCommit(o.topic, o.partition, None, holder.producer_id, way_out=way)
