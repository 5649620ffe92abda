"""Recovering from the dashboard on a real lab: forms, plans, undo, jobs, a merge log, a bundle.

What the screens claim is held against librdkafka's own clients.
"""

import asyncio
import json
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from textual.pilot import Pilot

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from eoctl.operations.change.changes import plans_folder
from eoctl.operations.dashboard import bundling
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Connect, resolve
from recovery.inspect.observation import Settings
from tests.kafka.command import FAST, eoctl
from tests.kafka.conftest import topic
from tests.kafka.merging import World
from tests.tui.driving import run, running, text_of, until
from tests.tui.test_lab import live, offsets
from tui.app import Dashboard
from tui.feed.asking import BundleFeed
from tui.screens.change import ChangeScreen
from tui.screens.recover import FormScreen, RunScreen
from tui.widgets.overlays import Overlay

__all__ = ["topic"]

UNCHECKED = {"transaction.partition.verification.enable": "false"}
StartLab = Callable[[LabSpec], Lab]


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab(LabSpec(name="tui-one", settings=UNCHECKED))


def fresh(word: str) -> str:
    return f"{word}-{uuid.uuid4().hex[:6]}"


def filled(lab: Lab, name: str, records: int, value: bytes = b"v") -> str:
    """A topic of one partition with records of 50 keys."""
    admin = AdminClient(lab.client_properties())
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(20)
    producer = Producer(lab.client_properties())
    for n in range(records):
        producer.produce(name, value, str(n % 50).encode(), partition=0)
    assert producer.flush(30) == 0
    return name


def commit(lab: Lab, group: str, at: TopicPartition) -> None:
    """Commit for a group; a new lab's coordinator takes a moment until it keeps what it is told."""
    consumer = Consumer({**lab.client_properties(), "group.id": group})
    end = time.monotonic() + 30
    while True:
        try:
            consumer.commit(offsets=[at], asynchronous=False)
            break
        except KafkaException:
            assert time.monotonic() < end
            time.sleep(0.5)
    consumer.close()
    assert committed(lab, group, at.topic) == at.offset


def committed(lab: Lab, group: str, topic: str) -> int:
    consumer = Consumer({**lab.client_properties(), "group.id": group})
    try:
        [found] = consumer.committed([TopicPartition(topic, 0)], timeout=20)
    finally:
        consumer.close()
    return int(found.offset)


async def word(app: Dashboard, pilot: Pilot[str], *, wrong: bool = False) -> None:
    """Type the word of the plan that is shown, and wait until it was carried out."""
    over = app.screen
    assert isinstance(over, ChangeScreen)
    await until(pilot, lambda: over.said.startswith("type "), 40)
    typed = over.said.split(" ")[1]
    over.word.value = typed[:-1] if wrong else typed
    await pilot.press("enter")
    await until(pilot, lambda: not over.acting and not over.said.startswith("type "), 60)


async def fill(app: Dashboard, pilot: Pilot[str], name: str, **values: str) -> RunScreen:
    """Open a form from the Recover screen, fill it in, start it."""
    await pilot.press("9")
    await until(pilot, lambda: f"form {name}" in app.table.state.order)
    app.table.to(app.table.state.order.index(f"form {name}"))
    await pilot.press("enter")
    form = app.screen
    assert isinstance(form, FormScreen)
    for field, made in zip(form.form.fields, form.inputs, strict=True):
        if field.label.replace(" ", "_") in values:
            made.value = values[field.label.replace(" ", "_")]
    await pilot.pause()
    assert not form.missing
    lines = form.page.text().splitlines()
    assert max(map(len, lines)) < form.page.size.width, "the command is shown whole"
    shown = " ".join(lines)
    assert all(value.split()[0] in shown for value in values.values()), "the equal command"
    for _ in form.inputs:
        await pilot.press("enter")
    await until(pilot, lambda: isinstance(app.screen, RunScreen))
    over = app.screen
    assert isinstance(over, RunScreen)
    return over


