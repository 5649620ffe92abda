"""What a restart writes, reads back and puts back, in real files; and which entry goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline
from eoctl.kafka.connection.properties import client_settings
from eoctl.operations.change.steps import Effect
from eoctl.operations.restart import applying
from eoctl.operations.restart.applying import Restarting, _undo, applied, became, going_on_with
from eoctl.operations.restart.observe import Stores
from eoctl.operations.restart.restart_plan import (
    KIND,
    MIRROR,
    STORE,
    UNDO,
    parameters,
    writes_of,
)
from eoctl.operations.restart.restart_request import asked_again
from eoctl.settings.context import Context
from eoctl.stores.journal_files import Journal
from eoctl.stores.offsets.opening import open_store
from eoctl.stores.offsets.store import OffsetStore, Write
from recovery.change.journal import JournalEntry
from recovery.change.plan import Plan, Step
from recovery.errors import RefusedError
from recovery.restart.stored import StoredOffset, StoredPartition
from recovery.shared.store_tables import FileStore
from tests.offset_stores import free
from tests.unit.restart.test_restart_operation import ASKED
from tests.unit.restart.test_restart_operation import plan as restart_plan

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}
T = TypeVar("T")


@pytest.fixture(autouse=True)
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    return Journal()


class Files:
    """A store of positions, and a mirror of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def with_stores(self, do: Callable[[Stores], Awaitable[T]]) -> T:
        async def run() -> T:
            one, two = (FileStore(kind="file", path=str(self._folder / n)) for n in ("a", "b"))
            async with open_store(one) as main, open_store(two) as mirror:
                return await do(Stores(main, mirror))

        return asyncio.run(run())

    def kept(self, partition: int, offset: int) -> Any:
        async def made(stores: Stores) -> Any:
            assert stores.main is not None
            at = StoredOffset(topic="t", partition=partition, offset=offset)
            return stores.main.kept(StoredPartition(input=at))

        return self.with_stores(made)

    def write(self, which: str, *moves: tuple[int, int | None, int | None]) -> None:
        writes = [self.move(*move) for move in moves]

        async def written(stores: Stores) -> None:
            await _store(stores, which).write(writes, free)

        self.with_stores(written)

    def move(self, partition: int, before: int | None, after: int | None) -> Write:
        values = [None if o is None else self.kept(partition, o) for o in (before, after)]
        return Write("t", partition, *values)

    def offsets(self, which: str = STORE) -> dict[int, int]:
        async def read(stores: Stores) -> dict[int, int]:
            entries = (await _store(stores, which).read()).entries
            return {e.position.input.partition: e.position.input.offset for e in entries}

        return self.with_stores(read)


def _store(stores: Stores, which: str) -> OffsetStore:
    store = stores.mirror if which == MIRROR else stores.main
    assert store is not None
    return store


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def step(which: str, *writes: Write, action: str = "write", dissolve: bool = False) -> Step:
    return Step(
        action=action,
        target="store",
        parameters=parameters(which, writes, dissolve=dissolve),
        does="moves",
        stands_on=(),
    )


def plan(*steps: Step, kind: str = KIND, **details: Any) -> Plan:
    existed = {"existed": {STORE: True, MIRROR: True}}
    return restart_plan(*steps, kind=kind, **existed | details)


def operation(stores: Stores, made: Plan) -> Restarting:
    cluster = Cluster(client_settings(NOBODY), Deadline(5))
    return Restarting(made, asked_again(ASKED), cluster, stores)


def performed(files: Files, made: Plan, number: int = 0) -> object:
    async def do(stores: Stores) -> object:
        return await operation(stores, made).perform(made.steps[number], free)

    return files.with_stores(do)


def verified(files: Files, made: Plan) -> Effect:
    async def do(stores: Stores) -> Effect:
        return await operation(stores, made).verify(made.steps[0])

    return files.with_stores(do)


