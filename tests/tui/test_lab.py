"""The dashboard on a real lab: what is broken shows, is repaired from it, and a broker may die."""

import asyncio
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from textual.pilot import Pilot

from eoctl.host.clock import now_ms
from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from eoctl.operations.dashboard.collection import LiveCollection
from eoctl.operations.dashboard.snapshot import Round, Wants
from eoctl.settings.context import Connect, resolve
from recovery.answers import Answer
from recovery.errors import Exit
from recovery.inspect.cluster_rows import StripRow
from tests.tui.driving import run, running, text_of, until
from tui.app import Dashboard
from tui.board.history import RECORDS_OF_ONE
from tui.feed.asking import LiveFeed
from tui.feed.recording import read
from tui.feed.replay import ReplayFeed
from tui.screens.change import ChangeScreen

UNCHECKED = {"transaction.partition.verification.enable": "false"}
StartLab = Callable[[LabSpec], Lab]


def live(lab: Lab, interval: float = 1.0) -> LiveFeed:
    context = resolve(Connect(bootstrap_server=lab.bootstrap_servers))
    return LiveFeed(context, interval=interval, seconds=5.0, sample_interval=2.0)


def offsets(lab: Lab, topic: str, partition: int) -> tuple[int, int]:
    """LSO and high watermark as librdkafka's own admin client tells them."""
    admin = AdminClient(lab.client_properties())
    found = []
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        asked = admin.list_offsets(
            {TopicPartition(topic, partition): OffsetSpec.latest()}, isolation_level=level
        )
        found += [f.result(20).offset for f in asked.values()]
    return found[0], found[1]


class Rounds:
    """Counts the frames with a new judgement."""

    def __init__(self, app: Dashboard) -> None:
        self.app = app
        self.seen: list[int] = []

    def __call__(self) -> int:
        s = self.app.frame.snapshot if self.app.frame else None
        if s is not None and s.hanging is not None and s.hanging.collected_at not in self.seen:
            self.seen.append(s.hanging.collected_at)
        return len(self.seen)


