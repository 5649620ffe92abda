"""The Doctor screen: what it shows, and that a cluster is asked only when it opens."""

import asyncio
import shlex
from collections.abc import Sequence

import pytest
from textual.pilot import Pilot

from eoctl.lab.breaks import break_
from eoctl.lab.record import LabSpec
from eoctl.operations.dashboard.examining import examined
from eoctl.operations.dashboard.snapshot import Counted, Round, Snapshot, Wants
from eoctl.settings.context import Connect, resolve
from recovery.answers import Answer
from recovery.diagnose.diagnosis_rows import EvidenceRow
from recovery.doctor.doctor_rows import DoctorRow, SubjectRow
from tests.tui.driving import lines_of, recording, run, running, text_of, until
from tests.tui.test_lab import UNCHECKED, StartLab, live
from tui.app import Dashboard
from tui.feed.asking import AskingFeed
from tui.feed.frame import Builder
from tui.screens.doctor import finding_page
from tui.screens.views import DOCTOR, FINDING, Location
from tui.widgets.lines import plain

HOSTILE = "[/x] \x1b[31m\u202egnp"


def finding(rule: str, name: str, *, state: str = "finding", kind: str = "group") -> DoctorRow:
    return DoctorRow.read(
        {
            "rule": rule,
            "subject": SubjectRow(kind=kind, name=name),  # type: ignore[arg-type]
            "state": state,
            "evidence": [EvidenceRow(code="held", text=f"seen: {name}", data={})],
            "harm": "harm",
            "remedy": "remedy",
            "command": None,
            "sources": ["KIP-98"],
            "lacks": None,
        }
    )


def answer_of(rows: Sequence[DoctorRow], *named: str) -> Answer:
    return Answer("doctor", "c", 1_000, rows, extra={"rules": 19, "named": list(named)})


class Counting:
    """A collection that answers doctor at once; it counts what is asked."""

    progress: tuple[int, int] | None = (1, 3)

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.rounds = 0
        self.rows = [finding("few-copies", "sales"), finding("speaks-v1", "*", state="unknown")]

    def empty(self) -> Snapshot:
        return Snapshot("counting", 1_000)

    async def look(self, wants: Wants) -> Round:
        self.rounds += 1
        return Round()

    async def judge(self, wants: Wants) -> Round:
        return Round()

    async def keep(self, wants: Wants) -> Round:
        return Round()

    async def examine(self, about: str) -> Round:
        self.asked.append(about)
        return Round({"doctor": answer_of(self.rows, *shlex.split(about))})

    async def count(self, what: Counted) -> Round:
        self.asked.append(what)
        return Round({"growth": Answer(what, "c", 1_000, [], extra={"internal_topics": []})})

    async def commits(self, group: str) -> Round:
        self.asked.append(f"commits of {group}")
        answer = Answer("offsets-history", "c", 1_000, [], extra={"group": group})
        return Round({"commits": answer, "commits_about": group})

    def close(self) -> None:
        pass


class CountingFeed(AskingFeed):
    def __init__(self, interval: float = 0.05) -> None:
        super().__init__(interval, ascii_only=False)
        self.counting = Counting()

    def collection(self) -> Counting:
        return self.counting


async def rounds(pilot: Pilot[str], feed: CountingFeed, number: int) -> None:
    """Wait for so many more looks: what is asked in rounds would be asked by then."""
    end = feed.counting.rounds + number
    await until(pilot, lambda: feed.counting.rounds >= end)


def test_a_cluster_is_asked_when_the_screen_opens_and_by_a_key() -> None:
    feed = CountingFeed()
    asked = feed.counting.asked

    async def test() -> None:
        async with running(feed, (80, 24)) as (app, pilot):
            await rounds(pilot, feed, 3)
            await pilot.press("r")
            await rounds(pilot, feed, 2)
            assert asked == [], "no screen but this one asks"
            await pilot.press("0")
            await until(pilot, lambda: "few-copies" in text_of(app))
            await rounds(pilot, feed, 3)
            assert asked == [""], "not in the rounds that repeat"
            await pilot.press("enter")
            assert app.location == Location(FINDING, "few-copies group sales")
            await pilot.press("escape")
            await rounds(pilot, feed, 2)
            assert asked == [""], "a finding's page asks nothing"
            await pilot.press("r")
            await until(pilot, lambda: asked == ["", ""])
            await pilot.press("2")
            await rounds(pilot, feed, 2)
            await pilot.press("0")
            await until(pilot, lambda: asked == ["", "", ""])

    run(test)


def test_before_the_first_answer_it_says_whom_it_asks() -> None:
    async def test() -> None:
        feed = CountingFeed()
        async with running(feed, (100, 30)) as (app, pilot):
            await until(pilot, lambda: "asking broker 2 of 3" in lines_of(app)[2])
            assert " Story " in text_of(app), "the panels are there from the start"
            assert "Ends by itself" in text_of(app)
            feed.counting.progress = None
            await until(pilot, lambda: "connecting" in lines_of(app)[2])

    run(test)


@pytest.mark.long
def test_names_are_taken_as_a_shell_takes_them() -> None:
    feed = CountingFeed()

    async def test() -> None:
        async with running(feed, (100, 30)) as (app, pilot):
            await pilot.press("colon", *"doctor sales 'my id'", "enter")
            assert app.location == Location(DOCTOR, "sales 'my id'")
            await until(pilot, lambda: feed.counting.asked == ["sales 'my id'"])
            await until(pilot, lambda: lines_of(app)[2].startswith("╭─ Doctor sales my id 2 ─"))
            assert app.table.state.filter is None
            await pilot.press("e")
            told = app.screen.page.text().split("\n")  # type: ignore[attr-defined]
            commands = [shlex.split(text) for text in told if text]
            assert commands == [["eoctl", "doctor", "sales", "my id"], ["eoctl", "doctor", "sales"]]
            await pilot.press("escape", "enter")
            await rounds(pilot, feed, 2)
            assert feed.counting.asked == ["sales 'my id'"]
            await pilot.press("colon", *"doctor 'open", "enter")
            await until(pilot, lambda: "names as for a shell" in text_of(app))
            assert app.location.view is FINDING

    run(test)


