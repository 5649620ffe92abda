"""`lab twin`: an incident as a local cluster, judged there as its bundle was."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.lab.drills import own
from eoctl.lab.drills.drill_state import Case, DrillState
from eoctl.lab.handle import Lab
from eoctl.lab.jars import FetchProgress, nothing
from eoctl.lab.twin import build
from eoctl.lab.twin.lacks import in_doubt, lacks
from eoctl.lab.twin.rows import TwinRow
from eoctl.operations.diagnose.judging import diagnose
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Context
from eoctl.stores import bundle_files
from eoctl.stores.bundle_files import Bundle
from recovery.answers import Answer, error_rows
from recovery.diagnose.diagnosis import Diagnosis, Judged, JudgedId
from recovery.errors import RefusedError, UnverifiedError
from recovery.inspect.observation import Settings

LOADING_SECONDS = 60.0
"""How long the coordinators of a twin may take to load their logs."""
_JUDGING_SECONDS = 120.0

Subject = tuple[str | None, int | None, int | None, int | None, str | None]
"""Topic, partition, producer id, start offset; or the name of an id that holds no partition."""


class Started:
    """A twin that runs, and the bundle that it was made from."""

    def __init__(self, bundle: Bundle, twin: build.Twin) -> None:
        self.bundle = bundle
        self.lab: Lab = twin.lab
        self.shift = twin.shift
        self.lacks = lacks(bundle, twin.left_out)

    @property
    def context(self) -> Context:
        """Return the twin's own address: a context of the user's may have the lab's name."""
        argv = ("--bootstrap-server", self.lab.bootstrap_servers)
        return Context(None, self.lab.client_properties(), argv)

    def judged(self) -> Diagnosis:
        """Judge the twin with the limits that the bundle was judged with, once it has loaded.

        Raises RefusedError if another cluster answers.
        """
        settings = bundle_files.judged_again(self.bundle).settings
        end = time.monotonic() + LOADING_SECONDS
        while True:
            d = with_cluster(
                self.context, _JUDGING_SECONDS, lambda cluster: _judge(cluster, settings)
            )
            if d.cluster_id != self.lab.record.cluster_id:
                raise RefusedError(
                    f"cluster {d.cluster_id} answers, which is not the twin",
                    where=self.lab.bootstrap_servers,
                )
            if not d.missing or time.monotonic() > end:
                return d
            time.sleep(0.5)


async def _judge(cluster: Cluster, settings: Settings) -> Diagnosis:
    return await diagnose(cluster, Scope(), settings, pause=1.0)


def start(path: Path, name: str, progress: FetchProgress = nothing) -> Started:
    """Start the twin of a bundle. Raises UsageError (no bundle), and what `lab up` raises."""
    bundle, _ = bundle_files.read(path)
    return Started(bundle, build.make(bundle, name, progress))


def rows_of(bundle: Bundle, d: Diagnosis) -> list[TwinRow]:
    """Return the verdicts of a twin's diagnosis beside the bundle's."""
    there = by_subject(bundle_files.judged_again(bundle).everything)
    here = by_subject(d.everything)
    return [
        row(subject, there.get(subject), here.get(subject), in_doubt(bundle))
        for subject in sorted({*there, *here}, key=str)
    ]


def differing(rows: Iterable[TwinRow]) -> int:
    """Return how many verdicts differ for no reason that was to be expected."""
    return sum(not row.equal and row.because is None for row in rows)


def drill(path: Path, name: str, progress: FetchProgress = nothing) -> tuple[Started, DrillState]:
    """Start the twin of a bundle as a drill. Raises UsageError, and what `lab up` raises.

    Cases that the twin judges otherwise are left out, and `lacks` names them; if none is left, or
    the twin could not be seen completely, it is taken down (UnverifiedError).
    """
    bundle, _ = bundle_files.read(path)
    cases = own.cases_of(bundle)
    twin = Started(bundle, build.make(bundle, name, progress))
    try:
        d = twin.judged()
        if d.missing:
            raise UnverifiedError(
                f"the twin could not be seen completely: {d.missing[0].detail}",
                where=str(path),
                remedy="try again",
            )
        kept, without = alike(cases, rows_of(bundle, d))
        if not kept:
            raise UnverifiedError("; ".join(without) or "no case is on the twin", where=str(path))
        twin.lacks += without
        state = own.drill_of(bundle, kept)
        state.save(twin.lab.folder)
    except BaseException:
        twin.lab.down()
        raise
    return twin, state


