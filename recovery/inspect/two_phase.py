"""Transactions that another system ends: by Kafka's word (KIP-939), or by the id's name alone."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from recovery.facts import GroupFacts, TransactionFacts
from recovery.inspect.connect import runs_on_connect

if TYPE_CHECKING:  # making a protocol class would cost each start

    class Patterns(Protocol):
        """Limits of judging that name the ids of other systems, as regular expressions."""

        @property
        def two_phase_patterns(self) -> Sequence[str]: ...


TWO_PHASE_TIMEOUT = 2_147_483_647
"""The timeout of an id that another system commits (KIP-939)."""

PRECOMMITTED_NAMES = (r".*-\d+-\d+", r".*-[0-9a-f]{32}-\d+")
"""How Flink's sinks name ids whose records were pre-committed: `prefix-subtask-number`."""


def is_two_phase(row: TransactionFacts) -> bool:
    """Tell whether Kafka leaves the end of this id to another system (KIP-939)."""
    return row.timeout_ms == TWO_PHASE_TIMEOUT


def deadline(row: TransactionFacts) -> int | None:
    """Return when its coordinator aborts an open transaction: epoch ms, by the coordinator's clock.

    None: it is not Ongoing, it is two-phase, which never times out
    (TransactionStateManager.timedOutTransactions), or its start or timeout is not known.
    """
    if row.state != "Ongoing" or is_two_phase(row):
        return None
    if row.start_timestamp is None or row.timeout_ms is None:
        return None
    return row.start_timestamp + row.timeout_ms


def looks_precommitted(
    row: TransactionFacts, settings: "Patterns", groups: Sequence[GroupFacts] = ()
) -> bool:
    """Guess by the name, as Flink's sinks give it: that proves nothing, and only gates a fence.

    groups: those of its name, as far as they were seen. What runs on Kafka Connect is not guessed.
    """
    name = row.transactional_id
    looks = any(re.fullmatch(p, name) for p in settings.two_phase_patterns)
    return looks and not runs_on_connect(name, groups)