def test_marked_orphans_are_aborted_by_one_plan(lab: Lab) -> None:
    name = fresh("many")
    admin = AdminClient(lab.client_properties())
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(20)
    pids = [break_(lab, "orphan", topic=name, partition=p)[0].producer_id for p in range(3)]

    async def test() -> None:
        async with running(live(lab), (120, 40)) as (app, pilot):
            await pilot.press("3")
            keys = [f"pid\0{pid}" for pid in pids]
            await until(pilot, lambda: set(keys) <= set(app.table.state.order), 40)
            for key in keys[:2]:
                app.table.to(app.table.state.order.index(key))
                await pilot.press("space")
            await pilot.press("x")
            over = app.screen
            assert isinstance(over, ChangeScreen)
            await until(pilot, lambda: over.said.startswith("type "), 40)
            text = over.page.text()
            assert f"{name}:0" in text
            assert f"{name}:1" in text
            assert f"{name}:2" not in text, "it was not marked"
            await word(app, pilot)
            assert over.said == "done, done"
            await pilot.press("escape")
            assert not app.table.state.selected

    run(test)
    ends = [offsets(lab, name, p) for p in range(3)]
    assert [lso == hw for lso, hw in ends] == [True, True, False]


@pytest.mark.long
def test_leaving_while_a_change_is_made_asks(lab: Lab) -> None:
    name = fresh("asks")
    break_(lab, "orphan", topic=name, partition=0)

    async def test() -> None:
        async with running(live(lab), (100, 30)) as (app, pilot):
            await pilot.press("2")
            await until(pilot, lambda: f"{name}:0" in app.table.state.order, 40)
            app.table.to(app.table.state.order.index(f"{name}:0"))
            await until(pilot, lambda: bool(app.table.current and app.table.current.judged), 40)
            await pilot.press("x")
            over = app.screen
            assert isinstance(over, ChangeScreen)
            await until(pilot, lambda: over.said.startswith("type "), 40)
            lab.freeze(1)
            try:
                over.word.value = over.said.split(" ")[1]
                await pilot.press("enter")
                assert over.acting
                await pilot.press("escape")
                assert app.screen_stack[-1] is over, "its result must be seen"
                for key in ("ctrl+q", "ctrl+c"):
                    await pilot.press(key)
                    assert isinstance(app.screen, Overlay), key
                    assert "A change is being made" in text_of(app)
                    await pilot.press("escape")
                    assert len(app.screen_stack) == 2
                    assert not app._exit
            finally:
                lab.thaw(1)
            await until(pilot, lambda o=over: not o.acting, 90)  # type: ignore[misc]
            await pilot.press("escape")
            assert len(app.screen_stack) == 1

    run(test)


def test_a_restart_is_planned_applied_verified_and_undone(lab: Lab) -> None:
    name, group = filled(lab, fresh("restart"), 20), fresh("group")
    commit(lab, group, TopicPartition(name, 0, 12))

    async def test() -> None:
        async with running(live(lab), (120, 40)) as (app, pilot):
            await until(pilot, lambda: app.frame is not None and app.may_change, 30)
            over = await fill(app, pilot, "restart-group", group=group, topics=name, to_offset="4")
            await until(pilot, lambda: over.watched.exit_status is not None, 60)
            assert over.watched.exit_status == 0, list(over.watched.lines)
            assert committed(lab, group, name) == 12, "a plan changes nothing"
            await pilot.press("escape", "7")
            [file] = [p for p in plans_folder().glob("*.json") if group in p.read_text()]
            key = f"plan {file}"
            await until(pilot, lambda: key in app.table.state.order, 30)
            app.table.to(app.table.state.order.index(key))
            await pilot.press("x")
            await word(app, pilot, wrong=True)
            assert "not confirmed" in app.screen.said  # type: ignore[attr-defined]
            assert committed(lab, group, name) == 12
            await pilot.press("escape", "x")
            await word(app, pilot)
            assert committed(lab, group, name) == 4, app.screen.said  # type: ignore[attr-defined]
            await pilot.press("escape", "v")
            over_ = app.screen
            assert isinstance(over_, ChangeScreen)
            await until(pilot, lambda: "looking" not in over_.said, 60)
            assert "as the plan left it" in over_.said
            await pilot.press("escape", "enter")
            assert app.location.view.name == "change"
            # not the text: the list's is still drawn, and `u` does not exist before the answer
            await until(pilot, lambda: app.answered, 30)
            assert "step 1" in text_of(app)
            await pilot.press("u")
            await word(app, pilot)
            assert committed(lab, group, name) == 12, app.screen.said  # type: ignore[attr-defined]

    run(test)