@pytest.mark.parametrize("which", [STORE, MIRROR])
def test_a_step_writes_what_is_not_written_yet_to_its_own_store(files: Files, which: str) -> None:
    files.write(STORE, (0, None, 3), (1, None, 7))
    files.write(MIRROR, (0, None, 3), (1, None, 7))
    made = plan(step(which, files.move(0, 3, 7), files.move(1, 3, 7)), kind=UNDO)
    assert performed(files, made) == {"written": 1}
    assert files.offsets(which) == {0: 7, 1: 7}
    assert files.offsets(MIRROR if which == STORE else STORE) == {0: 3, 1: 7}
    effect = verified(files, made)
    assert effect.done is True
    assert effect.saw == {"entries": {"t:0": files.kept(0, 7), "t:1": files.kept(1, 7)}}
    assert performed(files, made) == {"written": 0}


def test_a_step_that_keeps_writes_nothing(files: Files) -> None:
    files.write(STORE, (0, None, 3))
    kept = step(STORE, files.move(0, 3, 7), action="keep")
    assert performed(files, plan(kept)) is None
    assert files.offsets() == {0: 3}
    assert verified(files, plan(kept, target={"t:0": files.kept(0, 3)})).done is True
    other = verified(files, plan(kept, target={"t:0": files.kept(0, 4)}))
    assert (other.done, other.untouched) == (False, True)


@pytest.mark.parametrize(
    ("now", "done", "untouched", "detail"),
    [
        ({0: 3, 1: 3}, False, True, "2 of 2 positions not written: t:0, t:1"),
        ({0: 7, 1: 3}, False, False, "1 of 2 positions not written: t:1"),
        ({0: 9, 1: 3}, False, False, "the store holds something else"),
        ({0: 7, 1: 7}, True, False, "new offsets written and read back"),
    ],
)
def test_what_is_read_back(
    files: Files, now: dict[int, int], detail: str, *, done: bool, untouched: bool
) -> None:
    files.write(STORE, *((p, None, offset) for p, offset in now.items()))
    effect = verified(files, plan(step(STORE, files.move(0, 3, 7), files.move(1, 3, 7))))
    assert (effect.done, effect.untouched) == (done, untouched)
    assert detail in effect.detail


def entry_of(journal: Journal, made: Plan, *events: str, undoes: str | None = None) -> JournalEntry:
    writer = journal.begin(made, ("eoctl",), undoes)
    for event in events:
        writer.append(event, step=1)  # type: ignore[arg-type]
    if events and events[-1] in ("verified", "undone", "failed"):
        writer.finished()
    writer.close()
    return journal.get(writer.entry)


DONE = ("step-started", "verified")


def undone(files: Files, entry: JournalEntry) -> Plan:
    async def do(stores: Stores) -> Plan:
        return await _undo(entry, Context("here", NOBODY, ()), stores)

    return files.with_stores(do)


def test_an_undo_puts_back_offsets_and_absence(files: Files, journal: Journal) -> None:
    files.write(STORE, (0, None, 7), (1, None, 7), (2, None, 5))
    mine = step(STORE, files.move(0, 3, 7), files.move(1, None, 7))
    target = {"t:0": files.kept(0, 7), "t:1": files.kept(1, 7), "t:2": files.kept(2, 5)}
    back = undone(files, entry_of(journal, plan(mine, target=target), *DONE))
    [put] = back.steps
    assert writes_of(put) == (files.move(0, 7, 3), files.move(1, 7, None))
    assert (back.kind, back.cluster_id, back.scope) == (UNDO, "c", "g")
    assert put.parameters["dissolve"] is False
    assert "2 positions" in back.summary
    performed(files, back)
    assert files.offsets() == {0: 3, 2: 5}


