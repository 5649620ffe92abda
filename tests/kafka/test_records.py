"""The records at stake, held against what was written here and what a plain consumer reads."""

import base64
import gzip
import io
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from tests.docs.pages import follows
from tests.kafka.command import FAST, Ran, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.reading import Reading
from tests.kafka.rights import as_user
from tests.registry import framed, registry

BIG = bytes(range(33, 91)) * 16_000  # 928,000 bytes
HOSTILE: Sequence[tuple[bytes | None, bytes | None]] = (
    (b"\x1b[31mred\x1b[0m", b"\x1b]0;title\x07"),
    (b"caf\xe9", b"\xff\xfe\x00"),
    (None, b'{"order": 17, "note": "\\u001b[2J"}'),
    (b"gone", None),
    (b"", b""),
    (b"big", BIG),
)
HEADERS = [("trace", b"\x1b[1m"), ("none", None), ("id", b"7")]


@dataclass
class Log:
    """What was written to one partition: offset → the record, as its delivery report says."""

    lab: Lab
    topic: str
    written: dict[int, Message] = field(default_factory=dict)

    def producer(self, name: str | None = None) -> Producer:
        """A producer; with a name one that has a transaction open."""
        properties: dict[str, Any] = {
            **self.lab.client_properties(),
            "message.max.bytes": 1_040_000,
            "linger.ms": 50,
        }
        if name is None:
            return Producer(properties)
        made = Producer({**properties, "transactional.id": f"{self.topic}-{name}"})
        made.init_transactions(20)
        made.begin_transaction()
        return made

    def write(
        self, producer: Producer, *pairs: tuple[bytes | None, bytes | None], **more: Any
    ) -> list[int]:
        """Write these keys and values; their offsets."""
        offsets: list[int] = []

        def delivered(error: Any, message: Message) -> None:
            assert error is None, error
            offset = message.offset()
            assert offset is not None
            self.written[offset] = message
            offsets.append(offset)

        for key, value in pairs:
            producer.produce(
                self.topic, value, key, 0, on_delivery=delivered, timestamp=now_ms(), **more
            )
        producer.flush(20)
        assert len(offsets) == len(pairs)
        return sorted(offsets)


def now_ms() -> int:
    return int(time.time() * 1000)


def pid_at(lab: Lab, topic: str) -> tuple[str, ...]:
    """The options that name the transaction at the LSO."""
    [row] = eoctl("lso", f"{topic}:0", "-o", "json", lab=lab).rows
    blocking = row["blocking"]
    return "--pid", str(blocking["producer_id"]), "--start-offset", str(blocking["start_offset"])


def records(lab: Lab, topic: str, *more: str, env: Mapping[str, str] | None = None) -> Ran:
    return eoctl("txn", "records", f"{topic}:0", *more, lab=lab, env=env)


def as_json(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def same(rows: Sequence[Mapping[str, Any]], which: str, log: Log, offsets: Sequence[int]) -> None:
    """The rows of a kind are exactly the records of these offsets, as they were written."""
    mine = [row for row in rows if row["which"] == which]
    assert [row["offset"] for row in mine] == list(offsets)
    for row in mine:
        message = log.written[row["offset"]]
        assert row["key"] == as_json(message.key())
        assert row["value"] == as_json(message.value())
        value = message.value()
        assert row["value_bytes"] == (None if value is None else len(value))
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(message.timestamp()[1] / 1000))
        assert row["timestamp"].startswith(at)


@contextmanager
def at_stake(lab: Lab, topic: str) -> Iterator[tuple[Log, list[int], list[int]]]:
    """An open transaction, and around it every kind of record; its own and those that wait."""
    log = Log(lab, topic)
    plain, mine = log.producer(), log.producer("mine")
    log.write(plain, (b"before", b"read already"))
    first = log.producer("aborted-first")
    log.write(first, (b"never", b"seen"))
    first.abort_transaction(20)
    held = log.write(mine, *HOSTILE[:3], headers=HEADERS)
    waits = log.write(plain, (b"w1", b"1"))
    aborted, committed = log.producer("aborted"), log.producer("committed")
    log.write(aborted, (b"never", b"1"), (b"never", b"2"))
    later = log.write(committed, (b"w2", b"2"))
    held += log.write(mine, *HOSTILE[3:])
    aborted.abort_transaction(20)
    committed.commit_transaction(20)
    waits += later
    other = log.producer("other")
    log.write(other, (b"other", b"open"))
    waits += log.write(plain, (b"w3", b"3"), (None, b"4"))
    try:
        yield log, held, waits
    finally:
        for one in (mine, other):
            one.abort_transaction(20)


