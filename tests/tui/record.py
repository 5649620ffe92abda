"""How the recordings were made, on real labs: `python -m tests.tui.record FOLDER [NAME...]`.

orders: three brokers, trouble of several kinds, hostile names. dead: its brokers go away while it
looks (made with orders). empty: a fresh broker. denied: the same questions by a user that may see
next to nothing. calm, incident: one broker with traffic, without trouble and with it.
jobs: a rebuild runs on Spark, another one has ended, a merge log was replayed.
checkpoint: of what a Flink checkpoint promises one transaction was aborted, others are open.
doctor: one broker without what keeps transactions safe, examined by a user without a right.
again: no lab; writes those in FOLDER again, with the fields that the rows have got since.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab, up
from eoctl.lab.record import LabSpec
from eoctl.lab.secure import client_file
from eoctl.operations.change.changes import plans_folder
from eoctl.operations.dashboard.snapshot import Snapshot
from eoctl.operations.jobs.job_records import list_jobs
from eoctl.settings.context import Connect, Context, resolve
from eoctl.stores.journal_files import Journal
from recovery.diagnose.diagnosis_rows import TxnHangingRow
from recovery.inspect.observation import Settings
from recovery.values import replace
from tests.kafka.merging import World
from tui.feed.asking import LiveFeed
from tui.feed.frame import Frame
from tui.feed.recording import read
from tui.feed.writer import Writer
from tui.unattended import follow_worst

HOSTILE = "[/x] \x1b[31m\u202egnp \U0001f600"
UNCHECKED = {"transaction.partition.verification.enable": "false"}


PAGES = {
    "producers": True,
    "why": "orders:3",
    "history": "orders-enricher-0_3",
    "strip": "orders:3",
}


def record(
    context: Context,
    path: Path,
    seconds: float,
    meanwhile: Callable[[list[Frame], LiveFeed], None] = lambda frames, feed: None,
    *,
    wants: Mapping[str, object] | None = PAGES,
    interval: float = 2.0,
    timeout: float = 4.0,
) -> None:
    """Run the dashboard's own feed without a dashboard, for so long.

    meanwhile: what happens then, with the frames so far. wants: None for what the overview asks
    while its cursor rests on the worst finding. timeout: of one round, seconds.
    """
    path.unlink(missing_ok=True)
    settings = Settings(long_after=5_000)
    feed = LiveFeed(context, interval=interval, settings=settings, seconds=timeout)
    feed.writer = Writer(path)
    feed.want(**(wants or {}))
    frames: list[Frame] = []

    def post(news: Frame | str) -> None:
        assert isinstance(news, Frame), news
        frames.append(news)
        if wants is None:
            follow_worst(feed, news)

    feed.start(post)
    time.sleep(seconds)
    meanwhile(frames, feed)
    feed.stop()


def until(frames: list[Frame], true: Callable[[Snapshot], bool]) -> None:
    """Wait for what a look shows, and a little longer, so that it is drawn."""
    end = time.monotonic() + 400
    while not (frames and true(frames[-1].snapshot)):
        assert time.monotonic() < end
        time.sleep(0.2)
    time.sleep(6)


def orders(lab: Lab) -> None:
    """Orphans, a long transaction, a pending commit, hostile names, traffic that is well."""
    break_(lab, "long", topic="orders", partition=5, transactional_id="orders-enricher-0_3")
    break_(lab, "orphan", topic="orders", partition=3)
    break_(lab, "orphan", topic="payments", partition=1)
    break_(lab, "open", topic="clicks", transactional_id="clicks-sink-0_0")
    break_(lab, "open", topic="t" * 249, transactional_id="n" * 249)
    break_(lab, "open", topic="hostile", transactional_id=HOSTILE)
    break_(lab, "offsets-pending", topic="clicks-in", group="clicks-sink")
    consumer = Consumer({**lab.client_properties(), "group.id": HOSTILE})
    consumer.commit(offsets=[TopicPartition("hostile", 0, 3)], asynchronous=False)
    consumer.close()
    break_(lab, "mixed", topic="audit")


def eoctl(lab: Lab, *words: str) -> None:
    """Run a command as an operator would."""
    argv = [sys.executable, "-m", "eoctl", "--context", f"lab-{lab.name}", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    print(" ".join(words), done.returncode, done.stderr[-300:])


def changes(lab: Lab) -> str:
    """An orphan aborted, another one planned, a state rebuilt on Spark; the journal's entry."""
    [truth] = break_(lab, "orphan", topic="refunds", partition=0)
    named = ["--pid", str(truth.producer_id), "--start-offset", str(truth.start_offset)]
    eoctl(lab, "txn", "abort", "refunds:0", *named, "--execute", "--yes")
    plans_folder().mkdir(parents=True, exist_ok=True)
    eoctl(lab, "txn", "hanging", "--plan", str(plans_folder() / "orphans.json"))
    output = str(plans_folder().parent / "state-audit")
    at = ["--at", "lso", "--output", output, "--engine", "spark"]
    eoctl(lab, "state", "rebuild", "audit", "--format", "plain", *at)
    return Journal().find().entries[-1].id


