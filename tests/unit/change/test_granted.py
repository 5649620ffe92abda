"""Which rights a change needs, and which of them a broker's report (KIP-430) shows as missing."""

import pytest

from eoctl.kafka.ask.acls import (
    ALTER,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    NOT_ASKED,
    READ,
    WRITE,
)
from eoctl.operations.change.granted import is_ungranted
from eoctl.operations.restart.restart_plan import STORE, needs_of, parameters
from eoctl.stores.offsets.store import Write
from recovery.change.plan import Step
from recovery.inspect.rights import WRITES_MARKERS, Need
from recovery.shared.store_tables import FileStore, KafkaGroupStore, Store, TopicStore

GROUP = Need("group", "g", "DELETE")


@pytest.mark.parametrize(
    ("need", "granted", "ungranted"),
    [
        (GROUP, (DESCRIBE, DELETE), False),
        (GROUP, (DESCRIBE, READ, WRITE), True),
        (GROUP, (READ,), False),  # without DESCRIBE it is no report
        (GROUP, (), False),
        (WRITES_MARKERS, (DESCRIBE, ALTER), False),
        (WRITES_MARKERS, (DESCRIBE, CLUSTER_ACTION), False),
        (WRITES_MARKERS, (DESCRIBE, DELETE), True),
    ],
)
def test_only_a_report_shows_a_right_as_missing(
    need: Need, granted: tuple[int, ...], ungranted: bool
) -> None:
    bits = sum(1 << operation for operation in granted)
    assert is_ungranted(need, {need.name: bits, "other": 1 << DESCRIBE}) is ungranted
    assert not is_ungranted(need, {"other": 1 << DESCRIBE})
    assert not is_ungranted(need, {need.name: NOT_ASKED})


SET, MADE = Write("in", 0, {"offset": 1}, {"offset": 2}), Write("in", 1, None, {"offset": 2})


@pytest.mark.parametrize(
    ("store", "writes", "needs"),
    [
        (KafkaGroupStore(kind="kafka-group", group="g"), (SET, MADE), {"group g: READ"}),
        (KafkaGroupStore(kind="kafka-group", group="g"), (MADE.reverse,), {"group g: DELETE"}),
        (
            KafkaGroupStore(kind="kafka-group", group="g"),
            (SET.reverse, MADE.reverse),
            {"group g: READ", "group g: DELETE"},
        ),
        (TopicStore(kind="topic", topic="kept", key="k"), (SET,), {"topic kept: WRITE"}),
        (TopicStore(kind="topic", topic="kept", key="k"), (), set()),
        (FileStore(kind="file", path="here"), (SET,), set()),
        (None, (), set()),
    ],
)
def test_a_restart_needs_the_rights_of_its_stores_writes(
    store: Store | None, writes: tuple[Write, ...], needs: set[str]
) -> None:
    written = parameters(STORE, writes)
    step = Step(action="write", target="", parameters=written, does="", stands_on=())
    expected = needs | ({"topic in: READ"} if isinstance(store, KafkaGroupStore) else set())
    found = {f"{need.kind} {need.name}: {need.operation}" for need in needs_of(step, store)}
    assert found == expected
