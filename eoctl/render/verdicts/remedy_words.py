"""Words of the ways out of a verdict: what each does and costs, and why others are refused."""

from collections.abc import Mapping, Sequence

from eoctl.render.verdicts.evidence_words import evidence_words
from eoctl.render.verdicts.refusal_words import FIX, REFUSED
from eoctl.render.verdicts.unknown_words import READ_THE_LOG, THEN
from eoctl.render.words import Words, remedy_said, sentence
from recovery.diagnose.verdicts import Verdict
from recovery.plurals import listed
from recovery.times import format_duration
from recovery.values import Reason


def remedy_words(reason: Reason) -> str:
    """Return the sentence of what a remedy does or costs, or of why an action is refused."""
    return sentence(REMEDY, reason)


_UNTIL = (
    "until its coordinator finishes it, the id answers CONCURRENT_TRANSACTIONS: let its "
    "application use another transactional id meanwhile"
)


def _restore_leaders(partitions: Sequence[str], *, ask_again: bool) -> str:
    text = f"bring back a leader that answers for {', '.join(partitions)}"
    return text + ("; then ask again" if ask_again else "")


def _mixed(name: str, outcome: str | None) -> str:
    if outcome == "commit":
        return (
            f"the commit of {name}'s open transaction saves the earlier, committed data; its abort "
            "or timeout destroys it: let its owner commit before the deadline"
        )
    return (
        f"the end of {name}'s open transaction decides the earlier, aborted data too: its commit "
        "would deliver it, its abort drops it; that is its owner's choice"
    )


def _decision_lost(name: str, outcome: str) -> str:
    text = f"the coordinator of {name} has lost that decision and takes the transaction for open"
    if outcome == "commit":
        return (
            f"{text}: its owner will not commit it again, and its timeout destroys it. Before the "
            "deadline: txn resolve --outcome commit --owner-is-gone"
        )
    return f"{text}: its timeout aborts it, as was decided"


def _wait_for_cycle(cycle_ms: int | None) -> str:
    often = "10s by default" if cycle_ms is None else format_duration(cycle_ms / 1000)
    return f"its coordinator looks for such every {often} and aborts it itself: wait for that first"


def _fence(name: str, first: Reason | None, *, held: bool) -> str:
    reach = " on all its partitions" if held else ", which holds no record back,"
    wait = "" if first is None else f"{remedy_words(first)}; "
    return f"{wait}aborts the open transaction of {name}{reach} and shuts its owner out"


def _wait_for_namesake(name: str, *, gated: bool) -> str:
    fenced = "fence it first" + (" with --owner-is-gone" if gated else "")
    return (
        f"wait until {name} has ended its transaction elsewhere, or {fenced}; then abort this one"
    )


def _stuck_until_reload(state: str, log: str | None, *, v2: bool) -> str:
    """Return which reload lets its coordinator finish. log: None: its epoch cannot catch up."""
    catch_up = ""
    if log is not None:
        only = f" (with transactions version 2 only on brokers with {FIX})" if v2 else ""
        catch_up = f"the leader epoch of {log} has caught up{only}, or after "
    return (
        f"it stays {state} until its coordinator reloads after {catch_up}the partition has "
        "forgotten the producer (producer.id.expiration.ms, 24 h)"
    )


def _finish(log: str, *, log_is_hidden: bool, least_is_hidden: bool, v1: bool) -> str:
    """Return how an id whose markers are all written is completed."""
    first = "ask again in a minute: a record that its log refused is tried again; then, "
    if log_is_hidden:
        grant = " (grant DESCRIBE_CONFIGS on it)" if least_is_hidden else ""
        first = (
            f"find out whether {log} has as many replicas in sync as min.insync.replicas asks for"
            f"{grant}; if it has, "
        )
    if v1:
        return f"{first}its coordinator has only to write its last record: see its broker's log"
    return (
        f"{first}its coordinator may send markers again that were written before, and brokers "
        f"without {FIX} refuse these: upgrade them, or have its coordinator reload after the "
        "partitions have forgotten the producer (producer.id.expiration.ms, 24 h)"
    )