@contextmanager
def recording_headless(lab: Lab, path: Path) -> Iterator[None]:
    """`eoctl tui --record PATH --headless` beside what a test does; it ends as after ctrl+c."""
    where = ["--bootstrap-server", lab.bootstrap_servers, "tui", "--headless"]
    words = [*where, "--record", str(path), "--interval", "1s", "--sample-interval", "2s"]
    eoctl = [sys.executable, "-m", "eoctl", *words]
    with subprocess.Popen(eoctl, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == Exit.INTERRUPTED, said
    assert "a look every 1s; SIGTERM or ctrl+c ends it" in said


def number_of_page(path: Path) -> int | None:
    """The first snapshot of a recording that has the page of orders:0."""
    found = read(path) if path.exists() else ()
    return next((n for n, s in enumerate(found) if s.why_about == "orders:0"), None)


def test_an_orphan_shows_is_aborted_from_here_and_gone(start_lab: StartLab, tmp_path: Path) -> None:
    # of its own: what a try leaves open would be there at the next one's first look
    lab = start_lab(LabSpec(name=f"tui-{uuid.uuid4().hex[:8]}", settings=UNCHECKED))
    break_(lab, "open", topic="well")  # some coordinator state before the first look
    kept = tmp_path / "kept.jsonl"

    async def test() -> None:
        async with running(live(lab), (80, 24)) as (app, pilot):
            rounds = Rounds(app)
            await until(pilot, lambda: rounds() >= 1)
            assert "orphan" not in text_of(app)
            make = partial(break_, lab, "orphan", topic="orders", partition=0)
            [truth] = await asyncio.to_thread(make)
            lso, hw = await asyncio.to_thread(offsets, lab, "orders", 0)
            assert lso < hw
            before = rounds()
            await until(pilot, lambda: bool(rounds()) and "orphan  " in text_of(app), 60)
            assert rounds() - before <= 2, "visible within two refreshes"
            assert truth.topic == "orders"
            assert str(hw - lso) in text_of(app)
            await until(pilot, lambda: "at stake" in app.side.text(), 30)  # its page, unasked
            assert f"--start-offset{lso}" in "".join(app.side.text().split())
            await nothing_is_aborted_under_another_title(app, pilot)
            assert await asyncio.to_thread(offsets, lab, "orders", 0) == (lso, hw)
            await until(pilot, lambda: number_of_page(kept) is not None, 60)
            await abort_it(app, pilot)
            now = await asyncio.to_thread(offsets, lab, "orders", 0)
            assert now == (hw + 1, hw + 1), "one marker, nothing else"
            state = app.states["overview"]
            await until(pilot, lambda: not any("orphan" in r.cells for r in state.data.rows), 60)
            assert "orphan" in text_of(app), "struck through until the next key"
            await pilot.press("g")
            assert "orphan" not in text_of(app)
            assert "nothing is held back" in text_of(app) or "within their limits" in text_of(app)

    async def replayed() -> None:
        feed = ReplayFeed(kept, still=True)
        feed.seek(1_000_000)
        number = number_of_page(kept)
        assert number is not None
        async with running(feed) as (app, pilot):
            feed.seek_to(number)
            await until(pilot, lambda: app.frame.position[0] == number + 1)  # type: ignore
            await pilot.press("6")
            await until(pilot, lambda: "orders:0  STUCK  orphan" in text_of(app))

    try:
        with recording_headless(lab, kept):
            run(test)
        run(replayed)
    finally:
        lab.down()


async def nothing_is_aborted_under_another_title(app: Dashboard, pilot: Pilot[str]) -> None:
    """The page of the orphan has answered; `:why well:0`, and `x` before that page has."""
    await pilot.press("g", "enter")
    assert app.location.about == "orders:0"
    await until(pilot, lambda: app.answered, 30)
    assert " x remedy" in text_of(app)
    await pilot.press("colon", *"why well:0", "enter")
    assert app.location.about == "well:0"
    assert not app.answered
    await pilot.press("x")
    assert len(app.screen_stack) == 1, "a dialog of another partition's remedy"
    assert " x remedy" not in text_of(app)
    await until(pilot, lambda: app.answered, 30)
    await pilot.press("x")
    assert len(app.screen_stack) == 1
    assert "no remedy that eoctl could carry out" in text_of(app)
    await pilot.press("1")


async def abort_it(app: Dashboard, pilot: Pilot[str]) -> None:
    """x, a wrong word, x again, the right word."""
    await pilot.press("g")
    for wrong in (True, False):
        await pilot.press("x")
        over = app.screen
        assert isinstance(over, ChangeScreen)
        await until(pilot, lambda over=over: "type abort-" in over.said, 40)  # type: ignore[misc]
        assert "nothing was sent yet" in over.page.text()
        assert "ABORT on" in over.page.text()
        # a plan is read before its word is typed: nothing of it may be cut off
        lines = over.page.text().splitlines()
        assert max(map(len, lines)) <= over.page.size.width
        whole = " ".join(" ".join(lines).split())
        assert "and to no other partition" in whole
        # whom else it concerns, as the command line says it
        assert "Its producer id holds no other partition." in whole
        assert "No group has committed an offset past its first record." in whole
        word = over.said.split(" ")[1]
        over.word.value = word[:-1] if wrong else word
        await pilot.press("enter")
        if wrong:
            await until(pilot, lambda over=over: "not confirmed" in over.said, 40)  # type: ignore[misc]
        else:
            await until(pilot, lambda over=over: not over.acting and over.said == "done", 60)  # type: ignore[misc]
            assert "the transaction is over" in over.page.text()
        await pilot.press("escape")
        assert len(app.screen_stack) == 1


def test_ends_are_at_least_and_at_most_what_a_producer_did(start_lab: StartLab) -> None:
    lab = start_lab(LabSpec(name="tui-one", settings=UNCHECKED))
    name = f"counts-{uuid.uuid4().hex[:6]}"
    admin = AdminClient(lab.client_properties())
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(20)
    producer = Producer(lab.client_properties() | {"transactional.id": name})
    producer.init_transactions(30)

    def end(*, commits: bool) -> None:
        producer.begin_transaction()
        producer.produce(name, b"v", partition=0)
        if commits:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)

    def decided(judged: Round) -> tuple[int, int]:
        counts = judged.parts["hanging"].extra["decided"]  # type: ignore[attr-defined]
        return sum(counts["commits"]), sum(counts["aborts"])

    async def test() -> None:
        context = resolve(Connect(bootstrap_server=lab.bootstrap_servers))
        collection = LiveCollection(context, seconds=30.0, pause=0.3)
        before = decided(await collection.judge(Wants()))
        begun = now_ms() - 1
        await asyncio.to_thread(end, commits=True)
        looks = [await collection.look(Wants())]
        for n in range(6):
            await asyncio.to_thread(end, commits=n % 3 != 2)
        looks.append(await collection.look(Wants()))
        judged = await collection.judge(Wants(history=name))
        collection.close()
        assert tuple(b - a for a, b in zip(before, decided(judged), strict=True)) == (5, 2)
        logs = judged.parts["lanes"]
        assert isinstance(logs, Answer)
        assert logs.extra["partitions"] == [f"{name}:0"]
        *_, data, marker = [r for r in logs.rows if isinstance(r, StripRow)]
        assert (data.kind, data.records, marker.outcome) == ("aborted", 1, "abort")
        assert begun < (data.first_timestamp or 0) <= (data.last_timestamp or 0) < now_ms()
        first, second = (look.parts["transactions"].extra for look in looks)  # type: ignore[attr-defined]
        assert "since_last_look" not in first, "one look tells of no end"
        since = second["since_last_look"]
        assert 1 <= since["ended"] <= 6
        assert (since["commits"], since["aborts"]) == (0, 1), "how the newest ended is seen"
        assert since["records"] >= 6 * RECORDS_OF_ONE

    run(test)


@pytest.mark.long
def test_broker_killed_stays_alive_goes_stale_and_recovers(start_lab: StartLab) -> None:
    lab = start_lab(LabSpec(name="tui-one", settings=UNCHECKED))
    break_(lab, "open", topic="well")

    async def test() -> None:
        async with running(live(lab), (100, 30)) as (app, pilot):
            await pilot.press("2")
            await until(pilot, lambda: "well:0" in text_of(app), 30)
            [broker] = lab.broker_ids
            lab.kill(broker)
            await until(pilot, lambda: "STALE" in text_of(app), 60)
            text = text_of(app)
            assert "well:0" in text, "the last good snapshot remains"
            assert text.count("STALE") >= 2, "in line 1 and on the pane"
            words = " ".join(text.split())
            assert re.search(r"as of \d\d:\d\d:\d\dZ, \d+ (s|min) ago; the cluster does not", words)
            assert re.search(r"; trying again (now|in \d+ s)", words)
            await pilot.press("x")
            assert "not done: the cluster does not answer, this data is as of" in text_of(app)
            assert len(app.screen_stack) == 1
            for key in ("3", "4", "5", "6", "1", "j", "2"):
                await pilot.press(key)
            await until(pilot, lambda: "well:0" in text_of(app))
            await asyncio.to_thread(lab.start, broker)
            await until(pilot, lambda: "STALE" not in text_of(app), 60)
            await until(pilot, lambda: app.frame.snapshot.problem is None, 60)  # type: ignore[union-attr]
            await until(pilot, lambda: "does not answer" not in text_of(app), 20)

    run(test)
