"""Members that were not seen are never nobody."""

from hypothesis import given
from hypothesis import strategies as st

from recovery.diagnose.case import life_of, named_after, possible_groups
from recovery.facts import GroupFacts, Missing, StreamsProcess
from recovery.inspect.connect_ids import LEADER
from recovery.inspect.group_life import GroupLife, group_life, own_process
from recovery.values import replace

MEMBERS = (("client", "10.0.0.7"),)
DENIED = Missing("group", "GROUP_AUTHORIZATION_FAILED", "DESCRIBE on the group is not granted")
names = st.text(st.sampled_from("ab-"), max_size=6)


def group(name: str, members: tuple[tuple[str, str], ...] | None) -> GroupFacts:
    return GroupFacts(name, "Stable", members=members)


def test_only_a_group_without_members_of_which_nothing_is_missing_has_nobody() -> None:
    nobody, somebody, unseen = group("a", ()), group("b", MEMBERS), group("c", None)
    assert group_life([nobody]) == GroupLife()
    assert group_life([nobody, somebody]) == GroupLife((somebody,))
    life = group_life([nobody, somebody, unseen])
    assert life == GroupLife((somebody,), ("group 'c': its members were not seen (NOT_SEEN)",))


def test_what_is_missing_is_said_once_for_all_its_groups() -> None:
    missing = [replace(DENIED, id=name) for name in ("a", "b", "c", "d", "e")]
    life = group_life([group("a", None)], missing)
    (text,) = life.unseen
    assert text == (
        "groups 'a', 'b', 'c' and 2 more: DESCRIBE on the group is not granted "
        "(GROUP_AUTHORIZATION_FAILED)"
    )
    assert group_life([], [Missing("coordinator", "TIMED_OUT", "no answer", broker=2)]).unseen == (
        "broker 2: no answer (TIMED_OUT)",
    )


def test_an_id_is_concerned_by_the_groups_of_its_name_and_by_what_names_none() -> None:
    other, mine = replace(DENIED, id="orders"), replace(DENIED, id="app")
    assert life_of("app-1", [group("orders", MEMBERS)], [other]) == GroupLife()
    assert life_of("app-1", [], [mine, other]).unseen == (
        "group 'app': DESCRIBE on the group is not granted (GROUP_AUTHORIZATION_FAILED)",
    )
    assert life_of("app-1", [], [DENIED]).unseen


@given(names, names, st.booleans())
def test_the_possible_groups_are_those_that_an_id_may_be_named_after(
    name: str, other: str, leads: bool
) -> None:
    transactional_id = LEADER + name if leads else name
    possible = possible_groups(transactional_id)
    assert (other in possible) == named_after(transactional_id, other)
    assert all(named_after(transactional_id, g) for g in possible)


def test_a_process_of_kafka_streams_is_named_by_its_id_alone() -> None:
    processes = (StreamsProcess("x", "h1", "uuid-1"), StreamsProcess("y", "h2", "uuid-2"))
    g = GroupFacts("app", "Stable", "Streams", members=MEMBERS, processes=processes)
    assert own_process("app-uuid-2-1", [g, g]) == [("y", "h2")]
    assert own_process("app-uuid-22-1", [g]) == []
    assert own_process("other-uuid-2-1", [g]) == []
