"""`make schemas`: write docs/schemas/NAME.v1.json, one JSON Schema per envelope of `-o json`.

docs/schemas/README.md lists their fields.

The schemas come from the row models of `recovery`; here stand only which rows a command gives
and which fields its envelope has besides the common ones.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import NODEFAULT, structs
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.lab_tables import (
    DrillAnswerRow,
    DrillGradeRow,
    DrillRow,
    LabBrokerRow,
    LabDownRow,
    LabJobRow,
    LabMirrorRow,
)
from eoctl.lab.twin.rows import RehearsalRow, TwinRow
from eoctl.render.explain import ExplainRow
from eoctl.settings.context_rows import ContextRow, ContextSettingRow, ContextTestRow
from recovery.audit.audit_rows import (
    AuditDuplicatesRow,
    AuditEndToEndRow,
    AuditMirrorRow,
    AuditSequencesRow,
    AuditTransactionsRow,
    EndToEndInput,
    EndToEndOutput,
    EndToEndReader,
    MirrorCheckpoint,
    MirrorExamined,
    MirrorKeptRow,
    MirrorOpenRow,
    MirrorTransactionRow,
    SequencesExamined,
    TransactionsCovered,
)
from recovery.change.job_rows import JobExportRow, JobRow
from recovery.change.journal_rows import JournalEventRow, JournalRow, PlanRow
from recovery.diagnose.diagnosis_rows import ContestRow, StatusRow, TxnHangingRow
from recovery.diagnose.why_rows import GroupStoryRow, WhyRow
from recovery.doctor.doctor_rows import DoctorRow
from recovery.inspect.cluster_rows import (
    BesideRangeRow,
    HistoryRow,
    LsoRow,
    MarkerRow,
    OffsetsCountRow,
    OffsetsShowRow,
    ProducerBlockRow,
    ProducerRow,
    RecordRow,
    SegmentRow,
    TxnDescribeRow,
    TxnListRow,
)
from recovery.inspect.commits.commit_rows import OffsetsHistoryRow
from recovery.inspect.growth.growth_rows import (
    GrowthRow,
    InternalTopicRow,
    ProducersSummaryRow,
    TxnSummaryRow,
)
from recovery.merge.log_rows import MergeFindingRow, MergePlanRow
from recovery.remedy.checkpoint_rows import CommittableRow, SalvageRow
from recovery.restart.decision import RestartPlanRow
from recovery.restart.verify_rows import CheckpointFileRow, RestartVerifyRow
from recovery.row import EPOCH_MS, ErrorRow, Row, json_names
from recovery.shared.cut import CutTransaction
from recovery.state.state_rows import (
    StateCompareRow,
    StateDigest,
    StateRebuildRow,
    StateShowRow,
    StateSparkStore,
)
from recovery.watch.check_rows import BundlePartRow, CheckRow

_TIMESTAMP = Annotated[
    int | None,
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}),
]
FOLDER = Path(__file__).parent / "schemas"


class GroupState(BaseModel):
    """A group that was looked at, whether it committed anything or not."""

    group: str
    type: str | None
    state: str | None


class StoreState(BaseModel):
    """A store that was looked at. exists: is there such a group, file, key, node or table?"""

    store: str
    kind: str
    exists: bool


class TransactionEnd(BaseModel):
    """The marker that ended a transaction."""

    offset: int
    outcome: Literal["commit", "abort"]


class PlanEntry(BaseModel):
    """The journal entry that applied a plan, or undid it. ended_at: null = unfinished."""

    entry: str
    state: Literal["unfinished", "done", "failed", "abandoned", "undone"]
    begun_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class Envelope:
    """row: the model of its rows. extra: its own fields. optional: those not always there."""

    row: type[Row]
    extra: Mapping[str, Any] = field(default_factory=dict)
    optional: Mapping[str, Any] = field(default_factory=dict)


_SCANNED = {"scanned": int, "held_back": int}
_STATUS = {
    **_SCANNED,
    "context": str,
    "read_only": bool,
    "protected": bool,
    "transaction_version": int | None,
    "brokers_up": int,
    "brokers_known": int,
    "held_offsets": int,
    "open_transactions": int,
    "verdicts": dict[str, int],
}
_CONTESTS = {  # of the complete cluster
    "contests": list[ContestRow] | None,
    "contests_read_from": datetime | None,
    "contests_unfinished": int,
}
_SEVERAL = {"context": str}  # --context a,b and --all-contexts
_ENGINE = {"engine": str, "engine_why": str}
_PLAN = Envelope(PlanRow)
_SPARK_STORE = {"spark": StateSparkStore}  # of spark:DIR
_CONTEXT_TEST = Envelope(ContextTestRow, {"context": str, "seen": int, "accept_missing": list[str]})
_BUNDLE = Envelope(
    BundlePartRow,
    {
        "file": str,
        "sha256": str,
        "eoctl_version": str,
        "context": str | None,
        "bootstrap_servers": str,
    },
)

# The command's words joined by `-`.
ENVELOPES: Mapping[str, Envelope] = {
    "status": Envelope(StatusRow, _STATUS, {"growth": list[GrowthRow] | None, **_CONTESTS}),
    "runbook": Envelope(WhyRow, {**_STATUS, "left_out": int}, _CONTESTS),
    "why": Envelope(
        WhyRow,
        {"group": str | None},
        {"group_story": GroupStoryRow | None, **_CONTESTS},  # --group
    ),
    "lso": Envelope(LsoRow, _SCANNED, _SEVERAL),
    "txn-list": Envelope(TxnListRow, {"open": int, "coordinators": int, "coordinators_seen": int}),
    "txn-list-summary": Envelope(
        TxnSummaryRow,
        {
            "internal_topics": list[InternalTopicRow],
            "transactional_ids": int,
            "open": int,
            "prefixes": int,
            "pause_seconds": float | None,
            "left_out": int,
            "coordinators": int,
            "coordinators_seen": int,
        },
    ),
    "txn-describe": Envelope(TxnDescribeRow),
    "txn-hanging": Envelope(
        TxnHangingRow,
        {**_SCANNED, "verdicts": dict[str, int], "pause_seconds": float | None},
        _SEVERAL,
    ),
    "txn-history": Envelope(
        HistoryRow,
        {
            "transactional_ids": int,
            "whole": bool | None,
            "contests": list[ContestRow],
        },
    ),
    "txn-commit": Envelope(
        CommittableRow,
        {
            "checkpoint": str,
            "checkpoint_id": int,
            "savepoint": bool,
            "newer_in_folder": list[int],
            "newer_in_kafka": list[int],
            "skipped": list[str],
        },
    ),
    "txn-salvage": Envelope(SalvageRow, {"not_lost": dict[str, int]}),
    "txn-records": Envelope(
        RecordRow,
        {
            "producer_id": int,
            "start_offset": int,
            "log_start_offset": int | None,
            "last_stable_offset": int | None,
            "high_watermark": int | None,
            "read_to": int | None,
            "held_records": int | None,
            "waiting_records": int | None,
            "aborted_records": int | None,
            "other_open_records": int | None,
            "ended": TransactionEnd | None,
            "beside": list[BesideRangeRow] | None,
        },
    ),
    "txn-abort": _PLAN,
    "txn-fence": _PLAN,
    "txn-resolve": _PLAN,
    "txn-apply": _PLAN,
    "producers": Envelope(
        ProducerRow,
        {"scanned": int},
        {"segments": list[SegmentRow]},  # --segment
    ),
    "producers-summary": Envelope(
        ProducersSummaryRow,
        {
            "scanned": int,
            "producer_states": int,
            "producer_ids": int,
            "pause_seconds": float | None,
            "left_out": dict[str, int],
        },
    ),
    "producers-blocks": Envelope(ProducerBlockRow),
    "offsets-show": Envelope(
        OffsetsShowRow,
        {"groups": list[GroupState]},
        {"stores": list[StoreState]},  # --store
    ),
    "offsets-count": Envelope(OffsetsCountRow),
    "offsets-history": Envelope(
        OffsetsHistoryRow,
        {
            "group": str,
            "type": str | None,
            "state": str | None,
            "coordinator_partition": int | None,
            "whole": bool,
            "complete_since": datetime | None,
            "left_out": int,
            "offsets_retention_ms": int | None,
        },
    ),
    "restart-plan": Envelope(
        RestartPlanRow, {"plan_sha256": str, "expires": datetime, "file": str | None}
    ),
    "restart-show": Envelope(
        RestartPlanRow,
        {
            "plan_sha256": str,
            "expires": datetime,
            "file": str | None,
            "applied": PlanEntry | None,
            "undone": PlanEntry | None,
        },
    ),
    "restart-verify": Envelope(
        RestartVerifyRow,
        {
            "app": str,
            "outputs": int,
            "guarantee": Literal["exactly-once", "at-least-once", "at-most-once"],
            "because": str,
        },
    ),
    "restart-apply": _PLAN,
    "restart-undo": _PLAN,
    "restart-checkpoint": Envelope(
        CheckpointFileRow,
        {
            "checkpoint": str,
            "query_id": str | None,
            "batch": int | None,
            "in_flight": bool,
            "whole": bool,
            "way": Literal["next", "again"] | None,
            "resume_batch": int | None,
            "replanned": list[int],
            "meaning": str | None,
            "refused": str | None,
            "mended": str | None,
        },
    ),
    "dedup": _PLAN,
    "audit-sequences": Envelope(
        AuditSequencesRow,
        {"findings": int, "examined": list[SequencesExamined], **_ENGINE},
    ),
    "audit-transactions": Envelope(
        AuditTransactionsRow,
        {
            "findings": int,
            "transactions": int,
            "partitions": int,
            "markers_without_data": int,
            "foreign_markers": int,
            "own_markers": int,
            "decisions_gone": int,
            "markers": list[MarkerRow],
            "covered": list[TransactionsCovered],
            **_ENGINE,
        },
    ),
    "audit-duplicates": Envelope(
        AuditDuplicatesRow,
        {
            "by": str,
            "findings": int,
            "repeats": int,
            "records": int,
            "without_id": int,
            "partitions": int,
            **_ENGINE,
        },
    ),
    "audit-end-to-end": Envelope(
        AuditEndToEndRow,
        {
            "input": str,
            "output": str,
            "by": str,
            "findings": int,
            "map_of": str | None,
            "continued": bool,
            "inputs": list[EndToEndInput],
            "outputs": list[EndToEndOutput],
            "readers": list[EndToEndReader],
            "readers_known": bool,
            **_ENGINE,
        },
    ),
    "audit-mirror": Envelope(
        AuditMirrorRow,
        {
            "topic": str,
            "mirror_topic": str,
            "mirror_cluster_id": str | None,
            "compared": list[str],
            "findings": int,
            "examined": list[MirrorExamined],
            "offset_syncs": str | None,
            "checkpoints_topic": str | None,
            "checkpoints": list[MirrorCheckpoint],
            **_ENGINE,
        },
    ),
    "audit-mirror-transactions": Envelope(
        MirrorTransactionRow,
        {
            "findings": int,
            "partitions": int,
            "mirror_cluster_id": str | None,
            "decisions_until": datetime | None,
            "open": list[MirrorOpenRow],
        },
    ),
    "audit-mirror-keep": Envelope(
        MirrorKeptRow,
        {
            "map": str,
            "bytes": int,
            "topic": str,
            "mirror_topic": str,
            "mirror_cluster_id": str,
            "compared": list[str],
            "commits": int,
            "groups": int,
            **_ENGINE,
        },
    ),
    "state-rebuild": Envelope(
        StateRebuildRow,
        {
            "manifest": str,
            "format": str,
            "at": str,
            "engine": str,
            "engine_why": str | None,
            "reader": str,
            "digest": StateDigest,
            "consistent": bool | None,
            "split": list[CutTransaction],
            "open": list[CutTransaction],
            "notes": list[str],
            "seconds": float,
        },
        optional={"delivery": PlanRow | None},  # with --into
    ),
    "state-deliver": _PLAN,
    "state-compare": Envelope(
        StateCompareRow,
        {"a": str, "b": str, "equal": bool, "same_cut": bool | None, "shown": int, "engine": str},
        optional=_SPARK_STORE,
    ),
    "state-show": Envelope(StateShowRow, {"format": str, "at": str}, optional=_SPARK_STORE),
    "merge-verify": Envelope(
        MergeFindingRow, {"entries": int, "partitions": int, "outputs_compared": int}
    ),
    "merge-plan": Envelope(MergePlanRow),
    "merge-replay": _PLAN,
    "doctor": Envelope(DoctorRow, {"rules": int, "named": list[str]}),
    "check": Envelope(
        CheckRow,
        {"context": str, "scanned": int, "verdicts": dict[str, int], "notes": list[ErrorRow]},
    ),
    "journal-list": Envelope(JournalRow, {"unfinished": int}),
    "journal-show": Envelope(
        JournalEventRow,
        {"entry": JournalRow, "plan": dict[str, Any]},
    ),
    "journal-resume": _PLAN,
    "journal-undo": _PLAN,
    "explain": Envelope(ExplainRow),
    "jobs-list": Envelope(JobRow),
    "jobs-show": Envelope(JobRow, {"log": list[str]}),
    "jobs-cancel": Envelope(JobRow),
    "jobs-export": Envelope(JobExportRow),
    "bundle-create": _BUNDLE,
    "bundle-open": _BUNDLE,
    "context-list": Envelope(ContextRow),
    "context-show": Envelope(ContextSettingRow, {"context": str}),
    "context-test": _CONTEXT_TEST,
    "context-add": _CONTEXT_TEST,
    "lab-up": Envelope(LabBrokerRow),
    "lab-down": Envelope(LabDownRow),
    "lab-status": Envelope(LabBrokerRow),
    "lab-break": Envelope(GroundTruth),
    "lab-twin": Envelope(
        TwinRow,
        {"lab": str, "context": str, "of_cluster_id": str | None, "twin_lacks": list[str]},
    ),
    "lab-rehearse": Envelope(
        RehearsalRow,
        {
            "plan_sha256": str,
            "of_cluster_id": str,
            "outcome": str,
            "steps": list[dict[str, str]],
            "twin_lacks": list[str],
        },
    ),
    "lab-mirror": Envelope(LabMirrorRow),
    "lab-job": Envelope(LabJobRow),
    "lab-drill": Envelope(DrillRow),
    "lab-drill-ask": Envelope(DrillAnswerRow),
    "lab-drill-grade": Envelope(
        DrillGradeRow,
        {"drill": str, "seed": int, "seconds": float, "points": int, "most": int}
        | {"well_done": list[str]},
    ),
}


@cache
def _model(row: type[Row]) -> type[BaseModel]:
    """Return a row's model for pydantic, which writes the schemas."""
    fields: dict[str, Any] = {
        field.name: _field(field, name)
        for field, name in zip(structs.fields(row), json_names(row), strict=True)
    }
    return create_model(row.__name__, __doc__=row.__doc__, **fields)


