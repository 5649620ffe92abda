"""Say in words what `doctor` found: what was seen, whom it harms, what to do.

Harm and remedy of each rule are in its entry of `eoctl/explain/doctor.md`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from eoctl.render import explain
from eoctl.render.diagnose_words import bound_notes
from eoctl.render.sanitise import visible
from eoctl.render.width import labelled
from eoctl.render.words import Words, sentence
from recovery.answers import Answer
from recovery.diagnose.contest import WINDOW_MS
from recovery.doctor.commit_ways import COMMITS_MS
from recovery.doctor.doctor_rows import DoctorRow
from recovery.doctor.findings import ALL, NOT_KEPT, NOT_READ, Change, DoctorFacts, Finding
from recovery.doctor.known_bugs import LAST_READ
from recovery.doctor.narrowing import OF_THE_CLUSTER
from recovery.doctor.setting_names import REPLICATION
from recovery.doctor.versions import dotted
from recovery.plurals import counted, listed
from recovery.quoting import addresses, some
from recovery.row import Row
from recovery.times import rfc3339, span
from recovery.values import Reason
from recovery.watch.check_rules import UNSUPPORTED

Data = Mapping[str, Any]
"""The numbers and names of one sign."""


def harm_of(rule: str, finding: Finding) -> str:
    """Return whom a rule's finding harms, and how."""
    return _part(finding.bug or rule, "harm")


def remedy_of(rule: str, finding: Finding) -> str:
    """Return what to do about a finding; for an unknown one, what would show it."""
    if finding.state == "finding":
        return _part(finding.bug or rule, "remedy")
    versions = [sign.data for sign in finding.signs if sign.code in VERSION_SIGNS]
    if versions and all(sign.code != "not-seen" for sign in finding.signs):
        return _version_remedy(versions[0], finding.bug)
    if finding.lacks is None:
        errors = {sign.data.get("error") for sign in finding.signs}
        if NOT_KEPT in errors:
            return "Ask the cluster: leave out --from."
        if UNSUPPORTED in errors:
            return "No right shows it: these brokers do not know the request. Upgrade them first."
        if errors == {NOT_READ}:
            return _NOT_READ_REMEDY
        return "Ask again once the brokers answer."
    kind, _, right = finding.lacks.partition(": ")
    return f"Grant {right} on {'the cluster' if kind == 'cluster' else kind}, then ask again."


_NOT_READ_REMEDY = (
    "Ask about one name: `eoctl txn history ID`, `eoctl doctor GROUP`; or about all when fewer "
    "transactions run."
)


def _version_remedy(version: Data, bug: str | None) -> str:
    """Return what would tell which release brokers run, or whether theirs has the bug."""
    if not version.get("read", True):
        return (
            f"eoctl has read Kafka's releases up to {dotted(LAST_READ)}: look in {bug} "
            "whether that of your brokers has the fix."
        )
    if version.get("by_hand"):
        return "Give all numbers of the version: --broker-version 4.0.1, for instance."
    return "Say which version the brokers run: --broker-version 4.0.1, for instance."


def _part(entry: str, label: str) -> str:
    """Return what the entry of a rule or a bug in `explain` says; raise KeyError without one."""
    text = explain.part(entry, "finding", label) or explain.part(entry, "known bug", label)
    if text is None:
        raise KeyError(entry)
    return text


def sign_words(sign: Reason) -> str:
    """Return one thing that was seen as a sentence."""
    return sentence(SIGNS, sign)


def _setting(**data: Any) -> str:
    where = f" on {listed(data['brokers'], 'broker')}" if data["brokers"] else ""
    return f"{data['setting']} is {_value(data)}{where}"


def _value(data: Data) -> str:
    """Return a setting's value; of a time in the unit that its name ends with, for people too."""
    value, units = data["value"], {"ms": 1, "minutes": 60_000}
    unit = data["setting"].rpartition(".")[2]
    if unit not in units or not isinstance(value, int):
        return str(value)
    return f"{value} ({span(value * units[unit])})"


