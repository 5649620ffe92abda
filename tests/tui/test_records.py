"""The dashboard's `v`: the records at stake, on the screen that asked and in no recording."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from eoctl.settings.context import Connect, resolve
from recovery.values import replace
from tests.kafka.conftest import made_topic
from tests.tui.driving import lines_of, run, running, text_of, until
from tests.tui.test_lab import StartLab
from tui.feed.asking import LiveFeed
from tui.feed.writer import Writer
from tui.screens.records import Records

HOSTILE = b"\x1b[31m[/x]"


@pytest.fixture(scope="module")
def lab(start_lab: StartLab) -> Iterator[Lab]:
    made = start_lab(LabSpec(name=f"tui-{uuid.uuid4().hex[:8]}"))
    yield made
    made.down()


@pytest.fixture
def held(lab: Lab) -> Iterator[tuple[str, str]]:
    """A topic with an open transaction, and the secret in its first record."""
    topic, secret = made_topic(lab, name="orders"), f"hunter-{uuid.uuid4().hex[:8]}"
    properties = lab.client_properties()
    mine = Producer({**properties, "transactional.id": f"{topic}-id"})
    mine.init_transactions(20)
    mine.begin_transaction()
    mine.produce(topic, secret.encode(), b"key-1")
    mine.produce(topic, HOSTILE, HOSTILE)
    mine.flush(20)
    plain = Producer(properties)
    plain.produce(topic, b"behind", b"key-2")
    plain.flush(20)
    yield topic, secret
    mine.abort_transaction(20)


def feed(lab: Lab, *, record: Path | None = None, show_records: bool = True) -> LiveFeed:
    context = resolve(Connect(bootstrap_server=lab.bootstrap_servers))
    context = replace(context, show_records=show_records)
    made = LiveFeed(context, interval=1.0, seconds=5.0, sample_interval=0.5)
    made.writer = Writer(record) if record is not None else None
    return made


def test_records_are_read_when_the_key_is_pressed(
    lab: Lab, held: tuple[str, str], tmp_path: Path
) -> None:
    topic, secret = held
    file = tmp_path / "today.jsonl"

    async def test() -> None:
        async with running(feed(lab, record=file), (120, 40)) as (app, pilot):
            await until(pilot, lambda: f"{topic}:0" in text_of(app), 30)
            await pilot.press("2", "g")
            await until(pilot, lambda: app.row is not None and app.row.judged is not None, 30)
            assert secret not in text_of(app)
            await pilot.press("v")
            assert isinstance(app.screen, Records)
            await until(pilot, lambda: secret in text_of(app), 30)
            lines = lines_of(app)
            rows = [line.split() for line in lines if " key-" in line or "\\x1b[31m" in line]
            kinds = [kind for row in rows for kind in row if kind in ("held", "waiting")]
            assert kinds == ["held", "held", "waiting"]
            assert any("\\x1b[31m[/x]" in line for line in lines)
            assert any("the transaction has 2 records; 1 record waits" in line for line in lines)
            await pilot.press("escape")
            assert secret not in text_of(app)
            await pilot.press("enter")
            await until(pilot, lambda: app.answered, 30)
            assert " v records" in text_of(app)
            await pilot.press("v")
            await until(pilot, lambda: secret in text_of(app), 30)
            await pilot.press("escape", "7", "v")
            assert not isinstance(app.screen, Records), "on plans the key verifies"

    run(test)
    assert topic in file.read_text()
    assert secret not in file.read_text()


def test_a_context_that_shows_no_records_says_so(lab: Lab, held: tuple[str, str]) -> None:
    topic, secret = held

    async def test() -> None:
        async with running(feed(lab, show_records=False), (80, 24)) as (app, pilot):
            await until(pilot, lambda: f"{topic}:0" in text_of(app), 30)
            await pilot.press("2", "g")
            await until(pilot, lambda: app.row is not None and app.row.judged is not None, 30)
            await pilot.press("v")
            await until(pilot, lambda: "show_records = false" in text_of(app), 30)
            assert secret not in text_of(app)

    run(test)