def hanging(s: Snapshot) -> list[TxnHangingRow]:
    return [h for h in (s.hanging.rows if s.hanging else ()) if isinstance(h, TxnHangingRow)]


@contextmanager
def lab_of(spec: LabSpec) -> Iterator[Lab]:
    """A lab, its journal and its jobs in a folder of their own."""
    with TemporaryDirectory(prefix="eoctl-record-") as state:
        os.environ["EOCTL_STATE_DIR"] = state
        lab = up(spec)
        try:
            yield lab
        finally:
            lab.down()


def orders_and_dead(folder: Path) -> None:
    with lab_of(LabSpec(name="record-orders", brokers=3, settings=UNCHECKED)) as lab:
        orders(lab)
        context = resolve(Connect(context=f"lab-{lab.name}"))
        entry = changes(lab)
        record(context, folder / "orders.jsonl", 30, wants=PAGES | {"detail": entry})

        def die(frames: list[Frame], feed: LiveFeed) -> None:
            for broker in lab.broker_ids:
                lab.kill(broker)
            time.sleep(6)

        record(context, folder / "dead.jsonl", 9, die)


def empty(folder: Path) -> None:
    with lab_of(LabSpec(name="record-empty")) as lab:
        record(resolve(Connect(context=f"lab-{lab.name}")), folder / "empty.jsonl", 5)


def denied(folder: Path) -> None:
    with lab_of(LabSpec(name="record-denied", secure=True)) as lab:
        user = resolve(Connect(command_config=str(client_file(lab.folder, "nobody", "SCRAM"))))
        record(user, folder / "denied.jsonl", 5)


def jobs(folder: Path) -> None:
    with lab_of(LabSpec(name="record-jobs")) as lab:
        app = replayed(lab)
        kept = plans_folder().parent
        admin = AdminClient(lab.client_properties())
        admin.create_topics([NewTopic("counts-changelog", 2, 1)])["counts-changelog"].result(20)
        producer = Producer(lab.client_properties() | {"compression.type": "none"})
        for n in range(20_000):
            producer.produce("counts-changelog", os.urandom(500), str(n % 500).encode())
        producer.flush(30)
        rebuild = ["state", "rebuild", "counts-changelog", "--format", "plain", "--at", "hw"]
        eoctl(lab, *rebuild, "--engine", "spark", "--output", str(kept / "counts"))
        slow = [*rebuild, "--output", str(kept / "counts-again"), "--max-rate", "300KB"]
        argv = [sys.executable, "-m", "eoctl", "--context", f"lab-{lab.name}", *slow]
        process = subprocess.Popen([*argv, "--engine", "spark"], start_new_session=True)
        while not any(j.state == "running" and j.records for j in list_jobs()):
            time.sleep(0.5)
        [running] = [j.id for j in list_jobs() if j.state == "running"]
        context = resolve(Connect(context=f"lab-{lab.name}"))
        wants = PAGES | {"detail": f"job {running}", "merge": str(app)}
        record(context, folder / "jobs.jsonl", 20, wants=wants)
        process.send_signal(signal.SIGINT)
        process.wait(60)