def _field(field: structs.FieldInfo, name: str) -> tuple[Any, Any]:
    """Return the type and pydantic's Field of a row's field. name: its name in JSON."""
    metas = getattr(field.type, "__metadata__", ())
    options: dict[str, Any] = {}
    for meta in metas:
        if meta.description:
            options["description"] = meta.description
    if field.default is not NODEFAULT:
        options["default"] = field.default
    return _type(field.type), Field(serialization_alias=name, **options)


def _type(hint: Any) -> Any:
    """Return an annotation with pydantic's models in place of rows."""
    if get_origin(hint) is Annotated:
        return _TIMESTAMP if EPOCH_MS in hint.__metadata__ else _type(hint.__origin__)
    if isinstance(hint, type) and issubclass(hint, Row):
        return _model(hint)
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return Union[tuple(map(_type, get_args(hint)))]  # noqa: UP007
    if get_origin(hint) in (list, tuple, dict):
        return get_origin(hint)[tuple(map(_type, get_args(hint)))]
    return hint


class _Schema(GenerateJsonSchema):
    """All fields of a row are present in its JSON; a later v1 may have more."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return True

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        made = super().model_schema(schema)
        made.pop("additionalProperties", None)
        return made


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of one envelope."""
    envelope = ENVELOPES[name]
    own = {**envelope.extra, **envelope.optional}
    fields: dict[str, Any] = {
        "schema_": (Literal[f"eoctl.{name}/v1"], Field(serialization_alias="schema")),
        "cluster_id": (str | None, ...),
        "collected_at": (datetime, ...),
        "complete": (bool, Field(description="false: errors says what could not be seen")),
        **{key: (_type(kind), ...) for key, kind in own.items()},
        "rows": (_type(list[envelope.row]), ...),  # type: ignore[name-defined]
        "errors": (_type(list[ErrorRow]), ...),
    }
    config = ConfigDict(title=f"eoctl.{name}/v1")
    model = create_model("Envelope", __config__=config, **fields)
    made = model.model_json_schema(mode="serialization", schema_generator=_Schema)
    required = [key for key in made["required"] if key not in envelope.optional]
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        **made,
        "required": required,
    }


