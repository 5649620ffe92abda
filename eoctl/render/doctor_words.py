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
from recovery.doctor.setting_names import REPLICATION
from recovery.plurals import counted, listed
from recovery.quoting import addresses, quoted, some
from recovery.times import span
from recovery.watch.check_rules import UNSUPPORTED

Data = Mapping[str, Any]
"""The numbers and names of one sign."""


def harm_of(rule: str) -> str:
    """Return whom a rule's finding harms, and how."""
    return _part(rule, "harm")


def remedy_of(rule: str, finding: Finding) -> str:
    """Return what to do about a finding; for an unknown one, what would show it."""
    if finding.state == "finding":
        return _part(rule, "remedy")
    if finding.lacks is None:
        if any(sign.data.get("error") == UNSUPPORTED for sign in finding.signs):
            return "No right shows it: these brokers do not know the request. Upgrade them first."
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


def _setting(data: Data) -> str:
    where = f" on {listed(data['brokers'], 'broker')}" if data["brokers"] else ""
    return f"{data['setting']} is {_value(data)}{where}"


def _value(data: Data) -> str:
    """Return a setting's value; of a time in the unit that its name ends with, for people too."""
    value, units = data["value"], {"ms": 1, "minutes": 60_000}
    unit = data["setting"].rpartition(".")[2]
    if unit not in units or not isinstance(value, int):
        return str(value)
    return f"{value} ({span(value * units[unit])})"


def _copies(data: Data) -> str:
    if data["setting"] == REPLICATION:
        text = f"{counted(data['value'], 'copy', 'copies')} of each record"
    else:
        text = f"{data['setting']} is {data['value']}"
        if (factor := data["replication_factor"]) is not None:
            text += f", with {counted(factor, 'copy', 'copies')} of each record"
    return text if data["made"] else f"it does not exist yet; the brokers would make it with {text}"


def _not_seen(data: Data) -> str:
    brokers = f"{listed(data['brokers'], 'broker')}: " if data["brokers"] else ""
    names = f"{_names(data)}: " if data["names"] else ""
    return f"{brokers}{names}{data['detail']} ({data['error']})"


def _names(data: Data) -> str:
    return some([quoted(name) for name in data["names"]], number=data["number"])


SIGNS: Mapping[str, Callable[[Data], str]] = {
    "setting": _setting,
    "copies": _copies,
    "written-by": lambda d: f"transactions write it now, such as that of {_names(d)}",
    "held": lambda d: "records in it wait for a transaction now",
    "timeout": lambda d: f"transaction timeout {d['timeout_ms']} ms ({span(d['timeout_ms'])})",
    "ids": lambda d: f"{counted(d['number'], 'transactional id')}: {_names(d)}",
    "client-lives": lambda d: f"by its name it belongs to {quoted(d['client'])}, which is running",
    "idle-groups": lambda d: f"{counted(d['number'], 'group')} without members now: {_names(d)}",
    "changelog-by-name": lambda d: "a changelog of Kafka Streams, by its name",
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
    """Return what a row is about: `topic orders`, `cluster`, `any topic`."""
    kind, name = row.subject.kind, row.subject.name
    if name != ALL:
        return f"{kind} {name}"
    return kind if kind == "cluster" else f"any {kind}"


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
    yield "harm" if row.state == "finding" else "harm, if so", row.harm
    yield "remedy", row.remedy
    yield "source", ", ".join(row.sources)