def checkpoint(folder: Path) -> None:
    with lab_of(LabSpec(name="record-checkpoint")) as lab:
        truths = break_(lab, "checkpoint", topic="ledger", count=3)
        lost = str(truths[2].transactional_id)
        eoctl(lab, "txn", "fence", lost, "--owner-is-gone", "--execute", "--yes")
        [path] = (lab.folder / "checkpoints" / "ledger").glob("chk-*")
        context = resolve(Connect(context=f"lab-{lab.name}"))
        wants = {"checkpoint": str(path)}
        record(context, folder / "checkpoint.jsonl", 20, wants=wants, interval=4.0, timeout=20.0)


def doctor(folder: Path) -> None:
    """Findings of several kinds, a hostile id, and what the user may not read."""
    spec = LabSpec(name="record-doctor", secure=True, settings=UNCHECKED)
    with lab_of(spec) as lab:
        break_(lab, "open", topic="orders", transactional_id=HOSTILE)
        admin = AdminClient(lab.client_properties())
        deletes = NewTopic("counts-changelog", 1, 1, config={"cleanup.policy": "delete"})
        admin.create_topics([deletes])["counts-changelog"].result(20)
        user = client_file(lab.folder, "no-topic-read", "SCRAM")
        context = resolve(Connect(command_config=str(user)))
        record(context, folder / "doctor.jsonl", 8, wants={"doctor": ""}, timeout=20.0)


class Traffic:
    """Two applications that are well: each commits twice a second, one aborts now and then."""

    def __init__(self, lab: Lab, partitions: list[tuple[str, int]]) -> None:
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(lab, partitions, name, every), daemon=True)
            for name, every in (("enricher-0", 0), ("enricher-1", 7))
        ]
        for thread in self._threads:
            thread.start()

    def _run(
        self, lab: Lab, topic_partitions: list[tuple[str, int]], name: str, aborts_every: int
    ) -> None:
        settings = {"transactional.id": name, "log_level": 0}
        number = 0
        while not self._stopped.is_set():
            with suppress(KafkaException):  # the broker went away: as a new process would
                producer = Producer(lab.client_properties() | settings)
                producer.init_transactions(30)
                while not self._stopped.is_set():
                    number += 1
                    producer.begin_transaction()
                    for topic, partition in tuple(topic_partitions):
                        producer.produce(topic, b"v", str(number).encode(), partition)
                    self._stopped.wait(0.4)
                    if aborts_every and number % aborts_every == 0:
                        producer.abort_transaction(30)
                    else:
                        producer.commit_transaction(5)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(60)


SLOW: dict[str, Any] = {"wants": None, "interval": 4.0, "timeout": 60.0}


class Reporting:
    """A group that reads what is committed and commits its offsets each second."""

    def __init__(self, lab: Lab, topics: list[str]) -> None:
        self._properties = lab.client_properties() | {"group.id": "reporting", "log_level": 0}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(topics,), daemon=True)
        self._thread.start()

    def _run(self, topics: list[str]) -> None:
        settings = {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = Consumer(self._properties | settings)
        consumer.subscribe(topics)
        while not self._stopped.is_set():
            consumer.consume(1000, 1.0)
            with suppress(KafkaException):  # nothing new, or the broker is away
                consumer.commit(asynchronous=False)
        consumer.close()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)

    def reset(self, topic: str, partition: int, offset: int) -> None:
        """Move an offset back as a tool would, while the group has no members."""
        tool = Consumer(self._properties)
        tool.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
        tool.close()


@contextmanager
def lab_with_traffic(name: str) -> Iterator[tuple[Lab, Context, list[tuple[str, int]]]]:
    """One broker, and the partitions that are written to: more may be added."""
    with lab_of(LabSpec(name=name, settings=UNCHECKED)) as lab:
        topics = {"orders": 3, "payments": 2, "audit-log": 1}
        admin = AdminClient(lab.client_properties())
        for made in admin.create_topics([NewTopic(t, n, 1) for t, n in topics.items()]).values():
            made.result(60)
        # a break has its partition to itself; what waits behind it comes after
        partitions = [("orders", 0), ("orders", 1), ("payments", 0), ("audit-log", 0)]
        traffic = Traffic(lab, partitions)
        time.sleep(3)
        yield lab, resolve(Connect(context=f"lab-{lab.name}")), partitions
        traffic.stop()


