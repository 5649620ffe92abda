"""`restart checkpoint`: find what a Spark streaming checkpoint lacks; write a repaired copy."""

from pathlib import Path

from eoctl.host.clock import now_ms
from eoctl.stores import spark_checkpoint
from recovery.answers import Answer
from recovery.errors import RefusedError, UnverifiedError, UsageError
from recovery.restart.checkpoint_repair import CheckpointDiagnosis, Remedy, diagnose, words
from recovery.restart.verify_rows import CheckpointFileRow
from recovery.values import Value


class MendRequest(Value):
    """The request. copy: a new folder. progress: a file of Spark's progress events. rewind: go back
    to an earlier batch if nothing better is safe."""

    checkpoint: str
    copy: Path | None = None
    progress: Path | None = None
    rewind: bool = False
    execute: bool = False


def checkpoint(request: MendRequest) -> Answer:
    """Diagnose a checkpoint, and with `execute` make the copy. The checkpoint is only read.

    Raises UsageError; IncompleteError if it cannot be read, or changes; RefusedError if no copy is
    safe; UnverifiedError if the copy is incomplete.
    """
    if request.execute and request.copy is None:
        raise UsageError("name the repaired copy's folder", where="--copy")
    folder = spark_checkpoint.folder_of(request.checkpoint)
    files = spark_checkpoint.read(folder)
    events = {}
    if request.progress is not None:
        events = spark_checkpoint.read_progress(request.progress, files.query_id)
        if not events:
            raise UsageError(
                f"has no progress event of query {files.query_id}",
                where=f"--progress {request.progress}",
            )
    diagnosis = diagnose(files, events, rewind=request.rewind)
    made = None
    if request.execute:
        made = _copy(request, folder, diagnosis)
    return _answer(folder, files.query_id, diagnosis, made)


def _copy(request: MendRequest, folder: Path, diagnosis: CheckpointDiagnosis) -> Path:
    assert request.copy is not None
    remedy = diagnosis.remedy
    if remedy is None:
        raise RefusedError(diagnosis.refused or "is complete: start the query", where=str(folder))
    note = {
        "checkpoint": str(folder.resolve()),
        "made_at": now_ms(),
        "meaning": words(remedy),
        "findings": [f.as_dict() for f in diagnosis.findings],
        "remedy": remedy.as_dict(),
    }
    spark_checkpoint.copy(folder, request.copy, remedy, note)
    again = diagnose(spark_checkpoint.read(request.copy))
    if again.broken:
        left = ", ".join(f.file for f in again.findings if f.blocks)
        raise UnverifiedError(f"the copy is not complete: {left}", where=str(request.copy))
    return request.copy


def _answer(
    folder: Path, query_id: str | None, diagnosis: CheckpointDiagnosis, made: Path | None
) -> Answer:
    remedy = diagnosis.remedy
    return Answer(
        schema="restart-checkpoint",
        cluster_id=None,
        collected_at=now_ms(),
        rows=_rows(diagnosis),
        extra={
            "checkpoint": str(folder),
            "query_id": query_id,
            "batch": diagnosis.last,
            "in_flight": diagnosis.in_flight,
            "whole": not diagnosis.broken,
            "way": None if remedy is None else remedy.way,
            "resume_batch": None if remedy is None else remedy.batch,
            "replanned": [] if remedy is None else list(remedy.replanned),
            "meaning": None if remedy is None else words(remedy),
            "refused": diagnosis.refused,
            "mended": None if made is None else str(made),
        },
        judging=True,
        finding=diagnosis.broken and made is None,
    )


def _rows(diagnosis: CheckpointDiagnosis) -> list[CheckpointFileRow]:
    remedy = diagnosis.remedy
    writes = {} if remedy is None else {w.file: w for w in remedy.writes}
    left_out = _left_out(remedy)
    findings = {f.file: f for f in diagnosis.findings}
    rows = []
    for file in [*findings, *(f for f in (*writes, *left_out) if f not in findings)]:
        finding, write = findings.get(file), writes.get(file)
        rows.append(
            CheckpointFileRow(
                file=file,
                finding=None if finding is None else finding.what,
                blocks=finding is not None and finding.blocks,
                spark=None if finding is None else finding.spark,
                settles=None if finding is None else finding.settles,
                repair="written" if write else "left-out" if file in left_out else "none",
                effect=None if write is None else write.effect,
                because=None if write is None else write.because,
            )
        )
    return rows


def _left_out(remedy: Remedy | None) -> list[str]:
    if remedy is None:
        return []
    offsets = [f"offsets/{n}" for n in sorted(remedy.without_offsets)]
    return offsets + [f"commits/{n}" for n in sorted(remedy.without_commits)]
