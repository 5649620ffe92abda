"""`why --group` on real groups: what it says beside a plain consumer's count and Kafka's tools."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from eoctl.lab import secure
from eoctl.lab.breaks import break_
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.operations.inspect import unread
from tests.kafka.command import FAST, Ran, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.offsets_oracle import look
from tests.kafka.planting import as_published
from tests.kafka.test_groups import commit, consumer, produce, tool

SOON = ("--stuck-after", "1s", *FAST)


def why(lab: Lab, group: str, *words: str, status: int = 0) -> dict[str, Any]:
    """The group's story, from an answer that is as published."""
    ran = as_published(eoctl("why", "--group", group, *words, "-o", "json", lab=lab), "why")
    assert ran.status == status, ran.stderr
    story: dict[str, Any] = ran.json["group_story"]
    return story


def page(lab: Lab, group: str, *words: str) -> Ran:
    return eoctl("why", "--group", group, *words, lab=lab)


def mixed_log(lab: Lab, name: str) -> None:
    """Offsets 0..9, of which a reader gets 0, 1, 2, 7 and 8: the rest are markers and aborted."""

    async def make() -> None:
        async with Client.to(lab.bootstrap_servers) as client:
            owner = await Producer.init(client, name)
            await owner.send(name, 0, [NewRecord(b"c")] * 3)  # 0..2, marker 3
            await owner.commit()
            await owner.send(name, 0, [NewRecord(b"a")] * 2)  # 4..5, marker 6
            await owner.abort()
            await client.plain(name, 0, [NewRecord(b"p")] * 2)  # 7..8

    asyncio.run(make())


def time_of(lab: Lab, topic: str, offset: int) -> int:
    """The timestamp of the first record from an offset on, as a plain consumer gets it."""
    reader = Consumer(lab.client_properties() | {"group.id": "oracle", "enable.auto.commit": False})
    reader.assign([ConfluentPartition(topic, 0, offset)])
    message = reader.poll(30)
    reader.close()
    assert message is not None
    assert message.error() is None
    kind, stamp = message.timestamp()
    assert kind
    return int(stamp)


