"""`doctor`: what will hurt exactly-once here, before the night."""

from collections.abc import Iterable, Sequence

from eoctl.kafka.connection.properties import parse_servers
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.inspect.source import Source
from eoctl.render.diagnose_words import bound_notes
from eoctl.render.doctor_words import change_argv, commit_notes, harm_of, remedy_of, sign_words
from eoctl.render.shell import command
from eoctl.settings.context import Context
from recovery.answers import Answer, error_rows
from recovery.diagnose.contest import WINDOW_MS
from recovery.diagnose.diagnosis_rows import EvidenceRow
from recovery.doctor.accepting import accepted_name
from recovery.doctor.doctor_rows import DoctorRow, SubjectRow
from recovery.doctor.findings import NOT_SEEN, DoctorFacts, DoctorRule, Finding, judged
from recovery.doctor.narrowing import about_names, narrowed, shown, unknown_names
from recovery.doctor.rules import RULES, WITHOUT_APP
from recovery.doctor.setting_names import DAY
from recovery.doctor.version_rules import refuse_contradiction
from recovery.doctor.versions import VersionRange
from recovery.errors import UsageError
from recovery.facts import Missing
from recovery.quoting import quoted
from recovery.selectors import parse_selector
from recovery.values import replace
from recovery.watch.check_rules import TRANSACTION_STATE


def refuse_patterns(names: Sequence[str]) -> None:
    """Raise UsageError for a name with `*` or `?`: a pattern would find nothing, and seem good."""
    for name in names:
        if not name or not {"*", "?"}.isdisjoint(name):
            raise UsageError(
                f"{quoted(name)} is no name of a topic, a group or a transactional id",
                remedy="give names in full, without patterns, or none to see everything",
            )


async def doctor(
    source: Source,
    context: Context,
    names: Sequence[str],
    broker_version: VersionRange | None = None,
    exclusive: Sequence[str] = (),
) -> Answer:
    """Judge the cluster's settings; with names only these topics, groups and transactional ids.

    broker_version: what somebody says that the brokers run; raise UsageError if none can.
    exclusive: topics that one application alone writes, by its file.
    """
    facts = narrowed(running(await source.examined(names), broker_version), names)
    rules: Sequence[DoctorRule] = WITHOUT_APP
    if exclusive:
        scope = Scope(tuple(parse_selector(topic) for topic in exclusive))
        outputs = await source.producers(scope, (), resolve=True)
        facts, rules = replace(facts, outputs=outputs), RULES
    found = shown(facts, judged(facts, rules))
    servers = parse_servers(context.properties["bootstrap.servers"])
    return Answer(
        schema="doctor",
        cluster_id=source.cluster_id,
        collected_at=facts.now,
        rows=[doctor_row(rule, finding, servers) for rule, finding in found],
        errors=error_rows(
            dict.fromkeys([*facts.missing, *unknown_names(facts), *unknown_as_missing(found)])
        ),
        extra={"rules": len(about_names(rules) if names else rules), "named": list(names)},
        judging=True,
        finding=any(finding.state == "finding" for _, finding in found),
        notes=bounds_reached(facts),
    )


def running(facts: DoctorFacts, broker_version: VersionRange | None) -> DoctorFacts:
    """Return the facts with what somebody says that brokers run; raise UsageError if none can."""
    facts = replace(facts, broker_version=broker_version)
    refuse_contradiction(facts)
    return facts


def bounds_reached(facts: DoctorFacts) -> list[str]:
    """Say what was not read of the newest records that rules judge; nothing if all was."""
    since = facts.versions_from
    ago = None if since is None else facts.now - since
    return [
        *bound_notes("speaks-v1", TRANSACTION_STATE, ago, 0, window_ms=WINDOW_MS),
        *bound_notes(
            "timeout-too-short",
            TRANSACTION_STATE,
            None if facts.outages_from is None else facts.now - facts.outages_from,
            0,
            window_ms=DAY,
        ),
        *commit_notes(facts),
    ]


def unknown_as_missing(found: Iterable[tuple[DoctorRule, Finding]]) -> list[Missing]:
    """List unknown findings whose cause is nothing that was not seen; none of these is missing yet.

    Each makes the answer incomplete.
    """
    return [
        Missing(
            "broker" if f.kind == "broker" else "cluster",
            "UNKNOWN_FINDING",
            f"{rule.name}: {'; '.join(map(sign_words, f.signs))}. {remedy_of(rule.name, f)}",
            broker=int(f.name) if f.kind == "broker" else None,
        )
        for rule, f in found
        if f.state == "unknown" and all(sign.code != NOT_SEEN for sign in f.signs)
    ]


def accepted_as_notes(accepted: Sequence[tuple[DoctorRule, Finding]]) -> list[Missing]:
    """Return the findings that a context accepts, as notes of `check`."""
    return [
        Missing(
            "transaction" if f.kind == "transactional-id" else f.kind,
            "ACCEPTED_FINDING",
            f"{accepted_name(rule, f)} is accepted: {'; '.join(map(sign_words, f.signs))}",
            broker=int(f.name) if f.kind == "broker" else None,
            topic=f.name if f.kind == "topic" else None,
            id=f.name if f.kind in ("group", "transactional-id") else None,
        )
        for rule, f in accepted
    ]


def doctor_row(rule: DoctorRule, finding: Finding, servers: Sequence[tuple[str, int]]) -> DoctorRow:
    """Return a finding as its row, in words. servers: (host, port), for its command."""
    argv = None
    if finding.change is not None:
        argv = change_argv(finding.change, servers)
    return DoctorRow(
        rule=rule.name,
        subject=SubjectRow(kind=finding.kind, name=finding.name),
        state=finding.state,
        evidence=[
            EvidenceRow(code=sign.code, text=sign_words(sign), data=dict(sign.data))
            for sign in finding.signs
        ],
        harm=harm_of(rule.name, finding),
        remedy=remedy_of(rule.name, finding),
        command=None if argv is None else command(argv),
        sources=list(rule.sources) if finding.bug is None else [finding.bug],
        lacks=finding.lacks,
    )