def alike(cases: Iterable[Case], rows: Iterable[TwinRow]) -> tuple[list[Case], list[str]]:
    """Return the cases whose verdict on the twin is the bundle's, and a sentence on each other."""
    beside = {(r.topic, r.partition, r.producer_id, r.start_offset): r for r in rows}
    kept: list[Case] = []
    without: list[str] = []
    for case in cases:
        found = beside.get((case.topic, case.partition, case.producer_id, case.start_offset))
        if found is not None and found.equal:
            kept.append(case)
            continue
        here = "nothing" if found is None or found.twin is None else found.twin
        there = "nothing" if found is None else found.bundle
        without.append(
            f"The drill leaves out {case.subject} from offset {case.start_offset} on: the bundle's "
            f"verdict is {there}, the twin's {here}."
        )
    return kept, without


def compared(twin: Started) -> Answer:
    """Return the verdicts on the twin beside the bundle's."""
    d, bundle = twin.judged(), twin.bundle
    rows = rows_of(bundle, d)
    return Answer(
        "lab-twin",
        d.cluster_id,
        now_ms(),
        rows,
        error_rows(d.missing),
        extra={
            "lab": twin.lab.name,
            "context": twin.lab.context_name,
            "of_cluster_id": bundle.cluster_id,
            "twin_lacks": twin.lacks,
        },
        judging=True,
        finding=differing(rows) > 0,
    )


def by_subject(
    everything: Iterable[Judged | JudgedId],
) -> dict[Subject, Judged | JudgedId]:
    """Return verdicts by what they are about, which is equal on a twin and in its bundle."""
    return {subject_of(j): j for j in everything}


def subject_of(j: Judged | JudgedId) -> Subject:
    """Return what a verdict is about."""
    if isinstance(j, JudgedId):
        return None, None, j.verdict.about.producer_id, None, j.name
    a = j.about
    return a.topic, a.partition, a.producer_id, a.start_offset, None


def verdict_text(j: Judged | JudgedId | None) -> str | None:
    """Return a verdict with its rule; None: there is none."""
    return None if j is None else f"{j.verdict.name} ({j.verdict.rule})"


def id_of(j: Judged | JudgedId | None) -> str | None:
    """Return the transactional id that a verdict is about; None: not known."""
    if isinstance(j, JudgedId):
        return j.name
    owner = j.verdict.owner if j is not None else None
    if owner is not None:
        return owner.transactional_id
    names = j.history.transactional_ids if j is not None and j.history else ()
    return names[0] if len(names) == 1 else None


def about(subject: Subject, *seen: Judged | JudgedId | None) -> Mapping[str, Any]:
    """Return the fields of a row that say what it is about."""
    names = [name for j in seen if (name := id_of(j)) is not None]
    return {
        "topic": subject[0],
        "partition": subject[1],
        "producer_id": subject[2],
        "start_offset": subject[3],
        "transactional_id": names[0] if names else None,
    }


def row(
    subject: Subject,
    there: Judged | JudgedId | None,
    here: Judged | JudgedId | None,
    prepared: frozenset[str],
) -> TwinRow:
    """Return a bundle's verdict (`there`) beside the twin's.

    prepared: the ids in Prepare*, whose transactions may have ended on the twin, or just end.
    """
    equal = verdict_text(there) == verdict_text(here)
    ends = id_of(there) in prepared and (here is None or here.verdict.name == "prepare")
    resent = "a decision is sent again when its coordinator loads"
    return TwinRow(
        **about(subject, there, here),
        bundle=verdict_text(there),
        twin=verdict_text(here),
        equal=equal,
        because=resent if ends and not equal else None,
    )