def milliseconds(stamp: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp() * 1000


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_nobody_runs(lab1: Lab, topic: MakeTopic, protocol: str) -> None:
    name = topic(lab1)
    group = f"g-{name}"
    mixed_log(lab1, name)
    before = time.time() * 1000
    with consumer(lab1, group, protocol, name):  # reads offset 0 and commits 1
        (theirs,) = tool(lab1, "--describe", "--group", group)
    after = time.time() * 1000
    story = why(lab1, group, *FAST)
    assert (story["verdict"], story["about"]) == ("not-running", [f"{name}:0"])
    assert (story["members"], story["state"], story["type"]) == ([], "Empty", protocol)
    seen = look(lab1, [(name, 0)])[name, 0]
    expected = seen.counts(1, seen.stable)["data_records"]
    (row,) = story["partitions"]
    assert (row["committed_offset"], row["lag"]) == (1, seen.stable - 1)
    assert (row["records"], row["at_least"]) == (expected, False)
    assert expected < row["lag"]  # markers and aborted records are none
    assert milliseconds(row["oldest_timestamp"]) == time_of(lab1, name, 1)
    assert before - 1000 <= milliseconds(row["since"]) <= after + 1000
    if protocol == "classic":  # of the others no log tells it
        client = f"{theirs['CLIENT-ID']} at {theirs['HOST'].removeprefix('/')}"
        assert story["last_members"] == [client]
        assert before - 1000 <= milliseconds(story["empty_since"]) <= after + 1000
    else:
        assert (story["last_members"], story["empty_since"]) == ([], None)
    assert [step["action"] for step in story["next"]] == ["start"]
    shown = page(lab1, group, *FAST)
    assert shown.stdout.startswith(f"{group}  NOT MOVING  nobody runs it")
    assert f"lag {seen.stable - 1}, {expected} records" in shown.text
    assert "start its process" in shown.text


@pytest.mark.long
def test_counting_in_many_rounds_gives_the_same_number(
    lab1: Lab, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(lab1)
    mixed_log(lab1, name)
    commit(lab1, f"g-{name}", name, 1)
    seen = look(lab1, [(name, 0)])[name, 0]
    for first in (1, 2, 3):
        monkeypatch.setattr(unread, "FIRST_OFFSETS", first)
        (row,) = why(lab1, f"g-{name}", *FAST)["partitions"]
        expected = seen.counts(1, seen.stable)["data_records"]
        assert (row["records"], row["at_least"]) == (expected, False)
    # without the extra that counts, only that one waits
    monkeypatch.setattr(unread, "installed", lambda package: False)
    (row,) = why(lab1, f"g-{name}", *FAST)["partitions"]
    assert (row["records"], row["at_least"]) == (1, True)
    # where time is over before anything was counted, offsets are all there is
    monkeypatch.setattr(unread.unread, "__defaults__", (0.0,))
    (row,) = why(lab1, f"g-{name}", *FAST)["partitions"]
    assert (row["records"], row["oldest_timestamp"]) == (None, None)
    assert "records not counted" in page(lab1, f"g-{name}", *FAST).text


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_that_do_not_move(lab1: Lab, topic: MakeTopic, protocol: str) -> None:
    """Assigned and paused: it is alive, and commits the same offset again."""
    name = topic(lab1)
    group = f"g-{name}"
    produce(lab1, name, 7)
    with consumer(lab1, group, protocol, name) as member:
        member.pause(member.assignment())
        began = time.time() * 1000
        time.sleep(1.2)
        member.commit(offsets=[ConfluentPartition(name, 0, 1)], asynchronous=False)
        (theirs,) = tool(lab1, "--describe", "--group", group)
        story = why(lab1, group, *SOON)
        shown = page(lab1, group, *SOON)
    assert (story["verdict"], story["about"]) == ("not-moving", [f"{name}:0"])
    client = f"{theirs['CLIENT-ID']} at {theirs['HOST'].removeprefix('/')}"
    assert story["members"] == [client]
    (row,) = story["partitions"]
    assert (row["records"], row["lag"], row["moved"]) == (6, int(theirs["LAG"]), False)
    assert story["looks_seconds"] == 0.3
    assert milliseconds(row["since"]) <= began
    assert milliseconds(row["committed_at"]) > began + 1000
    assert [step["action"] for step in story["next"]] == ["look-at-members", "watch"]
    assert shown.stdout.startswith(f"{group}  NOT MOVING  its members do not move")
    assert client in shown.text
    assert "is of the same offset" in shown.text
    assert f"next: {name}:0 offset 1" in shown.text


@contextmanager
def reading(member: Consumer) -> Iterator[None]:
    """Let it read on, a record every 50 ms, and commit each."""
    stop = threading.Event()

    def read_on() -> None:
        while not stop.is_set():
            message = member.poll(0.1)
            if message is not None and message.error() is None:
                member.commit(message, asynchronous=False)
            time.sleep(0.05)

    thread = threading.Thread(target=read_on)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_members_that_read_on(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    group = f"g-{name}"
    produce(lab1, name, 20_000)
    with consumer(lab1, group, "classic", name) as member, reading(member):
        time.sleep(1.2)
        story = why(lab1, group, *SOON)
        # each commit is older than this: only the second look shows that it moves
        looked = why(lab1, group, "--stuck-after", "1ms", "--sample-interval", "1s")
        shown = page(lab1, group, *SOON)
    assert story["verdict"] == looked["verdict"] == "catching-up"
    assert (story["looks_seconds"], looked["looks_seconds"]) == (None, 1.0)
    assert [r["moved"] for r in looked["partitions"]] == [True]
    assert "CATCHING UP" in shown.stdout
    assert "look again in a minute" in shown.text.lower()


def test_a_group_that_an_orphan_holds(lab1: Lab, topic: MakeTopic) -> None:
    [orphan] = break_(lab1, "orphan", topic=f"held-{topic(lab1)}")
    where = f"{orphan.topic}:{orphan.partition}"
    group = f"g-{orphan.topic}"
    with consumer(lab1, group, "classic", orphan.topic) as member:
        at = ConfluentPartition(orphan.topic, orphan.partition, orphan.last_stable_offset)
        member.commit(offsets=[at], asynchronous=False)
        story = why(lab1, group, *FAST, status=1)
    assert (story["verdict"], story["about"]) == ("held", [where])
    (row,) = [r for r in story["partitions"] if r["partition"] == orphan.partition]
    held = orphan.high_watermark - orphan.last_stable_offset
    assert (row["lag"], row["records"], row["held"]) == (0, 0, held)
    assert row["verdict"] == "orphan"
    [step] = story["next"]
    assert (step["action"], step["partition"]) == ("why", where)
    # its command, as it stands, is the story with the remedy; nobody is in the group any more
    words = step["argv"][1:]
    remedy = eoctl(*words[:-2], *FAST, *words[-2:])
    assert (remedy.status, "txn abort" in remedy.stdout) == (1, True), remedy.stderr
    shown = page(lab1, group, *FAST)
    assert shown.stdout.startswith(f"{group}  HELD  by orphan on {where}")
    assert "start its process" in shown.text


def test_a_group_that_is_held_and_has_records_to_read(lab1: Lab, topic: MakeTopic) -> None:
    """That nobody runs it comes first; what else is held is told beside it."""
    [orphan] = break_(lab1, "orphan", topic=f"both-{topic(lab1)}")
    group = f"g-{orphan.topic}"
    with consumer(lab1, group, "classic", orphan.topic):
        pass
    story = why(lab1, group, *FAST, status=1)
    assert story["verdict"] == "not-running"
    assert [step["action"] for step in story["next"]] == ["start", "why"]


def test_a_group_that_has_read_all_there_is(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    group = f"g-{name}"
    mixed_log(lab1, name)
    seen = look(lab1, [(name, 0)])[name, 0]
    commit(lab1, group, name, seen.stable)
    story = why(lab1, group, *FAST)
    assert (story["verdict"], story["next"]) == ("up-to-date", [])
    assert story["never_had_members"]
    # one offset is left, and it is a marker: nothing to read
    last = max(seen.control)

    async def end() -> None:
        async with Client.to(lab1.bootstrap_servers) as client:
            owner = await Producer.init(client, name)
            await owner.send(name, 0, [NewRecord(b"x")])
            await owner.commit()

    asyncio.run(end())
    again = look(lab1, [(name, 0)])[name, 0]
    assert max(again.control) == again.stable - 1 > last
    commit(lab1, group, name, again.stable - 1)
    story = why(lab1, group, *FAST)
    (row,) = story["partitions"]
    assert (story["verdict"], row["lag"], row["records"]) == ("up-to-date", 1, 0)


def test_a_group_whose_records_were_deleted(lab1: Lab, topic: MakeTopic) -> None:
    """The command that it names shows a plan that starts where the log does."""
    name = topic(lab1)
    group = f"g-{name}"
    produce(lab1, name, 9)
    commit(lab1, group, name, 2)
    admin = AdminClient(lab1.client_properties())
    deleted = admin.delete_records([ConfluentPartition(name, 0, 5)])
    assert [f.result(30).low_watermark for f in deleted.values()] == [5]
    story = why(lab1, group, *FAST)
    (row,) = story["partitions"]
    assert (story["verdict"], row["problem"]) == ("out-of-range", "below-log-start")
    assert (row["log_start_offset"], row["records"]) == (5, 4)
    [step] = story["next"]
    planned = eoctl(*step["argv"][1:], "--pause", "0.3s", "-o", "json")
    assert planned.status == 0, planned.text
    assert [r["inputs"][0]["restart_offset"] for r in planned.rows] == [5]
    commit(lab1, group, name, 50)
    story = why(lab1, group, *FAST)
    assert (story["verdict"], story["partitions"][0]["problem"]) == ("out-of-range", "above-end")


def test_a_group_that_was_never_there(lab1: Lab) -> None:
    ran = as_published(eoctl("why", "--group", "nobody's", *FAST, "-o", "json", lab=lab1), "why")
    assert (ran.status, ran.rows, ran.json["group_story"]) == (3, [], None)
    assert [e["error"] for e in ran.json["errors"]] == ["GROUP_ID_NOT_FOUND"]
    assert page(lab1, "nobody's", *FAST).stdout == ""


def test_what_may_not_be_read_is_told_as_not_known(secure_lab: Lab, topic: MakeTopic) -> None:
    """Without READ on any topic: no records, no times; two looks and the members tell the rest."""
    name = topic(secure_lab)
    group = f"g-{name}"
    produce(secure_lab, name, 3)
    commit(secure_lab, group, name, 1)
    client = secure.client_file(secure_lab.folder, "no-topic-read", "SCRAM")
    server = secure_lab.record.bootstrap_servers("SCRAM")
    words = ("--bootstrap-server", server, "--command-config", str(client))
    ran = eoctl("why", "--group", group, *FAST, *words, "-o", "json")
    story = as_published(ran, "why").json["group_story"]
    (row,) = story["partitions"]
    assert (row["lag"], row["records"], row["since"]) == (2, None, None)
    assert "grant READ" in story["since_unseen"]
    assert story["verdict"] == "not-running"
    shown = eoctl("why", "--group", group, *FAST, *words)
    assert "since when is not known" in shown.text
    assert "records not counted" in shown.text
