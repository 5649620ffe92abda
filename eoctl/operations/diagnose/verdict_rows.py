"""Turn a diagnosis into rows of `txn hanging` and `status`, with the commands they name."""

from collections.abc import Sequence
from typing import Any, TypedDict

from eoctl.render.shell import command
from eoctl.render.verdicts.evidence_words import evidence_words
from eoctl.render.verdicts.remedy_words import remedy_words
from recovery.answers import Answer, error_rows
from recovery.diagnose.diagnosis import ORDER, Diagnosis, Judged, JudgedId
from recovery.diagnose.diagnosis_rows import (
    ContestRow,
    EndsRow,
    EvidenceRow,
    OtherwiseRow,
    RemedyRow,
    StatusRow,
    TxnHangingRow,
    WayRow,
)
from recovery.diagnose.id_verdicts import IdVerdict
from recovery.diagnose.remedies import Remedy
from recovery.diagnose.verdicts import Verdict
from recovery.facts import Missing
from recovery.inspect.inspection import owner_of
from recovery.remedy.ends import Way, ends_of, plain_way, way_out
from recovery.remedy.repairs import refusals

HIDDEN = frozenset({"open", "prepare"})  # no findings; shown with --all or if named


def remedy_argv(
    verdict: Verdict | IdVerdict, connection: Sequence[str], cluster_id: str | None
) -> list[str] | None:
    """Return the command that shows the remedy's plan; None if eoctl has none."""
    way = plain_way(verdict.remedy)
    if way is None or (way.action != "fence" and not isinstance(verdict, Verdict)):
        return None
    if isinstance(verdict, Verdict) and verdict.about.start_offset is None:
        return None  # its leader does not answer
    return way_argv(verdict, way, connection, cluster_id)


def way_argv(
    verdict: Verdict | IdVerdict, way: Way, connection: Sequence[str], cluster_id: str | None
) -> list[str]:
    """Return the command of a way out.

    It names the cluster and what was judged, never --execute or --yes: pasted, it changes nothing.
    """
    start = ["eoctl", *connection]
    if way.action == "why":
        return [*start, "why", f"--transactional-id={way.transactional_id}"]
    end = ["--cluster-id", cluster_id] if cluster_id else []
    flags = ["--owner-is-gone"] * way.owner_is_gone + ["--without-proof"] * way.without_proof
    if way.action == "fence":
        argv = [*start, "txn", "fence", *flags, "--pid", str(way.producer_id)]
        return [*argv, "--epoch", str(way.producer_epoch), *end, "--", str(way.transactional_id)]
    assert isinstance(verdict, Verdict)
    about = verdict.about
    # a topic may begin with a dash, like an id
    dashed = about.name.startswith("-")
    argv = [*start, "txn", way.action, *([] if dashed else [about.name])]
    argv += ["--pid", str(about.producer_id), "--start-offset", str(about.start_offset)]
    if way.outcome is not None:
        argv += ["--outcome", way.outcome]
    return [*argv, *flags, *end, *(["--", about.name] if dashed else [])]


def ends_row(
    j: Judged | JudgedId,
    connection: Sequence[str],
    cluster_id: str | None,
    transaction_version: int,
) -> EndsRow:
    """Return what can be done about it: now, by whoever knows more, and otherwise."""
    ends, v = ends_of(j, transaction_version), j.verdict

    def row(way: Way) -> WayRow:
        argv = way_argv(v, way, connection, cluster_id)
        return WayRow(
            action=way.action,
            knows=way.knows,
            outcome=way.outcome,
            argv=argv,
            command=command(argv),
        )

    rest = dict(ends.otherwise.data)
    if ends.otherwise.refused is not None:
        rest["refused"] = remedy_words(ends.otherwise.refused)
    listed = way_out("mixed" if isinstance(v, Verdict) and v.mixed else v.name, ends)
    return EndsRow(
        way=None if listed is None else listed.when,
        next=None if ends.next is None else row(ends.next),
        if_you_know=[row(way) for way in ends.if_you_know],
        otherwise=OtherwiseRow(code=ends.otherwise.code, data=rest),
    )


