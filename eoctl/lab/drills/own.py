"""Make a drill of an incident that a bundle holds: on its twin, judged by the bundle's verdicts."""

from collections.abc import Collection

from eoctl.host.clock import now_ms
from eoctl.lab.drills.catalogue import OWN
from eoctl.lab.drills.drill_state import Case, DrillState, Role
from eoctl.lab.lab_tables import OwnerAnswer
from eoctl.stores import bundle_files
from eoctl.stores.bundle_files import Bundle
from recovery.diagnose.diagnosis import Judged
from recovery.errors import UsageError
from recovery.times import rfc3339

_GONE = "No process of it runs on the twin: act as if it were gone for good."
_LIMITED = frozenset(
    {"open", "long", "overdue", "two-phase"} | {"prepare", "prepare-stuck", "coordinator-fenced"}
)
"""Verdicts that wait for an owner, a clock or a coordinator: the twin has no owner, its clock runs
on, and its coordinators send again what was decided."""
_SILENT = "A bundle does not hold what its team would say: go by what the cluster shows."


def cases_of(bundle: Bundle) -> list[Case]:
    """Return a case for each open transaction, but for those that a twin cannot show.

    That is what needs a broker, since a twin's all answer; what is in Prepare*, which a
    coordinator ends as it loads; and what its owner may still end in time, since a twin has no
    owner: there an end of it can be right. Raises UsageError if none is left.
    """
    judged = bundle_files.judged_again(bundle).judged
    cases = [case for j in judged if (case := _case(j)) is not None]
    if not cases:
        raise UsageError(
            "the bundle holds no open transaction that can be practised on",
            remedy="`eoctl lab twin` starts it all the same; `eoctl lab drill` lists other drills",
        )
    return cases


def _case(j: Judged) -> Case | None:
    role, a, owner = _role(j), j.about, j.verdict.owner
    if role is None or a.producer_id is None or a.start_offset is None:
        return None
    answer: OwnerAnswer = "dead" if role == "dead" else "unknown"
    return Case(
        role,
        str(a.topic_partition),
        a.topic,
        a.partition,
        None if owner is None else owner.transactional_id,
        a.producer_id,
        a.start_offset,
        answer,
        _GONE if role == "dead" else _SILENT,
    )


def _role(j: Judged) -> Role | None:
    """Return what a verdict makes of a transaction; None: nothing that a twin can show."""
    verdict = j.verdict
    match verdict.remedy.action:
        case "abort":
            return "orphan"
        case "fence":
            return "dead"
        case "resolve" if verdict.proven_outcome is not None:
            return "lost-commit" if verdict.proven_outcome == "commit" else "lost-abort"
        case "wait" | "none" if verdict.name not in _LIMITED:
            return "others"
    return None


def drill_of(bundle: Bundle, alike: Collection[Case]) -> DrillState:
    """Return the drill of a bundle. alike: cases whose verdict on the twin is the bundle's."""
    at = rfc3339(bundle.diagnosis.collected_at)
    topics = " and ".join(sorted({case.topic for case in alike if case.topic is not None}))
    story = OWN.story.format(topics=topics, at=at)
    return DrillState(OWN.name, 0, now_ms(), story, tuple(alike))
