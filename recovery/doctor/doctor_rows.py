"""The rows of `doctor`."""

from typing import Literal

from recovery.diagnose.diagnosis_rows import EvidenceRow
from recovery.doctor.findings import SubjectKind
from recovery.row import Row


class SubjectRow(Row):
    """What a finding is about. name: `*` for the cluster as one."""

    kind: SubjectKind
    name: str


class DoctorRow(Row):
    """What one rule of `doctor` says about one subject; a healthy one has no row.

    state unknown: the rule cannot tell, and lacks names the right that would show it; null: no
    right is missing, a broker did not answer. harm: what may happen. remedy: what to do; command:
    the same with one of Kafka's tools, null if there is no such command. sources: where Kafka says
    so: a KIP, an issue or a setting.
    """

    rule: str
    subject: SubjectRow
    state: Literal["finding", "unknown"]
    evidence: list[EvidenceRow]
    harm: str
    remedy: str
    command: str | None
    sources: list[str]
    lacks: str | None