def remedy_row(verdict: Verdict | IdVerdict, argv: list[str] | None) -> RemedyRow:
    """Return a verdict's remedy for people and scripts."""
    remedy: Remedy = verdict.remedy
    refused = refusals(verdict) if isinstance(verdict, Verdict) else remedy.refused
    return RemedyRow(
        action=remedy.action,
        does=remedy_words(remedy.does),
        caveats=[remedy_words(caveat) for caveat in remedy.caveats],
        refused=[[action, remedy_words(why)] for action, why in refused],
        argv=argv,
        command=None if argv is None else command(argv),
    )


def hanging_row(
    j: Judged | JudgedId,
    connection: Sequence[str],
    cluster_id: str | None,
    transaction_version: int = 2,
) -> TxnHangingRow:
    """Return one judged transaction, or id that holds no partition, as a row.

    transaction_version: the cluster's.
    """
    ends = ends_row(j, connection, cluster_id, transaction_version)
    if isinstance(j, JudgedId):
        return _id_row(j, ends)
    v, sample = j.verdict, j.newest
    pid = j.about.producer_id
    producer = None if pid is None else sample.producer(pid)
    known = v.owner or (None if pid is None else owner_of(pid, sample.transactions))
    return TxnHangingRow(
        topic=j.about.topic,
        topic_id=j.partition.topic_id,
        partition=j.about.partition,
        leader=j.partition.leader,
        producer_id=pid,
        producer_epoch=producer.producer_epoch if producer else None,
        start_batch_epoch=j.start.producer_epoch if j.start else None,
        coordinator_epoch=producer.coordinator_epoch if producer else None,
        transactional_id=known.transactional_id if known else j.only_id,
        start_offset=j.about.start_offset,
        last_timestamp=producer.last_timestamp if producer else None,
        timeout_ms=known.timeout_ms if known else None,
        start_timestamp=known.start_timestamp if known else None,
        state=known.state if known else None,
        mixed=v.mixed,
        offsets_pending=v.offsets_pending,
        groups=list(j.start.groups) if j.start else [],
        error=j.partition.error,
        **_judgement(j, ends),
    )


def _id_row(j: JudgedId, ends: EndsRow) -> TxnHangingRow:
    row = j.verdict.about
    wrote = [p.producer.last_timestamp for p in j.first.named or () if p.producer]
    return TxnHangingRow(
        topic=None,
        topic_id=None,
        partition=None,
        leader=None,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        start_batch_epoch=None,
        coordinator_epoch=(j.second or j.first).coordinator_epoch,
        transactional_id=row.transactional_id,
        start_offset=None,
        last_timestamp=max((t for t in wrote if t is not None), default=None),
        timeout_ms=row.timeout_ms,
        start_timestamp=row.start_timestamp,
        state=row.state,
        mixed=False,
        offsets_pending=False,
        groups=[],
        error=row.error,
        **_judgement(j, ends),
    )


def _judgement(j: Judged | JudgedId, ends: EndsRow) -> dict[str, Any]:
    """Return the fields of a row that a verdict gives."""
    v = j.verdict
    now = ends.next if ends.next is not None and ends.next.action != "why" else None
    return {
        "age_seconds": v.age_seconds,
        "age_clock": v.age_clock,
        "samples": v.samples,
        "verdict": v.name,
        "rule": v.rule,
        "proven_outcome": v.proven_outcome,
        "evidence": [
            EvidenceRow(code=e.code, text=evidence_words(e), data=dict(e.data)) for e in v.evidence
        ],
        "remedy": remedy_row(v, None if now is None else now.argv),
        "ends": ends,
        "gate": None if v.gate is None else remedy_words(v.gate),
        "ends_at": v.deadline,
        "ends_in_seconds": None if v.deadline_in is None else v.deadline_in / 1000,
    }


