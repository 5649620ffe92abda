"""Say in words what `doctor` found: what was seen, whom it harms, what to do.

Harm and remedy of each rule are in its entry of `eoctl/explain/doctor.md`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from eoctl.render import explain
from eoctl.render.sanitise import visible
from eoctl.render.width import labelled
from recovery.answers import Answer
from recovery.doctor.doctor_rows import DoctorRow
from recovery.doctor.findings import ALL, Change, Finding, Sign
from recovery.plurals import listed
from recovery.quoting import addresses, some


def harm_of(rule: str) -> str:
    """Return whom a rule's finding harms, and how."""
    return _part(rule, "harm")


def remedy_of(rule: str, finding: Finding) -> str:
    """Return what to do about a finding; for an unknown one, what would show it."""
    if finding.state == "finding":
        return _part(rule, "remedy")
    if finding.lacks is None:
        return "Ask again once the brokers answer."
    kind, _, right = finding.lacks.partition(": ")
    return f"Grant {right} on {'the cluster' if kind == 'cluster' else kind}, then ask again."


def _part(rule: str, label: str) -> str:
    """Return what the rule's entry of `explain` says; raise KeyError without one."""
    text = explain.part(rule, "finding", label)
    if text is None:
        raise KeyError(rule)
    return text


def sign_words(sign: Sign) -> str:
    """Return one thing that was seen as a sentence."""
    return SIGNS[sign.code](sign.data)


def _setting(data: Mapping[str, Any]) -> str:
    return f"{data['setting']} is {data['value']}"


def _not_seen(data: Mapping[str, Any]) -> str:
    brokers = f"{listed(data['brokers'], 'broker')}: " if data["brokers"] else ""
    names = f"{some(data['names'])}: " if data["names"] else ""
    return f"{brokers}{names}{data['detail']} ({data['error']})"


SIGNS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "setting": _setting,
    "not-seen": _not_seen,
}
"""Code of a sign → its words, from its data."""


def change_argv(change: Change, servers: Sequence[tuple[str, int]]) -> list[str]:
    """Return the command of Kafka's tool that changes one setting of a running cluster."""
    return [
        "kafka-configs.sh",
        "--bootstrap-server",
        addresses(servers),
        "--alter",
        "--entity-type",
        change.entity,
        "--entity-name",
        change.name,
        "--add-config",
        f"{change.setting}={change.value}",
    ]


def subject_words(row: DoctorRow) -> str:
    """Return what a row is about: `topic orders`, `cluster`."""
    return row.subject.kind if row.subject.name == ALL else f"{row.subject.kind} {row.subject.name}"


def doctor_lines(answer: Answer, width: int | None, *, ascii_only: bool) -> Iterator[str]:
    """Yield the page: a block for each row. width: the terminal's, None without one."""
    dots = "..." if ascii_only else "…"
    for number, row in enumerate(answer.rows):
        assert isinstance(row, DoctorRow)
        if number:
            yield ""
        mark = "!" if row.state == "finding" else "?"
        yield visible(f"{mark} {row.rule}  {subject_words(row)}", ascii_only=ascii_only)
        for label, text in _parts(row):
            yield from labelled(label, visible(text, ascii_only=ascii_only), width, dots)
        if row.command is not None:
            yield f"   {row.command}"


def _parts(row: DoctorRow) -> Iterator[tuple[str, str]]:
    for evidence in row.evidence:
        yield "seen" if row.state == "finding" else "not seen", evidence.text
    yield "harm" if row.state == "finding" else "may be", row.harm
    yield "remedy", row.remedy
    yield "source", ", ".join(row.sources)
