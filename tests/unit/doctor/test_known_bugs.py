"""Which releases have which bug: release by release, from Kafka's own release notes and tags."""

import re

import pytest

from eoctl.render.explain import entries, part
from recovery.doctor.known_bugs import KNOWN_BUGS, bugs_of
from recovery.doctor.versions import VersionRange, by_hand

RELEASES = [
    "2.8.0",
    "2.8.1",
    "2.8.2",
    "3.0.0",
    "3.0.1",
    "3.0.2",
    "3.1.0",
    "3.1.1",
    "3.1.2",
    "3.2.0",
    "3.2.1",
    "3.2.2",
    "3.2.3",
    "3.3.0",
    "3.3.1",
    "3.3.2",
    "3.4.0",
    "3.4.1",
    "3.5.0",
    "3.5.1",
    "3.5.2",
    "3.6.0",
    "3.6.1",
    "3.6.2",
    "3.7.0",
    "3.7.1",
    "3.7.2",
    "3.8.0",
    "3.8.1",
    "3.9.0",
    "3.9.1",
    "3.9.2",
    "4.0.0",
    "4.0.1",
    "4.0.2",
    "4.1.0",
    "4.1.1",
    "4.1.2",
    "4.2.0",
    "4.2.1",
    "4.2.2",
    "4.3.0",
    "4.3.1",
    "4.4.0",
]
THROUGH = {release: " ".join(RELEASES[: RELEASES.index(release) + 1]) for release in RELEASES}
"""Release → all up to it."""
WITH = {
    "KAFKA-13727": "2.8.0 2.8.1 3.0.0 3.0.1 3.1.0",
    "KAFKA-14055": "2.8.0 2.8.1 2.8.2 3.0.0 3.0.1 3.1.0 3.1.1 3.2.0",
    "KAFKA-14417": "3.0.0 3.0.1 3.0.2 3.1.0 3.1.1 3.1.2 3.2.0 3.2.1 3.2.2 3.2.3 3.3.0 3.3.1",
    "KAFKA-14880": THROUGH["3.4.0"],
    "KAFKA-14561": THROUGH["3.5.2"],
    "KAFKA-15449": THROUGH["3.6.2"],
    "KAFKA-15552": "3.4.0 3.4.1 3.5.0 3.5.1 3.6.0",
    "KAFKA-15653": "3.6.0",
    "KAFKA-16386": "3.6.0 3.6.1 3.6.2 3.7.0",
    "KAFKA-16229": "3.5.0 3.5.1 3.5.2 3.6.0 3.6.1 3.6.2 3.7.0 3.7.1 3.7.2",
    "KAFKA-16352": THROUGH["3.7.2"],
    "KAFKA-17507": THROUGH["3.9.0"],
    "KAFKA-14562": THROUGH["3.9.2"],
    "KAFKA-19690": "3.6.0 3.6.1 3.6.2 3.7.0 3.7.1 3.7.2 3.8.0 3.8.1 3.9.0 3.9.1 4.0.0 4.0.1 4.1.0",
    "KAFKA-19163": "4.0.0",
    "KAFKA-19367": "4.0.0",
    "KAFKA-20090": "4.0.0 4.0.1 4.0.2 4.1.0 4.1.1 4.1.2 4.2.0 4.2.1 4.2.2",
    "KAFKA-20734": "4.3.0 4.3.1 4.4.0",
}


def having(number: str) -> str:
    """The releases that certainly have a bug."""
    return " ".join(
        release
        for release in RELEASES
        if number in {s.bug.number for s in bugs_of(by_hand(release)) if s.certain}
    )


@pytest.mark.parametrize("number", [bug.number for bug in KNOWN_BUGS])
def test_the_releases_with_a_bug(number: str) -> None:
    assert having(number) == WITH[number]


@pytest.mark.parametrize("release", RELEASES)
def test_of_one_release_nothing_is_uncertain(release: str) -> None:
    assert all(suspicion.certain for suspicion in bugs_of(by_hand(release)))


def test_a_branch_has_for_certain_what_all_its_releases_have() -> None:
    branches = {release.rpartition(".")[0] for release in RELEASES}
    for branch in branches:
        of_each = [
            {s.bug.number for s in bugs_of(by_hand(release))}
            for release in RELEASES
            if release.rpartition(".")[0] == branch
        ]
        found = bugs_of(by_hand(branch))
        if branch in ("4.3", "4.4"):  # they may get a release with the fix
            assert [(s.bug.number, s.certain) for s in found] == [("KAFKA-20734", False)]
            continue
        assert {s.bug.number for s in found if s.certain} == set.intersection(*of_each), branch
        assert {s.bug.number for s in found} >= set.union(*of_each), branch


def test_what_is_not_known_may_have_any_bug() -> None:
    assert [s.bug for s in bugs_of(VersionRange())] == list(KNOWN_BUGS)
    assert not any(s.certain for s in bugs_of(VersionRange()))


def test_a_release_that_was_not_read_may_have_what_has_no_fix() -> None:
    for later in ("4.3.2", "4.4.1", "9.0.0"):
        assert [(s.bug.number, s.certain) for s in bugs_of(by_hand(later))] == [
            ("KAFKA-20734", False)
        ]


def test_every_bug_has_its_entry() -> None:
    assert {e.word for e in entries() if e.kind == "known bug"} == {b.number for b in KNOWN_BUGS}
    for bug in KNOWN_BUGS:
        assert re.fullmatch(r"KAFKA-\d{5}", bug.number)
        assert part(bug.number, "known bug", "harm"), bug.number
        assert part(bug.number, "known bug", "remedy"), bug.number
        assert list(bug.fixed) == sorted(bug.fixed)
        assert list(bug.affected()), bug.number
