"""Applications that live: transactional producers that go on as Kafka documents it.

Each aborts what may be aborted and goes on, and ends on a fatal error; it never makes itself anew.
Its first transaction stays open until an error, the later ones commit after three records.
"""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from eoctl.host.java import find_java
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA, read_lock
from tests import java

SOURCE = Path(__file__).with_name("LiveProducer.java")
WAIT_SECONDS = 30.0


class Living(Protocol):
    """One incarnation. events: what it said, the oldest first, as `committed 12`."""

    events: list[str]

    @property
    def running(self) -> bool:
        """True until a fatal error."""
        ...


def until(living: Living, what: str, more: int = 1, seconds: float = WAIT_SECONDS) -> None:
    """Wait until it has said something so often again."""
    wanted = said(living, what) + more
    end = time.monotonic() + seconds
    while said(living, what) < wanted:
        assert time.monotonic() < end, (what, living.events[-20:])
        time.sleep(0.02)


def said(living: Living, what: str) -> int:
    """How often it said so."""
    return sum(event.startswith(what) for event in living.events)


@contextmanager
def java_client(
    lab: Lab, transactional_id: str, topic: str, prefix: str, version: str = KAFKA
) -> Iterator[Living]:
    """Kafka's own producer, in a process of its own. version: of the client."""
    flags = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    process = subprocess.Popen(
        [
            *(str(find_java().path), *flags, "-cp", java.class_path(read_lock(version), SOURCE)),
            *(SOURCE.stem, lab.bootstrap_servers, transactional_id, topic, prefix),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    class Java:
        def __init__(self) -> None:
            self.events: list[str] = []

        @property
        def running(self) -> bool:
            return process.poll() is None

    living = Java()

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            living.events.append(line.rstrip("\n"))

    ears = threading.Thread(target=listen, daemon=True)
    ears.start()
    try:
        until(living, "written", seconds=60)
        yield living
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        ears.join(5)
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def librdkafka_client(lab: Lab, transactional_id: str, topic: str, prefix: str) -> Iterator[Living]:
    """A producer of librdkafka, in a thread."""

    class Thread:
        def __init__(self) -> None:
            self.events: list[str] = []
            self.stopped = threading.Event()
            self.ended = threading.Event()

        @property
        def running(self) -> bool:
            return not self.ended.is_set()

    living = Thread()

    def run() -> None:
        try:
            _go_on(living.events, living.stopped, lab, transactional_id, topic, prefix)
        finally:
            living.ended.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        until(living, "written")
        yield living
    finally:
        living.stopped.set()
        thread.join(20)


def _go_on(
    events: list[str],
    stopped: threading.Event,
    lab: Lab,
    transactional_id: str,
    topic: str,
    prefix: str,
) -> None:
    from confluent_kafka import KafkaException, Producer

    producer = Producer(
        lab.client_properties()
        | {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 600_000,
            "linger.ms": 0,
        }
    )
    producer.init_transactions(20)
    written, most = 0, 1 << 30
    while not stopped.is_set():
        try:
            producer.begin_transaction()
            for _ in range(most):
                if stopped.is_set():
                    return
                written += 1
                # no callback: after a fatal error it would come as a SystemError
                producer.produce(topic, b"%s%d" % (prefix.encode(), written), partition=0)
                producer.flush(10)
                events.append(f"written {written}")
                time.sleep(0.05)
            producer.commit_transaction(20)
            events.append(f"committed {written}")
        except KafkaException as failure:
            error = failure.args[0]
            events.append(f"error {error}")
            most = 3
            if error.fatal():
                events.append(f"fatal {error}")
                return
            try:
                producer.abort_transaction(20)
                events.append(f"aborted {written}")
            except KafkaException as fatal:
                events.append(f"fatal {fatal.args[0]}")
                if fatal.args[0].fatal():
                    return
                with suppress(KafkaException):
                    producer.flush(1)
