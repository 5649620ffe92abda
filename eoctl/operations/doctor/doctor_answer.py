"""`doctor`: what will hurt exactly-once here, before the night."""

from collections.abc import Iterable, Sequence

from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.doctor.collecting import collect
from eoctl.render.diagnose_words import bound_notes
from eoctl.render.doctor_words import change_argv, commit_notes, harm_of, remedy_of, sign_words
from eoctl.render.shell import command
from recovery.answers import Answer, error_rows
from recovery.diagnose.contest import WINDOW_MS
from recovery.diagnose.diagnosis_rows import EvidenceRow
from recovery.doctor.doctor_rows import DoctorRow, SubjectRow
from recovery.doctor.findings import NOT_SEEN, DoctorFacts, DoctorRule, Finding, judged
from recovery.doctor.narrowing import narrowed, shown, unknown_names
from recovery.doctor.rules import RULES
from recovery.doctor.version_rules import refuse_contradiction
from recovery.doctor.versions import VersionRange
from recovery.facts import Missing
from recovery.values import replace
from recovery.watch.check_rules import TRANSACTION_STATE


async def doctor(
    cluster: Cluster, names: Sequence[str], broker_version: VersionRange | None = None
) -> Answer:
    """Judge the cluster's settings; with names only these topics, groups and transactional ids.

    broker_version: what somebody says that the brokers run; raise UsageError if none can.
    """
    seen = replace(await collect(cluster, names), broker_version=broker_version)
    refuse_contradiction(seen)
    facts = narrowed(seen, names)
    found = shown(facts, judged(facts, RULES))
    return Answer(
        schema="doctor",
        cluster_id=cluster.cluster_id,
        collected_at=facts.now,
        rows=[doctor_row(rule, finding, cluster) for rule, finding in found],
        errors=error_rows(
            dict.fromkeys([*facts.missing, *unknown_names(facts), *unknown_as_missing(found)])
        ),
        extra={"rules": len(RULES), "named": list(names)},
        judging=True,
        finding=any(finding.state == "finding" for _, finding in found),
        notes=bounds_reached(facts),
    )


def bounds_reached(facts: DoctorFacts) -> list[str]:
    """Say what was not read of the newest records that rules judge; nothing if all was."""
    since = facts.versions_from
    ago = None if since is None else facts.now - since
    unfinished = facts.versions_unfinished
    return [
        *bound_notes("speaks-v1", TRANSACTION_STATE, ago, unfinished, window_ms=WINDOW_MS),
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


def doctor_row(rule: DoctorRule, finding: Finding, cluster: Cluster) -> DoctorRow:
    """Return a finding as its row, in words."""
    argv = None
    if finding.change is not None:
        argv = change_argv(finding.change, cluster.settings.bootstrap_servers)
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
