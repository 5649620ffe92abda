"""A broker's release, bounded by its answer to ApiVersions.

The answers are those that the authors of kafka-python recorded from brokers, and ours from the lab.
"""

import ast
import importlib.util
from pathlib import Path

import pytest

from recovery.doctor.versions import (
    APIS,
    METADATA,
    NEXT,
    Protocol,
    Version,
    VersionRange,
    bounds,
    by_hand,
    newer_than_known,
    releases,
)
from recovery.errors import UsageError

Answers = dict[tuple[int, ...], dict[int, tuple[int, int]]]


def recorded() -> Answers:
    """Answers by release, from the text of kafka-python: importing it would load its client."""
    spec = importlib.util.find_spec("kafka")
    assert spec is not None
    assert spec.submodule_search_locations
    file = Path(spec.submodule_search_locations[0]) / "protocol" / "broker_version_data.py"
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "BROKER_API_VERSIONS":
            answers: Answers = ast.literal_eval(node.value)
            return answers
    raise AssertionError(file)


ANSWERS = recorded()
ANSWERS[4, 4] = {**ANSWERS[4, 3], 18: (0, 5), 28: (0, 6)}
"""kafka-python has recorded none of 4.4: as the lab's broker of 4.4.0 answers."""
NEW = [release for release in ANSWERS if release >= (2, 8)]
LEVELS = {
    (3, 3): 7,
    (3, 4): 8,
    (3, 5): 11,
    (3, 6): 14,
    (3, 7): 19,
    (3, 8): 20,
    (3, 9): 21,
    (4, 0): 25,
    (4, 1): 27,
    (4, 2): 29,
    (4, 3): 30,
    (4, 4): 33,
}
"""Of metadata.version, as kafka-features.sh of each release prints the newest one."""


def of(release: tuple[int, ...], level: int | None = None) -> Protocol:
    """What a broker of a release answers. level: of metadata.version, None: it has no such."""
    return Protocol(ANSWERS[release], {} if level is None else {METADATA: level})


@pytest.mark.parametrize("release", NEW)
def test_the_bounds_of_a_recorded_answer_hold_its_release(release: tuple[int, int]) -> None:
    seen = bounds(of(release))
    assert seen is not None
    assert VersionRange((*release, 0), (*release, 1)).within(seen)


@pytest.mark.parametrize("release", NEW)
def test_the_table_is_what_was_recorded(release: tuple[int, int]) -> None:
    has = dict(releases()[*release, 0])
    assert has.pop(METADATA, None) == LEVELS.get(release)
    recorded = {name: ANSWERS[release][key][1] for name, key in APIS.items() if name in has}
    assert has == recorded
    assert {name for name, key in APIS.items() if key in ANSWERS[release]} == set(has)


def test_most_branches_are_told_apart_by_their_requests_alone() -> None:
    apart = {release: str(bounds(of(release))) for release in NEW}
    others = {release for release, text in apart.items() if text != "{}.{}.x".format(*release)}
    assert others == {(3, 3), (3, 4), (3, 6), (4, 0)}
    assert apart[3, 3] == apart[3, 4] == "3.3.0 or later, before 3.5.0"
    assert apart[3, 6] == "3.5.0 or later, before 3.7.0"  # 3.5 with unstable versions answers so
    assert apart[4, 0] == "4.0.0"  # recorded from 4.0.0, which answers JoinGroup from version 2 on


def test_without_joingroup_every_release_of_4_0_is_possible() -> None:
    """A proxy may leave it out of the answer."""
    answer = {key: versions for key, versions in ANSWERS[4, 0].items() if key != APIS["JoinGroup"]}
    assert bounds(Protocol(answer)) == VersionRange((4, 0, 0), (4, 1, 0))


@pytest.mark.parametrize("release", [(3, 3), (3, 4), (3, 6), (4, 3), (4, 4)])
def test_the_level_of_metadata_tells_them_apart(release: tuple[int, int]) -> None:
    assert str(bounds(of(release, LEVELS[release]))) == f"{release[0]}.{release[1]}.x"


