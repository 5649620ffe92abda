"""Offsets of a source connector: what is given, what is counted, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from eoctl.operations.restart.restart_request import asked_again, read_app_file
from recovery.errors import EoctlError, RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.formats.counting import Counts
from recovery.restart.decide import decide, wants
from recovery.restart.observed import Count, Counted, Log, LogEnd, Observed, Question
from recovery.restart.producers import Producers
from recovery.restart.source_offsets import parse_offsets
from recovery.shared.app_file import App, named, parse_app_file

SOURCE = '{"database": "shop", "table": "orders"}'
STORE = (
    '[app.store]\nkind = "connect"\nurl = "http://w:8083"\nconnector = "orders"\n'
    'offsets_topic = "offsets"\n'
)
HEAD = '[app]\nname = "orders"\nstrategy = "connect"\n'
GIVEN = (
    """[app.source]\noffsets = '{"offsets": [{"partition": {"a": 1}, "offset": {"id": 5}}]}'\n"""
)
TWICE = json.dumps({"offsets": [{"partition": {"a": 1}, "offset": None}] * 2})
COUNTED = 'outputs = ["out"]\n' + STORE + '[app.source]\nfield = "id"\n'


def app(text: str) -> App:
    return parse_app_file(HEAD + text, "app.toml")


def observed(sources: dict[str, str], *, records: int | None = None) -> Observed:
    """Two partitions of `out`, the first with records and a marker behind them."""
    ends = {0: 0 if records is None else records + 1, 1: 0}
    logs = {
        TopicPartition("out", p): Log("out", p, "T", 0, 0, (LogEnd(end, end, end),) * 2)
        for p, end in ends.items()
    }
    counted: dict[Question[Any], Any] = {}
    if records is not None:
        want = Count("out", 0, 0, ends[0], producers=True)
        counted = {want: Counted(Counts(data=records, control=1), Producers())}
    return Observed("K", {"out": 2}, logs, sources=sources, answers=counted)


def test_given_offsets_in_any_order_of_keys() -> None:
    text = '{"offsets": [{"partition": {"table": "orders", "database": "shop"}, "offset": null}]}'
    assert parse_offsets(text, "x") == {SOURCE: None}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON"),
        ("[]", "no offsets in it"),
        ('{"offsets": []}', "no offsets in it"),
        ('{"offsets": [{"partition": {"a": 1}}]}', "is not an offset"),
        ('{"offsets": [{"partition": "a", "offset": {}}]}', "a partition is not a JSON object"),
        ('{"offsets": [{"partition": {"a": 1}, "offset": 5}]}', "an offset is not a JSON object"),
        ('{"offsets": [{"partition": {"a": 1, "a": 2}, "offset": null}]}', "a key is there twice"),
        (TWICE, "is there twice"),
    ],
)
def test_what_is_not_the_json_of_connect(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_offsets(text, "offsets.json")


def test_given_offsets_promise_little() -> None:
    plan = decide(app(STORE + GIVEN), observed({'{"a": 1}': '{"id": 9}', SOURCE: '{"id": 1}'}))
    [source] = plan.sources
    assert (source.partition, source.current_offset, source.restart_offset) == (
        '{"a": 1}',
        '{"id": 9}',
        '{"id": 5}',
    )
    assert plan.guarantee == "at-most-once"
    same = decide(app(STORE + GIVEN), observed({'{"a": 1}': '{"id": 5}'}))
    assert (same.guarantee, same.because.partition(":")[0]) == ("at-least-once", "nothing moves")


@pytest.mark.parametrize(
    ("more", "number"), [("", 700), ("first = 0\n", 699), ("first = 11\n", 710)]
)
def test_the_number_of_the_last_output(more: str, number: int) -> None:
    sources = {SOURCE: '{"id": 17, "kind": "row"}'}
    counted = app(COUNTED + more)
    assert wants(counted, observed(sources)) == ()  # nothing is written: nothing to count
    plan = decide(counted, observed(sources, records=700))
    [source] = plan.sources
    assert json.loads(source.restart_offset or "") == {"id": number, "kind": "row"}
    assert plan.guarantee == "exactly-once"
    assert ("one-to-one", None) in {(c.name, c.held) for c in plan.checks}
    after = HEAD + COUNTED.replace('kind = "connect"', 'kind = "connect"\nposition = "next"')
    plan = decide(parse_app_file(after + more, "app.toml"), observed(sources, records=700))
    assert json.loads(plan.sources[0].restart_offset or "")["id"] == number + 1


@pytest.mark.parametrize(
    ("sources", "why"),
    [
        ({}, "offsets of 0 source partitions"),
        ({SOURCE: '{"id": 1}', '{"a": 1}': '{"id": 1}'}, "offsets of 2 source partitions"),
        ({SOURCE: '{"id": "17"}'}, "holds no integer in id"),
        ({SOURCE: '{"id": true}'}, "holds no integer in id"),
        ({SOURCE: '{"position": 1}'}, "holds no integer in id"),
    ],
)
def test_what_cannot_be_counted(sources: dict[str, str], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        decide(app(COUNTED), observed(sources, records=3))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (STORE, r"\[app.source\]: says where it goes on"),
        (STORE + GIVEN + 'field = "id"\n', r"\[app.source\]: says where it goes on"),
        ('outputs = ["out"]\n' + STORE + GIVEN, "given offsets need no outputs to count"),
        (STORE + '[app.source]\nfield = "id"\n', "field needs outputs to count"),
        ('inputs = ["in"]\n' + STORE + GIVEN, "a source connector reads no topic"),
        (STORE.replace("http", "ftp") + GIVEN, r"\[app.store\] url"),
        (STORE + 'password = "clear"\nuser = "u"\n' + GIVEN, r"\[app.store\] password"),
        (GIVEN, r"\[app.store\]: is missing"),
    ],
)
def test_an_application_file_that_does_not_fit(text: str, why: str) -> None:
    with pytest.raises(EoctlError, match=why) as raised:
        app(text)
    assert "clear" not in raised.value.sentence


def test_every_other_strategy_reads_topics() -> None:
    with pytest.raises(UsageError, match=r"\[app\] inputs: is missing"):
        parse_app_file('[app]\nname = "x"\nstrategy = "sql"\n', "app.toml")


def test_a_plan_keeps_what_a_file_says(tmp_path: Path) -> None:
    offsets = tmp_path / "wanted.json"
    offsets.write_text('{"offsets": [{"partition": {"a": 1}, "offset": {"id": 5}}]}')
    file = tmp_path / "app.toml"
    more = 'user = "u"\npassword = "file:secret"\nca = "ca.pem"\n'
    file.write_text(HEAD + STORE + more + '[app.source]\noffsets = "file:wanted.json"\n')
    request = read_app_file(file)
    offsets.unlink()
    again = asked_again(json.loads(json.dumps(request.fixed(decide(request.app, observed({}))))))
    assert again == request
    assert request.store is not None
    told = request.store.model_dump()
    assert (told["ca"], told["password"]) == (f"{tmp_path}/ca.pem", f"file:{tmp_path}/secret")
    offsets.write_text("{")
    with pytest.raises(UsageError, match="no JSON"):
        read_app_file(file)


def test_a_source_partition_has_no_number() -> None:
    assert (named(TopicPartition(SOURCE, 0)), named(TopicPartition("orders", 3))) == (
        SOURCE,
        "orders:3",
    )