def hanging_answer(
    d: Diagnosis, connection: Sequence[str], *, show_all: bool, verdicts: Sequence[str] = ()
) -> Answer:
    """Return the answer of `txn hanging`: findings and unknowns; open and prepare with show_all.

    verdicts: show only these. The others still count for the exit status.
    """
    judged = [
        j
        for j in d.everything
        if (j.verdict.name in verdicts if verdicts else show_all or j.verdict.name not in HIDDEN)
    ]
    judged.sort(key=lambda j: (ORDER.index(j.verdict.name), -(j.verdict.age_seconds or 0)))
    return Answer(
        schema="txn-hanging",
        cluster_id=d.cluster_id,
        collected_at=d.collected_at,
        rows=[hanging_row(j, connection, d.cluster_id, d.transaction_version) for j in judged],
        errors=error_rows([*d.missing, *unknown_as_missing(d)]),
        extra={
            "scanned": d.scanned,
            "held_back": sum(bool(p.held) for p in d.partitions),
            "verdicts": dict(d.counts),
            "pause_seconds": d.pause,
        },
        judging=True,
        finding=bool(d.findings),
        notes=d.notes,
    )


def unknown_as_missing(d: Diagnosis) -> list[Missing]:
    """List transactions that could not be judged: each makes the answer incomplete."""
    return [
        Missing(
            scope="transaction",
            error="UNKNOWN_VERDICT",
            detail=f"{j.verdict.rule}: {_reason(j)}{remedy_words(j.verdict.remedy.does)}",
            **_subject(j),
        )
        for j in d.unknown
    ]


def _reason(j: Judged | JudgedId) -> str:
    """Return the evidence of an `unknown`: the answer that it rests on."""
    verdict = j.verdict
    mine = (f"{evidence_words(e)}: " for e in verdict.evidence if e.code == verdict.rule)
    return next(mine, "")


class _Subject(TypedDict):
    topic: str | None
    partition: int | None
    id: str | None


def _subject(j: Judged | JudgedId) -> _Subject:
    if isinstance(j, JudgedId):
        return {"topic": None, "partition": None, "id": j.name}
    pid = j.about.producer_id
    name = None if pid is None else f"pid {pid}"
    return {"topic": j.about.topic, "partition": j.about.partition, "id": name}


def status_rows(d: Diagnosis, groups: dict[str, int] | None = None) -> list[StatusRow]:
    """Return a row per verdict that occurs, worst first; the summary shows `open`."""
    rows: list[StatusRow] = []
    for name in ORDER:
        every = [j for j in d.everything if j.verdict.name == name]
        if not every or name in HIDDEN:
            continue
        mine = [j for j in every if isinstance(j, Judged)]
        oldest = max(every, key=lambda j: j.verdict.age_seconds or -1.0)
        ids: set[tuple[int | None, str | None]] = {
            (j.about.producer_id, o.transactional_id if (o := j.verdict.owner) else None)
            for j in mine
        }
        ids |= {(j.verdict.about.producer_id, j.name) for j in every if isinstance(j, JudgedId)}
        worst, look = _worst(every)
        rows.append(
            StatusRow(
                verdict=name,
                transactions=len(ids),
                partitions=len({j.about.topic_partition for j in mine}),
                oldest_seconds=oldest.verdict.age_seconds,
                age_clock=oldest.verdict.age_clock,
                groups=None if groups is None else groups.get(name, 0),
                worst=worst,
                next=look,
            )
        )
    return rows


def contest_status(contests: Sequence[ContestRow]) -> list[StatusRow]:
    """Return the row of the contested ids, which may hold nothing; none without such an id."""
    if not contests:
        return []
    most = max(contests, key=lambda c: c.aborted).transactional_id
    return [
        StatusRow(
            verdict="contested-id",
            transactions=len(contests),
            partitions=0,
            oldest_seconds=None,
            age_clock=None,
            groups=None,
            worst=most,
            next=command(["why", f"--transactional-id={most}"]),
        )
    ]


def _worst(judged: Sequence[Judged | JudgedId]) -> tuple[str, str]:
    """Return what to look at first, and the command line that explains it."""
    held = [j for j in judged if isinstance(j, Judged)]
    if held:
        first = max(held, key=lambda j: j.partition.held or 0).about
        return first.name, f"why {'-- ' if first.topic.startswith('-') else ''}{first.name}"
    name = next(j.name for j in judged if isinstance(j, JudgedId))
    return name, command(["why", f"--transactional-id={name}"]) or ""
