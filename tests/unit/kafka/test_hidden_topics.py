"""A coordinators' topic that is not described: nobody has used it only if all brokers say so."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from eoctl.kafka.ask import coordinators, groups
from eoctl.kafka.connection.cluster import Cluster, TopicMetadata
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.properties import client_settings
from eoctl.operations.inspect.lists import ever_begun, without_history
from recovery.facts import Missing, Transactions

FAILED = WireError("UNSUPPORTED_VERSION", "the broker does not answer that")
OPEN = SimpleNamespace(transactional_id="id", producer_id=7, transaction_state="Ongoing")
GROUP = SimpleNamespace(group_id="g", group_state="Stable", group_type="classic")


class Hiding(Cluster):
    """Brokers 0, 1, ... without these topics; what each lists, or how it fails."""

    def __init__(self, *listed: list[object] | int | WireError) -> None:
        super().__init__(client_settings({"bootstrap.servers": "127.0.0.1:1"}), Deadline(5))
        self._listed = listed
        self.brokers = dict.fromkeys(range(len(listed)), ("127.0.0.1", 1))  # type: ignore[arg-type]
        self.asked: set[str] = set()

    async def metadata(self, topics: Any = None, **_: Any) -> Any:
        error = "UNKNOWN_TOPIC_OR_PARTITION"
        return SimpleNamespace(topics={t: TopicMetadata(t, None, False, (), error) for t in topics})

    async def ask(self, broker: int, question: Any, **_: Any) -> Any:
        self.asked.add(type(question).__name__)
        found = self._listed[broker]
        if isinstance(found, WireError):
            raise found
        rows, code = ([], found) if isinstance(found, int) else (found, 0)
        return SimpleNamespace(transaction_states=rows, groups=rows, error_code=code)


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        (([], [OPEN]), "brokers list transactions"),
        (([], FAILED), "broker 1 did not list transactions"),
        ((14, []), "broker 0 did not list transactions"),
        ((FAILED, [OPEN]), "brokers list transactions"),
    ],
)
def test_transactions_that_a_service_keeps_elsewhere_are_a_gap(listed: Any, why: str) -> None:
    found = asyncio.run(coordinators.transactions(Hiding(*listed)))
    [gap] = ever_begun(found).missing
    assert why in gap.detail
    assert without_history(found) == ()
    assert asyncio.run(coordinators.find(Hiding(*listed), ["id"])) == ([], [gap])


def test_no_transaction_was_begun_where_no_broker_lists_one() -> None:
    found = asyncio.run(coordinators.transactions(Hiding([], [])))
    assert found == Transactions()
    assert ever_begun(Transactions(missing=without_history(found))).complete
    rows, [missing] = asyncio.run(coordinators.find(Hiding([], []), ["id"]))
    assert (rows, missing.detail) == ([], coordinators.NONE_VISIBLE)


def test_groups_of_a_hidden_topic_are_listed_and_a_gap_is_named() -> None:
    found = asyncio.run(groups.offsets_partitions(Hiding([], [GROUP])))
    assert isinstance(found, Missing)
    assert "brokers list groups" in found.detail
    rows, missing = asyncio.run(groups.list_groups(Hiding([], [GROUP])))
    assert ([g.group for g in rows], missing) == (["g"], [found])


def test_no_group_is_known_only_where_all_brokers_list_none() -> None:
    """A search for a coordinator would make the topic where it does not exist: none is sent."""
    assert asyncio.run(groups.list_groups(Hiding([], []))) == ([], [])
    cluster = Hiding([], FAILED)
    rows, [missing] = asyncio.run(groups.list_groups(cluster))
    assert (rows, missing.broker) == ([], 1)
    asyncio.run(groups.find_groups(cluster, ["g"]))
    assert cluster.asked == {"ListGroupsRequest"}
    _, missing_too = asyncio.run(groups.list_groups(Hiding([], 15)))
    assert [m.broker for m in missing_too] == [1]
