"""From a diagnosis to the rows of `txn hanging` and `status`, with the commands they name."""

from collections.abc import Sequence

from eoctl.render.shell import command
from recovery.answers import Answer, error_rows
from recovery.diagnosis import ORDER, Diagnosis, Judged
from recovery.facts import Missing
from recovery.inspection import owner_of
from recovery.remedies import Remedy
from recovery.rows_diagnosis import EvidenceRow, RemedyRow, StatusRow, TxnHangingRow
from recovery.verdicts import Verdict

HIDDEN = frozenset({"open", "prepare"})  # no finding; shown with --all or when named


def remedy_argv(
    verdict: Verdict, connection: Sequence[str], cluster_id: str | None
) -> list[str] | None:
    """The command that shows the remedy's plan; None where eoctl has none.

    It names the cluster and what was judged, never --execute or --yes: pasted, it changes nothing.
    """
    about, remedy = verdict.about, verdict.remedy
    start = ["eoctl", *connection, "txn"]
    end = ["--cluster-id", cluster_id] if cluster_id else []
    if remedy.action in ("abort", "resolve"):
        # a topic may begin with a dash, like an id
        dashed = about.name.startswith("-")
        argv = [*start, remedy.action, *([] if dashed else [about.name])]
        argv += ["--pid", str(about.producer_id), "--start-offset", str(about.start_offset)]
        if remedy.action == "resolve":
            argv += ["--outcome", str(remedy.outcome)]
        return [*argv, *end, *(["--", about.name] if dashed else [])]
    if remedy.action == "fence" and remedy.transactional_id is not None:
        argv = [*start, "fence", "--pid", str(remedy.producer_id)]
        argv += ["--epoch", str(remedy.producer_epoch), *end]
        return [*argv, "--", remedy.transactional_id]
    return None


def remedy_row(verdict: Verdict, argv: list[str] | None) -> RemedyRow:
    """A verdict's remedy for eyes and scripts."""
    remedy: Remedy = verdict.remedy
    return RemedyRow(
        action=remedy.action,
        does=remedy.does,
        caveats=list(remedy.caveats),
        refused=[list(pair) for pair in remedy.refused],
        argv=argv,
        command=None if argv is None else command(argv),
    )


def hanging_row(j: Judged, connection: Sequence[str], cluster_id: str | None) -> TxnHangingRow:
    """One judged transaction as a row."""
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
        transactional_id=known.transactional_id if known else _only_id(j),
        start_offset=j.about.start_offset,
        last_timestamp=producer.last_timestamp if producer else None,
        age_seconds=v.age_seconds,
        age_clock=v.age_clock,
        timeout_ms=known.timeout_ms if known else None,
        start_timestamp=known.start_timestamp if known else None,
        state=known.state if known else None,
        samples=v.samples,
        verdict=v.name,
        rule=v.rule,
        mixed=v.mixed,
        offsets_pending=v.offsets_pending,
        proven_outcome=v.proven_outcome,
        groups=list(j.start.groups) if j.start else [],
        evidence=[EvidenceRow(code=e.code, text=e.text, data=dict(e.data)) for e in v.evidence],
        remedy=remedy_row(v, remedy_argv(v, connection, cluster_id)),
        error=j.partition.error,
    )


def _only_id(j: Judged) -> str | None:
    """The id that the history knows with this producer id, where no coordinator lists one."""
    ids = j.history.transactional_ids if j.history else ()
    return ids[0] if len(ids) == 1 else None


def hanging_answer(
    d: Diagnosis, connection: Sequence[str], *, show_all: bool, verdicts: Sequence[str] = ()
) -> Answer:
    """The answer of `txn hanging`: findings and unknowns; open and prepare with show_all.

    verdicts: show only these. What is not shown still counts for the exit status.
    """
    judged = [
        j
        for j in d.judged
        if (j.verdict.name in verdicts if verdicts else show_all or j.verdict.name not in HIDDEN)
    ]
    judged.sort(key=lambda j: (ORDER.index(j.verdict.name), -(j.verdict.age_seconds or 0)))
    return Answer(
        schema="txn-hanging",
        cluster_id=d.cluster_id,
        collected_at=d.collected_at,
        rows=[hanging_row(j, connection, d.cluster_id) for j in judged],
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
    """Each transaction that could not be judged makes the answer incomplete."""
    return [
        Missing(
            scope="transaction",
            error="UNKNOWN_VERDICT",
            detail=f"{j.verdict.rule}: {j.verdict.remedy.does}",
            topic=j.about.topic,
            partition=j.about.partition,
            id=None if j.about.producer_id is None else f"pid {j.about.producer_id}",
        )
        for j in d.unknown
    ]


def status_rows(d: Diagnosis, groups: dict[str, int] | None = None) -> list[StatusRow]:
    """One row per verdict that occurs, the worst first; `open` is told in the summary."""
    rows: list[StatusRow] = []
    for name in ORDER:
        mine = [j for j in d.judged if j.verdict.name == name]
        if not mine or name in HIDDEN:
            continue
        oldest = max(mine, key=lambda j: j.verdict.age_seconds or -1.0)
        worst = max(mine, key=lambda j: j.partition.held or 0)
        ids = {
            (j.about.producer_id, j.verdict.owner and j.verdict.owner.transactional_id)
            for j in mine
        }
        rows.append(
            StatusRow(
                verdict=name,
                transactions=len(ids),
                partitions=len({j.about.topic_partition for j in mine}),
                oldest_seconds=oldest.verdict.age_seconds,
                age_clock=oldest.verdict.age_clock,
                groups=None if groups is None else groups.get(name, 0),
                worst=worst.about.name,
                next=f"why {'-- ' if worst.about.topic.startswith('-') else ''}{worst.about.name}",
            )
        )
    return rows
