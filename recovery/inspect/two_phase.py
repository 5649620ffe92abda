"""Transactions that another system ends: known from Kafka (KIP-939) or guessed from the id."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from recovery.facts import GroupFacts, TransactionFacts
from recovery.inspect.connect_ids import runs_on_connect

if TYPE_CHECKING:  # building a protocol class would slow every start

    class Patterns(Protocol):
        """Settings with regular expressions for the transactional ids of other systems."""

        @property
        def two_phase_patterns(self) -> Sequence[str]: ...


TWO_PHASE_TIMEOUT = 2_147_483_647
"""The timeout of an id that another system commits (KIP-939)."""

PRECOMMITTED_NAMES = (r".*-\d+-\d+", r".*-[0-9a-f]{32}-\d+")
"""How Flink's sinks name ids whose records were pre-committed: `prefix-subtask-number`."""


def is_two_phase(row: TransactionFacts) -> bool:
    """Return True if Kafka leaves the end of this id's transaction to another system (KIP-939)."""
    return row.timeout_ms == TWO_PHASE_TIMEOUT


def deadline(row: TransactionFacts) -> int | None:
    """Return when the coordinator aborts an open transaction: epoch ms, by the coordinator's clock.

    None: the state is not Ongoing, start or timeout is unknown, or the id is two-phase, which never
    times out (TransactionStateManager.timedOutTransactions).
    """
    if row.state != "Ongoing" or is_two_phase(row):
        return None
    if row.start_timestamp is None or row.timeout_ms is None:
        return None
    return row.start_timestamp + row.timeout_ms


def looks_precommitted(
    row: TransactionFacts, settings: "Patterns", groups: Sequence[GroupFacts] = ()
) -> bool:
    """Guess from the name, as Flink's sinks form it: proves nothing, and only makes a fence ask.

    groups: those named like the id, if they were seen. Ids that run on Kafka Connect give False.
    """
    name = row.transactional_id
    return is_named_like(name, settings.two_phase_patterns) and not runs_on_connect(name, groups)


def is_named_like(transactional_id: str, patterns: Sequence[str]) -> bool:
    """Return True if one of the regular expressions fits the complete id."""
    return any(re.fullmatch(p, transactional_id) for p in patterns)
