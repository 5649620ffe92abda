"""Which rights a change needs, and which of them a broker's report (KIP-430) shows as missing."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eoctl.kafka.ask import acls
from eoctl.kafka.ask.acls import (
    ALTER,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    NOT_ASKED,
    READ,
    WRITE,
)
from eoctl.operations.change.granted import is_ungranted, ungranted
from eoctl.operations.change.steps import NeedsRights
from eoctl.operations.dedup.copying import DedupOperation
from eoctl.operations.merge.replay_change import Replaying, Running
from eoctl.operations.remedy import raising
from eoctl.operations.remedy.remedy_change import RemedyOperation
from eoctl.operations.remedy.salvage_change import SalvageOperation
from eoctl.operations.restart.applying import Restarting
from eoctl.operations.restart.restart_plan import MIRROR, STORE, needs_of, parameters
from eoctl.operations.state.into_topic import IntoTopic
from eoctl.stores.offsets.store import Write
from recovery.change.plan import Step
from recovery.dedup.dedup_request import DedupRequest
from recovery.inspect.rights import WRITES_MARKERS, Need, ungranted_error
from recovery.remedy.repairs import MARKER_ACTION
from recovery.shared.record_ids import parse_record_id
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
    expected = needs | ({"topic in: READ"} if isinstance(store, KafkaGroupStore) else set())
    assert spoken(needs_of(step("write", written), store)) == expected


def step(action: str, parameters: dict[str, Any] | None = None, target: str = "t") -> Step:
    given = parameters or {}
    return Step(action=action, target=target, parameters=given, does="", stands_on=())


def spoken(needs: frozenset[Need]) -> set[str]:
    return {f"{need.kind} {need.name}: {need.operation}" for need in needs}


ANY = cast("Any", SimpleNamespace(cluster_id="c", two_phase_patterns=()))
REPLAY = {
    "format": "json",
    "inputs": ["in1", "in2"],
    "output": "out",
    "isolation": "read_committed",
    "follow": False,
    "bases": {"0": [0, 0]},
}
LOST = {"producer_id": 7, "producer_epoch": 0, "checkpoint_id": 3, "pieces": {"in:0": [1, 2, 3]}}
LIMITS = {"long_after_ms": 1, "stuck_after_ms": 1, "clock_skew_ms": 1, "sample_interval_ms": 1}


def remedy() -> RemedyOperation:
    return RemedyOperation(ANY, ANY, cast("Any", SimpleNamespace(details=LIMITS)))


def dedup() -> DedupOperation:
    wish = DedupRequest("in", "out", parse_record_id("key"), "job").plain
    topics = {"in": ["a", 1], "out": ["b", 1]}
    made = SimpleNamespace(details={"wish": wish}, observed={"topics": topics})
    return DedupOperation(ANY, ANY, cast("Any", made), None)


def restart() -> Restarting:
    mirror = TopicStore(kind="topic", topic="kept", key="k")
    asked = SimpleNamespace(store=KafkaGroupStore(kind="kafka-group", group="g"), mirror=mirror)
    return Restarting(ANY, cast("Any", asked), ANY, ANY)


def salvage() -> SalvageOperation:
    return SalvageOperation(ANY, ANY, ANY)


def group_of(copied: frozenset[Need]) -> str:
    [group] = [need for need in copied if need.kind == "group"]
    assert group.operation == "READ"
    return group.name


def test_a_dedup_reads_its_source_and_writes_its_output() -> None:
    found = dedup().needs(step("copy"))
    assert spoken(found) == {"topic in: READ", "topic out: WRITE", "group job-eoctl-dedup: READ"}


def test_what_is_read_back_needs_read_too() -> None:
    """Else it would be called copied, or delivered, on the word of its writer."""
    replay = Replaying(ANY, Running(), None).needs(step("replay", REPLAY, "log"))
    reads = {f"topic {name}: READ" for name in ("log", "in1", "in2", "out")}
    assert spoken(replay) == {*reads, "topic out: WRITE", f"group {group_of(replay)}: READ"}
    follow = Replaying(ANY, Running(), None).needs(step("follow", REPLAY | {"follow": True}, "log"))
    assert spoken(follow - replay) == {"topic log: WRITE"}, "it extends the log"
    away = salvage().needs(step("salvage", LOST | {"to": "out"}))
    assert {"topic in: READ", "topic out: READ", "topic out: WRITE"} < spoken(away)
    assert "topic in: WRITE" not in spoken(away)
    here = salvage().needs(step("salvage", LOST | {"to": None}))
    assert {"topic in: READ", "topic in: WRITE"} < spoken(here)
    into = IntoTopic(ANY, ANY, cast("Any", SimpleNamespace(topic="out")), ANY).needs(
        step("deliver")
    )
    assert spoken(into) == {"topic out: READ", "topic out: WRITE", "group out-eoctl-deliver: READ"}


def test_only_a_marker_needs_alter_on_the_cluster() -> None:
    assert remedy().needs(step(MARKER_ACTION)) == {WRITES_MARKERS}
    assert remedy().needs(step("fence")) == remedy().needs(step(raising.ACTION)) == frozenset()


def test_a_restart_needs_what_each_of_its_stores_needs() -> None:
    main = restart().needs(step("write", parameters(STORE, (SET,))))
    assert spoken(main) == {"group g: READ", "topic in: READ"}
    assert spoken(restart().needs(step("write", parameters(MIRROR, (SET,))))) == {
        "topic kept: WRITE"
    }
    assert restart().needs(step("keep")) == frozenset()


def test_every_change_of_a_cluster_says_what_it_needs() -> None:
    replaying = Replaying(ANY, Running(), None)
    into = IntoTopic(ANY, ANY, cast("Any", SimpleNamespace(topic="out")), ANY)
    for operation in (dedup(), replaying, into, remedy(), restart(), salvage()):
        assert isinstance(operation, NeedsRights)


NEEDS = frozenset(
    {
        *(Need("topic", f"t{n}", "WRITE") for n in range(5)),
        *(Need("group", f"g{n}", "READ") for n in range(5)),
        WRITES_MARKERS,
    }
)


class Brokers:
    """Reports DESCRIBE alone on everything, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def topic_operations(self, names: Sequence[str]) -> dict[str, int]:
        self.asked.append(names)
        return dict.fromkeys(names, 1 << DESCRIBE)

    async def ask_any(self, question: Any, *, most: int) -> Any:
        self.asked.append((type(question).__name__, most))
        assert question.include_cluster_authorized_operations
        assert question.topics == []
        return SimpleNamespace(cluster_authorized_operations=1 << DESCRIBE)


def test_each_kind_of_resource_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster's by Metadata, which brokers before Kafka 2.8 know too."""

    async def group_operations(cluster: Any, names: Sequence[str]) -> Any:
        cluster.asked.append(names)
        return dict.fromkeys(names, 1 << DESCRIBE), []

    monkeypatch.setattr(acls, "group_operations", group_operations)
    brokers = Brokers()
    assert asyncio.run(ungranted(cast("Any", brokers), NEEDS)) == NEEDS
    topics, groups = ([f"{kind}{n}" for n in range(5)] for kind in "tg")
    assert brokers.asked == [topics, groups, ("MetadataRequest", 10)]


def test_a_refusal_names_every_right_and_what_older_brokers_call_it() -> None:
    error = ungranted_error(NEEDS, "here")
    assert error.remedy is not None
    assert error.remedy.startswith(
        "grant ALTER on the cluster (before Kafka 3.8: CLUSTER_ACTION), "
    )
    assert all(need.right in error.remedy for need in NEEDS)
    assert "and 8 more" in error.what


def test_a_topic_without_a_name_is_not_the_cluster() -> None:
    assert Need("topic", "", "WRITE").right == "WRITE on topic "
