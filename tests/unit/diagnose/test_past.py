"""What coordinators' clocks tell when one of them does not answer."""

from eoctl.operations.diagnose.ids import Past

NOTHING = Past(None, None, None)


def test_a_coordinator_that_is_silent_hides_only_its_own_ids() -> None:
    past = Past(frozenset({"late"}), frozenset(), frozenset(), unseen=frozenset({"hidden"}))
    assert past.of(["late", "young"]) == past
    assert past.of([]) == past
    assert past.of(["late", "hidden"]) == NOTHING
