"""The requests that change a transaction, field by field, and a marker's plan."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import WireError
from eoctl.kafka.write.markers import (
    Answered,
    end_transaction,
    initialise_producer,
    write_marker,
)
from eoctl.operations.diagnose.copied import InSource
from eoctl.operations.remedy import copied, marker, raising, stake
from eoctl.operations.remedy.copied import Proof
from eoctl.operations.remedy.remedy_plan import RemedyRequest
from recovery.change.plan import Step, differences
from recovery.diagnose.copied import Copied, CopyDoubt, why_unproven
from recovery.diagnose.diagnosis import Judged
from recovery.errors import IncompleteError, RefusedError, UnreachableError
from recovery.facts import (
    PartitionFacts,
    ProducerFacts,
    TopicPartition,
    TransactionFacts,
    Transactions,
)
from recovery.inspect.history import Decision, Marker
from recovery.inspect.observation import OpenTransaction
from recovery.remedy.repairs import MARKER_ACTION, EndRequest, InitRequest, MarkerRequest
from recovery.values import replace


class Broker:
    """Answers once. asked: the request, its broker and its versions."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.asked: list[Any] = []

    async def ask(self, broker: int, question: Any, **versions: int) -> Any:
        self.asked = [broker, question, versions]
        return self._answer


def of(broker: Broker) -> Cluster:
    return cast("Cluster", broker)


def marked(*partitions: tuple[str, int, int]) -> Any:
    """WriteTxnMarkers' answer: topic, partition, error code."""
    topics = [
        SimpleNamespace(
            name=topic, partitions=[SimpleNamespace(partition_index=number, error_code=code)]
        )
        for topic, number, code in partitions
    ]
    return SimpleNamespace(markers=[SimpleNamespace(topics=topics)])


@pytest.mark.parametrize("outcome", ["abort", "commit"])
@pytest.mark.parametrize(("version", "versions"), [(0, {"most": 1}), (2, {"least": 2})])
def test_a_marker_names_one_partition_and_its_outcome(
    outcome: str, version: int, versions: dict[str, int]
) -> None:
    broker = Broker(marked(("t", 4, 47), ("u", 3, 47), ("t", 3, 0)))
    sent = MarkerRequest("t", 3, 7, 5, outcome, 11, version)
    assert asyncio.run(write_marker(of(broker), 2, sent)) == "NONE"
    assert (broker.asked[0], broker.asked[2]) == (2, versions)
    [marker] = broker.asked[1].markers
    [topic] = marker.topics
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 5, 11)
    assert marker.transaction_result is (outcome == "commit")
    assert (topic.name, list(topic.partition_indexes)) == ("t", [3])
    assert marker.transaction_version == version


def test_an_answer_for_other_partitions_is_none() -> None:
    sent = MarkerRequest("t", 3, 7, 5, "abort", 11, 0)
    assert asyncio.run(write_marker(of(Broker(marked(("t", 3, 47)))), 2, sent)) == (
        "INVALID_PRODUCER_EPOCH"
    )
    with pytest.raises(WireError, match="did not answer for this partition"):
        asyncio.run(write_marker(of(Broker(marked(("t", 4, 0)))), 2, sent))


def answer(code: int, producer_id: int = 7, epoch: int = 6) -> Any:
    return SimpleNamespace(error_code=code, producer_id=producer_id, producer_epoch=epoch)


@pytest.mark.parametrize(
    ("version", "given", "found"),
    [
        (5, answer(0), Answered("NONE", 7, 6)),
        (5, answer(0, 0, 0), Answered("NONE", 0, 0)),
        (5, answer(0, -1, -1), Answered("NONE")),
        (5, answer(90), Answered("PRODUCER_FENCED")),
        (4, answer(0), Answered("NONE")),
        (6, answer(0), Answered("NONE", 7, 6)),
    ],
)
@pytest.mark.parametrize("commit", [False, True])
def test_the_end_of_a_transaction(
    version: int, given: Any, found: Answered, *, commit: bool
) -> None:
    broker = Broker(given)
    sent = EndRequest(version, "x", 7, 5, commit)
    assert asyncio.run(end_transaction(of(broker), 2, sent)) == found
    at, question, versions = broker.asked
    assert (at, versions) == (2, {"least": version, "most": version})
    assert (question.transactional_id, question.producer_id, question.producer_epoch) == ("x", 7, 5)
    assert question.committed is commit


