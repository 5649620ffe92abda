"""States in object storage: moto's server, a fake of S3, through a proxy that fails."""

import io
import json
import random
import re
import signal
import threading
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eoctl.lab.cluster import Lab
from tests.docs.pages import follows
from tests.kafka import dedup_world
from tests.kafka.command import environment, eoctl, eoctl_running, said
from tests.kafka.conftest import MakeTopic
from tests.kafka.reading import Reading
from tests.kafka.state_oracle import (
    Rebuilt,
    State,
    begin_small,
    dict_state,
    digest,
    fill,
    fill_plainly,
)
from tests.object_store import Fault, Faulty, make_bucket, s3_server
from tests.object_store import environment as store_environment
from tests.share import kills

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.9"}
BUCKET = "states"
SECRET = "s3cret-of-tests"


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with s3_server() as port:
        make_bucket(port, BUCKET)
        yield port


@dataclass(frozen=True)
class Objects:
    """What is below a prefix, as any client of S3's gets it, without eoctl and without obstore."""

    port: int
    prefix: str

    @property
    def address(self) -> str:
        return f"s3://{BUCKET}/{self.prefix}"

    def names(self) -> list[str]:
        query = urllib.parse.urlencode({"list-type": 2, "prefix": f"{self.prefix}/"})
        text = self._got(f"{BUCKET}?{query}").decode()
        keys = (unescape(key) for key in re.findall(r"<Key>([^<]*)</Key>", text))
        return [key.removeprefix(f"{self.prefix}/") for key in keys]

    def read(self, name: str) -> bytes:
        return self._got(f"{BUCKET}/{urllib.parse.quote(f'{self.prefix}/{name}')}")

    @property
    def manifest(self) -> Any:
        return json.loads(self.read("manifest.json"))

    @property
    def files(self) -> list[str]:
        return [f["path"] for p in self.manifest["partitions"] for f in p["files"]]

    @property
    def digest(self) -> tuple[int, str]:
        found = self.manifest["digest"]
        return found["rows"], found["sha256_sum"]

    @property
    def ends(self) -> dict[int, int]:
        (topic,) = self.manifest["cut"]["topics"]
        return {p["partition"]: p["end"] for p in topic["partitions"]}

    def state(self) -> State:
        import pyarrow.parquet as pq

        rows = [
            row
            for path in self.files
            for row in pq.read_table(io.BytesIO(self.read(path))).to_pylist()
        ]
        found: State = {(r["partition"], r["key"]): (r["timestamp"], r["value"]) for r in rows}
        assert len(found) == len(rows)
        return found

    def check(self, lab: Lab, topic: str) -> None:
        """The state is a dict's, and nothing else is left."""
        expected, _ = dict_state(lab, topic, self.ends)
        assert self.digest == digest(expected)
        assert self.state() == expected
        assert sorted(self.names()) == sorted([*self.files, "cut.json", "manifest.json"])

    def _got(self, path: str) -> bytes:
        url = f"http://127.0.0.1:{self.port}/{path}"
        request = urllib.request.Request(url, headers={"Authorization": "AWS anybody"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return bytes(answer.read())


@pytest.fixture
def objects(server: int) -> Objects:
    return Objects(server, f"of tests/{uuid.uuid4().hex}")


@follows("docs/state.md", "In object storage")
def test_the_page(it: Reading, lab1: Lab, server: int, topic: MakeTopic) -> None:
    name, out = (topic(lab1, 2, config=COMPACT) for _ in range(2))
    fill_plainly(lab1, name)
    it.lab = lab1
    it.env |= store_environment(server)
    it.names |= {"store-changelog": name, "topic:store": f"topic:{out}"}
    it.run("state rebuild", 0)
    objects = Objects(server, "store-2026-11-23")
    objects.check(lab1, name)
    assert "equal" in it.run("state compare", 0).text
    it.asked("state deliver")
    for partition in range(2):
        held = {r.key: r.value for r in dedup_world.consumed(lab1, out, partition)}
        state = objects.state()
        assert held == {key: value for (p, key), (_, value) in state.items() if p == partition}


def env(port: int, **changes: str | None) -> dict[str, str]:
    return environment(**{**store_environment(port), **changes})


def words(topic: str, output: str, *more: str) -> list[str]:
    asked = ["state", "rebuild", topic, "--format", "plain", "--at", "lso", "--engine", "local"]
    return [*asked, "--output", output, *more]


def wait_until(there: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_state_there_is_that_of_a_dict_whatever_fails(
    lab1: Lab, topic: MakeTopic, objects: Objects, tmp_path: Path
) -> None:
    """Rebuilt in ranges, shown, compared and delivered, while each request may fail."""
    log = topic(lab1, partitions=2, config=COMPACT)
    fill(lab1, log, seed=19, records=1_000, keys=150, partitions=2)
    chance, address = random.Random(19), objects.address

    def fault(line: str) -> Fault:
        return chance.choice(["503", "cut", "lost"] + [None] * 27)

    with closing(Faulty(objects.port, fault)) as proxy:
        there = env(proxy.port)
        ran = eoctl(*words(log, address, "--range-offsets", "500"), lab=lab1, env=there)
        assert ran.status == 0, ran.stderr
        objects.check(lab1, log)
        local, cut = tmp_path / "local", f"{address}/cut.json"
        asked = [cut if word == "lso" else word for word in words(log, str(local))]
        ran = eoctl(*asked, lab=lab1, env=there)
        assert ran.status == 0, ran.stderr
        assert Rebuilt(local).digest == objects.digest
        ran = eoctl("state", "compare", f"{address}/manifest.json", str(local), env=there)
        assert ran.status == 0, ran.stderr
        (partition, key), (_, value) = min(objects.state().items())
        how = ("--key-serde", "hex", "--value-serde", "hex", "-o", "json")
        ran = eoctl("state", "show", address, key.hex(), *how, env=there)
        assert ran.status == 0, ran.stderr
        shown = [(row["partition"], row["value_decoded"]) for row in ran.rows]
        assert (partition, value.hex()) in shown
        new = topic(lab1, partitions=2, config=COMPACT)
        ran = eoctl(
            *("state", "deliver", address, "--into", f"topic:{new}", "--without-headers"),
            *("--execute", "--yes"),
            lab=lab1,
            env=there,
        )
        assert ran.status == 0, ran.stderr
        assert {fault for fault, _ in proxy.faults} == {"503", "cut", "lost"}
    delivered = {
        (p, r.key): (r.timestamp, r.value)
        for p in (0, 1)
        for r in dedup_world.consumed(lab1, new, p)
    }
    assert delivered == objects.state()
    again = eoctl(*words(log, address), lab=lab1, env=env(objects.port))
    assert again.status == 4
    assert said(again.stderr) == [
        f"eoctl: {address}: there is a state already; give another --output"
    ]


@pytest.mark.parametrize("number", range(kills(4)))
def test_a_killed_rebuild_goes_on(
    lab1: Lab, topic: MakeTopic, objects: Objects, number: int
) -> None:
    """At each quarter of its way; what was done is kept, and the digest is that of a dict."""
    log = topic(lab1, partitions=4, config=COMPACT)
    fill(lab1, log, seed=number, records=4_000, keys=300, partitions=4)
    there = env(objects.port)
    slowly = words(log, objects.address, "--processes", "1", "--max-rate", "200KiB")
    done: list[str] = []
    with eoctl_running(lab1, *slowly, env=there) as process:

        def quarter() -> bool:
            assert process.poll() is None
            return len(_tasks(objects)) > number % 3

        wait_until(quarter)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        done = _tasks(objects)
    assert "manifest.json" not in objects.names()
    kept = [f["path"] for name in done for f in json.loads(objects.read(name))["files"]]
    ran = eoctl(*slowly, "--clean", lab=lab1, env=there)
    assert ran.status == 4
    assert "no lock that shows whether the unfinished rebuild is still running" in ran.stderr
    ran = eoctl(*words(log, objects.address), lab=lab1, env=there)
    assert ran.status == 0, ran.stderr
    objects.check(lab1, log)
    assert set(kept) <= set(objects.files)


@pytest.mark.long
def test_a_rebuild_killed_while_it_merges_goes_on(
    lab1: Lab, topic: MakeTopic, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Amid its buckets: the next run reads no range again, and merges none that was merged."""
    log = topic(lab1, config=COMPACT)
    fill(lab1, log, seed=11, records=1_500, keys=300, partitions=1)
    for name, value in store_environment(objects.port).items():
        monkeypatch.setenv(name, value)
    begin_small(lab1, log, objects.address, 500, 20_000)
    merging, killed = threading.Event(), threading.Event()
    put: list[str] = []

    def fault(line: str) -> Fault:
        if line.startswith("PUT"):
            if sum("/data/" in one for one in put) == 2 and not merging.is_set():
                merging.set()
                killed.wait(60)
            put.append(line)
        return None

    with closing(Faulty(objects.port, fault)) as proxy:
        there, asked = env(proxy.port), words(log, objects.address, "--range-offsets", "500")
        with eoctl_running(lab1, *asked, "--processes", "1", env=there) as process:
            assert merging.wait(60)
            process.send_signal(signal.SIGKILL)
            process.wait(30)
            killed.set()
        time.sleep(0.5)  # what was held up has arrived
        assert len({line for line in put if ".run " in line}) > 2
        done = [json.loads(objects.read(name)) for name in _tasks(objects)]
        merged = {f["path"] for row in done for f in row["files"]}
        assert 1 <= len(merged) <= 2
        put.clear()
        ran = eoctl(*asked, lab=lab1, env=there)
        assert ran.status == 0, ran.stderr
    assert [line for line in put if ".run " in line] == []
    objects.check(lab1, log)
    assert merged < set(objects.files)
    assert len(objects.files) > 3
    assert len({line for line in put if "/data/" in line}) == len(objects.files) - len(merged)


@pytest.mark.long
def test_what_a_dedup_has_seen_is_kept_there(
    lab1: Lab, topic: MakeTopic, objects: Objects, tmp_path: Path
) -> None:
    """The log has lost what was copied: only what is kept tells that a record is a repeat."""
    dirty, clean = topic(lab1), topic(lab1)
    producer = Producer(lab1.client_properties())

    def send(ids: str) -> None:
        for one in ids:
            producer.produce(dirty, value=one, headers=[("id", one)])
        producer.flush(20)

    send("abac")
    admin, gone = AdminClient(lab1.client_properties()), TopicPartition(dirty, 0, 4)
    there = env(objects.port)
    asked = ["dedup", dirty, clean, "--by", "header:id", "--execute", "--yes"]
    kept = ["--staging", objects.address]
    first = eoctl(*asked, *kept, lab=lab1, env=there)
    assert first.status == 0, first.stderr
    admin.delete_records([gone])[gone].result(20)
    send("bd")
    elsewhere = ["--staging", str(tmp_path)]
    refused = eoctl(*asked, "--follow", *elsewhere, lab=lab1, env=there)
    assert (refused.status, "neither remembered" in refused.stderr) == (4, True), refused.stderr
    followed = eoctl(*asked, "--follow", *kept, lab=lab1, env=there)
    assert followed.status == 0, followed.stderr
    assert [r.value for r in dedup_world.consumed(lab1, clean, 0)] == [b"a", b"b", b"c", b"d"]


def _tasks(objects: Objects) -> list[str]:
    return [name for name in objects.names() if name.startswith("tasks/")]


@pytest.mark.long
@pytest.mark.parametrize("later", [pytest.param(0.0, marks=pytest.mark.long), 0.3])
def test_of_two_rebuilds_at_once_one_wins(
    lab1: Lab, topic: MakeTopic, objects: Objects, later: float
) -> None:
    """Both do the work; the second that would publish is refused, and leaves nothing behind.

    later: seconds; with some it finds the manifest there before it puts its own.
    """
    log = topic(lab1, partitions=2, config=COMPACT)
    fill(lab1, log, seed=2, records=2_000, keys=300, partitions=2)
    there = env(objects.port)
    slowly = words(log, objects.address, "--processes", "1", "--max-rate", "200KiB")
    with eoctl_running(lab1, *slowly, env=there) as first:
        wait_until(lambda: "request.json" in objects.names())
        time.sleep(later)
        with eoctl_running(lab1, *slowly, env=there) as second:
            ended = [process.communicate(timeout=120) for process in (first, second)]
    statuses = [first.returncode, second.returncode]
    assert sorted(statuses) == [0, 4], ended
    (line,) = said(ended[statuses.index(4)][1])
    assert "there is a state already" in line
    objects.check(lab1, log)


@pytest.mark.long
def test_only_what_came_since(
    lab1: Lab, topic: MakeTopic, objects: Objects, tmp_path: Path
) -> None:
    """Also as a job for a scheduler: its addresses stay, and no credentials are written."""
    log, there = topic(lab1, config=COMPACT), env(objects.port)
    fill(lab1, log, seed=6, records=300, keys=40, partitions=1)
    assert eoctl(*words(log, objects.address), lab=lab1, env=there).status == 0
    fill(lab1, log, seed=7, records=100, keys=40, partitions=1)
    later = Objects(objects.port, f"{objects.prefix}-later")
    since = ("--since", objects.address)
    ran = eoctl(*words(log, later.address, *since), lab=lab1, env=there)
    assert ran.status == 0, ran.stderr
    assert later.manifest["incremental_from"] == objects.address
    later.check(lab1, log)
    job, output = tmp_path / "job", f"{objects.prefix}-{{date}}"
    asked = ("--format", "plain", "--at", "lso", "--output", f"s3://{BUCKET}/{output}", *since)
    ran = eoctl("jobs", "export", str(job), log, *asked, lab=lab1, env=there)
    assert ran.status == 0, ran.stderr
    spec = (job / "spec.json").read_text()
    request = json.loads(spec)["request"]
    assert request["how"]["output"] == f"s3://{BUCKET}/{output}"
    assert request["since"] == f"{objects.address}/manifest.json"
    assert SECRET not in spec + (job / "submit.txt").read_text()


@pytest.mark.long
def test_a_lost_answer_of_the_manifest(lab1: Lab, topic: MakeTopic, objects: Objects) -> None:
    log = topic(lab1, config=COMPACT)
    fill(lab1, log, seed=3, records=200, keys=30, partitions=1)
    left = ["lost"]

    def fault(line: str) -> Fault:
        return left.pop() if left and line.startswith("PUT") and "manifest.json" in line else None

    with closing(Faulty(objects.port, fault)) as proxy:
        ran = eoctl(*words(log, objects.address), lab=lab1, env=env(proxy.port))
        assert ran.status == 0, ran.stderr
        assert len(proxy.faults) == 1
    objects.check(lab1, log)


def test_what_is_wrong_is_one_sentence(lab1: Lab, topic: MakeTopic, objects: Objects) -> None:
    log, address = topic(lab1), objects.address
    none = env(objects.port, AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)
    with closing(Faulty(objects.port, lambda line: "403")) as proxy:
        no_bucket = (2, env(objects.port), "s3://nobody: there is no such bucket")
        refused = (5, env(proxy.port), "refuses these credentials, or they may not do this (403")
        for (status, there, what), asked in (
            (no_bucket, words(log, "s3://nobody/x")),
            (no_bucket, ["state", "show", "s3://nobody/x"]),
            (refused, words(log, address)),
            (refused, ["state", "show", address]),
            (refused, ["state", "compare", address, address]),
            (refused, ["state", "deliver", address, "--into", "topic:t"]),
            ((5, none, "no credentials for this object storage"), ["state", "show", address]),
        ):
            ran = eoctl(*asked, lab=lab1, env=there)
            assert ran.status == status, (asked, ran.stderr)
            (line,) = said(ran.stderr)
            assert what in line
            assert SECRET not in ran.stderr + ran.stdout
    assert objects.names() == []
