"""Say what a twin does not have: what its bundle does not hold, or what a start changes."""

from collections.abc import Iterator

from eoctl.lab.jars import KAFKA
from eoctl.lab.twin.build import LONGEST_MS, MOST_BROKERS
from eoctl.lab.twin.seen import Seen
from eoctl.lab.twin.state_logs import TRANSACTION_STATE
from eoctl.stores.bundle_files import Bundle
from recovery.plurals import counted
from recovery.times import format_duration

_SEEN_AHEAD_MS = 5000


def lacks(bundle: Bundle, left_out: int = 0) -> list[str]:
    """Return one sentence for each thing in which the twin is not the incident.

    left_out: how many commits of groups had no room in the twin's logs.
    """
    return [
        *_records(bundle),
        *_commits(bundle, left_out),
        *_decided(bundle),
        *_topics(bundle),
        *_people(bundle),
        *_brokers(bundle),
    ]


def in_doubt(bundle: Bundle) -> frozenset[str]:
    """Return the ids whose markers a coordinator sends again when it loads: they may end."""
    return frozenset(
        t.transactional_id for t in bundle.transactions.rows if t.state.startswith("Prepare")
    )


def _records(bundle: Bundle) -> Iterator[str]:
    partitions = [p for p in bundle.offsets.facts.partitions if not p.topic.startswith("__")]
    held = sum(bool(p.held) for p in partitions)
    unseen = sum(p.error is not None for p in partitions)
    kept = sum(r.records for r in bundle.records)
    others = counted(len(partitions) - held - unseen, "other partition")
    yield (
        f"The bundle holds {counted(kept, 'record')} with key and value "
        f"(`bundle create --with-records`). All other records of {counted(held, 'held partition')} "
        f"are empty, and there are none in {others}."
    )
    if bundle.plan_sha256 is not None:
        planned = sum(r.records for r in bundle.planned)
        yield (
            f"{counted(planned, 'record')} that plan {bundle.plan_sha256[:16]} stands on are there "
            "without key and value; only the commits that it replaces have their metadata."
        )
    yield (
        "Sequences of producers are counted back from their last one: `audit sequences` says "
        "nothing about the incident."
    )
    if unseen:
        yield f"The leader of {counted(unseen, 'partition')} did not answer: their logs are empty."
    if not bundle.history.everything:
        yield (
            "The bundle holds the history of the ids of open transactions only; the others have "
            "their last state (`bundle create --history` takes all)."
        )
    if bundle.missing:
        yield f"The bundle lacks {counted(len(bundle.missing), 'thing')} that could not be seen."


def _commits(bundle: Bundle, left_out: int) -> Iterator[str]:
    if any(o.leader_epoch is not None for g in bundle.groups for o in g.offsets):
        yield (
            "Leader epochs of the logs are also taken from groups' commits: that a commit agrees "
            "with its log proves nothing here."
        )
    if left_out:
        yield f"{counted(left_out, 'commit')} of groups had no room in the logs and are left out."
    newest = bundle.diagnosis.collected_at - LONGEST_MS
    old = sum(
        p.current_txn_start_offset is None and 0 <= (p.last_timestamp or 0) < newest
        for _, _, rows in bundle.producers.producers
        for p in rows
    )
    if old:
        yield (
            f"{counted(old, 'producer state')} without an open transaction are more than "
            f"{format_duration(LONGEST_MS / 1000)} old: the twin's brokers drop them."
        )
    partitions = Seen(bundle, 0).size(TRANSACTION_STATE)
    unread = partitions - sum(log.error is None for log in bundle.history.logs)
    if unread > 0:
        yield (
            f"The snapshot could not read {counted(unread, 'partition')} of __transaction_state: "
            "on the twin its ids have their last state, and its history proves nothing."
        )
    if any(r.offset < log.stands_from for log in bundle.history.logs for r in log.records):
        yield (
            "Some records of __transaction_state were only kept by eoctl's store where the bundle "
            "was made: the twin's log holds them."
        )


def _topics(bundle: Bundle) -> Iterator[str]:
    unseen = [topic for topic in bundle.topics if not topic.partitions]
    if unseen:
        yield f"{counted(len(unseen), 'topic')} could not be described and are left out."
    new = [topic for topic in bundle.topics if topic.partitions and not topic.topic_id]
    if new:
        yield f"{counted(len(new), 'topic')} had no id: the twin gives them new ones."
    yield (
        "Topics have the twin's own settings, but for message.timestamp.type; the twin runs "
        f"Kafka {KAFKA}, whatever the cluster ran."
    )


def _decided(bundle: Bundle) -> Iterator[str]:
    for name in sorted(in_doubt(bundle)):
        yield (
            f"{name} was decided and not finished (Prepare): the twin's coordinator sends its "
            "markers again as it loads, so it may end at once."
        )


def _people(bundle: Bundle) -> Iterator[str]:
    yield (
        "No client runs on the twin: a producer that was alive is not there, and transactions stay "
        "as they are."
    )
    groups = [g for g in bundle.groups if g.members]
    if groups:
        yield f"{counted(len(groups), 'group')} had members, and have none on the twin."
    for clock in bundle.transactions.clocks:
        if abs(clock.ahead) > _SEEN_AHEAD_MS:
            apart = format_duration(abs(clock.ahead) / 1000)
            yield (
                f"The clock of broker {clock.broker} was {apart} "
                f"{'ahead' if clock.ahead > 0 else 'behind'}; the twin's clocks agree."
            )


def _brokers(bundle: Bundle) -> Iterator[str]:
    there = len(bundle.brokers)
    if there > MOST_BROKERS:
        yield f"The cluster had {there} brokers, the twin has {MOST_BROKERS}."
    away = bundle.diagnosis.brokers_known - bundle.diagnosis.brokers_up
    if away > 0:
        yield f"{counted(away, 'broker')} of the cluster did not answer; all of the twin's do."
    if there > 1:
        yield "Every partition has one copy on the twin, so no copy can be missing."