@pytest.mark.parametrize(
    ("given", "found"),
    [(answer(0), Answered("NONE", 7, 6)), (answer(90), Answered("PRODUCER_FENCED"))],
)
def test_an_id_is_initialised_by_its_epoch(given: Any, found: Answered) -> None:
    broker = Broker(given)
    sent = InitRequest("x", 7, 5, 60_000)
    assert asyncio.run(initialise_producer(of(broker), 2, sent)) == found
    at, question, versions = broker.asked
    assert (at, versions) == (2, {"least": 3, "most": 4})  # 3: names an epoch (KIP-360)
    assert (question.transactional_id, question.producer_id, question.producer_epoch) == ("x", 7, 5)
    assert question.transaction_timeout_ms == 60_000


AT = TopicPartition("t", 3)


def planned(
    monkeypatch: pytest.MonkeyPatch,
    request: RemedyRequest,
    *owners: TransactionFacts,
    version: int | None = 5,
    proof: Proof | None = None,
    history: object = None,
    epoch: int = 5,
) -> tuple[tuple[Step, ...], dict[str, Any]]:
    """The marker of producer 7 whose transaction began at 20."""

    async def nothing(*given: Any) -> None:
        return None

    async def of_leader(cluster: Any, leader: int) -> int:
        assert leader == 2
        return 1

    async def of_coordinator(cluster: Any, broker: int) -> int | None:
        assert broker == 1
        return version

    async def evidence(cluster: Any, judged: Any, outcome: str) -> dict[str, Any]:
        return {"partition": "t:3", "outcome": outcome, "evidence": []}

    async def at_stake(*given: Any) -> dict[str, Any]:
        return {"stake": True}

    monkeypatch.setattr(marker, "step_evidence", evidence)
    monkeypatch.setattr(marker, "_write_version", of_leader)
    monkeypatch.setattr(raising, "refuse_short_log", nothing)
    monkeypatch.setattr(raising, "refuse_timeout", nothing)
    monkeypatch.setattr(raising, "end_version", of_coordinator)
    monkeypatch.setattr(stake, "of", at_stake)
    monkeypatch.setattr(stake, "costs", lambda about, outcome: (f"{outcome} costs",))
    row = ProducerFacts(*AT, 7, epoch, 9, 1, 11, 20)
    judged = SimpleNamespace(
        about=OpenTransaction(*AT, 7, 20),
        newest=SimpleNamespace(
            producer=lambda producer_id: row if producer_id == 7 else None,
            transactions=Transactions(owners),
        ),
        partition=PartitionFacts(*AT, "id", 2, 6, (2,), 0, 20, 40),
        start=SimpleNamespace(producer_epoch=4),
        verdict=SimpleNamespace(name="orphan", rule="r", proven_outcome=None, decision=None),
        history=history,
    )
    made = marker.marker_steps(cast("Cluster", None), cast("Judged", judged), request, proof)
    return asyncio.run(made)


def owner(epoch: int, state: str = "Empty", name: str = "x") -> TransactionFacts:
    return TransactionFacts(name, 1, 7, state, epoch, 60_000, 1, ())


ABORT = RemedyRequest("abort", "t:3", 7, 20)


