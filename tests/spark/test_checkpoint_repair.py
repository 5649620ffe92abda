"""Checkpoints of a real query, damaged, mended beside, and given to Spark again.

What the query has to send, and the sums that it has to end with, are summed here.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.operations.restart.spark_checkpoint_copy import MendRequest, checkpoint
from recovery.answers import Answer
from recovery.errors import Exit, RefusedError
from recovery.restart.verify_rows import CheckpointFileRow
from tests.docs.pages import follows
from tests.kafka.command import eoctl
from tests.kafka.reading import Reading
from tests.share import only_here
from tests.spark.test_checkpoint_state import PROVIDERS, everything, give, provider, source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAST = 3  # of the batches that were run before the damage
Damage = Callable[[Path], None]
Sent = list[tuple[int, Counter[str]]]


@dataclass
class World:
    """A query with batches 0 to 3, and what is to come. base: all are committed. flight: batch 4
    has been sent, and was killed before its commit. after: the sums after each batch."""

    spark: "SparkSession"
    provider: str
    folder: Path
    after: list[Counter[str]] = field(default_factory=list)
    sent: Sent = field(default_factory=list)
    killed_in: int | None = None
    events: Path = Path()

    def __post_init__(self) -> None:
        for number in range(LAST + 1):
            self.give(number)
        progress = self.run(self.folder / "base")
        self.events = self.folder / "events"
        self.events.write_text("\n".join(progress))
        self.give(LAST + 1)
        shutil.copytree(self.folder / "base", self.folder / "flight")
        self.killed_in = LAST + 1
        with pytest.raises(Exception, match="killed"):
            self.run(self.folder / "flight")
        self.killed_in = None

    def give(self, number: int) -> None:
        before = self.after[-1] if self.after else Counter()
        self.after.append(before + give(self.folder / "in", number))

    def run(self, checkpoint: Path) -> list[str]:
        """Run the query to the end of its input; its progress events."""
        self.sent = []
        frame = source(self.spark, self.folder / "in").groupBy("k").sum("v")
        with provider(self.spark, self.provider):
            writer = frame.writeStream.outputMode("update").foreachBatch(self._send)
            writer = writer.option("checkpointLocation", str(checkpoint))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        return [json.dumps(json.loads(p.json)) for p in query.recentProgress]

    def _send(self, rows: "DataFrame", batch: int) -> None:
        self.sent.append((batch, Counter({r[0]: r[1] for r in rows.collect()})))
        if batch == self.killed_in:
            raise RuntimeError("killed")


@pytest.fixture(scope="module")
def world(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(spark, "hdfs", tmp_path_factory.mktemp("query"))


@pytest.fixture(scope="module", params=[*PROVIDERS, "rocksdb-changelog"])
def worlds(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> World:
    return World(spark, request.param, tmp_path_factory.mktemp("query"))


def without(*names: str) -> Damage:
    def damage(folder: Path) -> None:
        for name in names:
            for path in list(folder.glob(name)):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    return damage


def cut(name: str, size: int, *, sums: bool = False) -> Damage:
    """Keep the first bytes of a file; sums: and its checksums of all of them."""

    def damage(folder: Path) -> None:
        for path in folder.glob(name):
            path.write_bytes(path.read_bytes()[:size])
            if not sums:
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    return damage


def changed(name: str) -> Damage:
    """Change a letter; the checksums stay."""

    def damage(folder: Path) -> None:
        for path in folder.glob(name):
            data = path.read_bytes()
            path.write_bytes(bytes([data[0] ^ 1]) + data[1:])

    return damage


@dataclass(frozen=True)
class Case:
    """way: None where no copy is safe. sends: the batches that the query sends from the copy."""

    of: str
    damage: Damage
    blocking: tuple[str, ...]
    way: str | None
    sends: tuple[int, ...] = ()
    progress: bool = False
    rewind: bool = False


STATE = ("state/0/0", "state/0/1")
CASES = {
    "before the last": Case("base", without("offsets/2"), ("offsets/2",), "next", (4,)),
    "the last, committed": Case("base", without("offsets/3"), ("offsets/3",), None),
    "the last, with its event": Case(
        "base", cut("offsets/3", 0), ("offsets/3",), "next", (4,), progress=True
    ),
    "the last two, with events": Case(
        "base", without("offsets/3", "offsets/2"), ("offsets/2", "offsets/3"), None, progress=True
    ),
    "an empty commit": Case("base", cut("commits/3", 0), ("commits/3",), "again", (3, 4)),
    "a cut commit": Case("base", cut("commits/3", 3), ("commits/3",), "again", (3, 4)),
    "another letter": Case("base", changed("commits/3"), ("commits/3",), "again", (3, 4)),
    "no state": Case("base", without("state/0/*/4.*"), STATE, "again", (3, 4)),
    "half a state": Case("base", cut("state/0/1/4.*", 20), STATE[1:], "again", (3, 4)),
    "no partition": Case("base", without("state/0/1"), STATE[1:], None, rewind=True),
    "neither offsets nor commit": Case(
        "base", without("offsets/3", "commits/3"), ("offsets/3",), "next", (3,), rewind=True
    ),
    "in flight, an empty commit": Case(
        "flight", cut("commits/3", 0), ("commits/3",), "again", (4,)
    ),
    "in flight, its beginning": Case("flight", without("offsets/3"), ("offsets/3",), None),
    "in flight, with the event": Case(
        "flight", without("offsets/3"), ("offsets/3",), "again", (4,), progress=True
    ),
    "in flight, half of it": Case("flight", cut("offsets/4", 300), ("offsets/4",), None),
    "in flight, set back": Case(
        "flight", cut("offsets/4", 300), ("offsets/4",), "next", (4,), rewind=True
    ),
    "no metadata": Case("base", without("metadata"), ("metadata",), None, rewind=True),
    "all offsets": Case("base", without("offsets/*"), ("offsets/3", "offsets/2"), None),
}
HERE = ("before the last", "the last, with its event", "no state")


def mended(world: World, case: Case, folder: Path) -> tuple[Answer, Path]:
    """Damage a copy of the checkpoint, mend another one of it."""
    damaged, copy = folder / "damaged", folder / "copy"
    shutil.copytree(world.folder / case.of, damaged)
    case.damage(damaged)
    before = everything(damaged)
    progress = world.events if case.progress else None
    answer = checkpoint(MendRequest(str(damaged), None, progress, case.rewind))
    assert answer.exit_status == Exit.FINDING
    rows = [r for r in answer.rows if isinstance(r, CheckpointFileRow)]
    assert {r.file for r in rows if r.blocks} >= set(case.blocking)
    assert answer.extra["way"] == case.way
    request = MendRequest(str(damaged), copy, progress, case.rewind, execute=True)
    if case.way is None:
        with pytest.raises(RefusedError):
            checkpoint(request)
        assert not copy.exists()
    else:
        answer = checkpoint(request)
        assert answer.exit_status == Exit.OK
    assert everything(damaged) == before
    return answer, copy


def goes_on(world: World, case: Case, copy: Path) -> None:
    """Run the query from the mended copy: it sends what it should, and its sums are right.

    A batch that is planned anew has all that has come since.
    """
    world.run(copy)
    assert [batch for batch, _ in world.sent] == list(case.sends)
    expected = [world.after[batch] for batch in case.sends[:-1]] + [world.after[-1]]
    assert [rows for _, rows in world.sent] == expected


@pytest.mark.parametrize("name", only_here(HERE, HERE[0]))
def test_goes_on_from_a_mended_copy(world: World, tmp_path: Path, name: str) -> None:
    answer, copy = mended(world, CASES[name], tmp_path)
    note = json.loads((copy / "eoctl-repair.json").read_text())
    assert note["meaning"] == answer.extra["meaning"]
    goes_on(world, CASES[name], copy)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_each_damage(worlds: World, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    _, copy = mended(worlds, case, tmp_path)
    if case.way is not None:
        goes_on(worlds, case, copy)


def test_what_is_refused_says_what_settles_it(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    for name, words in (
        ("the last, committed", "where batch 3 ends is not written anywhere else; --rewind goes"),
        ("no partition", "neither version 3 nor version 4 of the state is complete"),
        ("in flight, its beginning", "where batch 4 begins is not written anywhere else"),
        ("no metadata", "the query's id is not known"),
    ):
        shutil.copytree(world.folder / CASES[name].of, folder)
        CASES[name].damage(folder)
        words_ = ("restart", "checkpoint", str(folder), "--copy", str(tmp_path / "x"))
        ran = eoctl(*words_, "--execute")
        assert ran.status == Exit.REFUSED
        assert words in ran.text
        shown = eoctl("restart", "checkpoint", str(folder), "-o", "json")
        assert shown.status == Exit.FINDING
        settles = {r["file"]: r["settles"] for r in shown.json["rows"]}
        if name == "the last, committed":
            assert "progress event of batch 3" in settles["offsets/3"]
        shutil.rmtree(folder)


@follows("docs/restart.md", "A damaged Spark checkpoint")
def test_the_page(it: Reading, world: World, tmp_path: Path) -> None:
    """Each of its commands on the damage that it is for; what it makes has no finding."""
    it.names["driver.log"] = str(world.events)

    def damaged(name: str) -> Path:
        number = len(it.left)
        folder, copy = tmp_path / f"damaged-{number}", tmp_path / f"mended-{number}"
        shutil.copytree(world.folder / CASES[name].of, folder)
        CASES[name].damage(folder)
        it.names |= {"/data/checkpoint": str(folder), "/data/repaired": str(copy)}
        return copy

    damaged("before the last")
    it.run("restart checkpoint", 1)
    for name in ("before the last", "the last, with its event", "neither offsets nor commit"):
        mended = damaged(name)
        it.asked("restart checkpoint")
        assert eoctl("restart", "checkpoint", str(mended)).status == Exit.OK


def test_asks_before_it_mends(world: World, tmp_path: Path) -> None:
    folder, copy = tmp_path / "damaged", tmp_path / "copy"
    shutil.copytree(world.folder / "base", folder)
    CASES["before the last"].damage(folder)
    words = ("restart", "checkpoint", str(folder), "--copy", str(copy))
    ran = eoctl(*words)
    assert ran.status == Exit.FINDING
    assert "from a repaired copy (--copy NEW --execute) the query goes on after batch 3" in ran.text
    ran = eoctl(*words, "--execute")
    assert (ran.status, copy.exists()) == (Exit.REFUSED, False)
    ran = eoctl(*words, "--execute", "--yes")
    assert ran.status == Exit.OK, ran.stderr
    assert eoctl("restart", "checkpoint", str(copy)).status == Exit.OK
    assert eoctl(*words, "--execute", "--yes").status == Exit.REFUSED


def test_a_whole_one_has_no_finding(world: World, tmp_path: Path) -> None:
    for name, in_flight in (("base", False), ("flight", True)):
        ran = eoctl("restart", "checkpoint", str(world.folder / name), "-o", "json")
        assert (ran.status, ran.json["rows"]) == (Exit.OK, [])
        assert (ran.json["whole"], ran.json["in_flight"]) == (True, in_flight)
    words = ("restart", "checkpoint", str(world.folder / "base"), "--execute", "--copy")
    assert eoctl(*words, str(tmp_path / "copy")).status == Exit.REFUSED
    assert not (tmp_path / "copy").exists()


@pytest.mark.long
def test_what_spark_itself_does(world: World, tmp_path: Path) -> None:
    """What the findings say of Spark: without offsets/3 it sends batch 2 again before it fails."""

    def started(name: str, damage: Damage) -> tuple[list[int], bool]:
        copy = Path(shutil.copytree(world.folder / "base", tmp_path / name))
        damage(copy)
        try:
            world.run(copy)
        except Exception:
            return [batch for batch, _ in world.sent], False
        return [batch for batch, _ in world.sent], True

    expected: Mapping[str, tuple[Damage, list[int], bool]] = {
        "last": (without("offsets/3"), [2], False),
        "before": (without("offsets/2"), [], False),
        "middle": (without("offsets/1"), [4], True),
        "middle-empty": (cut("offsets/1", 0), [4], True),
        "commit": (cut("commits/3", 0), [], False),
        "cut-commit": (cut("commits/3", 3), [4], True),
        "both": (without("offsets/3", "commits/3"), [3], True),
        "metadata": (without("metadata"), [], False),
    }
    for name, (damage, batches, ends) in expected.items():
        assert started(name, damage) == (batches, ends), name