def _copies(**data: Any) -> str:
    if data["setting"] == REPLICATION:
        text = f"{counted(data['value'], 'copy', 'copies')} of each record"
    else:
        text = f"{data['setting']}{' is ' if data['made'] else '='}{data['value']}"
        if (factor := data["replication_factor"]) is not None:
            text += f", with {counted(factor, 'copy', 'copies')} of each record"
    return text if data["made"] else f"it does not exist yet; the brokers would make it with {text}"


def _not_seen(**data: Any) -> str:
    brokers = f"{listed(data['brokers'], 'broker')}: " if data["brokers"] else ""
    names = f"{_names(data)}: " if data["names"] else ""
    return f"{brokers}{names}{data['detail']} ({data['error']})"


def _names(data: Data) -> str:
    return some([_name(name) for name in data["names"]], number=data["number"])


def _name(name: str) -> str:
    """Return at most 60 characters in quotes; whoever writes the row escapes them once."""
    return f"'{name if len(name) <= 60 else name[:59] + '…'}'"


VERSION_SIGNS = ("version", "no-release")
"""Signs of what brokers run; an unknown has one of them if a version by hand would settle it."""


def _brokers(data: Data) -> str:
    return listed(data["brokers"], "broker")


def _version(**data: Any) -> str:
    answer = "it answers" if len(data["brokers"]) == 1 else "they answer"
    source = "by --broker-version" if data["by_hand"] else f"by what {answer} to ApiVersions"
    return f"{_brokers(data)}: Kafka {data['versions']}, {source}"


def _no_release(**data: Any) -> str:
    answers = "answers" if len(data["brokers"]) == 1 else "answer"
    return f"{_brokers(data)}: {answers} like no release of Apache Kafka that eoctl knows"


def bug_words(number: str, affected: Sequence[str], fixed: Sequence[str]) -> str:
    """Return which releases have a bug, and which have its fix."""
    fix = f"fixed in {', '.join(fixed)}" if fixed else f"no fix up to {dotted(LAST_READ)}"
    return f"{number} is in Kafka {'; '.join(affected)}; {fix}"


def newer_words(versions: Mapping[str, int]) -> str:
    """Return which requests and features of brokers eoctl does not know. versions: by name."""
    named = ", ".join(f"{name} {number}" for name, number in versions.items())
    return f"newer than eoctl knows: {named}"


def _newer(**data: Any) -> str:
    return f"{_brokers(data)}: {newer_words(data['versions'])}"


def _commit_ways(**data: Any) -> str:
    home, offset = data["last_plain_at"]
    others = data["partitions"] - 1
    return (
        f"{data['topic']}:{data['partition']}: {counted(data['plain'], 'commit')} outside "
        f"of transactions and {data['transactional']} inside, by turns: {data['turns']} times some "
        f"outside came between two inside; the last outside at {rfc3339(data['last_plain'])}, "
        f"offset {offset} of __consumer_offsets:{home}"
        + (f"; so too {counted(others, 'other partition')}" if others else "")
    )


def _outage(**data: Any) -> str:
    lasted = span(data["aborted"] - data["started"])
    return (
        f"{_name(data['transactional_id'])} began a transaction at {rfc3339(data['started'])}; it "
        f"was aborted {lasted} later, past its timeout of {span(data['timeout_ms'])}. Its sink was "
        f"silent from {rfc3339(data['silent_from'])} until {rfc3339(data['back'])}, "
        f"{span(data['back'] - data['silent_from'])}"
    )


def _writers(**data: Any) -> str:
    return "; ".join(
        (
            f"{counted(w['producers'], 'producer')} "
            + ("without an id" if w["prefix"] is None else f"with ids like {_name(w['prefix'])}")
            + f", last on partition {w['partition']} at {rfc3339(w['last_timestamp'])}"
        )
        for w in data["writers"]
    )