def test_rows_are_what_was_written(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    with at_stake(lab1, name) as (log, held, waits):
        which = pid_at(lab1, name)
        every = records(lab1, name, *which, "--limit", "100", "--headers", "-o", "json")
        few = records(lab1, name, *which, "--limit", "2", "-o", "json")
        keys = records(lab1, name, *which, "--keys-only", "-o", "json")
        table = records(lab1, name, *which, "--limit", "100", "--headers")
        story = eoctl("why", f"{name}:0", "--records", "2", "-o", "json", *FAST, lab=lab1)
        page = eoctl("why", f"{name}:0", "--records", "2", *FAST, lab=lab1)
        without = eoctl("why", f"{name}:0", "-o", "json", *FAST, lab=lab1)
    assert every.status == 0, every.stderr
    same(every.rows, "held", log, held)
    same(every.rows, "waiting", log, waits)
    assert every.json["held_records"] == len(held)
    assert every.json["waiting_records"] == len(waits)
    assert every.json["aborted_records"] == 2
    assert every.json["other_open_records"] == 1
    for row in every.rows[:3]:
        assert [(h["name"], h["value"]) for h in row["headers"]] == [
            (header, as_json(value)) for header, value in HEADERS
        ]
    same(few.rows, "held", log, held[:2])
    same(few.rows, "waiting", log, waits[:2])
    assert all(row["value"] is None and row["value_decoded"] is None for row in keys.rows)
    assert [row["key"] for row in keys.rows[:3]] == [as_json(key) for key, _ in HOSTILE[:3]]
    # the table: a line for each, nothing that a terminal would take for a command
    lines = table.stdout.splitlines()
    assert len(lines) == 1 + len(held) + len(waits)
    assert all(line.isprintable() for line in lines)
    assert "\\x1b[31mred\\x1b[0m" in lines[1]
    assert BIG.decode() in table.stdout
    assert "not UTF-8 from byte 0" in lines[2]
    assert f"the transaction has {len(held)} records; {len(waits)} records wait" in table.text
    # why: the same rows
    [row] = story.rows
    assert row["records"] == few.rows
    assert [r["records"] for r in without.rows] == [None]
    _, below = page.stdout.split("\n records:\n")
    kinds = [line.split()[0] for line in below.splitlines()]
    assert kinds == ["WHICH", "held", "held", "waiting", "waiting"]


def test_only_the_beginning_is_read(lab1: Lab, topic: MakeTopic) -> None:
    """Of 40 MB after the first records little is read: counts are then at least these."""
    name = topic(lab1)
    log = Log(lab1, name)
    mine, plain = log.producer("mine"), log.producer()
    held = log.write(mine, *((b"%d" % n, b"v") for n in range(3)))
    waits = log.write(plain, *((b"%d" % n, b"x" * 500_000) for n in range(80)))
    try:
        ran = records(lab1, name, *pid_at(lab1, name), "--limit", "3", "-o", "json")
        text = records(lab1, name, *pid_at(lab1, name), "--limit", "3", "--keys-only")
    finally:
        mine.abort_transaction(20)
    same(ran.rows, "held", log, held)
    same(ran.rows, "waiting", log, waits[:3])
    assert ran.json["read_to"] < waits[40]
    assert "the transaction has at least 3 records; at least " in text.text


def test_what_was_deleted_is_told(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    log = Log(lab1, name)
    mine, plain = log.producer("mine"), log.producer()
    held = log.write(mine, *((b"%d" % n, b"held") for n in range(4)))  # one batch
    waits = log.write(plain, (b"w", b"waits"))
    which = pid_at(lab1, name)
    admin = AdminClient(lab1.client_properties())

    def delete(before: int) -> None:
        partition = TopicPartition(name, 0, before)
        admin.delete_records([partition])[partition].result(20)

    try:
        delete(held[2])
        some = records(lab1, name, *which, "-o", "json")
        told = records(lab1, name, *which)
        delete(waits[0])
        rest = records(lab1, name, *which, "-o", "json")
        none = records(lab1, name, *which)
    finally:
        mine.abort_transaction(20)
    same(some.rows, "held", log, held[2:])
    assert "offsets 0 to 1 were deleted, by retention or DeleteRecords" in told.text
    same(rest.rows, "held", log, [])
    same(rest.rows, "waiting", log, waits)
    assert "nothing of the transaction is left in the log" in none.text
    assert (some.status, none.status) == (0, 0)


def test_another_start_is_refused_and_an_end_is_told(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    log = Log(lab1, name)
    plain, mine = log.producer(), log.producer("mine")
    log.write(plain, (b"a", b"b"))
    held = [*log.write(mine, (b"1", b"2")), *log.write(mine, (b"3", b"4"))]  # two batches
    _, pid, _, start = pid_at(lab1, name)
    assert int(start) == held[0]
    for other_pid, other_start in ((pid, "0"), (pid, "2"), ("99999", start), (pid, "500")):
        which = ("--pid", other_pid, "--start-offset", other_start)
        ran = records(lab1, name, *which)
        assert ran.status == 2, ran.text
        assert f"no transaction of producer id {other_pid} begins at offset" in ran.text
    mine.commit_transaction(20)
    over = records(lab1, name, "--pid", pid, "--start-offset", start, "-o", "json")
    same(over.rows, "held", log, held)
    assert len(over.rows) == 2
    assert over.json["ended"] == {"offset": held[-1] + 1, "outcome": "commit"}
    text = records(lab1, name, "--pid", pid, "--start-offset", start).text
    assert f"the transaction is over: its COMMIT marker is at offset {held[-1] + 1}" in text
    for word in ("--limit", "--format", "--beside-from"):
        assert records(lab1, name, "--pid", pid, "--start-offset", start, word, "0").status == 2


def test_without_read_the_permission_is_named(secure_lab: Lab, topic: MakeTopic) -> None:
    name = topic(secure_lab)
    Log(secure_lab, name).write(Producer(secure_lab.client_properties()), (b"k", b"secret"))
    words = ("txn", "records", f"{name}:0", "--pid", "1", "--start-offset", "0")
    ran = as_user(secure_lab, "no-topic-read", *words)
    assert ran.status == 3
    assert f"{name}:0: READ on the topic is not granted (TOPIC_AUTHORIZATION_FAILED)" in ran.text
    hidden = as_user(secure_lab, "nobody", *words)
    assert hidden.status == 3
    assert name in hidden.text
    assert "secret" not in ran.text + hidden.text


def test_a_context_that_shows_no_records(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    name = topic(lab1)
    config = tmp_path / "config.toml"
    servers = f'bootstrap_servers = "{lab1.bootstrap_servers}"\n'
    hidden = f"[contexts.hidden]\n{servers}show_records = false\n"
    config.write_text(f"{hidden}[contexts.open]\n{servers}")
    env = environment(EOCTL_CONFIG=str(config))
    log = Log(lab1, name)
    mine = log.producer("mine")
    log.write(mine, (b"a-secret-key", b"a-secret-value"))
    which = pid_at(lab1, name)
    try:
        for words in (
            ("txn", "records", f"{name}:0", *which),
            ("txn", "records", f"{name}:0", *which, "--keys-only", "-o", "json"),
            ("why", f"{name}:0", "--records", "5", *FAST),
        ):
            ran = eoctl(*words, "--context", "hidden", env=env)
            assert ran.status == 4
            assert ran.stdout == ""
            assert "hidden: show_records = false in this context" in ran.stderr
            assert ran.stderr.count("\n") == 1
            shown = eoctl(*words, "--context", "open", env=env)
            assert shown.status in (0, 1)
            assert str(as_json(b"a-secret-key")) in shown.text or "a-secret-key" in shown.text
        bundle = tmp_path / "incident.eoctl"
        words = ("bundle", "create", str(bundle), "--with-records", "5", "--context", "hidden")
        ran = eoctl(*words, env=env)
        assert (ran.status, bundle.exists()) == (4, False), ran.text
        usual = eoctl("why", f"{name}:0", *FAST, "--context", "hidden", env=env)
        assert usual.status in (0, 1)
    finally:
        mine.abort_transaction(20)
    listed = eoctl("context", "list", "-o", "json", env=env).rows
    shows = {row["name"]: row["show_records"] for row in listed if row["source"] == "config file"}
    assert shows == {"hidden": False, "open": True}
    assert "NO-RECORDS" in eoctl("context", "list", env=env).stdout
    settings = eoctl("context", "show", "--context", "hidden", "-o", "json", env=env).rows
    assert {"key": "show_records", "value": "False"} in settings


def test_content_is_kept_nowhere(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """A secret in key, value and header: on the terminal that asked, and in no file or answer."""
    name, secret = topic(lab1), f"hunter-{uuid.uuid4().hex}"
    state = tmp_path / "state"
    env = environment(EOCTL_STATE_DIR=str(state), EOCTL_CACHE_DIR=str(tmp_path / "cache"))
    log = Log(lab1, name)
    mine = log.producer("mine")
    content = secret.encode()
    log.write(mine, (content, content), headers=[("h", content)])
    log.write(log.producer(), (content, content))
    which, bundle = pid_at(lab1, name), str(tmp_path / "incident")
    asked = records(lab1, name, *which, "--headers", env=env)
    assert asked.stdout.count(secret) >= 5, "the test finds it where it is"
    told = [
        eoctl(*words, lab=lab1, env=env)
        for words in (
            ("why", f"{name}:0", "-o", "json", *FAST),
            ("why", f"{name}:0", "--records", "5", "--transactional-id", "none", *FAST),
            ("runbook", *FAST),
            ("bundle", "create", bundle, "--history", *FAST),
            ("txn", "fence", f"{name}-mine", "--owner-is-gone", *FAST),
            ("txn", "fence", f"{name}-mine", "--owner-is-gone", "--execute", "--yes", *FAST),
        )
    ]
    assert told[-1].status == 0, told[-1].stderr
    report = tmp_path / "report.html"
    listed = eoctl("journal", "list", "-o", "json", env=env)
    [entry] = listed.rows
    told += [
        listed,
        eoctl("journal", "show", entry["id"], "-o", "json", env=env),
        eoctl("report", bundle, "--output", str(report), env=env),
        eoctl("report", entry["id"], "--output", f"{report}.entry", env=env),
        eoctl("why", "--from", bundle, "-o", "json", env=env),
    ]
    forms = {secret.encode(), base64.b64encode(content), content.hex().encode()}
    for ran in told:
        assert not any(form.decode() in ran.stdout + ran.stderr for form in forms)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"report.html", "incident"} <= {path.name for path in files}
    assert any(state in path.parents and path.stat().st_size for path in files), "no journal"
    for path in files:
        data = path.read_bytes()
        data += gzip.decompress(data) if data[:2] == b"\x1f\x8b" else b""
        assert not any(form in data for form in forms), path
    for words in (("txn", "records", f"{name}:0", *which), ("why", "--records", "5")):
        refused = eoctl(*words, "--from", bundle, env=env)
        assert refused.status == 4, refused.text


def committed(lab: Lab, topic: str) -> list[Message]:
    """Every record that a read_committed consumer gets."""
    consumer = Consumer(
        {
            **lab.client_properties(),
            "group.id": f"{topic}-oracle",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    partitions = [TopicPartition(topic, p, 0) for p in (0, 1)]
    consumer.assign(partitions)
    found: list[Message] = []
    at_end: set[int | None] = set()
    while len(at_end) < len(partitions):
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            found.append(message)
        else:
            at_end.add(message.partition())
    consumer.close()
    return found


def expected(key: bytes | None, value: bytes | None, read: Sequence[Message]) -> dict[str, Any]:
    """What the output has of a record, by every committed record of it."""
    row = {"found": "no-key", "topic": None, "partition": None, "offset": None}
    if key is None:
        return row
    alike = [m for m in read if m.key() == key]
    equal = [m for m in alike if m.value() == value]
    if not alike:
        return row | {"found": "not-in-range"}
    first = min(equal or alike, key=lambda m: (m.partition() or 0, m.offset() or 0))
    found = "same-value" if equal else "same-key"
    where = {"topic": first.topic(), "partition": first.partition(), "offset": first.offset()}
    return row | {"found": found, **where}


def test_what_an_output_has_already(lab1: Lab, topic: MakeTopic) -> None:
    name, output = topic(lab1), topic(lab1, 2)
    log = Log(lab1, name)
    mine = log.producer("mine")
    pairs = [
        (b"equal", b"1"),
        (b"other", b"2"),
        (b"aborted", b"3"),
        (b"open", b"4"),
        (b"absent", b"5"),
        (None, b"equal"),
        (b"deleted", None),
        (b"old", b"7"),
        (b"twice", b"8"),
    ]
    held = log.write(mine, *pairs)
    writes: list[tuple[str, bytes, bytes | None, int]] = [
        ("committed", b"equal", b"1", 0),
        ("committed", b"other", b"not 2", 1),
    ]
    writes += [("aborted", b"aborted", b"3", 0), ("open", b"open", b"4", 1)]
    writes += [("committed", b"deleted", None, 0), ("committed", b"twice", b"first", 0)]
    writes += [("committed", b"twice", b"8", 0)]
    plain = log.producer()
    plain.produce(output, b"7", b"old", 0, timestamp=now_ms() - 3_600_000)
    plain.flush(20)
    txns = {kind: log.producer(f"out-{kind}") for kind in ("committed", "aborted", "open")}
    for kind, its, written, partition in writes[:3] + writes[4:] + writes[3:4]:
        txns[kind].produce(output, written, its, partition, timestamp=now_ms())
        txns[kind].flush(20)
    txns["committed"].commit_transaction(20)
    txns["aborted"].abort_transaction(20)
    which = pid_at(lab1, name)
    ask = ("--limit", "100", "--beside", output, "-o", "json")
    try:
        usual = records(lab1, name, *which, *ask)
        early = records(lab1, name, *which, *ask, "--beside-from", "earliest")
        one = records(lab1, name, *which, "--limit", "100", "--beside", f"{output}:1", "-o", "json")
        table = records(lab1, name, *which, "--limit", "100", "--beside", output)
        read = committed(lab1, output)
    finally:
        mine.abort_transaction(20)
        txns["open"].abort_transaction(20)
    assert usual.status == 0, usual.stderr
    [(_, first_kept)] = [(m, m.offset()) for m in read if m.key() == b"equal"]
    for ran, known in (
        (early, read),
        (usual, [m for m in read if m.key() != b"old"]),
        (one, [m for m in read if m.partition() == 1]),
    ):
        got = {row["offset"]: row["beside"] for row in ran.rows if row["which"] == "held"}
        for offset, (key, value) in zip(held, pairs, strict=True):
            assert got[offset] == expected(key, value, known), key
    ranges = {(r["partition"], r["from"]): r for r in usual.json["beside"]}
    assert set(ranges) == {(0, first_kept), (1, 0)}, "the old record is before it"
    assert all(r["complete"] and r["to"] == r["last_stable_offset"] for r in ranges.values())
    assert {r["from"] for r in early.json["beside"]} == {0}
    assert f"{output}:0 offset {first_kept}, same value" in table.text
    assert "what was not found there may be elsewhere in the output" in table.text
    assert "records without a key cannot be looked for" in table.text


def test_an_output_that_cannot_be_read(secure_lab: Lab, lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1)
    log = Log(lab1, name)
    mine = log.producer("mine")
    log.write(mine, (b"k", b"v"))
    try:
        ran = records(lab1, name, *pid_at(lab1, name), "--beside", "no-such-topic", "-o", "json")
    finally:
        mine.abort_transaction(20)
    assert ran.status == 3
    assert [e["topic"] for e in ran.json["errors"]] == ["no-such-topic"]
    assert ran.rows[0]["beside"]["found"] == "not-in-range"


def test_avro_by_a_registry(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    name = topic(lab1)
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"id": 17})
    log = Log(lab1, name)
    mine = log.producer("mine")
    values = (framed(5, out.getvalue()), framed(6, out.getvalue()), framed(5, b"\xff"), b"text")
    log.write(mine, *((b"k", value) for value in values))
    which = pid_at(lab1, name)
    login = ("-X", "basic.auth.user.info=reader:hunter2")
    try:
        with registry({"/schemas/ids/5": {"schema": json.dumps(schema)}}, "reader:hunter2") as (
            url,
            asked,
        ):
            there = ("-X", f"schema.registry.url={url}", *login)
            auto = records(lab1, name, *which, *there, "-o", "json")
            avro = records(lab1, name, *which, *there, "--format", "avro", "-o", "json")
            shown = eoctl("context", "show", *there, lab=lab1)
        silent = records(lab1, name, *which, *there, "-o", "json")
        without = records(lab1, name, *which, "-o", "json")
        refused = records(lab1, name, *which, "--format", "avro")
    finally:
        mine.abort_transaction(20)
    assert [row["value_decoded"] for row in auto.rows][::3] == [{"id": 17}, "text"]
    assert [row["value_format"] for row in auto.rows] == ["avro", "hex", "hex", "text"]
    assert [row["value_format"] for row in avro.rows] == ["avro", "hex", "hex", "hex"]
    assert [row["value"] for row in auto.rows] == [as_json(value) for value in values]
    problems = [row["problem"] for row in auto.rows]
    assert problems[0] is None
    assert "has no schemas/ids/6" in problems[1]
    assert "schema 5: not of that schema" in problems[2]
    assert avro.rows[0]["problem"] == "key: not framed as the schema registry's clients do"
    assert len(asked) <= 4, "each schema once a run"
    assert "did not answer" in silent.rows[0]["problem"]
    assert "it looks like schema 5 of a schema registry" in without.rows[0]["problem"]
    assert (silent.status, without.status, refused.status) == (0, 0, 2)
    assert "needs a schema registry" in refused.stderr
    assert "hunter2" not in shown.text


@pytest.mark.parametrize("kind", ["orphan", "open", "mixed"])
def test_of_what_the_lab_breaks(lab1: Lab, kind: str) -> None:
    """Of the truth of a break: its open records are held; plain and committed ones wait."""
    [truth] = break_(lab1, kind, hold=False)
    where = f"{truth.topic}:{truth.partition}"
    which = ("--pid", str(truth.producer_id), "--start-offset", str(truth.start_offset))
    ran = eoctl("txn", "records", where, *which, "--limit", "1000", "-o", "json", lab=lab1)
    assert ran.status == 0, ran.stderr
    start = truth.start_offset or 0
    mine = [o.offset for o in truth.offsets if o.content == "open" and o.offset >= start]
    assert mine
    assert [row["offset"] for row in ran.rows if row["which"] == "held"] == mine
    plain = [o.offset for o in truth.offsets if o.content in ("plain", "committed", "idempotent")]
    waiting = [row["offset"] for row in ran.rows if row["which"] == "waiting"]
    assert waiting == [offset for offset in plain if offset > start]


def test_a_pending_commit_of_offsets_is_readable(lab1: Lab) -> None:
    [truth] = break_(lab1, "offsets-orphan")
    which = ("--pid", str(truth.producer_id), "--start-offset", str(truth.start_offset))
    where = f"{truth.topic}:{truth.partition}"
    assert truth.topic == "__consumer_offsets"
    ran = eoctl("txn", "records", where, *which, "-o", "json", lab=lab1)
    shown = [r for r in ran.rows if r["which"] == "held"]
    assert [(row["key_decoded"], row["value_decoded"]["offset"]) for row in shown] == [
        (
            {
                "group": truth.group,
                "topic": truth.group_topic,
                "partition": truth.group_partition,
            },
            truth.pending_offset,
        )
    ]


@follows("docs/records.md", "The records at stake")
def test_the_page(it: Reading, lab1: Lab, topic: MakeTopic) -> None:
    name, output = topic(lab1), topic(lab1)
    with at_stake(lab1, name) as (_, held, _waits):
        _, pid, _, start = pid_at(lab1, name)
        it.lab = lab1
        it.names |= {"orders:3": f"{name}:0", "4001": pid, "182736450": start}
        it.names["orders-enriched"] = output
        assert it.run("txn records", 0).stdout.count("\nheld ") == 5
        assert len(it.run("txn records", 0).rows) > len(held)
        assert "not found" in it.run("txn records", 0).stdout