def text(name: str) -> str:
    """The content of docs/schemas/NAME.v1.json."""
    return json.dumps(schema(name), indent=1) + "\n"


def paths(found: Mapping[str, Any]) -> dict[str, str]:
    """Every field of a schema and its types: `rows[].blocking.producer_id` → `integer`.

    What a script may rely on: within v1 there are only ever more of them.
    """
    kinds: dict[str, set[str]] = {}

    def walk(node: Mapping[str, Any], path: str, inside: Sequence[str]) -> None:
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            if name not in inside:
                walk(found["$defs"][name], path, [*inside, name])
            return
        for other in node.get("anyOf", ()):
            walk(other, path, inside)
        if path and "anyOf" not in node:
            kinds.setdefault(path, set()).add(node.get("type", "any"))
        for name, child in node.get("properties", {}).items():
            walk(child, f"{path}.{name}" if path else name, inside)
        if isinstance(node.get("items"), Mapping):
            walk(node["items"], f"{path}[]", inside)

    walk(found, "", ())
    return {path: "|".join(sorted(found)) for path, found in kinds.items()}


def index() -> str:
    """Return docs/schemas/README.md: the fields of each row and each envelope."""
    lines = [
        "# Schemas of the output",
        "",
        "Made by `make schemas` from the row models. Every envelope of `-o json` also has",
        "`schema`, `cluster_id`, `collected_at`, `complete`, `rows` and `errors`:",
        "[interface.md](../interface.md).",
        "",
        "| schema | fields of a row | more fields of the envelope |",
        "|---|---|---|",
    ]
    for name, envelope in ENVELOPES.items():
        row = [p.removeprefix("rows[].") for p in paths(schema(name)) if p.startswith("rows[].")]
        more = {**envelope.extra, **envelope.optional}
        fields = (", ".join(f"`{f}`" for f in of if not {".", "["} & {*f}) for of in (row, more))
        lines.append(f"| [{name}]({name}.v1.json) | {' | '.join(fields)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "README.md").write_text(index(), encoding="utf-8")
    for name in ENVELOPES:
        (FOLDER / f"{name}.v1.json").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
