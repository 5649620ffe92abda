"""Copies of what exactly-once stands on: Kafka's two topics, and what transactional ids write."""

from collections.abc import Iterator

from recovery.doctor.findings import Change, DoctorFacts, Finding, Sign, unseen
from recovery.doctor.setting_names import VERIFICATION
from recovery.inspect.rights import CLUSTER_CONFIGS


def verification_off(facts: DoctorFacts) -> Iterator[Finding]:
    """Find brokers that let a transaction write to partitions it never added (KIP-890)."""
    for broker in facts.by_value(VERIFICATION).get("false", ()):
        yield Finding(
            "broker",
            str(broker),
            (Sign("setting", {"setting": VERIFICATION, "value": "false"}),),
            change=Change("brokers", str(broker), VERIFICATION, "true"),
        )
    yield from unseen(facts.missing_brokers, CLUSTER_CONFIGS)
