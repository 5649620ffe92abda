"""What tasks of an audit find, joined: as if one process had read all; JSON holds every part."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.audit.audit_request import (
    DuplicatesFound,
    PartitionSequences,
    RecordsRead,
    Resolved,
    SequencesFound,
    TransactionsFound,
    TransactionsRequest,
    joined_duplicates,
    joined_sequences,
    joined_transactions,
)
from recovery.audit.duplicates import Copy, Duplicate
from recovery.audit.sequences import Examined, Finding
from recovery.audit.transaction_facts import Ending
from recovery.audit.transactions import judge, of_producers
from recovery.facts import Missing, TopicPartition
from tests.share import share
from tests.unit.audit.test_audit_transactions import World


@pytest.mark.parametrize("version", [1, 2])
@given(seed=st.integers(0, 2**32), tasks=st.integers(1, 4), most=st.integers(1, 5))
@settings(deadline=None, max_examples=share(80))
def test_producers_are_judged_apart(version: int, seed: int, tasks: int, most: int) -> None:
    """In tasks of some producer ids each; decisions come as JSON, findings go as JSON."""
    world = World(random.Random(seed), version)
    world.live(3)
    keep = world.rng.choice((0, len(world.records) // 2))  # of the rest the partitions tell alone
    endings = world.read(3)
    covered = tuple(world.covered(keep))
    whole = judge(covered, endings, 0)
    request = TransactionsRequest(ranges=(), most=most, covered=covered, skew=0)
    asked = TransactionsRequest.model_validate(json.loads(json.dumps(request.model_dump())))
    assert asked == request
    by_id = of_producers(asked.covered)
    found = []
    for task in range(tasks):
        for pid in (p for p in range(100, 103) if p % tasks == task):
            mine: dict[TopicPartition, dict[int, list[Ending]]] = {
                partition: {pid: of[pid]} for partition, of in endings.items() if pid in of
            }
            torn = judge(by_id.get(pid, []), mine, asked.skew)
            said = TransactionsFound(findings=len(torn), torn=tuple(torn[:most]))
            text = json.dumps(said.model_dump(mode="json"))
            found.append(TransactionsFound.model_validate(json.loads(text)))
    joined = joined_transactions(found, most)
    assert (joined.findings, list(joined.torn)) == (len(whole), whole[:most])


def test_the_first_findings_of_all_tasks_are_kept() -> None:
    finding = Finding("gap", 7, 0, 9, None, 0, 3, 3)
    parts = [
        SequencesFound(
            partitions=(
                PartitionSequences(
                    topic="t", partition=n, examined=Examined(gaps=2), findings=(finding, finding)
                ),
            )
        )
        for n in range(3)
    ]
    joined = joined_sequences(parts, 3)
    assert [len(p.findings) for p in joined.partitions] == [2, 1, 0]
    assert [p.examined.gaps for p in joined.partitions] == [2, 2, 2]

    def same(copies: int, offset: int) -> Duplicate:
        first_copies = (Copy("t", 0, offset, None), Copy("t", 1, 0, 5))
        return Duplicate(b"\xff\0", 2, copies, True, 2, first_copies, None, None, 5, 5)

    read = RecordsRead(topic="t", partition=0, records=5, without_id=1)
    tasks = [
        DuplicatesFound(findings=2, repeats=4, shown=(same(4, 8), same(2, 3)), read=(read,)),
        DuplicatesFound(findings=1, repeats=3, shown=(same(4, 1),), read=(read,)),
    ]
    told = [
        DuplicatesFound.model_validate(json.loads(json.dumps(t.model_dump(mode="json"))))
        for t in tasks
    ]
    assert told == tasks
    both = joined_duplicates(told, 2)
    assert (both.findings, both.repeats, both.read) == (3, 7, (read, read))
    assert both.shown == (same(4, 1), same(4, 8))


def test_a_partition_that_failed_twice_is_missing_once() -> None:
    first, again = (Missing("partition", "NOT_READ", text, None, "t", 1) for text in ("a", "b"))
    other = Missing("partition", "NOT_READ", "c", None, "t", 0)
    joined = joined_duplicates(
        [DuplicatesFound(failed=(first,)), DuplicatesFound(failed=(again, other))], 9
    )
    assert joined.failed == (first, other)
    assert joined.unread == {("t", 0), ("t", 1)}


def test_a_request_as_json() -> None:
    ranges = (Resolved("t", 0, 3, 9, 1, 9, 10), Resolved("t", 1, 0, 5, 0, 5, 5))
    asked = TransactionsRequest(ranges=ranges, most=1, max_rate=2.5, covered=(), skew=3)
    assert TransactionsRequest.model_validate(json.loads(asked.model_dump_json())) == asked
    assert asked.offsets == 11