@pytest.mark.long
@pytest.mark.usefixtures("swift_jvms")
def test_a_rebuild_on_spark_is_followed_and_cancelled(lab: Lab, tmp_path: Path) -> None:
    name = filled(lab, fresh("changelog"), 3000, os.urandom(500))

    async def test() -> None:
        async with running(live(lab), (200, 50)) as (app, pilot):
            await until(pilot, lambda: app.frame is not None, 30)
            over = await fill(
                app,
                pilot,
                "state-rebuild",
                changelogs=name,
                format="plain",
                cut="lso",
                folder=str(tmp_path / "state"),
                engine="spark",
                max_rate="20KB",
            )
            await pilot.press("escape", "8")

            def job() -> str | None:
                rows = [r for r in app.table.state.data.rows if name in r.cells[-1]]
                return rows[0].key if rows else None

            await until(pilot, lambda: job() is not None, 60)
            key = job()
            assert key is not None
            app.table.to(app.table.state.order.index(key))
            await until(pilot, lambda: "running" in text_of(app), 30)
            await pilot.press("enter")
            await until(pilot, lambda: "stage" in text_of(app) and key in text_of(app), 60)
            await pilot.press("z")
            assert isinstance(app.screen, Overlay)
            await pilot.press("y")
            await until(pilot, lambda: f"{key} is cancelled" in text_of(app), 90)
            await until(pilot, lambda: over.watched.exit_status is not None, 60)
            assert over.watched.exit_status != 0
            await pilot.press("8")
            await until(pilot, lambda: "cancelled" in text_of(app), 30)

    run(test)
    assert not list(tmp_path.glob("state/manifest.json"))


@pytest.mark.long
def test_a_checkpoint_is_looked_at(lab: Lab) -> None:
    """Each transaction with its fate, as the command tells it; a path that is none is one line."""
    truths = break_(lab, "checkpoint", count=2)
    names = [str(truth.transactional_id) for truth in truths]
    [path] = (lab.folder / "checkpoints" / truths[0].topic).glob("chk-*")

    async def test() -> None:
        async with running(live(lab), (120, 40)) as (app, pilot):
            await until(pilot, lambda: app.frame is not None, 30)
            await pilot.press("colon")
            app.prompt.value = f":checkpoint {path}"
            await pilot.press("enter")
            await until(pilot, lambda: "checkpoint 7: 2 transactions: 2 open" in text_of(app), 60)
            lines = [line.split() for line in text_of(app).splitlines()]
            shown = {n: line[line.index(n) - 1] for line in lines for n in names if n in line}
            fates = ["open", "not-in-checkpoint"]
            assert shown == dict(zip(names, 2 * fates, strict=True))
            await pilot.press("e")
            await until(pilot, lambda: "txn commit --checkpoint=/" in text_of(app), 10)
            await pilot.press("escape", "colon")
            app.prompt.value = f":checkpoint {path.parent}"
            await pilot.press("enter")
            await until(pilot, lambda: "(REFUSED)" in text_of(app), 60)

    run(test)
    for name in names:
        eoctl("txn", "fence", name, "--owner-is-gone", "--execute", "--yes", *FAST, lab=lab)


