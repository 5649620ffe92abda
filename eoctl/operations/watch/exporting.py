"""`exporter`: read clusters repeatedly, and keep the last snapshot of each."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from eoctl.host.clock import now_ms
from eoctl.host.extras import installed
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.diagnose.live import Live
from eoctl.operations.diagnose.verdict_rows import hanging_row
from eoctl.operations.doctor.doctor_check import Doctor, DoctorRows, LastRows, doctor_rows
from eoctl.operations.inspect.offset_answers import Reading, show_offsets
from eoctl.operations.session.session import Session
from eoctl.operations.watch.check_answer import check
from eoctl.settings.context import Context
from recovery.errors import EoctlError, UnreachableError
from recovery.inspect.cluster_rows import OffsetsShowRow
from recovery.inspect.observation import Settings
from recovery.times import not_done_within
from recovery.values import Value
from recovery.watch.check_rules import Thresholds
from recovery.watch.metrics import Sample, rule_samples, unseen_samples
from recovery.watch.series import Limits, finding_samples, group_samples

Result = TypeVar("Result")
RESULTS = ("complete", "incomplete", "failed")


class Request(Value):
    """How every context is read.

    interval: seconds between two snapshots; seconds: the limit of the check, and then of the
    groups. groups: only these, none = all. max_rate: bytes of logs read per second and broker.
    doctor: its rules too.
    """

    thresholds: Thresholds
    limits: Limits
    groups: Sequence[str]
    interval: float
    seconds: float
    pause: float
    max_rate: float
    doctor: bool = False

    @property
    def reading(self) -> Reading | None:
        """Return how records are counted; None if counting is off or the extra is missing."""
        if self.limits.records == 0 or not counting_installed():
            return None
        return Reading(max_rate=self.max_rate, most=self.limits.records)


def counting_installed() -> bool:
    """Return True if the extra `data` is installed, which counting records needs."""
    return installed("numpy") and installed("pyarrow")


class Board:
    """The samples of each context's last snapshot, and the number of snapshots.

    Threads of the endpoint read while the loop writes, so each snapshot is stored as one value.
    """

    def __init__(self, contexts: Sequence[str], *, counts_records: bool) -> None:
        self._last: dict[str, tuple[float, tuple[Sample, ...]]] = {}
        self._looks = {context: Counter(dict.fromkeys(RESULTS, 0)) for context in contexts}
        self._counts_records = counts_records

    def put(self, context: str, result: str, samples: Sequence[Sample]) -> None:
        self._last[context] = time.monotonic(), tuple(samples)
        self._looks[context][result] += 1

    def samples(self) -> list[Sample]:
        """Return a scrape's samples. A context without a snapshot yet has only its counters."""
        served: list[Sample] = []
        for context, looks in self._looks.items():
            cluster = (("context", context),)
            served += [
                Sample("eoctl_exporter_looks_total", looks[result], (*cluster, ("result", result)))
                for result in RESULTS
            ]
            served.append(
                Sample("eoctl_exporter_counts_records", int(self._counts_records), cluster)
            )
            if context in self._last:
                at, samples = self._last[context]
                age = time.monotonic() - at
                served += [*samples, Sample("eoctl_exporter_snapshot_age_seconds", age, cluster)]
        return served


async def watch(
    context: Context,
    settings: Settings,
    request: Request,
    board: Board,
    say: Callable[[str], None],
) -> None:
    """Watch one cluster until cancelled. say: called with a failure, once until it changes."""
    title, known = context.title, ""
    session: Session | None = None
    doctor = LastRows() if request.doctor else None
    try:
        while True:
            trouble: list[str] = []
            try:
                # opened again after a failure, so that a changed password file is read
                session = session or Session(context, request.seconds)
                result, samples = await _look(session, context, settings, request, trouble, doctor)
            except EoctlError as error:
                if session is not None:
                    session.close()
                session = None
                trouble.append(error.sentence)
                up = not isinstance(error, UnreachableError)
                result, samples = "failed", unseen_samples(title, now_ms(), up=up)
            board.put(title, result, samples)
            if (now := "; ".join(trouble)) != known:
                known = now
                say(f"{title}: {now or 'all is seen again'}")
            await asyncio.sleep(request.interval)
    finally:
        if session is not None:
            session.close()


async def _look(
    session: Session,
    context: Context,
    settings: Settings,
    request: Request,
    trouble: list[str],
    doctor: LastRows | None,
) -> tuple[str, list[Sample]]:
    """Take one snapshot: its result and all metrics. If doctor or the groups fail, others remain.

    Raises EoctlError if the check failed.
    """
    title = context.title
    checked = await _bounded(
        session,
        lambda c: check(Live(c), context, request.thresholds, settings, pause=request.pause),
    )
    d = checked.diagnosis
    findings = [hanging_row(j, (), d.cluster_id, d.transaction_version) for j in d.findings]
    samples = [*checked.samples, *finding_samples(title, findings, request.limits)]
    complete = checked.answer.complete
    trouble += sorted({e.detail for e in checked.answer.errors})[:1]
    if doctor is not None:
        await doctor.renew(lambda: _ask_doctor(session, context))
        samples += [s for row in doctor.rows for s in rule_samples(title, row)]
        trouble += [f"doctor: {detail}" for detail in doctor.trouble]
    groups_complete = False
    try:
        answer = await _bounded(
            session,
            lambda c: show_offsets(
                c,
                request.groups,
                (),
                counting=request.reading,
                in_time=request.limits.in_time,
            ),
        )
    except EoctlError as error:
        trouble.append(f"groups: {error.sentence}")
    else:
        groups_complete = answer.complete
        rows = [row for row in answer.rows if isinstance(row, OffsetsShowRow)]
        names = [state["group"] for state in answer.extra["groups"]]
        samples += group_samples(title, names, rows, request.limits)
        trouble += [f"groups: {detail}" for detail in sorted({e.detail for e in answer.errors})[:1]]
    samples.append(Sample("eoctl_groups_complete", int(groups_complete), (("context", title),)))
    return "complete" if complete and groups_complete else "incomplete", samples


async def _ask_doctor(session: Session, context: Context) -> DoctorRows:
    """Ask doctor's rules, in a time of their own: a check that was in time counts without them."""
    return await _bounded(session, lambda c: doctor_rows(Live(c), context, Doctor()))


async def _bounded(session: Session, use: Callable[[Cluster], Awaitable[Result]]) -> Result:
    """Ask within the session's seconds, including the time between its requests."""
    try:
        async with asyncio.timeout(None if session.seconds is None else session.seconds + 0.5):
            return await session.ask(use)
    except TimeoutError:
        session.close()
        raise not_done_within(session.seconds) from None