def test_the_finalized_level_is_one_that_every_broker_can_do() -> None:
    seen = bounds(Protocol(ANSWERS[3, 3], {}, {METADATA: LEVELS[3, 4]}))
    assert seen == VersionRange((3, 4, 0), (3, 5, 0))


@pytest.mark.parametrize("release", [(2, 0), (2, 4), (2, 6), (2, 7)])
def test_an_older_answer_is_before_the_table(release: tuple[int, int]) -> None:
    assert bounds(of(release)) == VersionRange(below=(2, 8, 0))


def changed(name: str, number: int) -> Protocol:
    """Kafka 4.4's answer with one newest version changed."""
    return Protocol({**ANSWERS[4, 4], APIS[name]: (0, number)})


def test_an_answer_above_the_table_is_later_than_it() -> None:
    assert newer_than_known(of((4, 4))) == {}
    assert newer_than_known(changed("EndTxn", 6)) == {"EndTxn": 6}
    assert bounds(changed("EndTxn", 6)) == VersionRange((4, 4, 0), None)
    level = Protocol(ANSWERS[4, 4], {METADATA: 34})
    assert newer_than_known(level) == {METADATA: 34}
    assert str(bounds(level)) == "4.4.0 or later"


def test_an_answer_of_no_release_has_no_bounds() -> None:
    """The newest Produce with the oldest Fetch: of another product."""
    mixed = {**ANSWERS[2, 8], APIS["Produce"]: (0, 13)}
    assert bounds(Protocol(mixed)) is None
    assert bounds(Protocol(ANSWERS[4, 3], {METADATA: 21})) is None


def test_versions_that_are_not_stable_yet_change_no_bound() -> None:
    """`unstable.api.versions.enable` on 4.1 answers OffsetCommit 10, stable since 4.2."""
    apis = {APIS["OffsetCommit"]: (2, 10), APIS["OffsetFetch"]: (1, 10)}
    apis[APIS["InitProducerId"]] = (0, 6)
    assert str(bounds(Protocol({**ANSWERS[4, 1], **apis}))) == "4.1.x"
    assert newer_than_known(changed("InitProducerId", 6)) == {}


def test_requests_that_a_service_blocks_leave_the_others() -> None:
    apis = {k: v for k, v in ANSWERS[3, 8].items() if k not in (APIS["WriteTxnMarkers"], 35, 66)}
    assert str(bounds(Protocol(apis))) == "3.8.x"
    assert bounds(Protocol({})) == VersionRange((2, 8, 0), NEXT)


@pytest.mark.parametrize(
    ("text", "least", "below"),
    [
        ("3.6.1", (3, 6, 1), (3, 6, 2)),
        ("3.6", (3, 6, 0), (3, 7, 0)),
        ("3.9", (3, 9, 0), (4, 0, 0)),
        ("10.11.12", (10, 11, 12), (10, 11, 13)),
    ],
)
def test_a_version_by_hand(text: str, least: Version, below: Version) -> None:
    assert by_hand(text) == VersionRange(least, below)


@pytest.mark.parametrize("text", ["", "4", "v4.0.1", "4.0.1-rc1", "7.6.0-ccs", "4.0.1.2", "4.0.x"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(UsageError, match="no version of Apache Kafka"):
        by_hand(text)


R = VersionRange
A, B, C = (3, 6, 0), (3, 7, 0), (4, 0, 0)


@pytest.mark.parametrize(
    ("one", "other", "within", "overlaps"),
    [
        (R(A, B), R(A, B), True, True),
        (R(A, B), R(A, C), True, True),
        (R(A, C), R(A, B), False, True),
        (R(A, B), R(B, C), False, False),
        (R(None, B), R(A, B), False, True),
        (R(A, B), R(None, B), True, True),
        (R(A, None), R(A, B), False, True),
        (R(A, B), R(A, None), True, True),
        (R(B, None), R(None, B), False, False),
        (R(), R(A, B), False, True),
        (R(A, B), R(), True, True),
    ],
)
def test_ranges_compared(one: R, other: R, within: bool, overlaps: bool) -> None:
    assert one.within(other) is within
    assert one.overlaps(other) is overlaps
    assert other.overlaps(one) is overlaps
