"""Two writers in an exclusive output, by the producers that brokers remember."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from eoctl.cli.main import run
from eoctl.render.doctor_words import sign_words
from recovery.doctor.findings import Finding, judged
from recovery.doctor.rules import RULES, WITHOUT_APP
from recovery.facts import Facts, Missing, ProducerFacts, TopicPartition, Transactions, grouped
from recovery.values import replace
from tests.unit.doctor_facts import HIDDEN_IDS, NOW, healthy, txn

OWNERS = {1: "pay-0", 2: "pay-1", 3: "audit-0"}


def producer(
    number: int, partition: int = 0, ago: int = 0, *, transactional: bool = True
) -> ProducerFacts:
    epoch = 0 if transactional else -1
    return ProducerFacts("out", partition, number, 0, 5, NOW - ago, epoch, None)


def found(*producers: ProducerFacts, missing: Sequence[Missing] = ()) -> list[Finding]:
    ids = tuple(replace(txn(name), producer_id=n) for n, name in OWNERS.items())
    states = grouped((TopicPartition(p.topic, p.partition), p) for p in producers)
    outputs = Facts(
        "c",
        NOW,
        len(states),
        producers={key: tuple(rows) for key, rows in states.items()},
        transactions=Transactions(ids),
        missing=tuple(missing),
    )
    return [f for rule, f in judged(healthy(outputs=outputs), RULES) if rule.needs_app]


def test_one_application_has_many_producers() -> None:
    assert found(producer(1), producer(2), producer(1, 1)) == []
    plain = [producer(n, transactional=False) for n in (7, 8, 9)]
    assert found(*plain) == []  # restarts
    assert found() == []


def test_two_applications_are_found_also_on_different_partitions() -> None:
    [one] = found(producer(1, ago=60_000), producer(2, ago=30_000), producer(3, 1))
    assert (one.kind, one.name, one.state) == ("topic", "out", "finding")
    assert one.signs[0].data["writers"] == [
        {"prefix": "audit-", "producers": 1, "partition": 1, "last_timestamp": NOW},
        {"prefix": "pay-", "producers": 2, "partition": 0, "last_timestamp": NOW - 30_000},
    ]
    assert sign_words(one.signs[0]) == (
        "1 producer with ids like 'audit-', last on partition 1 at 2023-11-14T22:13:20.000Z; "
        "2 producers with ids like 'pay-', last on partition 0 at 2023-11-14T22:12:50.000Z"
    )


def test_a_plain_producer_beside_a_transactional_one_is_another_writer() -> None:
    [one] = found(producer(1), producer(9, transactional=False))
    assert {w["prefix"] for w in one.signs[0].data["writers"]} == {"pay-", None}
    assert "1 producer without an id" in sign_words(one.signs[0])


def test_a_forgotten_id_may_be_of_the_same_application() -> None:
    assert found(producer(1), producer(9)) == []


def test_what_was_not_seen_is_unknown() -> None:
    hidden = Missing("partition", "TOPIC_AUTHORIZATION_FAILED", "no READ", 1, "out", 1)
    rights = {(f.state, f.lacks) for f in found(producer(1), missing=(hidden, HIDDEN_IDS))}
    assert rights == {("unknown", "topics: READ"), ("unknown", "transactional ids: DESCRIBE")}


def test_without_a_file_it_is_no_rule() -> None:
    assert {rule.name for rule in RULES} - {rule.name for rule in WITHOUT_APP} == {"two-writers"}
    assert judged(healthy(), RULES) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('outputs = ["out"]\nexclusive = false', "says exclusive = false; leave out --app"),
        ("", "names no outputs"),
    ],
)
def test_a_file_that_says_nothing_of_it_is_refused(
    more: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "app.toml"
    store = '[app.store]\nkind = "kafka-group"\ngroup = "g"\n'
    head = '[app]\nname = "a"\nstrategy = "transactional"\ninputs = ["in"]\n'
    file.write_text(f"{head}{more}\n{store}")
    words = ["doctor", "--app", str(file), "--bootstrap-server", "localhost:1"]
    assert run(words) == 2
    assert said in capsys.readouterr().err
