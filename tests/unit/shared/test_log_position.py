"""The rule of positions, against a model of replicas whose leaders are elected uncleanly."""

import random

import pytest

from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.shared.log_position import (
    EpochSteps,
    LogAnswer,
    LogPosition,
    RecordEpochs,
    Standing,
    beside_record,
    judged,
    needs_asking,
    not_proven,
    refuse_diverged,
)

NEWEST = 99
Log = list[tuple[int, int]]  # leader epoch, id of each record; the list's index is the offset


def answered(log: dict[int, tuple[int, int]], end: int, start: int, epoch: int) -> LogAnswer:
    """What a leader with these records answers, as Kafka's LeaderEpochFileCache does.

    It has the epochs of the records that it was given, and its own, which is the newest.
    """
    begins: dict[int, int] = {}
    for offset, (e, _) in sorted(log.items()):
        begins.setdefault(e, offset)
    begins[NEWEST] = end
    earliest = min(begins)
    first = earliest if begins[earliest] <= start else None
    ends = min(begins[e] for e in begins if e > epoch)
    known = max((e for e in begins if e <= epoch), default=epoch)  # before all: Kafka repeats it
    return LogAnswer(known, ends, start, first)


def standing(position: LogPosition, log: dict[int, tuple[int, int]], end: int, start: int = 0):  # type: ignore[no-untyped-def]
    answer = answered(log, end, start, position.leader_epoch or 0)
    known = judged(position, answer)
    found = log.get(position.offset - 1)
    return known or beside_record(position, answer, found[0] if found else None)


@pytest.mark.parametrize("compacted", [False, True])
def test_no_position_is_called_proven_in_another_log(compacted: bool) -> None:
    """Two replicas, up to five unclean elections between them, each alone with its log."""
    draw, seen = random.Random(7), {True: 0, False: 0, None: 0}
    for _ in range(3_000):
        logs: list[Log] = [[(0, n) for n in range(draw.randint(0, 4))]] * 2
        logs = [list(log) for log in logs]
        ids, positions = 100, []
        for epoch in range(1, draw.randint(2, 6)):
            mine = logs[draw.randrange(2)]
            for _ in range(draw.randint(1, 5)):
                mine.append((epoch, ids))
                ids += 1
            at = draw.randint(1, len(mine))
            positions.append((LogPosition(at, mine[at - 1][0]), mine[:at]))
            if draw.random() < 0.3:  # the follower is in sync again: it cuts its log and copies
                logs = [list(mine), list(mine)]
        leader = logs[draw.randrange(2)]
        kept = dict(enumerate(leader))
        if compacted:  # on a replica that was made since: what is gone has no epoch there
            kept = {o: r for o, r in kept.items() if draw.random() < 0.6 or o == len(leader) - 1}
        for position, before in positions:
            same = leader[: position.offset] == before
            judgement = standing(position, kept, len(leader))
            seen[judgement.held] += 1
            if judgement.held is not None:
                assert judgement.held is same, (position, before, leader, kept, judgement)
            else:
                assert compacted
            if judgement.held is False:
                parted = next(
                    (n for n, (a, b) in enumerate(zip(leader, before, strict=False)) if a != b),
                    len(leader),
                )
                assert judgement.diverged_at is not None
                assert parted <= judgement.diverged_at
                assert judgement.at_latest or parted == judgement.diverged_at
    assert seen[True] > 1_000
    assert seen[False] > 1_000
    assert bool(seen[None]) is compacted


ANSWER = LogAnswer(3, 10, 0, 0)


@pytest.mark.parametrize(
    ("position", "answer", "held"),
    [
        (LogPosition(0), ANSWER, True),
        (LogPosition(5), ANSWER, None),  # kept without an epoch
        (LogPosition(5, 3), ANSWER, True),
        (LogPosition(10, 3), ANSWER, True),
        (LogPosition(11, 3), ANSWER, False),
        (LogPosition(11, 4), ANSWER, False),
        (LogPosition(5, 3), LogAnswer(3, 10, 5, 3), True),  # its epoch goes on above it
        (LogPosition(5, 3), LogAnswer(3, 5, 5, 4), None),  # deleted up to it
        (LogPosition(5, 1), LogAnswer(3, 5, 5, 3), None),
    ],
)
def test_answers(position: LogPosition, answer: LogAnswer, held: bool | None) -> None:
    judgement = judged(position, answer)
    assert judgement is not None
    assert judgement.held is held


def test_what_is_deleted_is_said_with_the_log_start() -> None:
    judgement = judged(LogPosition(5, 3), LogAnswer(3, 9, 9, 4))
    assert judgement == Standing(None, "the record before it is deleted: the log starts at 9")


@pytest.mark.parametrize(
    ("answer", "found", "whose", "held"),
    [
        (LogAnswer(2, 10, 0, 0), 3, "record", True),
        (LogAnswer(2, 10, 0, 0), 2, "record", False),
        (LogAnswer(2, 10, 0, 0), None, "record", None),
        (LogAnswer(2, 10, 0, 0), 2, "commit", False),
        (LogAnswer(2, 5, 0, 0), 2, "commit", None),  # a group that began at the end of an idle log
        (LogAnswer(2, 5, 0, 0), 2, "record", False),
        (LogAnswer(2, 10, 0, 0), 2, "leader", None),  # as eoctl 0.2.0 kept it
        (LogAnswer(2, 10, 0, 0), 4, "leader", False),
        (LogAnswer(None, None, 0, None), None, "record", None),
    ],
)
def test_the_record_settles_a_doubt(
    answer: LogAnswer, found: int | None, whose: str, held: bool | None
) -> None:
    position = LogPosition(5, 3, whose)  # type: ignore[arg-type]
    assert judged(position, answer) is None
    assert beside_record(position, answer, found).held is held


def test_sentences() -> None:
    partition, position = TopicPartition("t", 0), LogPosition(30, 4)
    refuse_diverged(partition, position, Standing(None, "why"), "begin again")
    other = Standing(False, "leader epoch 2 ends at 20", 20, at_latest=True)
    with pytest.raises(RefusedError, match="cut off at offset 20 or before it and written") as e:
        refuse_diverged(partition, position, other, "begin again")
    assert (e.value.where, e.value.remedy) == ("t:0", "begin again")
    told = not_proven([(partition, position, Standing(None, "why")), (partition, position, other)])
    assert told == ["position 30 of t:0 is not proven to be of this log: why"]
    assert needs_asking(position)
    assert not needs_asking(LogPosition(30))


def test_epochs_of_what_was_read() -> None:
    epochs = RecordEpochs()
    epochs.add([(0, 4, 1), (5, 5, 1), (6, 9, 2)])
    assert [epochs.before(o) for o in (0, 1, 6, 7, 10, 11)] == [None, 1, 1, 2, 2, None]
    epochs.add([(10, 12, 2), (20, 20, 3)])  # compacted between
    assert [epochs.before(o) for o in (10, 13, 14, 20, 21)] == [2, 2, None, None, 3]
    steps = EpochSteps()
    for offset, epoch in ((3, None), (5, 1), (6, 1), (9, 2)):
        steps.add(offset, epoch)
    assert steps.steps == [(3, -1), (5, 1), (9, 2)]
    assert [steps.of(o) for o in (2, 3, 5, 8, 9, 50)] == [None, None, 1, 1, 2, 2]
