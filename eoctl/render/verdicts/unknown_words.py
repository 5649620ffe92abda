"""Words of the rules that give no verdict: what is not known, and what to do about it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eoctl.render.words import Words
from recovery.facts import Missing, TransactionFacts
from recovery.inspect.id_facts import NamedPartition
from recovery.inspect.observation import OpenTransaction
from recovery.plurals import listed
from recovery.times import span


def _answered(answer: Missing | None, request: str) -> str:
    """Say which broker answered a request with which error; empty if unknown."""
    if answer is None:
        return ""
    who = "" if answer.broker is None else f"broker {answer.broker} answered "
    return f": {who}{request} with {answer.error}"


def _in_brackets(text: str | None) -> str:
    return f" ({text})" if text else ""


def _start_not_read(about: OpenTransaction, answer: Missing | None, *, foreign: bool) -> str:
    text = f"the batch at offset {about.start_offset} of {about.name} "
    if foreign:
        text += f"is not producer id {about.producer_id}'s"
    else:
        text += f"was not read{_answered(answer, 'Fetch')}"
    return text + ("" if answer is None else f" ({answer.detail})")


def _not_described(ids: Sequence[TransactionFacts], **_: Any) -> str:
    names = {
        t.transactional_id
        + (
            f" (broker {t.coordinator} answered DescribeTransactions with {t.error})"
            if t.error
            else ""
        )
        for t in ids
    }
    return (
        "ids that may be open here, on partitions that were not described: "
        f"{', '.join(sorted(names))}"
    )


def _by_epochs(about: OpenTransaction, marked: int, log_epoch: int) -> str:
    return (
        f"a marker of producer id {about.producer_id} bears coordinator epoch {marked}, and the "
        f"__transaction_state partition of its id is at {log_epoch}"
    )


def _not_known(about: OpenTransaction, name: str) -> str:
    return (
        f"__transaction_state says that {name} has producer id {about.producer_id}, and its "
        "coordinator does not know that id"
    )


def _how_replaced(**data: Any) -> str:
    if "detail" in data:
        return str(data["detail"])
    return _not_known(**data) if "name" in data else _by_epochs(**data)


def _answers(partitions: Sequence[NamedPartition]) -> str:
    """List each partition with the error that kept its producers from being seen."""
    return ", ".join(p.name + _in_brackets(p.error) for p in partitions)


def _record_not_read(error: str | None) -> str:
    return f"its record was not read{_in_brackets(error)}"


def _holds_not_known(unseen: Sequence[NamedPartition]) -> str:
    seen = f"producers on {_answers(unseen)} were not seen" if unseen else "it holds some now"
    return f"whether it holds records back is not known: {seen}"


NOT_KNOWN: Mapping[str, Words] = {
    "partition-not-seen": lambda about, answer: (
        f"the leader of {about.name} did not give its offsets{_answered(answer, 'ListOffsets')}"
    ),
    "topic-made-anew": "the topic of {about.name} was deleted and created again between the two "
    "looks",
    "producers-not-seen": lambda about, answer: (
        f"the producers of {about.name} were not seen{_answered(answer, 'DescribeProducers')}"
    ),
    "no-open-transaction": "{about.name} is held, but its leader names no open transaction",
    "start-batch-not-read": _start_not_read,
    "owner-not-described": _not_described,
    "refused-seen-once": "a partition refuses its coordinator's marker, but that was seen only "
    "once",
    "owner-changed": "an id that named {about.name} in the first look does so no longer",
    "owner-odd": "an id with this producer id names the partition, in a state or with an epoch "
    "that does not fit the batch",
    "lost-seen-once": "a decision has no marker, but it was looked at only once",
    "decider-not-seen": "a decision has no marker, but its id's coordinator was not seen",
    "history-moved": "the records of {moved} are in a partition of __transaction_state that is no "
    "longer its own (partitions were added): its coordinator does not know them, and they do not "
    "show how this transaction ended",
    "log-says-open": lambda about, name, answer: (
        f"__transaction_state says that {name} is open with producer id {about.producer_id}; no "
        f"coordinator lists it so{_answered(answer, 'DescribeTransactions')}"
    ),
    "history-replaced": lambda **d: (
        f"{_how_replaced(**d)}: that log does not show how that transaction ended"
    ),
    "earlier-decision-compacted": "a decision has no marker, but __transaction_state was "
    "compacted: an earlier one, on this very batch, may be gone",
    "decisions-differ": "decisions without marker contradict each other, or none is on this "
    "batch: no one marker is right for all that is open",
    "written-beyond-decision": "a decision has no marker, but its producer wrote later batches "
    "here, which that decision does not cover and no id owns",
    "later-transaction": "the open transaction here is a later one than the batch's, and how the "
    "batch's own ended is not known",
    "clock-not-seen": lambda skew, **_: (
        f"no coordinator's clock could be asked how long it runs, and by ours it is within "
        f"{span(skew)} of a limit"
    ),
    "earlier-decision-not-excluded": lambda reason, **_: (
        "it is past a limit, but whether decided data lies under it is not known"
        + _in_brackets(reason)
    ),
    "topic-not-described": "without DESCRIBE on {about.topic} coordinators leave it out of their "
    "lists",
    "still-writing": "producer id {about.producer_id} wrote to {about.name} between the looks",
    "history-not-read": lambda error, **_: (
        f"__transaction_state was not read{_in_brackets(error)}: its outcome may have been decided"
    ),
    "history-unreadable": "__transaction_state has records in a version that is not understood",
    "history-compacted": "__transaction_state was compacted since that batch was written, or that "
    "cannot be excluded: a decision may be gone",
    "topic-identity": "decisions name {about.name}, and this log has no marker of any: they are "
    "about an earlier topic of that name, or all their markers were lost",
    "order-unclear": "decisions name the partition, and its markers do not show whether the last "
    "of them came before the batch or after it: one may have been written twice, or one was lost",
    "no-rule": "no rule fits what was seen",
    # of an id that holds no partition
    "id-not-described": lambda row: (
        f"broker {row.coordinator} answered DescribeTransactions with {row.error or 'nothing'}"
    ),
    "prepare-age-not-known": lambda error: (
        f"it is decided, but since when is not known: {_record_not_read(error)}"
    ),
    "prepare-record-not-read": lambda error: (
        f"which partitions wait for its markers is not known: {_record_not_read(error)}"
    ),
    "named-not-seen": lambda unseen: (
        f"whether its markers are written is not known on {_answers(unseen)}"
    ),
    "written-seen-once": "all its markers are written and it is not complete, but that was seen "
    "only once",
    "markers-on-their-way": lambda holding: (
        f"it waits for its markers on {', '.join(holding) or 'some partitions'}"
    ),
    "holds-not-known": _holds_not_known,
}
"""Rule of `unknown` → what is not known."""


def _grant(right: str, otherwise: str) -> Callable[..., str]:
    """Return words that ask for a right where an answer refused it. right: a format of the data."""

    def words(*, refused: bool, **data: Any) -> str:
        return f"grant {right.format(**data)}" if refused else otherwise

    return words


def _see_coordinators(*, refused: bool, none: bool, **_: Any) -> str:
    """Return how to see who owns it. none: no coordinator is known."""
    if refused:
        return "grant DESCRIBE on transactional id *"
    if none:
        return (
            "grant DESCRIBE on __transaction_state; if this cluster has no such topic, as may be "
            "on a standby, start a transactional producer once: that creates the topic, and its "
            "coordinators can then say who owns this"
        )
    return "wait for the coordinators, or start their brokers"


def _see_producers(unseen: Sequence[str], refused: Sequence[str]) -> str:
    """Return how to see producers of partitions. refused: topics that may not be read."""
    if refused:
        return f"grant READ on {listed(refused, 'topic')}"
    if not unseen:
        return "ask again: those partitions are judged then"
    return "ask again; wait until the leaders of these partitions answer"


def _describe(*, refused: bool, unanswered: bool, **_: Any) -> str:
    if refused:
        return "grant DESCRIBE on that transactional id and on the topic"
    if unanswered:
        return "ask again; coordinators leave out topics without DESCRIBE"
    return "ask again, until its coordinator describes it"


_LOOK_AGAIN = "look again after the sample interval"
_ASK = "ask who can show its outcome"
READ_THE_LOG = _grant(
    "READ on __transaction_state", "ask again, until the log of its coordinator is read"
)

THEN: Mapping[str, Words] = {
    "partition-not-seen": _grant(
        "DESCRIBE on topic {about.topic}", "wait until the partition has a leader that answers"
    ),
    "topic-made-anew": "ask again: what is open there now is of another log",
    "producers-not-seen": _grant(
        "READ on topic {about.topic}", "wait until the partition's leader answers"
    ),
    "no-open-transaction": "ask again: a marker may not have reached all replicas yet",
    "start-batch-not-read": _grant(
        "READ on topic {about.topic}",
        "ask again; if it stays so, its records were deleted or its log was cut",
    ),
    "owner-not-described": _describe,
    "refused-seen-once": _LOOK_AGAIN,
    "owner-changed": "ask again: it was just ending",
    "owner-odd": "ask again; a deposed coordinator may have answered",
    "lost-seen-once": _LOOK_AGAIN,
    "decider-not-seen": "wait until that coordinator answers: it may still write the marker",
    "history-moved": _ASK,
    "log-says-open": _grant(
        "DESCRIBE on that transactional id (a DENY hides it without an error)",
        "ask again, until its coordinator shows it",
    ),
    "history-replaced": _ASK,
    "earlier-decision-compacted": "the earlier outcome may differ",
    "decisions-differ": "read the records above the start offset before anything is written",
    "written-beyond-decision": "a marker would decide those batches too",
    "later-transaction": "let it end, then ask again",
    "clock-not-seen": "ask again; ListTransactions v1 (Kafka 3.8) asks the coordinator's clock",
    "earlier-decision-not-excluded": _grant(
        "READ on __transaction_state; a fence could destroy committed data",
        "let its owner end it: a fence could destroy committed data",
    ),
    "coordinators-not-seen": _see_coordinators,
    "topic-not-described": "grant DESCRIBE on the topic",
    "one-sample": _LOOK_AGAIN,
    "still-writing": "find who writes with this producer id",
    "start-deleted": "none of its own records is left: either marker frees those after it (txn "
    "resolve --without-proof, once nobody can own it)",
    "history-not-read": _grant(
        "READ on __transaction_state",
        "ask again; wait until the partitions of __transaction_state have leaders",
    ),
    "history-unreadable": "use a newer eoctl",
    "history-compacted": _ASK,
    "topic-identity": _ASK,
    "order-unclear": "the outcome may be commit",
    "no-rule": "report it",
    "id-not-described": _grant(
        "DESCRIBE on that transactional id", "ask again, until its coordinator describes it"
    ),
    "prepare-age-not-known": READ_THE_LOG,
    "prepare-record-not-read": READ_THE_LOG,
    "named-not-seen": _see_producers,
    "written-seen-once": _LOOK_AGAIN,
    "markers-on-their-way": "ask again: those partitions are judged by themselves",
    "holds-not-known": _see_producers,
}
"""Rule of `unknown` → what to do next."""

_NOT_READ = "__transaction_state was not read: an earlier decision may be on these records"
UNPROVEN: Mapping[str, str] = {
    "history-not-read": _NOT_READ,
    "history-unreadable": _NOT_READ,
    "written-beyond-decision": "its producer wrote later batches here, which that decision does "
    "not cover",
    "topic-identity": "decisions name this topic, and its log has the marker of none: it may be "
    "recreated",
    "order-unclear": "under transactions v1 only the order of decisions and markers shows what a "
    "decision is about, and the markers in this log do not fit the decisions: somebody else may "
    "have written one, or one was written twice or lost",
    "earlier-decision-compacted": "__transaction_state was compacted, and an earlier decision on "
    "these records may be gone",
    "decisions-differ": "more than this decision, or none, is about what is open here",
}
"""Rule of `unknown` → why an id in Prepare* proves no outcome for what is open on a partition."""