def test_a_plan_of_one_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can write with its epoch any more."""
    [step], observed = planned(monkeypatch, ABORT, owner(6))
    assert (step.action, step.target) == (MARKER_ACTION, "t:3")
    p = step.parameters
    assert (p["producer_id"], p["outcome"], p["leader"]) == (7, "abort", 2)
    assert (p["start_offset"], p["described_epoch"], p["last_sequence"]) == (20, 5, 9)
    assert (p["end_offset"], p["without_proof"]) == (40, False)
    assert step.about == [{"partition": "t:3", "outcome": "abort", "evidence": []}]
    assert observed == {
        "t:3 pid 7": {
            "topic_id": "id",
            "leader": 2,
            "leader_epoch": 6,
            "start_offset": 20,
            "start_batch_epoch": 4,
            "producer_epoch": 5,
            "last_sequence": 9,
            "coordinator_epoch": 11,
            "verdict": "orphan",
            "rule": "r",
            "proven_outcome": None,
            "decision_offset": None,
        }
    }


@pytest.mark.parametrize("outcome", ["abort", "commit"])
@pytest.mark.parametrize("version", [5, None])
def test_an_idle_id_that_could_write_with_its_epoch_is_raised_first(
    monkeypatch: pytest.MonkeyPatch, outcome: str, version: int | None
) -> None:
    request = RemedyRequest("resolve", "t:3", 7, 20, outcome=outcome)
    steps, observed = planned(monkeypatch, request, owner(5), version=version)
    first, second = steps
    assert (first.action, first.target) == (raising.ACTION, "x")
    assert first.parameters["above"] >= 5
    assert first.parameters["end_version"] == version
    assert first.parameters["owner_is_gone"] is False
    assert (second.action, second.parameters["outcome"]) == (MARKER_ACTION, outcome)
    assert len(first.harms) == (2 if outcome == "commit" else 1)
    assert set(observed) == {"id x", "t:3 pid 7"}


@pytest.mark.parametrize(
    "history", [None, SimpleNamespace(decisions=()), SimpleNamespace(decisions=("of its name",))]
)
def test_an_orphan_may_be_a_byte_copy(monkeypatch: pytest.MonkeyPatch, history: object) -> None:
    """A decision here may be on an earlier topic of its name."""
    [step], _ = planned(monkeypatch, ABORT, history=history)
    [harm] = step.harms
    assert "audit mirror-transactions" in harm
    resolve = RemedyRequest("resolve", "t:3", 7, 20, outcome="abort")
    assert planned(monkeypatch, resolve, history=history)[0][0].harms == ()


def test_a_marker_without_proof_says_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    request = RemedyRequest("resolve", "t:3", 7, 20, outcome="commit", without_proof=True)
    [step], _ = planned(monkeypatch, request)
    assert step.harms == ("commit costs",)
    assert step.about[0]["stake"]
    assert step.parameters["without_proof"] is True


def test_no_marker_while_an_owner_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match="somebody may write with the marker's epoch"):
        planned(monkeypatch, ABORT, owner(5, "Ongoing"))


def test_an_id_far_below_the_records_epoch_is_not_raised_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has their producer id by chance: its application would be shut out for nothing."""
    [first, _], _ = planned(monkeypatch, ABORT, owner(5), epoch=105)
    assert first.parameters["above"] == 105
    with pytest.raises(RefusedError) as refused:
        planned(monkeypatch, ABORT, owner(5), epoch=106)
    said = refused.value.sentence
    assert "its epoch is 5, the records' is 106: its producer id is equal by chance" in said
    assert "give that application a new transactional id" in said
    assert "somebody may write" not in said


HERE = (TopicPartition("t", 3),)
DECISION = Decision("app", "commit", 7, 6, HERE, 0, 12, 990, 2, 900, 1_010)
MARKER = Marker(90, "commit", 6, 0, 1_000, data_epoch=5)


def proof(**changed: Any) -> Proof:
    same = Copied("commit", None, 90, 2, 5, MARKER, DECISION)
    found = InSource("A", TopicPartition("theirs", 3), "id-a", "id-b", 0, same)
    return Proof("dc1", replace(found, **changed))