SIGNS: Mapping[str, Words] = {
    "setting": _setting,
    "copies": _copies,
    "written-by": lambda **d: f"transactions write it now, such as that of {_names(d)}",
    "held": "records in it wait for a transaction now",
    "timeout": lambda timeout_ms: f"transaction timeout {timeout_ms} ms ({span(timeout_ms)})",
    "ids": lambda **d: f"{counted(d['number'], 'transactional id')}: {_names(d)}",
    "v1-ids": lambda **d: (
        f"{counted(d['number'], 'id')} wrote a transaction of version 1 in the last "
        f"{counted(WINDOW_MS // 60_000, 'minute')}: {_names(d)}"
    ),
    "outage": _outage,
    "timed-out-ids": lambda **d: f"{counted(d['number'], 'id')} of it timed out so: {_names(d)}",
    "client-lives": lambda client: f"by its name it belongs to {_name(client)}, which is running",
    "idle-groups": lambda **d: f"{counted(d['number'], 'group')} without members now: {_names(d)}",
    "commit-ways": _commit_ways,
    "writers": _writers,
    "changelog-by-name": "a changelog of Kafka Streams, by its name",
    "version": _version,
    "no-release": _no_release,
    "bug": bug_words,
    "feature": "{feature} is {level}; all brokers can do {possible}",
    "newer": _newer,
    "not-seen": _not_seen,
}
"""Code of a sign → its words, from its data."""


def commit_notes(facts: DoctorFacts) -> list[str]:
    """Say what was not read of groups' commits; nothing if the bounds were not reached."""
    since, unfinished = facts.commits_from, facts.commits_unfinished
    ago = None if since is None else facts.now - since
    return bound_notes("mixed-commits", "__consumer_offsets", ago, unfinished, window_ms=COMMITS_MS)


def names_notes(names: Sequence[str]) -> list[str]:
    """Say which rules were left out since somebody named topics, groups or ids."""
    if not names:
        return []
    left_out = counted(len(OF_THE_CLUSTER), "rule")
    return [f"{left_out} about brokers and the cluster left out: leave out the names to see them"]


def login_notes(rows: Iterable[Row], properties: Mapping[str, str]) -> list[str]:
    """Say what a row's command needs where a listener asks who connects, by client properties."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "PLAINTEXT" or all(getattr(row, "command", None) is None for row in rows):
        return []
    text = (
        "this listener is secured, so the commands need --command-config FILE too: "
        "a Java client's file of somebody who may alter settings"
    )
    return [text]


def change_argv(change: Change, servers: Sequence[tuple[str, int]]) -> list[str]:
    """Return the command of Kafka's tool that changes one setting of a running cluster."""
    server = ["--bootstrap-server", addresses(servers)]
    setting = f"{change.setting}={change.value}"
    if change.entity == "features":
        return ["kafka-features.sh", *server, "upgrade", "--feature", setting]
    return [
        "kafka-configs.sh",
        *server,
        "--alter",
        "--entity-type",
        change.entity,
        "--entity-name",
        change.name,
        "--add-config",
        setting,
    ]


def subject_words(row: DoctorRow) -> str:
    """Return what a row is about: `topic orders`, `cluster`, `any topic`.

    Only what is unknown is about any: a group or an id whose name is `*` is in quotes.
    """
    kind, name = row.subject.kind, row.subject.name
    if name != ALL:
        return f"{kind} {name}"
    if kind == "cluster":
        return kind
    return f"any {kind}" if row.state == "unknown" else f"{kind} {_name(name)}"


def mark_of(row: DoctorRow) -> str:
    """Return the mark of a finding, or of what a rule cannot tell."""
    return "!" if row.state == "finding" else "?"


def doctor_lines(answer: Answer, width: int | None, *, ascii_only: bool) -> Iterator[str]:
    """Yield the page: a block for each row. width: the terminal's, None without one."""
    dots = "..." if ascii_only else "…"
    for number, row in enumerate(answer.rows):
        assert isinstance(row, DoctorRow)
        if number:
            yield ""
        yield visible(f"{mark_of(row)} {row.rule}  {subject_words(row)}", ascii_only=ascii_only)
        for label, text in labelled_parts(row):
            yield from labelled(label, visible(text, ascii_only=ascii_only), width, dots)
        if row.command is not None:
            yield f"   {row.command}"


def labelled_parts(row: DoctorRow) -> Iterator[tuple[str, str]]:
    """Yield what a row says, each with its label; its command is not one of them."""
    for evidence in row.evidence:
        yield "not seen" if evidence.code == "not-seen" else "seen", evidence.text
    yield "harm" if row.state == "finding" else "harm, if so", row.harm
    yield "remedy", row.remedy
    yield "source", ", ".join(row.sources)
