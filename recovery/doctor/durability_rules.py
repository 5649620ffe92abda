"""What exactly-once depends on: copies of Kafka's two topics and of what transactions write."""

from collections.abc import Iterator

from recovery.doctor.findings import Change, DoctorFacts, Finding, names_sign, setting_sign, unseen
from recovery.doctor.setting_names import (
    DEFAULTS,
    INTERNAL,
    MIN_IN_SYNC,
    REPLICATION,
    UNCLEAN,
    VERIFICATION,
)
from recovery.facts import Missing
from recovery.inspect.rights import CLUSTER_CONFIGS, TOPICS_CONFIGS, TOPICS_DESCRIBE
from recovery.values import Reason, Value
from recovery.watch.check_rules import TRANSACTION_STATE

COPIES = 3
"""One may be away for a restart, and one may fail meanwhile."""


class Copies(Value):
    """How a topic is replicated, or would be. None: not seen.

    made: false for a topic of Kafka's own that does not exist yet; the values are then the least
    among what the brokers would give it. signs: why the topic matters, if it is not Kafka's own.
    """

    topic: str
    made: bool
    replication_factor: int | None
    least_in_sync: int | None
    unclean: bool | None
    signs: tuple[Reason, ...] = ()

    def finding(self, setting: str, value: object, better: str | None = None) -> Finding:
        """Return a finding about a topic's setting. better: the value to give it, if one helps."""
        data = {"replication_factor": self.replication_factor, "made": self.made}
        sign = setting_sign(setting, value)
        change = None
        if better is not None and self.made:
            change = Change("topics", self.topic, setting, better)
        signs = (Reason("copies", {**sign.data, **data}), *self.signs)
        return Finding("topic", self.topic, signs, change=change)


def copies(facts: DoctorFacts) -> Iterator[Copies]:
    """Yield Kafka's two topics, and the topics that are written in transactions or named."""
    written = facts.written
    for topic in dict.fromkeys([*INTERNAL, *sorted({*written, *facts.held, *facts.named})]):
        seen = facts.topics.get(topic)
        if seen is None:
            if topic in INTERNAL and not _hides(facts, topic):
                yield _to_be_made(facts, topic)
            continue
        settings = facts.topic_settings.get(topic, {})
        signs = [names_sign("written-by", written[topic])] if topic in written else []
        yield Copies(
            topic,
            True,
            seen.replication_factor,
            _number(settings.get(MIN_IN_SYNC)),
            _flag(settings.get(UNCLEAN)),
            (*signs, *([Reason("held")] if topic in facts.held else ())),
        )


def few_copies(facts: DoctorFacts) -> Iterator[Finding]:
    """Find topics with fewer copies than three, or than brokers if there are fewer."""
    enough = min(COPIES, len(facts.brokers))
    for c in copies(facts):
        if c.replication_factor is not None and c.replication_factor < enough:
            yield c.finding(REPLICATION, c.replication_factor)
    yield from _topics_unseen(facts)
    yield from _defaults_unseen(facts)


def one_copy_suffices(facts: DoctorFacts) -> Iterator[Finding]:
    """Find topics with several copies whose leader acknowledges what it alone has."""
    for c in copies(facts):
        factor = c.replication_factor
        if factor is not None and factor >= 2 and c.least_in_sync == 1:
            yield c.finding(MIN_IN_SYNC, c.least_in_sync, "2" if factor >= COPIES else None)
    yield from _settings_unseen(facts)


def every_copy_needed(facts: DoctorFacts) -> Iterator[Finding]:
    """Find topics that take no record as soon as one of their brokers is away."""
    for c in copies(facts):
        factor, least = c.replication_factor, c.least_in_sync
        if factor is not None and least is not None and least >= factor >= 2:
            yield c.finding(MIN_IN_SYNC, least, str(factor - 1) if factor >= COPIES else None)
    yield from _settings_unseen(facts)


def unclean_election(facts: DoctorFacts) -> Iterator[Finding]:
    """Find topics that may be led by a copy without all acknowledged records."""
    for c in copies(facts):
        if c.unclean:
            yield c.finding(UNCLEAN, "true", "false")
    yield from _settings_unseen(facts)


def verification_off(facts: DoctorFacts) -> Iterator[Finding]:
    """Find brokers that let a transaction write to partitions it never added (KIP-890)."""
    for broker in facts.by_value(VERIFICATION).get("false", ()):
        yield Finding(
            "broker",
            str(broker),
            (setting_sign(VERIFICATION, "false", [broker]),),
            change=Change("brokers", str(broker), VERIFICATION, "true"),
        )
    yield from unseen(facts.missing_brokers, CLUSTER_CONFIGS)


def _to_be_made(facts: DoctorFacts, topic: str) -> Copies:
    factor, least = (facts.least(setting) for setting in DEFAULTS[topic])
    return Copies(
        topic,
        False,
        None if factor is None else factor[0],
        None if least is None else least[0],
        _unclean_if_made(facts, topic),
    )


def _unclean_if_made(facts: DoctorFacts, topic: str) -> bool | None:
    """Return what a topic that Kafka makes would have; None: not seen.

    TransactionStateManager makes `__transaction_state` with false, whatever the brokers' setting.
    """
    if topic == TRANSACTION_STATE:
        return False
    return "true" in facts.by_value(UNCLEAN) if facts.broker_settings else None


def _number(value: str | None) -> int | None:
    return None if value is None else int(value)


def _flag(value: str | None) -> bool | None:
    return None if value is None else value == "true"


def _relevant(facts: DoctorFacts) -> set[str | None]:
    """Return the topics that `copies` is about. None: any may be, where topics are hidden."""
    return {None, *INTERNAL, *facts.written, *facts.held, *facts.named}


def _hidden(facts: DoctorFacts) -> list[Missing]:
    """Return why topics that matter may be among those not described."""
    relevant = _relevant(facts)
    hidden = [m for m in facts.missing_topics if m.topic in relevant]
    described = {*facts.topics, *(m.topic for m in hidden)}
    asked = set(INTERNAL) & set(facts.named) if facts.named else set(INTERNAL)
    elsewhere = {m.topic: m for m in facts.missing if m.topic in asked - described}
    return [*hidden, *elsewhere.values()]


def _hides(facts: DoctorFacts, topic: str) -> bool:
    """Return True if any question was refused for this topic, so it may exist."""
    return any(m.topic is None for m in facts.missing_topics) or any(
        m.topic == topic for m in facts.missing
    )


def _topics_unseen(facts: DoctorFacts) -> Iterator[Finding]:
    """Yield what hides topics that matter, or that a topic matters since it is held."""
    yield from unseen(_hidden(facts), TOPICS_DESCRIBE, "topic")
    if not facts.named:  # then only the names matter, held or not
        relevant = _relevant(facts) - {None}
        held = [m for m in facts.missing_held if m.topic not in relevant]
        yield from unseen(held, TOPICS_DESCRIBE, "topic")


def _settings_unseen(facts: DoctorFacts) -> Iterator[Finding]:
    yield from _topics_unseen(facts)
    relevant = _relevant(facts)
    missing = [m for m in facts.missing_settings if m.topic in relevant]
    yield from unseen(missing, TOPICS_CONFIGS, "topic")
    yield from _defaults_unseen(facts)


def _defaults_unseen(facts: DoctorFacts) -> Iterator[Finding]:
    """Yield what hides how a topic of Kafka's own will be made, while one does not exist."""
    if any(not c.made for c in copies(facts)):
        yield from unseen(facts.missing_brokers, CLUSTER_CONFIGS)
