"""Single answers from logs: the k-th record, times, the last record, the records of a stretch.

The logs are bytes that kafka-python wrote, served in pieces as leaders serve them; what each answer
must be is known from how the log was made.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.read import fetch, log_search
from eoctl.kafka.read.chunks import ABOVE, ENOUGH, READ_COMMITTED, Chunk, Ended, Range
from recovery.facts import TopicPartition
from recovery.restart.observed import ChangelogTip, MergeTail, TimeAt, Walk
from tests.share import share
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker

NOBODY = Cluster(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))
CREATED = 1_700_000_000_000


@dataclass
class Log:
    """A partition's log. data: offsets of its records; committed: those of them that readers of
    committed records see. stable: the last stable offset."""

    start: int
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  # first, last offset
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first, marker
    data: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    stable: int = 0
    end: int = 0

    def add(self, draw: random.Random, producer: int | None, *, visible: bool) -> None:
        """Append a batch of one to four offsets, some of which compaction has emptied."""
        count = draw.randint(1, 4)
        kept = sorted(draw.sample(range(count), draw.randint(1, count)))
        items = [Item(n, CREATED + self.end + n) for n in kept]
        about = (-1, -1, -1) if producer is None else (producer, 0, 0)
        last = self.end + count - 1
        written = batch(
            *(self.end, items),
            producer=about,
            transactional=producer is not None,
            last_offset=last,
        )
        self.batches.append((self.end, last, written))
        self.data += [self.end + n for n in kept]
        self.committed += [self.end + n for n in kept if visible]
        self.end = last + 1

    def decide(self, producer: int, *, commit: bool) -> None:
        written = marker(self.end, producer, COMMIT if commit else ABORT)
        self.batches.append((self.end, self.end, written))
        self.end += 1


def made(draw: random.Random) -> Log:
    start = draw.choice([0, 7])
    log = Log(start, end=start)
    for producer in range(draw.randint(0, 7)):
        kind = draw.choice(["plain", "commit", "abort"])
        first = log.end
        if kind == "plain":
            log.add(draw, None, visible=True)
            continue
        for _ in range(draw.randint(1, 2)):
            log.add(draw, producer, visible=kind == "commit")
            if draw.random() < 0.3:
                log.add(draw, None, visible=True)
        if kind == "abort":
            log.aborted.append((producer, first, log.end))
        log.decide(producer, commit=kind == "commit")
    log.stable = log.end
    if draw.random() < 0.4:
        log.add(draw, 99, visible=False)
    return log


def served(
    monkeypatch: pytest.MonkeyPatch,
    logs: Mapping[TopicPartition, Log],
    at_once: int,
    broken: TopicPartition | None = None,
) -> None:
    """Let leaders give so many batches at once, also some after the range. broken: its leader is
    away after the first of them. Whoever never stops reading fails."""
    reads = 0

    async def read(
        cluster: Cluster,
        ranges: Sequence[Range],
        *,
        isolation: int = 0,
        most_chunks: int | None = None,
        **options: Any,
    ) -> AsyncIterator[Chunk | Ended]:
        nonlocal reads
        reads += 1
        assert reads < 5000, "it reads for ever"
        for r in ranges:
            place, position, error, given = r.topic_partition, r.start, None, 0
            log = logs[place]
            limit = log.stable if isolation == READ_COMMITTED else log.end
            assert log.start <= r.start < r.end, r
            while position < min(r.end, limit):
                left = [b for b in log.batches if b[1] >= position and b[0] < limit][:at_once]
                if not left:
                    break
                low, high = left[0][0], left[-1][1]
                hidden = tuple(
                    (producer, first)
                    for producer, first, marked in log.aborted
                    if first <= high and marked >= low
                )
                yield Chunk(
                    *place,
                    fetch_offset=position,
                    next_offset=high + 1,
                    records=b"".join(records for _, _, records in left),
                    aborted=hidden if isolation == READ_COMMITTED else None,
                    high_watermark=log.end,
                    last_stable_offset=log.stable,
                    log_start_offset=log.start,
                )
                position, given = high + 1, given + 1
                if place == broken:
                    error = "NO_ANSWER"
                elif given == most_chunks and position < min(r.end, limit):
                    error = ENOUGH
                if error is not None:
                    break
            if error is None and r.end > limit:
                error = ABOVE
            yield Ended(*place, position if error else r.end, error)

    monkeypatch.setattr(fetch, "read", read)


PLACES = (TopicPartition("t", 0), TopicPartition("t", 1))


@pytest.fixture(params=range(share(200, 10)))
def logs(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Mapping[TopicPartition, Log]:
    """Two logs, given in pieces of one to three batches, read in steps of a few offsets."""
    draw = random.Random(request.param)
    logs = {place: made(draw) for place in PLACES}
    served(monkeypatch, logs, draw.randint(1, 3))
    monkeypatch.setattr(log_search, "LEAST_WALK", draw.randint(1, 5))
    monkeypatch.setattr(log_search, "LEAST_TAIL", draw.randint(1, 5))
    return logs


def test_the_offset_after_the_k_th_record(logs: Mapping[TopicPartition, Log]) -> None:
    """Of all records below the second top, of committed ones below the first. What was written
    since the tops were read is given, too, and counts for nothing."""
    draw = random.Random(len(next(iter(logs.values())).batches))
    for _ in range(3):
        tops = {
            place: (draw.randint(log.start, log.stable), draw.randint(log.start, log.end))
            for place, log in logs.items()
        }
        wants = {
            Walk(*place, start, records, uncommitted): (
                [
                    o + 1
                    for o in (log.data if uncommitted else log.committed)
                    if start <= o < tops[place][uncommitted]
                ]
                + [None] * records
            )[records - 1]
            for place, log in logs.items()
            for start in range(log.start, log.end + 2)
            for records in (1, 2, 5)
            for uncommitted in (False, True)
        }
        found = asyncio.run(log_search.walk(NOBODY, list(wants), tops))
        assert (found.answers, found.unseen) == (wants, {})


def test_the_time_of_the_first_record_from_an_offset_on(logs: Mapping[TopicPartition, Log]) -> None:
    wants = {
        TimeAt(*place, offset): next((CREATED + o for o in log.data if o >= offset), None)
        for place, log in logs.items()
        for offset in range(log.start, log.end + 2)
    }
    ends = {place: log.end for place, log in logs.items()}
    found = asyncio.run(log_search.times(NOBODY, list(wants), ends))
    assert (found.answers, found.unseen) == (wants, {})


def test_the_last_record_below_an_end(logs: Mapping[TopicPartition, Log]) -> None:
    wants = {
        ChangelogTip(*place, end): max((o for o in log.committed if o < end), default=None)
        for place, log in logs.items()
        for end in range(log.start + 1, log.stable + 1)
    }
    starts = {place: log.start for place, log in logs.items()}
    found = asyncio.run(log_search.last_records(NOBODY, list(wants), starts))
    assert found.unseen == {}
    assert {w: r and r.offset for w, r in found.answers.items()} == wants


def test_every_record_of_a_stretch(logs: Mapping[TopicPartition, Log]) -> None:
    wants = {
        MergeTail(*place, start, end): [o for o in log.committed if start <= o < end]
        for place, log in logs.items()
        for start in range(log.start, log.stable)
        for end in (start + 1, log.stable)
    }
    got: dict[MergeTail, list[int]] = {w: [] for w in wants}
    found = asyncio.run(
        log_search.tails(NOBODY, list(wants), lambda want, r: got[want].append(r.offset))
    )
    assert (got, found.unseen) == (wants, {})
    assert found.answers == dict.fromkeys(wants)


def test_what_could_not_be_read_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the other partition has one."""
    logs = {place: Log(0) for place in PLACES}
    for log in logs.values():
        for _ in range(3):
            log.add(random.Random(1), None, visible=True)
        log.stable = log.end
    away, there = PLACES
    served(monkeypatch, logs, 1, broken=away)
    tops = {place: (log.stable, log.end) for place, log in logs.items()}
    starts = {place: log.start for place, log in logs.items()}
    ends = {place: log.end for place, log in logs.items()}
    last = len(logs[there].data)

    async def all_of_them() -> list[log_search.SearchAnswers[Any, Any]]:
        return [
            await log_search.walk(NOBODY, [Walk(*p, 0, last) for p in PLACES], tops),
            await log_search.times(NOBODY, [TimeAt(*p, 0) for p in PLACES], ends),
            await log_search.last_records(
                NOBODY, [ChangelogTip(*p, ends[p]) for p in PLACES], starts
            ),
            await log_search.tails(
                NOBODY, [MergeTail(*p, 0, ends[p]) for p in PLACES], lambda want, record: None
            ),
        ]

    for found in asyncio.run(all_of_them()):
        assert {w.topic_partition for w in found.answers} == {there}
        [(want, why)] = found.unseen.items()
        assert want.topic_partition == away
        position = logs[away].batches[0][1] + 1
        assert why == f"it could not be read at {position}: NO_ANSWER"
