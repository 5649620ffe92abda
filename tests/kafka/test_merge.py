"""`merge verify|plan|replay` on real brokers, against what plain consumers see."""

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.lab.cluster import Lab
from eoctl.operations.merge import read as merge_read
from eoctl.operations.merge.merge_verify import verify
from eoctl.operations.merge.planning import of_app
from eoctl.operations.restart.restart_request import read_app_file
from recovery.answers import Answer
from recovery.errors import IncompleteError
from recovery.facts import TopicPartition
from recovery.merge.log_rows import MergeFindingRow
from tests.docs.pages import follows
from tests.kafka.command import environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.merging import (
    Named,
    World,
    consumed,
    ends,
    entries,
    producer,
    transactional,
    write_copies,
    write_plain,
)
from tests.kafka.reading import Reading
from tests.share import only_here


@follows("docs/merge.md", "Merge logs")
def test_the_page(it: Reading, lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    world = World(lab1, topic)
    world.write_logs()
    it.lab = lab1
    it.names |= {
        "orders-order": world.log,
        "orders": world.left,
        "payments": world.right,
        "orders-merged": world.output,
        "APP.toml": str(world.app_file(tmp_path)),
    }
    it.run("merge verify", 0)
    it.asked("merge replay")
    assert world.got == world.expected


@pytest.mark.parametrize("form", ["json", pytest.param("coast", marks=pytest.mark.long)])
def test_a_replay_gives_every_record_once(lab1: Lab, topic: MakeTopic, form: str) -> None:
    world = World(lab1, topic, form, partitions=2)
    world.write_logs()
    found = world.run("verify", "-o", "json")
    assert (found.status, found.rows, found.json["errors"]) == (0, [], [])
    assert found.json["entries"] == 2 * 120

    shown = world.run("replay")
    assert shown.status == 0, shown.stderr
    assert "240 records" in shown.text
    assert world.got == {0: [], 1: []}

    ran = world.replay()
    assert ran.status == 0, ran.stderr
    assert world.got == world.expected
    again = world.replay()
    assert again.status == 0, again.stderr
    assert world.got == world.expected


def test_a_dead_application_left_outputs(lab1: Lab, topic: MakeTopic) -> None:
    """It committed after 50 entries and 49 outputs' offsets, and wrote 13 outputs more."""
    world = World(lab1, topic)
    world.write_logs()
    order = world.expected[0]
    write_copies(lab1, (world.output, 0), order[:63])
    merge_offset = world.log_offsets[50]
    commit = ["--from-merge-offset", f"0:{merge_offset}", "--output-offset", "0:50"]
    planned = world.run("plan", *commit, "-o", "json")
    assert planned.status == 0, planned.stderr
    [row] = planned.rows
    rest = world.orders[0][50:]
    assert (row["from"], row["entries"], row["drop_first"]) == (merge_offset, len(rest), 13)
    assert (row["output"]["from"], row["output"]["to"]) == (50, 63)
    named: dict[str, list[int]] = {}
    for name, _, offset in rest:
        named.setdefault(name, []).append(offset)
    assert {i["topic"]: (i["from"], i["to"], i["entries"]) for i in row["inputs"]} == {
        name: (found[0], found[-1] + 1, len(found)) for name, found in named.items()
    }
    ran = world.replay(*commit)
    assert ran.status == 0, ran.stderr
    assert world.got == world.expected
    planned = world.run("plan", "-o", "json")  # goes on from where that replay began
    [row] = planned.rows
    assert (row["from"], row["drop_first"], row["drop_left"]) == (merge_offset, len(rest), 0)


def broken(order: list[Named], how: str, world: World) -> tuple[list[Named], dict[str, Any]]:
    """The order with one thing wrong, and what is to be found of it."""
    at = 20
    entry = order[at]
    found: dict[str, Any] = {"input_topic": entry[0], "offset": entry[2]}
    if how == "hole":
        after = next(e for e in order[at + 1 :] if e[0] == entry[0])
        found["at"] = order.index(after) - 1
        return order[:at] + order[at + 1 :], found
    if how == "repeat":
        return [*order[:40], entry, *order[40:]], found | {"at": 40}
    if how == "foreign":
        found = {"input_topic": world.output, "offset": entry[2]}
        return [*order[:at], (world.output, *entry[1:]), *order[at:]], found | {"at": at}
    before = [e for e in order[:at] if e[0] == entry[0]][-1]
    absent = next(o for o in range(before[2] + 1, 999) if (*entry[:2], o) not in world.records)
    at = next(n for n, e in enumerate(order) if e[0] == entry[0] and e[2] > absent)
    return [*order[:at], (*entry[:2], absent), *order[at:]], {
        "input_topic": entry[0],
        "offset": absent,
        "at": at,
    }


@pytest.mark.parametrize(
    "how", only_here(["hole", "repeat", "foreign", "absent"], "hole", "repeat")
)
def test_logs_that_are_not_true(lab1: Lab, topic: MakeTopic, how: str) -> None:
    world = World(lab1, topic)
    order = world.orders[0]
    world.orders[0], expected = broken(order, how, world)
    world.write_logs()
    found = world.run("verify", "-o", "json")
    assert found.status == 1, found.stderr
    [row] = found.rows
    assert row["finding"] == how
    assert (row["input_topic"], row["offset"]) == (expected["input_topic"], expected["offset"])
    assert row["merge_offset"] == world.log_offsets[expected["at"]]
    assert row["records"] == 1
    ran = world.replay()
    assert ran.status == (6 if world.got[0] else 4), ran.stderr
    assert "eoctl merge verify" in ran.stderr
    if how in ("repeat", "foreign"):
        assert world.run("replay").status == 4  # the plan alone finds it too
    true = [world.records[e] for e in order]
    got = world.got[0]
    assert got == true[: len(got)]


def test_records_of_an_open_transaction(lab1: Lab, topic: MakeTopic) -> None:
    """They are none for a reader of committed records, and records for one that reads all. What
    a refused replay has sent is aborted: it holds no reader of the output back."""
    world = World(lab1, topic, count=0)
    write_plain(lab1, (world.left, 0), [b"a", b"b"])
    write_plain(lab1, (world.right, 0), [b"c"])
    holder = transactional(lab1, f"holding-{world.left}")
    holder.begin_transaction()
    holder.produce(world.left, b"open", partition=0)
    holder.flush(30)
    order = [(world.left, 0), (world.right, 0), (world.left, 1), (world.left, 2)]
    world.orders[0] = [(name, 0, offset) for name, offset in order]
    world.write_logs()
    ran = world.replay()
    assert ran.status == 4, ran.stderr
    assert "the merge log names offset 2, the log ends at 2" in ran.text
    stable, high = ends(lab1, world.output)
    assert high > 0, "nothing had been sent"
    assert stable == high
    assert world.got == {0: []}
    ran = world.replay("--isolation=read_uncommitted")
    assert ran.status == 0, ran.stderr
    assert [value for _, value, _, _ in world.got[0]] == [b"a", b"c", b"b", b"open"]
    holder.abort_transaction(30)


def test_the_tip_and_outputs_that_are_recorded_nowhere(lab1: Lab, topic: MakeTopic) -> None:
    world = World(lab1, topic, count=10)
    last = world.orders[0].pop()
    world.write_logs()
    write_copies(lab1, (world.output, 0), [*world.expected[0], world.records[last]])
    found = world.run("verify", "-o", "json")
    assert found.status == 1, found.stderr
    assert [(r["finding"], r["records"]) for r in found.rows] == [("output-ahead", 1)]
    ran = world.replay()
    assert ran.status == 4, ran.stderr
    assert "holds 20 records, and nothing says of which entries" in ran.stderr
    ran = world.replay("--from-merge-offset=0:0", "--output-offset=0:0")
    assert ran.status == 4, ran.stderr
    assert "recorded nowhere" in ran.stderr


@pytest.mark.long
def test_entries_that_are_no_entries(lab1: Lab, topic: MakeTopic) -> None:
    world = World(lab1, topic, count=5)
    world.write_logs()
    hostile = b'{"topic":"\x1b[31m' + b"x" * 5000
    write_plain(lab1, (world.log, 0), [hostile])
    found = world.run("verify", "-o", "json")
    assert (found.status, [r["finding"] for r in found.rows]) == (1, ["unreadable"])
    ran = world.replay()
    assert ran.status == 4
    assert "no entry of the format" in ran.stderr
    assert "\x1b" not in ran.stderr
    assert world.got == {0: []}


def test_what_retention_took_is_said(lab1: Lab, topic: MakeTopic) -> None:
    world = World(lab1, topic)
    world.write_logs()
    cut = [e for e in world.orders[0] if e[0] == world.left][10][2]
    world.delete_below(world.left, cut)
    found = world.run("verify", "-o", "json")
    assert (found.status, found.rows) == (3, [])
    [error] = found.json["errors"]
    assert "retention deleted the records of 10 of 120 entries" in error["detail"]
    ran = world.replay()
    assert ran.status == 4
    assert "retention took what is to be read" in ran.stderr
    assert world.got == {0: []}


@pytest.mark.long
def test_empty_partitions(lab1: Lab, topic: MakeTopic) -> None:
    world = World(lab1, topic, partitions=2, count=0)
    planned = world.run("plan", "-o", "json")
    assert [(r["entries"], r["inputs"], r["drop_first"]) for r in planned.rows] == [(0, [], 0)] * 2
    ran = world.replay()
    assert ran.status == 0, ran.stderr
    assert world.got == {0: [], 1: []}


@pytest.mark.long
def test_names_that_are_hard(lab1: Lab, topic: MakeTopic) -> None:
    name = "-a_.b-" + "x" * 200
    world = World(lab1, topic, "coast", count=10, name=name)
    world.write_logs()
    ran = world.replay()
    assert ran.status == 0, ran.stderr
    assert world.got == world.expected
    ran = eoctl("merge", "plan", *world.words[1:], "--merge-log=a\x1b[2Jb", lab=lab1)
    assert ran.status == 2, ran.stderr
    assert "\x1b" not in ran.stderr


@pytest.mark.long
def test_records_that_spark_could_not_write(lab1: Lab, topic: MakeTopic) -> None:
    """Its refusal names this engine: no timestamp, and U+FFFD in the name of a header."""
    world = World(lab1, topic, count=3)
    topic_partition = (world.left, 0)
    one = producer(lab1)
    for timestamp, name in ((-1, "h"), (1000, "a\ufffd")):
        one.produce(world.left, b"v", partition=0, timestamp=timestamp, headers=[(name, b"")])
    assert one.flush(30) == 0
    for offset, copied in consumed(lab1, [topic_partition])[topic_partition][-2:]:
        world.orders[0].append((*topic_partition, offset))
        world.records[*topic_partition, offset] = copied
    assert [world.records[e][2:] for e in world.orders[0][-2:]] == [
        ([("h", b"")], -1),
        ([("a\ufffd", b"")], 1000),
    ]
    world.write_logs()
    ran = world.replay()
    assert ran.status == 0, ran.stderr
    assert world.got == world.expected


def test_somebody_else_wrote_to_the_output(lab1: Lab, topic: MakeTopic) -> None:
    world = World(lab1, topic, count=10)
    world.write_logs()
    assert world.replay().status == 0
    write_plain(lab1, (world.output, 0), [b"foreign"])
    ran = world.replay()
    assert ran.status == 4
    assert "somebody else wrote" in ran.stderr


def test_a_read_only_context_sends_nothing(lab1: Lab, topic: MakeTopic, tmp_path: Any) -> None:
    world = World(lab1, topic, count=3)
    world.write_logs()
    config = tmp_path / "config.toml"
    config.write_text(
        f"[contexts.ro]\nread_only = true\n"
        f'[contexts.ro.properties]\n"bootstrap.servers" = "{lab1.bootstrap_servers}"\n'
    )
    words = ["merge", "replay", *world.words, "--execute", "--yes", "--context", "ro"]
    ran = eoctl(*words, env=environment(EOCTL_CONFIG=str(config)))
    assert ran.status == 4, ran.stderr
    assert "read-only" in ran.stderr
    assert world.got == {0: []}


@pytest.mark.long
def test_an_application_file(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """Its store says where to begin."""
    world = World(lab1, topic)
    world.write_logs()
    write_copies(lab1, (world.output, 0), world.expected[0][:30])
    at = world.log_offsets[25]
    (tmp_path / "position.json").write_text(world.stored(at, 25))
    app = world.app_file(tmp_path)
    planned = eoctl("merge", "plan", str(app), "-o", "json", lab=lab1)
    assert planned.status == 0, planned.stderr
    assert [(r["from"], r["drop_first"]) for r in planned.rows] == [(at, 5)]
    ran = eoctl("merge", "replay", str(app), "--execute", "--yes", lab=lab1)
    assert ran.status == 0, ran.stderr
    assert world.got == world.expected


@pytest.mark.long
def test_an_application_that_stored_nothing_yet(
    lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """From the beginning of all, where the output is empty, and once more after that."""
    world = World(lab1, topic, count=10)
    world.write_logs()
    (tmp_path / "position.json").write_text(json.dumps({"partitions": []}))
    app = str(world.app_file(tmp_path))
    for _ in range(2):
        ran = eoctl("merge", "replay", app, "--execute", "--yes", lab=lab1)
        assert ran.status == 0, ran.stderr
        assert world.got == world.expected

    other = World(lab1, topic, count=10)
    other.write_logs()
    write_plain(lab1, (other.output, 0), [b"from a console"])
    app = str(other.app_file(tmp_path))
    ran = eoctl("merge", "replay", app, "--execute", "--yes", lab=lab1)
    assert ran.status == 4, ran.stderr
    assert "holds 1 record, and nothing says of which entries" in ran.stderr
    assert len(other.got[0]) == 1


@pytest.mark.long
@pytest.mark.parametrize("how", ["without an id", "at the same time"])
def test_outputs_that_cannot_be_one_applications(lab1: Lab, topic: MakeTopic, how: str) -> None:
    world = World(lab1, topic, count=10)
    world.write_logs()
    one = producer(lab1, **{"enable.idempotence": how == "at the same time"})
    for value in (b"a", b"b"):
        one.produce(world.output, value, partition=0)
        assert one.flush(30) == 0
        if how == "at the same time":
            write_plain(lab1, (world.output, 0), [b"another's"])
    before = world.got
    ran = world.replay("--from-merge-offset=0:0", "--output-offset=0:0")
    assert ran.status == 4, ran.stderr
    assert how in ran.stderr
    assert world.got == before


@pytest.mark.long
def test_verify_beside_a_running_application(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """While the log is read the application logs, writes and commits further."""
    world = World(lab1, topic, count=10)
    order, known = world.orders[0], 12
    world.orders[0] = order[:known]
    world.write_logs()
    write_copies(lab1, (world.output, 0), world.expected[0])
    store = tmp_path / "position.json"
    store.write_text(world.stored(0, 0))
    path = world.app_file(tmp_path)
    asked = of_app(read_app_file(path).app, str(path))
    went_on: list[tuple[int, int, int]] = []

    def told(partition: int, done: int, total: int) -> None:
        if not went_on:
            went_on.append((partition, done, total))
            world.orders[0] = order[known:]
            world.write_logs()
            write_copies(lab1, (world.output, 0), world.expected[0])
            world.orders[0] = order
            store.write_text(world.stored(world.log_offsets[-1] + 1, len(order)))

    async def verified() -> Answer:
        settings = client_settings({"bootstrap.servers": lab1.bootstrap_servers})
        async with Cluster(settings, Deadline(60)) as cluster:
            return await verify(cluster, asked, progress=told)

    answer = asyncio.run(verified())
    assert went_on
    assert (answer.rows, answer.errors) == ([], [])
    assert answer.exit_status == 0
    # and one output more is still found
    write_copies(lab1, (world.output, 0), world.expected[0][:1])
    answer = asyncio.run(verified())
    [row] = answer.rows
    assert isinstance(row, MergeFindingRow)
    assert row.finding == "output-ahead"


@pytest.mark.long
@pytest.mark.parametrize("what", ["output", "log"])
def test_retention_took_where_replays_began(lab1: Lab, topic: MakeTopic, what: str) -> None:
    """The refusal names the commit to go on with; with it each record comes once."""
    world = World(lab1, topic, count=15)
    order = world.orders[0]
    world.orders[0] = order[:20]
    world.write_logs()
    assert world.replay().status == 0
    world.delete_below(getattr(world, what), 3)
    world.orders[0] = order[20:]
    world.write_logs()
    world.orders[0] = order
    ran = world.replay()
    assert ran.status == 4, ran.stderr
    commit = re.search(r"--from-merge-offset 0:\d+ --output-offset 0:\d+", ran.stderr)
    assert commit is not None, ran.stderr
    for words in (commit[0].split(), []):  # and the one after goes on there by itself
        ran = world.replay(*words)
        assert ran.status == 0, ran.stderr
        assert world.got[0] == world.expected[0][3 if what == "output" else 0 :]


def test_entries_of_a_log_are_read_by_the_oracle(lab1: Lab, topic: MakeTopic) -> None:
    """The test's own reader and writer of logs agree."""
    world = World(lab1, topic, count=5)
    world.write_logs()
    assert entries(lab1, world.log) == world.orders[0]


def test_a_log_is_read_up_to_its_end_in_whatever_pieces_it_comes(
    lab1: Lab, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an end to which nothing comes any more is an error, never the end of the records."""
    name = topic(lab1)
    one = transactional(lab1, f"reading-{name}")
    for values, kept in ((b"ab", True), (b"c", False), (b"de", True)):
        one.begin_transaction()
        for value in values:
            one.produce(name, bytes([value]), partition=0)
        one.flush(30)
        (one.commit_transaction if kept else one.abort_transaction)(30)
    there = [offset for offset, _ in consumed(lab1, [(name, 0)])[name, 0]]
    assert there == [0, 1, 5, 6], "one of three markers is not at 2"
    settings = client_settings(lab1.client_properties())

    def read(end: int) -> list[int | None]:
        runs = merge_read.read_log(settings, TopicPartition(name, 0), 0, end)
        return [m.offset() for messages in runs for m in messages]

    for most, ends_ in ((1, (1, 2, 3, 5, 7)), (100, (1, 6, 8))):
        monkeypatch.setattr(merge_read, "READ", most)
        for end in ends_:
            assert read(end) == [offset for offset in there if offset < end], (most, end)

    said: list[str] = []

    def read_too_far() -> None:
        try:
            read(9)
        except IncompleteError as error:
            said.append(error.what)

    monkeypatch.setattr(merge_read, "SILENT_SECONDS", 1.0)
    reading = threading.Thread(target=read_too_far, daemon=True)
    reading.start()
    reading.join(30)
    assert said == ["nothing came for 1 s"]