def test_a_finding_opens_and_its_command_is_copied() -> None:
    async def test() -> None:
        async with running(recording("doctor")) as (app, pilot):
            await pilot.press("0", "g")
            assert app.row is not None
            assert app.row.key == "verification-off broker 1"
            assert app.check_action("remedy", ()) is False
            await pilot.press("enter")
            for label in ("seen", "harm", "remedy", "source"):
                await until(pilot, lambda label=label: f"\n {label:<13}" in app.page.text())  # type: ignore[misc]
            await pilot.press("c")
            assert app.copied is not None
            words = shlex.split(app.copied)
            assert words[0] == "kafka-configs.sh"
            assert words[-1] == "transaction.partition.verification.enable=true"
            await pilot.press("y")
            assert '"rule": "verification-off"' in app.screen.page.text()  # type: ignore[attr-defined]
            await pilot.press("escape", "escape")
            assert app.location.view is DOCTOR
            await no_command(app, pilot)

    run(test)


async def no_command(app: Dashboard, pilot: Pilot[str]) -> None:
    """Of a finding without a command nothing is copied; of an unknown one the page says more."""
    app.table.to(app.table.state.order.index("speaks-v1 any transactional-id"))
    copied = app.copied
    await pilot.press("enter", "c")
    await until(pilot, lambda: "this finding has no command" in text_of(app))
    assert app.copied == copied
    grant = "Grant READ on __transaction_state"
    await until(pilot, lambda: grant in " ".join(app.page.text().split()))


def test_a_recording_without_an_answer_says_so() -> None:
    async def test() -> None:
        async with running(recording("empty"), (80, 24)) as (app, pilot):
            await pilot.press("0")
            sentence = "doctor was not asked in this recording, which holds no settings"
            await until(pilot, lambda: sentence in text_of(app))
            await pilot.press("enter", "r")
            assert app.location.view is DOCTOR

    run(test)


def test_names_of_a_cluster_are_harmless_and_keys_are_unique() -> None:
    alike = [finding("speaks-v1", HOSTILE, state="unknown") for _ in range(3)]
    answer = answer_of([*alike, finding("few-copies", HOSTILE)])
    s = Snapshot("hostile", 1_000, doctor=answer)
    data = Builder().frame(s).tables["doctor"]
    assert [row.mark for row in data.rows] == ["!", "?", "?", "?"]
    assert len(data.by_key) == 4
    for row in data.rows:
        assert row.opens is not None
        lines = finding_page(s, row.opens[1], 80)
        texts = [*row.cells, *map(plain, lines)]
        assert all(text.isprintable() for text in texts), texts
        assert any("harm" in text for text in texts), "it opens a page"
    assert plain(finding_page(s, "few-copies group other", 80)[0]) == (
        " doctor has no such finding now"
    )


def test_nothing_found_is_said_with_the_number_of_rules() -> None:
    data = Builder().frame(Snapshot("well", 1_000, doctor=answer_of([]))).tables["doctor"]
    assert (data.rows, data.empty) == ((), "no finding by 19 rules")


def test_a_cluster_that_does_not_answer_is_no_healthy_one() -> None:
    context = resolve(Connect(bootstrap_server="127.0.0.1:1"))
    found = asyncio.run(examined(context, 2.0, "orders"))
    answer = found.parts["doctor"]
    assert isinstance(answer, Answer)
    assert (answer.rows, answer.extra) == ([], {"named": ["orders"]})
    data = Builder().frame(Snapshot("dead", 1_000, doctor=answer)).tables["doctor"]
    assert data.rows == ()
    assert data.empty.startswith("? ")
    assert "127.0.0.1:1" in data.empty
    assert "no finding" not in data.empty


@pytest.mark.long
def test_doctor_on_a_lab(start_lab: StartLab) -> None:
    """It finds what the lab's own setting breaks, and says which name nothing has."""
    lab = start_lab(LabSpec(name="tui-one", settings=UNCHECKED))
    break_(lab, "open", topic="well")

    async def test() -> None:
        async with running(live(lab), (120, 40)) as (app, pilot):
            await until(pilot, lambda: app.frame is not None)
            assert app.snapshot is not None
            assert app.snapshot.doctor is None
            await pilot.press("0")
            wanted = "verification-off broker 1"
            await until(pilot, lambda: wanted in app.table.state.data.by_key, 30)
            assert app.snapshot.doctor is not None
            before = app.snapshot.doctor.collected_at
            app.table.to(app.table.state.order.index(wanted))
            await pilot.press("enter")
            await until(pilot, lambda: "Switch verification on again" in text_of(app))
            await pilot.press("colon", *"doctor no-such-name", "enter")
            await until(
                pilot, lambda: any("no-such-name" in r.cells for r in app.table.state.data.rows), 30
            )
            assert wanted not in app.table.state.data.by_key, "it is about no name"
            [row] = [r for r in app.table.state.data.rows if "no-such-name" in r.cells]
            assert row.mark == "?"
            app.table.to(app.table.state.order.index(row.key))
            await until(pilot, lambda: "of this name was seen" in text_of(app))
            assert app.snapshot.doctor.collected_at > before

    run(test)
