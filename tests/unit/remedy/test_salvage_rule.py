"""Which lost transactions can be salvaged: the rule, as a table of cases."""

from collections.abc import Sequence

import pytest

from recovery.errors import RefusedError
from recovery.facts import TopicPartition
from recovery.formats.flink_checkpoint import Committable, FlinkCheckpoint, SourceOffset, sources
from recovery.remedy.salvage import MARGIN_MS, Written, forgotten, name, refused
from recovery.values import replace

ONE = Committable("etl-0-7", 40, 3, 7, "to-kafka: Committer")
P0, P1 = TopicPartition("out", 0), TopicPartition("out", 1)
OFFSETS = TopicPartition("__consumer_offsets", 3)
WHOLE = Written(10, 5, 14, "abort", ended_at=1_000)


@pytest.mark.parametrize(
    ("pieces", "recorded", "topics", "words"),
    [
        ({P0: WHOLE, P1: WHOLE}, [P0, P1], [], None),
        ({P0: WHOLE}, [], ["out"], None),
        ({}, [P0], [], "none of its records are left in a log"),
        (
            {P0: WHOLE},
            [P0, P1],
            [],
            "its coordinator named out:1, and none of its records are there",
        ),
        ({P0: WHOLE}, [], [], "which partitions it was on is no longer recorded; 10 of its"),
        (
            {P0: replace(WHOLE, lacking=3), P1: WHOLE},
            [P0, P1],
            [],
            (
                "of 23 records it lacks 3: deleted, or of another transaction of its producer id "
                "and epoch; 20 of its records are in out:0, out:1"
            ),
        ),
        ({P0: WHOLE, OFFSETS: WHOLE}, [P0, OFFSETS], [], "offsets of groups were in it"),
        ({P0: WHOLE}, [P0, OFFSETS], [], "its application may read that input again"),
        (
            {P0: WHOLE, OFFSETS: replace(WHOLE, outcome=None)},  # still pending there
            [P0, OFFSETS],
            [],
            "no abort marker follows its records in __consumer_offsets:3",
        ),
        ({P0: replace(WHOLE, outcome=None)}, [P0], [], "no abort marker follows"),
        ({P0: replace(WHOLE, outcome="commit")}, [P0], [], "no abort marker follows"),
        ({P0: replace(WHOLE, behind=1)}, [P0], [], "belong to more than one transaction"),
    ],
)
def test_what_can_be_salvaged(
    pieces: dict[TopicPartition, Written],
    recorded: Sequence[TopicPartition],
    topics: Sequence[str],
    words: str | None,
) -> None:
    why = refused(pieces, recorded, topics, by_flink=True)
    assert why is None if words is None else why is not None and words in why[0]


def test_without_a_checkpoint_offsets_of_groups_are_not_excluded_by_the_names_of_topics() -> None:
    assert refused({P0: WHOLE}, [P0], [], by_flink=False) is None
    why = refused({P0: WHOLE}, [], ["out"], by_flink=False)
    assert why is not None
    assert "whether offsets of groups were in it is not known" in why[0]


@pytest.mark.parametrize(
    ("age", "expected"), [(0, False), (7_200_000, False), (7_200_001, True), (10_800_000, True)]
)
def test_an_old_abort_may_have_been_salvaged(age: int, *, expected: bool) -> None:
    assert forgotten(1_000, 1_000 + age, 7_200_000 + MARGIN_MS) is expected


def test_each_salvage_has_a_name_of_its_own() -> None:
    others = [
        name(ONE._replace(transactional_id="etl-1-7"), None),
        name(ONE._replace(producer_id=41), None),
        name(ONE._replace(producer_epoch=4), None),
        name(ONE, "other"),
    ]
    assert len({name(ONE, None), *others}) == 5
    assert name(ONE, None) == name(ONE._replace(operator=""), None)


def test_sources_are_told_apart() -> None:
    first = SourceOffset("in", 0, 5, "Source: a", "a", "00")
    second = SourceOffset("in", 0, 9, "Source: b", "b", "11")
    content = FlinkCheckpoint(6, 2, (), (), (first, second), ())
    for uid in ("b", "Source: b", "11"):
        assert sources(content, uid, where="f") == (second,)
    with pytest.raises(RefusedError, match="several of its sources read the same partition"):
        sources(content, None, where="f")
    with pytest.raises(RefusedError, match="no offsets of a Kafka source"):
        sources(replace(content, offsets=()), None, where="f")