def test_a_byte_copy_rests_on_what_the_source_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    request = RemedyRequest("resolve", "t:3", 7, 20, outcome="commit", source="dc1")
    (raised, step), observed = planned(monkeypatch, request, owner(5), proof=proof())
    assert "has the source's producer id by chance" in raised.harms[-1]
    assert step.stands_on == ("t:3 pid 7", "theirs:3 in dc1")
    assert step.parameters["copied_from"] == {"context": "dc1", "topic": "theirs"}
    assert observed["theirs:3 in dc1"] == proof().facts()
    for said in ("It must be stopped", "other partitions in the mirror", "5 records of this"):
        assert sum(said in harm for harm in step.harms) == 1
    assert not any("topic ids" in harm for harm in step.harms)
    assert marker._hits((step,), request) == "commit-link-is-stopped-t:3"


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_running_link_harms_either_outcome(outcome: str) -> None:
    same = Copied(outcome, None, 90, 2, 0, MARKER, DECISION)
    harms = proof(copied=same, ahead=7, topic_id=None).harms()
    assert "goes on after the mirror's end" in harms[0]
    assert "It must be stopped" in harms[0]
    assert "without topic ids" in harms[1]
    assert len(harms) == (3 if outcome == "commit" else 2)


OTHERWISE: list[dict[str, Any]] = [
    {"cluster_id": "another behind that name"},
    {"topic_id": "recreated there"},
    {"mirror_topic_id": "recreated here"},
    {"copied": Copied("commit", None, 90, 3, 5, MARKER, DECISION)},
    {"copied": Copied("commit", None, 95, 2, 5, replace(MARKER, offset=95), DECISION)},
    {"copied": Copied("commit", None, 90, 2, 5, MARKER, replace(DECISION, offset=13))},
    {
        "copied": Copied(
            "abort", None, 90, 2, 5, MARKER, replace(DECISION, transactional_id="other")
        )
    },
]


@pytest.mark.parametrize("changed", OTHERWISE)
def test_a_source_that_changed_since_the_plan_stops_it(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    request = RemedyRequest("resolve", "t:3", 7, 20, outcome="commit", source="dc1")
    [step], observed = planned(monkeypatch, request, proof=proof())
    assert observed_now(monkeypatch, step, proof()) == {"theirs:3 in dc1": proof().facts()}
    now = observed | observed_now(monkeypatch, step, proof(**changed))
    assert differences({k: observed[k] for k in step.stands_on}, now)


@pytest.mark.parametrize("doubt", ["decisions-not-read", "decision-gone", "not-the-same"])
def test_a_source_that_proves_nothing_any_more_says_why(
    monkeypatch: pytest.MonkeyPatch, doubt: CopyDoubt
) -> None:
    """What could not be read has not changed."""
    request = RemedyRequest("resolve", "t:3", 7, 20, outcome="commit", source="dc1")
    [step], _ = planned(monkeypatch, request, proof=proof())
    now = Copied(None, doubt, 90, 2, 5, MARKER)
    with pytest.raises(IncompleteError) as raised:
        observed_now(monkeypatch, step, proof(copied=now))
    error = raised.value
    assert (error.what, error.remedy) == why_unproven(now)
    assert error.where == "theirs:3 in dc1"


def test_a_source_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def opened(context: str, deadline: object) -> AsyncIterator[Cluster]:
        raise UnreachableError("no broker answers", where="b:9092", remedy="start it")
        yield

    monkeypatch.setattr(copied, "opened_origin", opened)
    mirror = cast("Cluster", SimpleNamespace(deadline=None))
    about = OpenTransaction("t", 3, 7, 20)
    with pytest.raises(UnreachableError) as raised:
        asyncio.run(copied._compared(mirror, "dc1", "theirs", about, 50))
    assert raised.value.sentence == (
        "dc1: the cluster that the records were copied from does not answer: no broker answers; "
        "start it"
    )


def observed_now(monkeypatch: pytest.MonkeyPatch, step: Step, found: Proof) -> dict[str, Any]:
    async def compared(
        mirror: object, context: str, topic: str, about: OpenTransaction, skew: int
    ) -> Proof:
        assert (context, topic, about, skew) == (
            "dc1",
            "theirs",
            OpenTransaction("t", 3, 7, 20),
            50,
        )
        return found

    monkeypatch.setattr(copied, "_compared", compared)
    return asyncio.run(copied.observed(cast("Cluster", None), step, 50))