@pytest.mark.long
def test_a_merge_log_is_looked_at_and_replayed(
    lab: Lab, topic: Callable[..., str], tmp_path: Path
) -> None:
    world = World(lab, topic)
    world.write_logs()
    (tmp_path / "position.json").write_text(world.stored(world.log_offsets[0], 0))
    asked = {
        "merge_log": world.log,
        "format": "json",
        "inputs": f"{world.left} {world.right}",
        "output": world.output,
    }

    async def test() -> None:
        async with running(live(lab), (120, 40)) as (app, pilot):
            await until(pilot, lambda: app.frame is not None and app.may_change, 30)
            over = await fill(app, pilot, "merge-verify", **asked)
            await until(pilot, lambda: over.watched.exit_status is not None, 60)
            assert over.watched.exit_status == 0, list(over.watched.lines)
            await pilot.press("escape")
            app_file = await asyncio.to_thread(lambda: world.app_file(tmp_path))
            await pilot.press("colon")
            app.prompt.value = f":merge {app_file}"
            await pilot.press("enter")
            text = ""

            def whole() -> bool:
                """In one look: the page is drawn anew with each frame."""
                nonlocal text
                text = app.page.text()
                return "newest entries" in text and "nothing was replayed" in text

            await until(pilot, whole, 60)
            newest, at = world.orders[0][-1], await asyncio.to_thread(lambda: world.log_offsets[-1])
            [last] = [t for t in text.splitlines() if t.startswith(f" {at:>12} ")]
            assert f"{newest[0]}:{newest[1]}  {newest[2]}" in last
            over = await fill(app, pilot, "merge-replay", app_file=str(app_file))
            await until(pilot, lambda: over.word.display, 60)
            assert "nothing was sent yet" in over.page.text()
            assert await asyncio.to_thread(lambda: world.got) == {0: []}
            over.word.value = "replay"
            await pilot.press("enter")
            assert app.screen is over
            assert "not confirmed" in over.word.placeholder
            over.word.value = over.word_wanted
            await pilot.press("enter")
            done = app.screen
            assert isinstance(done, RunScreen)
            assert done is not over
            await until(pilot, lambda: done.watched.exit_status is not None, 90)
            assert done.watched.exit_status == 0, list(done.watched.lines)
            await pilot.press("escape", "colon")
            app.prompt.value = f":merge {app_file}"
            await pilot.press("enter")
            await until(pilot, lambda: "replayed to the tip" in text_of(app), 60)

    run(test)
    assert world.got == world.expected


@pytest.mark.long
def test_a_bundle_is_opened_and_nothing_can_be_changed(lab: Lab, tmp_path: Path) -> None:
    name = fresh("kept")
    [truth] = break_(lab, "orphan", topic=name, partition=0)
    context = resolve(Connect(bootstrap_server=lab.bootstrap_servers))
    seen = with_cluster(
        context,
        40,
        lambda c: bundling.collect(c, context, Settings(), pause=1.0, history=True),
    )
    path = tmp_path / "incident.eoctl"
    bundling.create(seen, path)

    async def test() -> None:
        async with running(BundleFeed(path), (120, 40)) as (app, pilot):
            await until(pilot, lambda: bool(app.frame and app.frame.snapshot.hanging), 30)
            first = text_of(app).splitlines()[0]
            assert "BUNDLE of 20" in first
            assert "READ-ONLY" in first
            assert f"{name}:0" in text_of(app)
            assert app.check_action("remedy", ()) is False
            assert app.check_action("undo", ()) is False
            await pilot.press("2")
            row = app.states["partitions"].data.by_key[f"{name}:0"]
            assert row.sort[2] == truth.last_stable_offset
            app.table.to(app.table.state.order.index(f"{name}:0"))
            await pilot.press("enter")
            await until(pilot, lambda: f"{name}:0  STUCK  orphan" in text_of(app), 30)
            await until(pilot, lambda: "a bundle holds no record batches" in text_of(app), 30)
            assert "STALE" not in text_of(app), "all of it is of one time"
            await pilot.press("e")
            told = app.screen.page.text()  # type: ignore[attr-defined]
            assert f"eoctl --from {path} why {name}:0" in told.replace("\n", "")
            await pilot.press("escape", "9")
            app.table.to(0)
            await pilot.press("enter")
            assert len(app.screen_stack) == 1, "a form needs a cluster"
            await pilot.press("0")
            await until(pilot, lambda: "verification-off" in text_of(app), 30)

    run(test)


def test_a_bundle_that_is_none_is_said_and_stays_said(tmp_path: Path) -> None:
    path = tmp_path / "none"
    path.write_text(json.dumps({"made": time.time()}), encoding="ascii")

    async def test() -> None:
        async with running(BundleFeed(path), (120, 40)) as (app, pilot):
            await until(pilot, lambda: bool(app.failed), 20)
            await pilot.press("2", "3", "j")
            assert "not a bundle" in text_of(app)

    run(test)
