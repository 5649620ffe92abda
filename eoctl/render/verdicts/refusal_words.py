"""Words of why an action is refused: it fits no such verdict, or its owner may be alive."""

from collections.abc import Mapping

from eoctl.render.words import Words
from recovery.inspect.two_phase import TWO_PHASE_TIMEOUT

FIX = "the fix of KAFKA-19999 (each release of Apache Kafka that needs it has it, since 4.2.0)"
"""Markers that need it came with it. Sources: apache/kafka pull request 21176, which Jira calls
resolved on 2025-12-28; class files of kafka-storage 4.2.0, which have it, and of 4.0.1, which
refuses no marker of the epoch that it has."""


def _below_not_known(*, a_fence: bool) -> str:
    text = "whether decided data lies under its transaction is not known"
    return text + (": a fence destroys it" if a_fence else "")


REFUSED: Mapping[str, Words] = {
    # Why its owner may be alive.
    "is-two-phase": f"{{name}} is two-phase (timeout {TWO_PHASE_TIMEOUT}, KIP-939): another "
    "system commits or aborts it",
    "may-be-precommitted": "{name} looks like a Flink sink (by its name): its job may still "
    "commit these records from a checkpoint",
    "worked-on": "{name} is alive: its owner worked on between the two looks",
    "group-has-members": "{name} may be alive: the group of its name has members ({groups})",
    "group-not-seen": "{name} may be alive: whether a group of its name has members could not be "
    "seen: {unseen}",
    # What a remedy is not.
    "owner-may-commit": "its owner may still commit: you would drop its records here and keep "
    "them elsewhere",
    "only-if-gone": "its transaction would be lost. Only if that system is gone for good: "
    "--owner-is-gone",
    "never-answered": "InitProducerId on a Prepare* id answers ConcurrentTransactions without end",
    "refuses-its-own-markers": f"it sends every marker again; brokers without {FIX} refuse those "
    "that are written, and it never finishes",
    "not-before-back": "its end cannot be written before {name} is back",
    "could-drop-committed": "it could drop committed records: nobody can tell whose they are",
    "no-marker-if-decided": "a decided transaction never gets a marker from here",
    "could-contradict": "its outcome is decided: a marker from here could contradict it",
    "no-leader": "a partition has no leader that answers",
    "already-decided": lambda outcome: (
        f"the coordinator already decided {str(outcome).upper()}: use resolve"
    ),
    "destroys-earlier": "it would destroy the earlier data with the later",
    "aborts-earlier": "it aborts the open transaction, and the earlier data with it",
    "tears-open": lambda outcome: (
        "its marker would tear the open transaction"
        + (
            "; only if its owner is gone for good, and before the deadline: --outcome commit "
            "--owner-is-gone, which commits that transaction too"
            if outcome == "commit"
            else ""
        )
    ),
    "in-use": "{name} is still in use elsewhere ({state}): an abort marker here could break its "
    "next write or cause a duplicate",
    "decided": "its coordinator decided {outcome}",
    "decided-perhaps-on-these": "its coordinator decided {outcome}, perhaps on these very records",
    "written-after-that": "its coordinator writes the decided marker itself after that",
    "reload-loses-markers": "a reload loses the markers of partitions without leader",
    "refused-again": "its marker would be refused again",
    "no-decision-proves": "no decision proves an outcome for these records",
    "all-written": "every partition has its marker: nothing is open",
    "hidden-partitions": "partitions that are not visible may hold records of it",
    # What a command may not do.
    "does-not-fit": "{action} does not fit this verdict",
    "may-still-show": "another look may still show its outcome: --without-proof is not allowed yet",
    "owned": "{name} is {state} with its producer id: while somebody owns it, wait",
    "decided-here": "{name} is {state}: its coordinator here decides it",
    "was-decided-here": "what was decided here decides it: leave out --from-cluster",
    "owner-may-show": "another look may still show who owns it here",
    "seen-once": "it was looked at only once",
    "owner-may-be-hidden": "not every coordinator was seen: one may own it",
    "has-an-owner": "{name} is {state} with its producer id",
    "owner-does-not-show": "without DESCRIBE on {topic} its owner does not show",
    "wrote-between": "its producer wrote between the looks",
    "nothing-over-it": "no later transaction of its id is open over it: --owner-is-gone does not "
    "apply",
    "nothing-ongoing": "no id is Ongoing with this producer id: there is nothing to {to}",
    "only-its-system-knows": "{name} is two-phase: only its own system knows the outcome",
    "abort-was-lost": "an ABORT was decided and lost: a commit would deliver what was aborted",
    "not-committed-with-it": "{verdict} cannot be committed with it",
    "below-not-known": _below_not_known,
    "may-be-at-work": "it is within its limits and its owner may be at work",
    "producer-not-seen": "its producer state was not seen",
    "may-write-with-its-epoch": "{error}: somebody may write with the marker's epoch",
    "distant-epoch": "{error}; give that application a new transactional id",
    "log-too-short": "{log} has too few replicas in sync",
    "nobody-owns-it": "nobody owns it",
    "may-be-alive": "{name} may be alive",
    "another-id-has-it": "another id has its producer id",
}
"""Code of why an action is refused → its sentence."""