def _refused(verdict: Verdict, why: Reason) -> str:
    """Return the sentence that refuses an action and names the verdict's remedy."""
    v = verdict
    kind = "marker-lost, mixed" if v.mixed else v.name
    instead = "" if v.remedy.action == "none" else "the remedy is "
    instead += remedy_said(v.remedy.action, remedy_words(v.remedy.does))
    return (
        f"{v.about.name} producer id {v.about.producer_id} is {kind} ({v.rule}): "
        f"{remedy_words(why)}; {instead}"
    )


REMEDY: Mapping[str, Words] = {
    # What to do.
    **THEN,
    "restore-for-its-end": lambda partitions: (
        f"{_restore_leaders(partitions, ask_again=False)}: its end is written there too"
    ),
    "start-brokers": lambda brokers, log: (
        f"start {listed(brokers, 'broker')}: until enough replicas of {log} are in sync, its "
        "coordinator can neither commit nor abort it"
    ),
    "markers-due": "its outcome is decided and its markers are being written: it ends by itself",
    "restore-leaders": _restore_leaders,
    "fix-then-restart": "every partition has a leader, and some may already have their marker: "
    f"make sure that their brokers have {FIX}, then restart the coordinator",
    "restart-coordinator": "every partition has a leader: a restart of the coordinator sends the "
    "markers again",
    "resolve": "writes the {outcome} marker that its decision proves, to this partition only",
    "mixed": _mixed,
    "decision-lost": _decision_lost,
    "ask-its-system": "{name} belongs to a system that commits or aborts it itself (two-phase): "
    "ask that system",
    "let-owner-end": lambda why: f"let its owner end it: {remedy_words(why)}",
    "within-limits": "a live transaction within its limits: its owner ends it",
    "fence": _fence,
    "not-aborted": "its coordinator does not abort it although it is due",
    "wait-for-cycle": _wait_for_cycle,
    "wait-one-cycle": "the coordinator aborts it in its next cycle: wait one, then fence",
    "abort": "writes an abort marker to this partition only: its records are dropped for "
    "read_committed readers and the records after it are freed",
    "wait-for-namesake": _wait_for_namesake,
    "move-leader": lambda log, moves: (
        f"move the leader of {log} to another broker {'once' if moves == 1 else f'{moves} times'}, "
        "each move raises its epoch by one; then its coordinator's markers are accepted again, and "
        "it sends them without further action"
    ),
    "written-with-its-epoch": lambda partitions: (
        f"what is open on {', '.join(partitions)} was written with the epoch of its marker, by "
        f"nobody that its coordinator knows: no outcome of it is proven; {_UNTIL}"
    ),
    "write-prepared-marker": lambda outcome, partitions: (
        f"write the {outcome} marker that its Prepare record proves, to {', '.join(partitions)}, "
        "where this very transaction is open; its coordinator cannot"
    ),
    "nothing-open": f"nothing of it is open any more, so no marker helps; {_UNTIL}",
    "unproven": lambda why: (
        f"no outcome of the records that are held is proven: {evidence_words(why)}"
    ),
    "restore-replicas": "bring back replicas of {log}: {in_sync} in sync, it must have "
    "{min_in_sync} (min.insync.replicas) to take the record that completes it; its coordinator "
    "then finishes it",
    "finish": _finish,
    "see-all-first": lambda then: (
        f"{remedy_words(then)}: which partitions a fence would abort is not known"
    ),
    "describe-topics": lambda topics: f"grant DESCRIBE on {listed(topics, 'topic')}",
    "read-the-log": READ_THE_LOG,
    # What it costs.
    "not-before-that": lambda then: f"not before that: {remedy_words(then)}",
    "restart-loses-markers": "without a leader a restart of the coordinator loses the marker for "
    "good",
    "kills-owner": "an owner that still lives is killed by it",
    "use-another-id": _UNTIL,
    "stuck-until-reload": _stuck_until_reload,
    # Why not.
    **REFUSED,
    "refused": _refused,
}
"""Code of what to do, of what that costs, or of a refusal → its sentence."""
