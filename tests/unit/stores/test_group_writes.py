"""When a group's offsets are sent, and when they are sent again: what is asked right before.

The coordinator's answers are scripted, for a real one says NOT_COORDINATOR at no command.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.write import commit
from eoctl.stores.offsets.group import GroupOffsets
from eoctl.stores.offsets.store import Contents, StoreEntry, Write
from recovery.errors import RefusedError, UnverifiedError
from recovery.restart.stored import StoredOffset, StoredPartition
from recovery.shared.store_tables import KafkaGroupStore

PARTITION = ("in", 0)
FACTS = {"type": "classic", "state": "Empty", "members": 0}
LOADING, MOVED = "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"


def kept(offset: int) -> dict[str, Any]:
    return {"offset": offset, "leader_epoch": None, "metadata": ""}


def holds(offset: int, state: str = "Empty") -> Contents:
    start = StoredOffset(topic=PARTITION[0], partition=PARTITION[1], offset=offset)
    entry = StoreEntry(StoredPartition(input=start), kept(offset))
    return Contents(True, (entry,), FACTS | {"state": state})


class Coordinator:
    """Stands for the cluster: answers in turn, and tells what happened in which order."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.deadline = Deadline(20)
        self.did: list[str] = []

    async def find(self, *_: object) -> int:
        self.did.append("found")
        return 1

    async def ask(self, broker: int, question: Any, **_: object) -> Any:
        from eoctl.kafka.connection import messages

        self.did.append("sent")
        code = {"NONE": 0, LOADING: 14, MOVED: 16, "UNKNOWN_MEMBER_ID": 25}[self._answers.pop(0)]
        response = messages.OffsetCommitResponse
        topic = response.OffsetCommitResponseTopic
        row = topic.OffsetCommitResponsePartition(partition_index=PARTITION[1], error_code=code)
        return response(throttle_time_ms=0, topics=[topic(name=PARTITION[0], partitions=[row])])


def wrote(
    monkeypatch: pytest.MonkeyPatch,
    answers: Sequence[str],
    *reads: Contents,
    held: Callable[[int], bool] = lambda time: True,
) -> list[str]:
    """Move the group from 3 to 7; held: the lock, when it is asked for the n-th time."""
    coordinator: Any = Coordinator(answers)
    left = list(reads)
    asked = 0

    async def read(_: GroupOffsets) -> Contents:
        coordinator.did.append("read")
        return left.pop(0) if len(left) > 1 else left[0]

    def ensure_held() -> None:
        nonlocal asked
        asked += 1
        coordinator.did.append("lock")
        if not held(asked):
            raise RefusedError("the lock is lost")

    monkeypatch.setattr(commit, "coordinator", coordinator.find)
    monkeypatch.setattr(commit, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(GroupOffsets, "read", read)
    store = GroupOffsets(KafkaGroupStore(kind="kafka-group", group="g"), coordinator, None)
    did: list[str] = coordinator.did
    try:
        asyncio.run(store.write([Write(*PARTITION, kept(3), kept(7))], ensure_held))
    except (RefusedError, UnverifiedError) as error:
        did.append(f"{type(error).__name__}: {error.what}")
    return did


def test_the_lock_is_asked_for_once_the_coordinator_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert wrote(monkeypatch, ["NONE"], holds(3)) == ["read", "found", "lock", "sent"]
    lost = wrote(monkeypatch, [], holds(3), held=lambda time: False)
    assert lost == ["read", "found", "lock", "RefusedError: the lock is lost"]


@pytest.mark.parametrize("answer", [LOADING, MOVED])
@pytest.mark.parametrize("now", [3, 7])
def test_before_it_is_sent_again_it_is_read_and_compared(
    monkeypatch: pytest.MonkeyPatch, answer: str, now: int
) -> None:
    """NOT_COORDINATOR may follow an append: then 7 stands there already."""
    once = ["found", "lock", "sent"]
    again = ["found", "read", "lock", "sent"]
    assert wrote(monkeypatch, [answer, "NONE"], holds(3), holds(now)) == ["read", *once, *again]


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (holds(9), "the store holds something else: in:0 offset: was 3 when planned, is 9 now"),
        (holds(3, "Stable"), "the group is Stable with 0 members"),
    ],
)
def test_what_changed_meanwhile_is_not_overwritten(
    monkeypatch: pytest.MonkeyPatch, now: Contents, why: str
) -> None:
    did = wrote(monkeypatch, [LOADING], holds(3), now)
    assert did.count("sent") == 1
    assert did[-1] == f"UnverifiedError: {why}"


def test_a_lock_lost_before_it_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    did = wrote(monkeypatch, [LOADING], holds(3), held=lambda time: time == 1)
    assert did.count("sent") == 1
    assert did[-1] == "UnverifiedError: the lock is lost"


@pytest.mark.parametrize("answers", [[MOVED], [MOVED, "UNKNOWN_MEMBER_ID"]])
def test_not_coordinator_is_no_proof_that_nothing_was_written(
    monkeypatch: pytest.MonkeyPatch, answers: list[str]
) -> None:
    if len(answers) == 1:
        monkeypatch.setattr(commit, "PATIENCE_SECONDS", 0.0)
    assert wrote(monkeypatch, answers, holds(3), holds(3))[-1].startswith("UnverifiedError: ")
    assert wrote(monkeypatch, answers, holds(3), holds(7))[-1] == "read"  # a look decides


def test_other_answers_prove_it(monkeypatch: pytest.MonkeyPatch) -> None:
    did = wrote(monkeypatch, [LOADING, "UNKNOWN_MEMBER_ID"], holds(3))
    assert did[-1].startswith("RefusedError: ")
