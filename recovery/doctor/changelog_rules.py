"""Changelogs of Kafka Streams, by their name: settings with which a restore gives another state."""

from collections.abc import Iterator

from recovery.doctor.findings import Change, DoctorFacts, Finding, setting_sign, unseen
from recovery.doctor.setting_names import (
    CHANGELOG,
    CLEANUP,
    DAY,
    DELETE_RETENTION,
    HOUR,
)
from recovery.inspect.rights import TOPICS_CONFIGS, TOPICS_DESCRIBE
from recovery.values import Reason

RESTORE_MS = HOUR
"""A restore reads the changelog from its start; a large one takes this long."""
_BY_NAME = Reason("changelog-by-name")


def changelog_deletes(facts: DoctorFacts) -> Iterator[Finding]:
    """Find changelogs whose old records are deleted, whatever their keys (not compacted)."""
    for topic, policy in _policies(facts):
        if policy == {"delete"}:
            yield Finding("topic", topic, (setting_sign(CLEANUP, "delete"), _BY_NAME))
    yield from _unseen(facts)


def changelog_forgets_deletes(facts: DoctorFacts) -> Iterator[Finding]:
    """Find compacted changelogs whose tombstones may go before a restore has read them."""
    for topic, policy in _policies(facts):
        value = facts.topic_settings[topic].get(DELETE_RETENTION)
        if "compact" in policy and value is not None and int(value) < RESTORE_MS:
            yield Finding(
                "topic",
                topic,
                (setting_sign(DELETE_RETENTION, int(value)), _BY_NAME),
                change=Change("topics", topic, DELETE_RETENTION, str(DAY)),
            )
    yield from _unseen(facts)


def _policies(facts: DoctorFacts) -> Iterator[tuple[str, set[str]]]:
    for topic, settings in facts.topic_settings.items():
        policy = settings.get(CLEANUP)
        if topic.endswith(CHANGELOG) and policy is not None:
            yield topic, {word.strip() for word in policy.split(",")}


def _unseen(facts: DoctorFacts) -> Iterator[Finding]:
    hidden = [m for m in facts.missing_topics if m.topic is None or m.topic.endswith(CHANGELOG)]
    yield from unseen(hidden, TOPICS_DESCRIBE, "topic")
    refused = [m for m in facts.missing_settings if (m.topic or "").endswith(CHANGELOG)]
    yield from unseen(refused, TOPICS_CONFIGS, "topic")