@pytest.mark.parametrize("existed", [True, False])
def test_a_store_that_did_not_exist_is_dissolved(
    files: Files, journal: Journal, *, existed: bool
) -> None:
    files.write(STORE, (0, None, 7))
    made = plan(step(STORE, files.move(0, None, 7)), existed={STORE: existed, MIRROR: existed})
    [put] = undone(files, entry_of(journal, made, *DONE)).steps
    assert put.parameters["dissolve"] is not existed


@pytest.mark.parametrize(("finished", "now"), [(True, 3), (True, 9), (False, 9)])
def test_what_moved_on_is_not_put_back(
    files: Files, journal: Journal, now: int, *, finished: bool
) -> None:
    files.write(STORE, (0, None, 7), (1, None, now))
    made = plan(step(STORE, files.move(0, 3, 7), files.move(1, 3, 7)))
    entry = entry_of(journal, made, *(DONE if finished else DONE[:1]))
    with pytest.raises(RefusedError, match="no longer holds what") as refused:
        undone(files, entry)
    assert refused.value.where == entry.id
    assert "t:1" in refused.value.what


def test_of_an_unfinished_entry_only_what_it_wrote_is_put_back(
    files: Files, journal: Journal
) -> None:
    files.write(STORE, (0, None, 7), (1, None, 3))
    made = plan(step(STORE, files.move(0, 3, 7), files.move(1, 3, 7)))
    back = undone(files, entry_of(journal, made, "step-started"))
    assert writes_of(back.steps[0]) == (files.move(0, 7, 3),)


def test_a_partition_that_was_to_stay_shows_that_the_application_ran(
    files: Files, journal: Journal
) -> None:
    files.write(STORE, (0, None, 7), (1, None, 6))
    target = {"t:0": files.kept(0, 7), "t:1": files.kept(1, 5)}
    made = plan(step(STORE, files.move(0, 3, 7)), target=target)
    with pytest.raises(RefusedError, match=r"was 5 .* is 6 now"):
        undone(files, entry_of(journal, made, *DONE))


def test_which_entry_the_same_command_goes_on_with(files: Files, journal: Journal) -> None:
    made = plan(step(STORE, files.move(0, 3, 7)), target={"t:0": files.kept(0, 7)})
    later = plan(step(STORE, files.move(0, 4, 7)), target={"t:0": files.kept(0, 7)})
    other = plan(step(STORE, files.move(0, 3, 8)), target={"t:0": files.kept(0, 8)})
    assert going_on_with(made) is None
    begun = entry_of(journal, made, "step-started")
    assert going_on_with(made) is None  # it is its own: resumed as ever
    found = going_on_with(later)
    assert found is not None
    assert found.id == begun.id
    assert going_on_with(other) is None
    assert journal.get(begun.id).state == "unfinished"


def test_an_entry_that_sent_nothing_makes_room(files: Files, journal: Journal) -> None:
    made = plan(step(STORE, files.move(0, 3, 7)))
    entry = entry_of(journal, made)
    assert going_on_with(plan(step(STORE, files.move(0, 3, 8)))) is None
    assert applying.is_abandoned(entry)
    assert not applying.is_abandoned(entry_of(journal, made, *DONE))


def test_what_became_of_a_plan(files: Files, journal: Journal) -> None:
    made = plan(step(STORE, files.move(0, 3, 7)))
    assert (became(made).applied, became(made).undone) == (None, None)
    with pytest.raises(RefusedError, match="was not applied from here"):
        applied(made)
    entry_of(journal, made, "failed")
    entry = entry_of(journal, made, *DONE)
    assert applied(made).id == entry.id
    assert became(made).undone is None
    first = entry_of(journal, plan(kind=UNDO), "failed", undoes=entry.id)
    back = entry_of(journal, plan(kind=UNDO), *DONE[:1], undoes=entry.id)
    found = became(made).undone
    assert found is not None
    assert found.id == back.id != first.id
    begun = applying.begun_undo(entry)
    assert begun is not None
    assert begun.id == back.id
    entry_of(journal, plan(kind=UNDO), *DONE[:1])
    assert applying.begun_undo(back) is None