def calm(folder: Path) -> None:
    """One broker that is well."""
    with lab_with_traffic("record-calm") as (_, context, _):
        record(context, folder / "calm.jsonl", 60, **SLOW)


def incident(folder: Path) -> None:
    """An orphan that is aborted, another one; a broker that returns; a transaction that is long.

    A group reads meanwhile; at the end it is stopped and one of its offsets is moved back.
    """
    with lab_with_traffic("record-incident") as (lab, context, topic_partitions):
        group = Reporting(lab, ["orders", "payments"])

        def trouble(frames: list[Frame], feed: LiveFeed) -> None:
            def judged(verdict: str) -> int:
                s = frames[-1].snapshot
                return sum(h.verdict == verdict for h in hanging(s)) if not s.silent else 0

            [first] = break_(lab, "orphan", topic="payments", partition=1)
            topic_partitions.append(("payments", 1))
            until(frames, lambda s: judged("orphan") == 1 and s.why_about == "payments:1")
            named = ["--pid", str(first.producer_id), "--start-offset", str(first.start_offset)]
            eoctl(lab, "txn", "abort", "payments:1", *named, "--execute", "--yes")
            feed.want(detail=Journal().find().entries[-1].id)
            until(frames, lambda s: judged("orphan") == 0 and s.detail is not None)
            break_(lab, "orphan", topic="orders", partition=2)
            topic_partitions.append(("orders", 2))
            break_(lab, "offsets-pending", topic="orders-in", group="billing")
            until(frames, lambda s: judged("orphan") == 1)
            [broker] = lab.broker_ids
            lab.kill(broker)
            until(frames, lambda s: s.silent)
            lab.start(broker)
            until(frames, lambda s: s.problem is None and judged("orphan") == 1)
            break_(lab, "long", topic="invoices", transactional_id="invoicer-2")
            until(frames, lambda s: judged("long") > 0 and s.problem is None)
            group.stop()
            group.reset("orders", 0, 5)
            feed.want(commits="reporting")
            until(frames, lambda s: s.commits is not None)

        record(context, folder / "incident.jsonl", 12, trouble, **SLOW)
        thinned(folder / "incident.jsonl")


def thinned(path: Path) -> None:
    """Keep the last and every third snapshot before it, and a log only of a new page of why.

    Each look reads the log around the LSO again: the file would be three times as large.
    """
    chosen = list(read(path))[::-3][::-1]
    path.unlink()
    writer = Writer(path)
    before: Snapshot | None = None
    for s in chosen:
        if before is not None and s.why is before.why and s.strip_about == before.strip_about:
            s = replace(s, strip=before.strip)
        writer.add(s)
        before = s
    writer.close()


def replayed(lab: Lab) -> Path:
    """A merge log and its application file; all of it was replayed."""

    def topic(lab: Lab, partitions: int, replicas: int, config: dict[str, str], name: str) -> str:
        name = next(names)
        new = NewTopic(name, partitions, replicas, config=config)
        admin.create_topics([new])[name].result(20)
        return name

    admin = AdminClient(lab.client_properties())
    names = iter(("left", "right", "merge-log", "merged"))
    world = World(lab, topic)
    world.write_logs()
    app = world.app_file(plans_folder().parent)
    (app.parent / "position.json").write_text(world.stored(world.log_offsets[0], 0))
    eoctl(lab, "merge", "replay", str(app), "--execute", "--yes")
    return app


def again(folder: Path) -> None:
    for path in folder.glob("*.jsonl"):
        kept = list(read(path))
        path.unlink()
        writer = Writer(path)
        for snapshot in kept:
            writer.add(snapshot)
        writer.close()


RECORDINGS = {
    "orders": orders_and_dead,
    "empty": empty,
    "denied": denied,
    "jobs": jobs,
    "checkpoint": checkpoint,
    "doctor": doctor,
    "calm": calm,
    "incident": incident,
}

if __name__ == "__main__":
    for name in sys.argv[2:] or RECORDINGS:
        (RECORDINGS | {"again": again})[name](Path(sys.argv[1]))
