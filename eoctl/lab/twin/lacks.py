"""Say what a twin cannot have: what its bundle does not hold, and what no coordinator loads."""

from collections.abc import Iterator

from eoctl.lab.twin.build import MOST_BROKERS
from eoctl.stores.bundle_files import Bundle
from recovery.plurals import counted
from recovery.times import format_duration

_SEEN_AHEAD_MS = 5000


def lacks(bundle: Bundle) -> list[str]:
    """Return one sentence for each thing in which the twin is not the incident."""
    return [*_records(bundle), *_decided(bundle), *_people(bundle), *_brokers(bundle)]


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
    yield (
        f"The bundle holds {counted(kept, 'record')} with key and value "
        f"(`bundle create --with-records`): others are empty in {counted(held, 'held partition')}, "
        f"and not there in {counted(len(partitions) - held - unseen, 'other partition')}."
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


def _decided(bundle: Bundle) -> Iterator[str]:
    for name in sorted(in_doubt(bundle)):
        yield (
            f"{name} was decided and not finished (Prepare): the twin's coordinator sends its "
            "markers again as it loads, so it may end at once."
        )


def _people(bundle: Bundle) -> Iterator[str]:
    groups = [g for g in bundle.groups if g.members]
    if groups:
        yield f"{counted(len(groups), 'group')} had members; nobody runs on the twin."
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
        yield f"{counted(away, 'broker')} of the cluster did not answer; the twin's brokers all do."
    if there > 1:
        yield "Every partition has one copy on the twin, so no copy can be missing."
