"""`doctor`: what will hurt exactly-once here, before the night."""

from collections.abc import Iterator, Sequence

from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.doctor.collecting import collect
from eoctl.render.doctor_words import change_argv, harm_of, remedy_of, sign_words
from eoctl.render.shell import command
from recovery.answers import Answer, error_rows
from recovery.diagnose.diagnosis_rows import EvidenceRow
from recovery.doctor.doctor_rows import DoctorRow, SubjectRow
from recovery.doctor.findings import ALL, DoctorFacts, DoctorRule, Finding, judged
from recovery.doctor.rules import RULES
from recovery.facts import Missing


async def doctor(cluster: Cluster, names: Sequence[str]) -> Answer:
    """Judge the cluster's settings; with names only these topics, groups and transactional ids."""
    facts = await collect(cluster, names)
    found = [one for one in judged(facts, RULES) if _is_about(one[1], names)]
    missing = [*missing_facts(facts), *_unknown_names(facts)]
    rows = [doctor_row(rule, finding, cluster) for rule, finding in found]
    return Answer(
        schema="doctor",
        cluster_id=cluster.cluster_id,
        collected_at=facts.now,
        rows=rows,
        errors=error_rows(dict.fromkeys(missing)),
        extra={"rules": len(RULES), "named": list(names)},
        judging=True,
        finding=any(finding.state == "finding" for _, finding in found),
    )


def missing_facts(facts: DoctorFacts) -> Iterator[Missing]:
    """Return everything that could not be seen."""
    yield from facts.missing_brokers
    yield from facts.missing_topics
    yield from facts.transactions.missing
    yield from facts.missing_groups


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
        harm=harm_of(rule.name),
        remedy=remedy_of(rule.name, finding),
        command=None if argv is None else command(argv),
        sources=list(rule.sources),
        lacks=finding.lacks,
    )


def _is_about(finding: Finding, names: Sequence[str]) -> bool:
    """Return True if a finding is shown: without names all are; an unknown one hides any name."""
    hides = finding.state == "unknown" and finding.name == ALL
    return not names or hides or finding.name in names


def _unknown_names(facts: DoctorFacts) -> Iterator[Missing]:
    known = {
        *facts.topics,
        *(t.transactional_id for t in facts.transactions.rows),
        *(g.group for g in facts.groups),
    }
    for name in facts.named:
        if name not in known:
            text = "no topic, group or transactional id of this name was seen"
            yield Missing("cluster", "UNKNOWN_NAME", text, id=name)
